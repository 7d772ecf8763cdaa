"""What NVRTC is, remembered between processes, so that a kernel from disk needs no NVRTC.

Only a loaded NVRTC tells its full build. A process believes what an earlier one was told only where
it would load the same file: where everything that steers the search for the library is the same,
and the file that the search ended at has not changed. Where that can't be told (it takes Linux's
/proc), nothing is believed. A belief only finds kernels; before one is compiled, NVRTC is asked.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import site
import struct
import sys
from collections.abc import Iterator
from typing import BinaryIO

from kronop.compiler.cache import Cache
from kronop.compiler.keys import digest
from kronop.compiler.rows import Memo

_VARIABLES = ("CUDA_PATH", "CUDA_HOME", "CONDA_PREFIX")
_LOADER_VARIABLES = ("LD_LIBRARY_PATH", "LD_PRELOAD")
_LOADER_CACHE = "/etc/ld.so.cache"
_PACKAGES = ("cuda", "nvidia")

_ELF64_LITTLE_ENDIAN = b"\x7fELF\x02\x01"
_ELF_NOTE = 4


def recall(cache: Cache) -> str | None:
    """The identity of the NVRTC that this process has or would load, or None if nobody knows."""
    here = place()
    memo = cache.recall(here) if here is not None else None
    if memo is None or stamp(memo.library) != memo.stamp:
        return None
    return memo.identity


def remember(cache: Cache, here: str | None, identity: str) -> None:
    """Keep the `identity` of the NVRTC that is loaded now; `here` was `place()` before it was."""
    library = _library_in_use()
    found = stamp(library) if library is not None else None
    # Looked up again after the stamp: a file that is exchanged in between is not the loaded one.
    if here is not None and library is not None and found and _is_mapped(library):
        cache.remember(Memo(place=here, library=library, stamp=found, identity=identity))


def place() -> str | None:
    """A digest of everything that decides which NVRTC this process uses; None where it can't tell.

    That is, first of all, the NVRTC that some other library has already loaded into it.
    """
    try:
        mapped, started_with = tuple(_mapped()), _first_environment()
    except OSError:
        return None
    now = tuple(os.environ.get(name, "") for name in (*_VARIABLES, *_LOADER_VARIABLES))
    # The loader read its own once, when the process started.
    then = tuple(started_with.get(name, "") for name in _LOADER_VARIABLES)
    searched = tuple((folder, _changed(folder)) for folder in _folders(then[0]))
    return digest("NVRTC", mapped, sys.version, sys.prefix, now, then, searched, _packages())


def stamp(library: str) -> str | None:
    """A digest of the size, time and build of the file `library`, or None where there is none."""
    try:
        with open(library, "rb") as file:
            found = os.fstat(file.fileno())
            return digest(found.st_size, found.st_mtime_ns, tuple(_notes(file)))
    except (OSError, struct.error):
        return None


def _notes(file: BinaryIO) -> Iterator[bytes]:
    """The notes of an ELF file, one of which is its build-id (System V ABI, chapter 5)."""
    header = file.read(64)
    if not header.startswith(_ELF64_LITTLE_ENDIAN):
        return
    (table,) = struct.unpack_from("<Q", header, 32)
    size, count = struct.unpack_from("<HH", header, 54)
    file.seek(table)
    segments = file.read(size * count)
    for start in range(0, size * count, size):
        kind, offset, length = struct.unpack_from("<I4xQ16xQ", segments, start)
        if kind == _ELF_NOTE:
            file.seek(offset)
            yield file.read(length)


def _library_in_use() -> str | None:
    """Path of the loaded NVRTC as the search found it.

    Links are not resolved: a link that is turned to another version must be noticed.
    """
    try:
        finder = importlib.import_module("cuda.pathfinder")
        path = finder.load_nvidia_dynamic_lib("nvrtc").abs_path
    except (ImportError, AttributeError, OSError, RuntimeError):
        return None
    return str(path) if path and os.path.isabs(path) else None


def _is_mapped(library: str) -> bool:
    with contextlib.suppress(OSError):
        return os.fsencode(os.path.realpath(library)) in _mapped()
    return False


def _mapped() -> list[bytes]:
    """Files of NVRTC that are mapped into this process; one that was replaced says "(deleted)"."""
    lines = [line for line in _read("/proc/self/maps", b"\n") if b"/libnvrtc" in line]
    return sorted({line.split(maxsplit=5)[5] for line in lines})


def _first_environment() -> dict[str, str]:
    """The environment that this process was started with."""
    items = (os.fsdecode(item).partition("=") for item in _read("/proc/self/environ", b"\0"))
    return {name: value for name, _, value in items}


def _folders(library_path: str) -> list[str]:
    """Where the loader and conda look, and what tells of changes in the folders of the system."""
    prefixes = filter(None, (sys.prefix, os.environ.get("CONDA_PREFIX", "")))
    folders = [os.path.join(prefix, name) for prefix in prefixes for name in ("lib", "conda-meta")]
    if library_path:
        # An empty entry stands for the current folder.
        folders += map(os.path.abspath, library_path.replace(";", ":").split(":"))
    return [_LOADER_CACHE, *folders]


def _packages() -> tuple[str, ...]:
    """NVIDIA's packages with their versions, as the names of their folders tell them.

    importlib.metadata would say the same; importing it takes 10 ms (measured).
    """
    folders = [*sys.path, *site.getsitepackages()]
    if site.ENABLE_USER_SITE:
        folders.append(site.getusersitepackages())
    found = []
    for folder in dict.fromkeys(map(os.path.abspath, folders)):
        with contextlib.suppress(OSError):
            names = sorted(os.listdir(folder))
            found += [
                os.path.join(folder, name) for name in names if name.lower().startswith(_PACKAGES)
            ]
    return tuple(found)


def _changed(path: str) -> int:
    """When `path` was last changed, in nanoseconds; a folder changes with the names in it."""
    try:
        return os.stat(path).st_mtime_ns
    except OSError:
        return 0


def _read(path: str, separator: bytes) -> list[bytes]:
    with open(path, "rb") as file:
        return file.read().split(separator)
