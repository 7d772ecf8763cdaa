"""CUDA C++ to cubin through NVRTC, in this process; needs no driver and no GPU."""

from __future__ import annotations

import dataclasses
import functools
import os
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import Any

from kronop import knobs
from kronop.artifacts import BinaryFormat, Language, Source
from kronop.compiler import nvrtc_memo
from kronop.compiler.backend import Product, RefusalError
from kronop.compiler.cache import Cache
from kronop.compiler.cuda_headers import whole_headers
from kronop.compiler.ptxas import resources_of
from kronop.cuda_line import LEAST, NEWEST, cuda_extra
from kronop.errors import CompileError, installing, warn
from kronop.late import imported, whole
from kronop.machine import GENERATIONS
from kronop.target import Target, is_of_ptx

# -default-device: NVRTC 13.0 treats a lambda inside a device function as a host function.
_OPTIONS = ("--std=c++20", "-default-device", "--ptxas-options=-v")
# NVRTC's own disk cache would only duplicate compiled_cache.db, and loses logs. Versions before
# this one have none, and refuse the option (found by trying 12.4 to 12.9).
_CACHES_SINCE = (12, 9)
# The folder that sources claim to be in; it does not exist. NVRTC also searches the source's folder
# for quoted headers, and for a bare file name that is the current folder, where anyone may have
# planted a header. --no-source-include would also stop headers from including their neighbours.
_NOWHERE = "/kronop/"


class NvrtcCompiler:
    """The default CUDA compiler. Its identity is remembered in the cache that `store` returns.

    Loading NVRTC and asking for its version takes 46 ms (measured), most of a warm start.
    """

    format = BinaryFormat.CUBIN

    def __init__(self, store: Callable[[], Cache]) -> None:
        self._store = store
        self._recalled: str | None = None
        self._true: str | None = None

    def identity(self, *, certain: bool = False) -> str:
        if self._true is not None:
            return self._true
        if not certain:
            self._recalled = self._recalled or nvrtc_memo.recall(self._store())
            if self._recalled is not None:
                return self._recalled
        # Taken before NVRTC is loaded: afterwards every search would find the loaded library.
        place = nvrtc_memo.place()
        self._true = _full_build()
        nvrtc_memo.remember(self._store(), place, self._true)
        return self._true

    def flags(self, target: Target) -> tuple[str, ...]:
        line_info = ("-lineinfo",) if knobs.current().line_info else ()
        return (*target.flags, *_OPTIONS, *line_info)

    def completed(self, source: Source) -> Source:
        if not source.cuda_headers:
            return source
        folders = (*source.include_directories, *whole_headers(_line(self.identity())))
        return dataclasses.replace(source, include_directories=folders)

    def compile(self, source: Source, flags: tuple[str, ...]) -> Product:
        flags = _understood(_nvrtc(), flags)
        is_ptx = any(map(is_of_ptx, flags))
        image, log = _compile(source, flags, "PTX" if is_ptx else "CUBIN")
        resources = resources_of(source.entry, log)
        return Product(image=image, resources=resources, log=log, is_ptx=is_ptx)

    def assembly(self, source: Source, flags: tuple[str, ...]) -> str:
        flags = _understood(_nvrtc(), flags)
        return _compile(source, flags, "PTX")[0].decode(errors="replace").rstrip("\0")


def _line(identity: str) -> int:
    """The line of CUDA that NVRTC is of: 12 or 13."""
    release = re.search(r"release (\d+)\.", identity)
    return int(release[1]) if release else NEWEST


def _full_build() -> str:
    """NVRTC's full version, read from compiled PTX: `nvrtcVersion` gives major and minor only."""
    empty = Source(entry="empty", text="", language=Language.CUDA, include_directories=())
    ptx = _compile(empty, ("-arch=compute_80",), "PTX")[0].decode(errors="replace")
    header = [line.strip("/ ") for line in ptx.splitlines() if line.startswith("// C")]
    if not header:
        raise CompileError(f"NVRTC does not say its version; {installing(cuda_extra())}")
    return "NVRTC " + ", ".join(header)


