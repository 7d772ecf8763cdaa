"""Kernels for AMX tiles, built for emulated ones; memory that ends where nothing may be touched."""

from __future__ import annotations

import ctypes
import hashlib
import mmap
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from kronop.compiler.host_kernel import HostKernel
from kronop.emit.plan import Plan
from kronop.emit.render import render
from kronop.target import detect_x86_arch
from tests.emulation.emulator import host_compiler

NATIVE = pytest.mark.skipif(detect_x86_arch() != "amx", reason="no AMX here")


_HERE = Path(__file__).parent
_FLAGS = (
    *(
        "-std=c++20",
        "-O1",
        "-w",
        "-Wno-psabi",
        "-mf16c",
        "-mfma",
        "-DKRONOP_EMULATED_TILES",
        f"-I{_HERE}",
    ),
    *("-Werror=overflow", "-Werror=narrowing", "-fPIC", "-shared", "-fno-gnu-unique"),
)


def build(plan: Plan, folder: Path) -> HostKernel:
    (source,) = render(plan)
    name = hashlib.sha256(source.text.encode()).hexdigest()[:16]
    code, library = folder / f"{name}.cpp", folder / f"{name}.so"
    if not library.exists():
        code.write_text(source.text)
        includes = [f"-I{directory}" for directory in source.include_directories]
        command = [str(host_compiler()), *_FLAGS, *includes, str(code), "-o", str(library)]
        subprocess.run(command, check=True)
    function = getattr(ctypes.CDLL(str(library)), source.entry)
    function.argtypes = (ctypes.c_void_p, ctypes.c_int)
    return HostKernel(source.entry, function)


def before_a_wall(array: Any) -> Any:
    """The same values where the next byte may be neither read nor written."""
    whole = -(-array.nbytes // mmap.PAGESIZE) * mmap.PAGESIZE
    memory = mmap.mmap(-1, whole + mmap.PAGESIZE)
    start = np.frombuffer(memory, np.uint8)
    wall = ctypes.c_void_p(start.ctypes.data + whole)
    assert ctypes.CDLL(None).mprotect(wall, ctypes.c_size_t(mmap.PAGESIZE), 0) == 0
    placed = start[whole - array.nbytes : whole].view(array.dtype).reshape(array.shape)
    placed[...] = array
    return placed
