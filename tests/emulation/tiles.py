"""Kernels for AMX tiles, built for emulated ones; memory that ends where nothing may be touched."""

from __future__ import annotations

import ctypes
import mmap
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from kronop.compiler.host_kernel import HostKernel
from kronop.emit.plan import Plan
from kronop.emit.render import render
from kronop.target import detect_x86_arch
from tests.emulation import batches

NATIVE = pytest.mark.skipif(detect_x86_arch() != "amx", reason="no AMX here")


_HERE = Path(__file__).parent
_FLAGS = ("-O0", "-Wno-psabi", "-DKRONOP_EMULATED_TILES", f"-I{_HERE}")
_CHECKS = ("-Werror=overflow", "-Werror=narrowing")


class Gathered(Exception):  # noqa: N818
    """Of this plan the kernel is gathered, not built; nothing can be run."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan


def build(plan: Plan, folder: Path) -> HostKernel:
    (source,) = render(plan)
    includes = (f"-I{directory}" for directory in source.include_directories)
    text = source.text.replace(source.entry, "NAME")
    unit = batches.Unit(text=text, flags=(*_FLAGS, *_CHECKS, *includes))
    if batches.note([unit]):
        raise Gathered(plan)
    function = batches.load(unit, folder)
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
