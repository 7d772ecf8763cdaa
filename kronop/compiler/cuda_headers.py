"""Where CUDA's headers are: in Python packages, or in a toolkit."""

from __future__ import annotations

import os
import platform
import re
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path

from kronop.errors import CompileError, installing, mismatch
from kronop.late import imported

_CUDA = "cuda.h"
# What a whole set has besides, and the extra of cuda-toolkit that brings it. PyTorch's packages
# bring the rest alone, in which mma.h includes crt/mma.h.
_BESIDE = {"crt/mma.h": "crt", "cccl/cuda/std/version": "cccl"}
_PLACES = ("include", f"targets/{platform.machine()}-linux/include")
_VERSION = re.compile(r"^#define CUDA_VERSION (\d+)", re.MULTILINE)


def driver_headers() -> tuple[str, ...]:
    """The folder with cuda.h; empty if there is none, where a host's compiler may still know it."""
    return tuple(_folders())[:1]


def whole_headers() -> tuple[str, str]:
    """The folders of CUDA's headers and of CCCL's (cuda/std), of the first set that has them all:
    those of two releases may not fit each other.

    Raises:
        CompileError: there is no such set; the message names the packages that complete one.
    """
    every = list(_folders())
    for folder in every:
        if not _lacking(folder):
            return folder, os.path.join(folder, "cccl")
    found = [f"{folder} without {' and '.join(_lacking(folder))}" for folder in every]
    raise CompileError(
        mismatch(
            "headers of CUDA 13",
            expected=f"{_CUDA}, {' and '.join(_BESIDE)} in one folder",
            got=", ".join(found) or "none",
            hint=f"{_completing(every)}, or set CUDA_HOME to a toolkit",
        )
    )


def _lacking(folder: str) -> list[str]:
    return [mark for mark in _BESIDE if not os.path.isfile(os.path.join(folder, mark))]


def _completing(folders: Sequence[str]) -> str:
    """The command that completes the headers of packages or, where there are none, installs all."""
    for folder in folders:
        text = Path(folder, _CUDA).read_text(encoding="utf-8", errors="replace")
        version = _VERSION.search(text)
        if "-packages" in folder and version is not None:
            release = f"{int(version[1]) // 1000}.{int(version[1]) % 1000 // 10}"
            parts = [_BESIDE[mark] for mark in _lacking(folder)]
            names = " and ".join(f"nvidia-cuda-{part}" for part in parts)
            return f"pip install 'cuda-toolkit[{','.join(parts)}]=={release}.*' ({names})"
    return installing("cuda13")


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