@functools.cache
def _nvrtc() -> ModuleType:
    """The bindings, after a first call has shown that the NVRTC library loads."""
    try:
        module = imported("cuda.bindings.nvrtc")
        status, major, minor = module.nvrtcVersion()
    except (ImportError, OSError, RuntimeError) as error:
        raise CompileError(
            f"NVRTC is not installed ({type(error).__name__}); {installing(cuda_extra())}"
        ) from error
    if int(status) != 0 or (major, minor) < LEAST:
        least = ".".join(map(str, LEAST))
        raise CompileError(
            "NVRTC",
            expected=f"{least} or later",
            got=f"{major}.{minor}",
            hint=installing(cuda_extra()),
        )
    return module


def _understood(nvrtc: ModuleType, flags: tuple[str, ...]) -> tuple[str, ...]:
    """The flags for a GPU that is newer than this release: it runs binaries for an earlier minor
    compute capability of its own major one, and PTX for any earlier one.

    Raises:
        CompileError: the GPU is older than all that this release knows.
    """
    arch, *others = flags
    found = re.fullmatch(r"-arch=(sm|compute)_(\d+)", arch)
    known = nvrtc.nvrtcGetSupportedArchs()[1] if found else []
    if not found or int(found[2]) in known:
        return flags
    asked, release = int(found[2]), ".".join(map(str, nvrtc.nvrtcVersion()[1:]))
    # Others may be those of a Jetson, whose binaries other GPUs of the same number do not run.
    targets = {name.rstrip("a") for name in GENERATIONS}
    earlier = [number for number in known if f"sm_{number}" in targets and number < asked]
    if not earlier:
        raise CompileError(
            f"NVRTC {release}",
            expected=f"one that knows {found[0][6:]}",
            got=f"sm_{min(known)} and later",
            hint=f"in a new environment: {installing('cuda12')}",
        )
    nearest = max(earlier)
    alike = found[1] == "sm" and nearest // 10 == asked // 10
    chosen = f"{'sm' if alike else 'compute'}_{nearest}"
    warn(f"NVRTC {release} does not know {found[0][6:]}, and compiles for {chosen} in its place")
    return (f"-arch={chosen}", *others)


def _compile(source: Source, flags: tuple[str, ...], result: str) -> tuple[bytes, str]:
    """(the CUBIN or PTX of `source`, the log)."""
    nvrtc = _nvrtc()
    options = _options(nvrtc, source, flags)
    # A child that is forked while NVRTC works would inherit locks of that library.
    with whole(), _program(nvrtc, source) as program:
        (status,) = nvrtc.nvrtcCompileProgram(program, len(options), options)
        log = _read(nvrtc, program, "ProgramLog").decode(errors="replace").strip("\0 \n")
        if int(status) != 0:
            raise RefusalError(log or status.name)
        return _read(nvrtc, program, result), log


def _options(nvrtc: ModuleType, source: Source, flags: tuple[str, ...]) -> list[bytes]:
    """All that NVRTC is given: `flags`, which are part of a kernel's key, and what is not."""
    uncached = ["--no-cache"] if nvrtc.nvrtcVersion()[1:] >= _CACHES_SINCE else []
    folders = [f"-I{os.path.abspath(folder)}" for folder in source.include_directories]
    return [option.encode() for option in (*flags, *uncached, *folders)]


@contextmanager
def _program(nvrtc: ModuleType, source: Source) -> Iterator[object]:
    name = (_NOWHERE + source.file_name).encode()
    status, program = nvrtc.nvrtcCreateProgram(source.text.encode(), name, 0, [], [])
    _check(status)
    try:
        yield program
    finally:
        nvrtc.nvrtcDestroyProgram(program)


def _read(nvrtc: ModuleType, program: object, what: str) -> bytes:
    status, size = getattr(nvrtc, f"nvrtcGet{what}Size")(program)
    _check(status)
    # The bindings write into this object. bytes(bytearray()) makes a new one even for size 1,
    # for which other ways may return an object that Python shares.
    buffer = bytes(bytearray(size))
    (status,) = getattr(nvrtc, f"nvrtcGet{what}")(program, buffer)
    _check(status)
    return buffer


def _check(status: Any) -> None:
    if int(status) != 0:
        raise RefusalError(str(status.name))
