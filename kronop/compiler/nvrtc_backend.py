"""CUDA C++ to cubin through NVRTC, in this process; needs no driver and no GPU."""

from __future__ import annotations

import functools
import importlib
import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from kronop import knobs
from kronop.artifacts import BinaryFormat, Language, Source
from kronop.compiler.backend import Product, RefusalError
from kronop.compiler.ptxas import resources_of
from kronop.errors import CompileError
from kronop.target import Target

# NVRTC's own disk cache would only repeat ours.
# -default-device because NVRTC 13.0 takes a lambda inside a device function for a host function.
_OPTIONS = ("--std=c++20", "-default-device", "--no-cache", "--ptxas-options=-v")
# NVRTC looks for quoted headers beside the source too, and a bare name stands for the current
# folder, where anyone may have planted one. --no-source-include would hide siblings of headers too.
_NOWHERE = "/kronop/"


class NvrtcCompiler:
    """The default CUDA compiler."""

    format = BinaryFormat.CUBIN

    def identity(self) -> str:
        return _identity()

    def flags(self, target: Target) -> tuple[str, ...]:
        line_info = ("-lineinfo",) if knobs.current().line_info else ()
        return (*target.flags, *_OPTIONS, *line_info)

    def compile(self, source: Source, flags: tuple[str, ...]) -> Product:
        image, log = _compile(source, flags, "CUBIN")
        return Product(image=image, resources=resources_of(source.entry, log), log=log)

    def assembly(self, source: Source, flags: tuple[str, ...]) -> str:
        return _compile(source, flags, "PTX")[0].decode(errors="replace").rstrip("\0")


@functools.cache
def _identity() -> str:
    """NVRTC's full build, which only a compile tells: `nvrtcVersion` stops at the minor version."""
    empty = Source(entry="empty", text="", language=Language.CUDA, include_directories=())
    ptx = _compile(empty, ("-arch=compute_80", "--no-cache"), "PTX")[0].decode(errors="replace")
    header = [line.strip("/ ") for line in ptx.splitlines() if line.startswith("// C")]
    if not header:
        raise CompileError("NVRTC does not say its version; pip install --upgrade 'kronop[cuda13]'")
    return "NVRTC " + ", ".join(header)


@functools.cache
def _nvrtc() -> Any:
    """The bindings, once NVRTC itself has answered."""
    try:
        module = importlib.import_module("cuda.bindings.nvrtc")
        status, major, minor = module.nvrtcVersion()
    except (ImportError, OSError, RuntimeError) as error:
        raise CompileError(
            f"NVRTC is not installed ({type(error).__name__}); pip install 'kronop[cuda13]'"
        ) from error
    if int(status) != 0 or major < 13:
        raise CompileError(
            f"NVRTC: expected 13.0 or later, got {major}.{minor}; pip install 'kronop[cuda13]'"
        )
    return module


def _compile(source: Source, flags: tuple[str, ...], result: str) -> tuple[bytes, str]:
    """(the CUBIN or PTX of `source`, the log)."""
    nvrtc = _nvrtc()
    options = [flag.encode() for flag in flags]
    options += [f"-I{os.path.abspath(folder)}".encode() for folder in source.include_directories]
    with _program(nvrtc, source) as program:
        (status,) = nvrtc.nvrtcCompileProgram(program, len(options), options)
        log = _read(nvrtc, program, "ProgramLog").decode(errors="replace").strip("\0 \n")
        if int(status) != 0:
            raise RefusalError(log or status.name)
        return _read(nvrtc, program, result), log


@contextmanager
def _program(nvrtc: Any, source: Source) -> Iterator[Any]:
    name = (_NOWHERE + source.file_name).encode()
    status, program = nvrtc.nvrtcCreateProgram(source.text.encode(), name, 0, [], [])
    _check(status)
    try:
        yield program
    finally:
        nvrtc.nvrtcDestroyProgram(program)


def _read(nvrtc: Any, program: Any, what: str) -> bytes:
    status, size = getattr(nvrtc, f"nvrtcGet{what}Size")(program)
    _check(status)
    # The bindings write into these bytes. Zeros, because Python shares all objects of one byte.
    buffer = bytes(bytearray(size))
    (status,) = getattr(nvrtc, f"nvrtcGet{what}")(program, buffer)
    _check(status)
    return buffer


def _check(status: Any) -> None:
    if int(status) != 0:
        raise RefusalError(str(status.name))
