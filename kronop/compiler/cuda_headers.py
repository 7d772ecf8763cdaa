"""Where CUDA's headers are: in Python packages, or in a toolkit."""

from __future__ import annotations

import os
import platform
import re
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path

from kronop.errors import CompileError, installing
from kronop.late import imported

_CUDA = "cuda.h"
# What a whole set has besides, and where, seen from the folder of cuda.h: CCCL's folder moved with
# CUDA 13. PyTorch's packages bring neither, though their mma.h includes crt/mma.h.
_CRT, _CCCL = "crt/mma.h", "cuda/std/version"
_WITHIN = {_CRT: ("",), _CCCL: ("cccl", "")}
# The extras of cuda-toolkit that bring them. Packages of CUDA 12 share no folder: each of them has
# its own below `nvidia`.
_EXTRAS = {12: {_CRT: "nvcc", _CCCL: "cccl"}, 13: {_CRT: "crt", _CCCL: "cccl"}}
_CUDA_OF_12 = ("cuda_runtime", "include")
_PLACES = ("include", f"targets/{platform.machine()}-linux/include")
_VERSION = re.compile(r"^#define CUDA_VERSION (\d+)", re.MULTILINE)


def driver_headers() -> tuple[str, ...]:
    """The folder with cuda.h; empty if there is none, where a host's compiler may still know it."""
    return tuple(_folders())[:1]


def whole_headers(line: int) -> tuple[str, ...]:
    """The folders of CUDA's headers and of CCCL's (cuda/std), of the first set of that line of CUDA
    (12 or 13, as of the compiler) that has them all: those of two releases may not fit each other.

    Raises:
        CompileError: there is no such set; the message names the packages that complete one.
    """
    found, completing = [], ""
    for folder in _folders():
        release = _release(folder)
        if release[0] != line:
            found.append(f"{folder} of CUDA {'.'.join(map(str, release))}")
            continue
        places = {mark: _place(mark, folder, release) for mark in _WITHIN}
        lacking = [mark for mark, place in places.items() if not place]
        if not lacking:
            return tuple(dict.fromkeys((folder, *places.values())))
        found.append(f"{folder} without {' and '.join(lacking)}")
        if "-packages" in folder:
            completing = completing or _completing(release, lacking)
    raise CompileError(
        f"headers of CUDA {line}",
        expected=f"{_CUDA}, {' and '.join(_WITHIN)} of one release",
        got=", ".join(found) or "none",
        hint=f"{completing or installing(f'cuda{line}')}, or set CUDA_HOME to a toolkit",
    )


def _place(mark: str, folder: str, release: tuple[int, int]) -> str:
    """The folder to include `mark` from beside the cuda.h in `folder`; empty if there is none."""
    *site, above, own = Path(folder).parts
    places = [os.path.normpath(os.path.join(folder, inside)) for inside in _WITHIN[mark]]
    if (above, own) == _CUDA_OF_12:
        part = _EXTRAS[12][mark]
        is_of_release = _is_installed(_package(12, part), Path(*site).parent, release)
        places = [str(Path(*site, f"cuda_{part}", own))] if is_of_release else []
    return next((place for place in places if os.path.isfile(os.path.join(place, mark))), "")


def _package(line: int, part: str) -> str:
    return f"nvidia-cuda-{part}{'-cu12' if line == 12 else ''}"


def _is_installed(package: str, site: Path, release: tuple[int, int]) -> bool:
    """Whether that release of a package is in the folder `site`."""
    found = imported("importlib.metadata").distributions(name=package, path=[str(site)])
    return any(item.version.split(".")[:2] == [*map(str, release)] for item in found)


def _release(folder: str) -> tuple[int, int]:
    """Of the cuda.h there."""
    text = Path(folder, _CUDA).read_text(encoding="utf-8", errors="replace")
    version = _VERSION.search(text)
    return divmod(int(version[1]) // 10, 100) if version else (0, 0)


def _completing(release: tuple[int, int], lacking: Sequence[str]) -> str:
    """The command that completes the headers of packages."""
    line, minor = release
    parts = [_EXTRAS[line][mark] for mark in lacking]
    names = " and ".join(_package(line, part) for part in parts)
    return f"pip install 'cuda-toolkit[{','.join(parts)}]=={line}.{minor}.*' ({names})"


def _folders() -> Iterator[str]:
    """Those with cuda.h. Packages come first, as for NVRTC itself, whose release they share."""
    seen: set[str] = set()
    for folder in _places():
        path = os.path.realpath(folder)
        # A relative path leads into the current folder, where anyone may have planted a header.
        is_new = os.path.isabs(folder) and path not in seen
        seen.add(path)
        if is_new and os.path.isfile(os.path.join(folder, _CUDA)):
            yield folder


def _places() -> Iterator[str]:
    yield _of_packages()
    for root in _toolkits():
        for place in _PLACES:
            yield os.path.join(root, place)


def _of_packages() -> str:
    try:
        path = imported("cuda.pathfinder").find_nvidia_header_directory("cudart")
    except (ImportError, AttributeError, RuntimeError, ValueError):
        return ""
    return str(path or "")


def _toolkits() -> Iterator[str]:
    """Folders that may be a toolkit's."""
    for name in ("CUDA_HOME", "CUDA_PATH"):
        yield os.environ.get(name, "")
    nvcc = shutil.which("nvcc")
    yield os.path.dirname(os.path.dirname(os.path.realpath(nvcc))) if nvcc else ""
    yield os.environ.get("CONDA_PREFIX", "")
    yield "/usr/local/cuda"
