"""NVRTC's identity, remembered between processes, so that cached kernels load without NVRTC.

Only a loaded NVRTC tells its full version. A process uses the identity that an earlier process
remembered only if it would load the same library: everything that steers the search for the
library is the same, and the file found then has not changed. If that can't be determined (it needs
Linux's /proc), no remembered identity is used. A remembered identity serves only to find cached
kernels; before a kernel is compiled, NVRTC itself is asked.
"""

from __future__ import annotations

import contextlib
import os
import site
import struct
import sys
from collections.abc import Iterator
from typing import BinaryIO

from kronop.compiler.cache import Cache
from kronop.compiler.keys import digest
from kronop.compiler.rows import Memo
from kronop.late import imported

_VARIABLES = ("CUDA_PATH", "CUDA_HOME", "CONDA_PREFIX")
_LOADER_VARIABLES = ("LD_LIBRARY_PATH", "LD_PRELOAD")
_LOADER_CACHE = "/etc/ld.so.cache"
_PACKAGES = ("cuda", "nvidia")

_ELF64_LITTLE_ENDIAN = b"\x7fELF\x02\x01"
_ELF_NOTE = 4


def recall(cache: Cache) -> str | None:
    """The remembered identity of the NVRTC that this process has loaded or would load, or None."""
    here = place()
    memo = cache.recall(here) if here is not None else None
    if memo is None or stamp(memo.library) != memo.stamp:
        return None
    return memo.identity


def remember(cache: Cache, here: str | None, identity: str) -> None:
    """Remembers the `identity` of the loaded NVRTC; `here` is `place()` from before the load."""
    library = _library_in_use()
    found = stamp(library) if library is not None else None
    # That the file is mapped is checked after its stamp was taken: if the file was replaced before
    # the stamp, it is not the loaded one.
    if here is not None and library is not None and found and _is_mapped(library):
        cache.remember(Memo(place=here, library=library, stamp=found, identity=identity))


def place() -> str | None:
    """A digest of everything that decides which NVRTC this process uses; None without /proc.

    This includes an NVRTC that another library has already loaded into the process.
    """
    try:
        mapped, started_with = tuple(_mapped()), _first_environment()
    except OSError:
        return None
    now = tuple(os.environ.get(name, "") for name in (*_VARIABLES, *_LOADER_VARIABLES))
    # The loader read its variables when the process started; later changes have no effect on it.
    then = tuple(started_with.get(name, "") for name in _LOADER_VARIABLES)
    searched = tuple((folder, _changed(folder)) for folder in _folders(then[0]))
    return digest("NVRTC", mapped, sys.version, sys.prefix, now, then, searched, _packages())


def stamp(library: str) -> str | None:
    """A digest of the size, time and build-id of the file `library`; None if it can't be read."""
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
    """The path of the loaded NVRTC as the search found it.

    Links are not resolved, so that a link which is later pointed at another version is noticed.
    """
    try:
        finder = imported("cuda.pathfinder")
        path = finder.load_nvidia_dynamic_lib("nvrtc").abs_path
    except (ImportError, AttributeError, OSError, RuntimeError):
        return None
    return str(path) if path and os.path.isabs(path) else None


def _is_mapped(library: str) -> bool:
    with contextlib.suppress(OSError):
        return os.fsencode(os.path.realpath(library)) in _mapped()
    return False


def _mapped() -> list[bytes]:
    """The NVRTC files mapped into this process; names of replaced files end in "(deleted)"."""
    lines = [line for line in _read("/proc/self/maps", b"\n") if b"/libnvrtc" in line]
    return sorted({line.split(maxsplit=5)[5] for line in lines})


def _first_environment() -> dict[str, str]:
    """The environment that this process was started with."""
    items = (os.fsdecode(item).partition("=") for item in _read("/proc/self/environ", b"\0"))
    return {name: value for name, _, value in items}


def _folders(library_path: str) -> list[str]:
    """The folders in which the loader and conda search, and the loader's cache file, which changes
    with the system's library folders."""
    prefixes = filter(None, (sys.prefix, os.environ.get("CONDA_PREFIX", "")))
    folders = [os.path.join(prefix, name) for prefix in prefixes for name in ("lib", "conda-meta")]
    if library_path:
        # An empty entry stands for the current folder.
        folders += map(os.path.abspath, library_path.replace(";", ":").split(":"))
    return [_LOADER_CACHE, *folders]


def _packages() -> tuple[str, ...]:
    """The folders of NVIDIA's installed packages, whose names include their versions.

    importlib.metadata would give the same; importing it takes 10 ms (measured).
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
    """When `path` was last changed, in nanoseconds; 0 if it is missing.

    The time of a folder changes whenever a name is added to it or removed.
    """
    try:
        return os.stat(path).st_mtime_ns
    except OSError:
        return 0


def _read(path: str, separator: bytes) -> list[bytes]:
    with open(path, "rb") as file:
        return file.read().split(separator)
