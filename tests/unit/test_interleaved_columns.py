"""The order in which CUTLASS's main loops take the columns of interleaved B: the kernel's header,
on the host."""

from __future__ import annotations

import ctypes
import subprocess
from pathlib import Path

import numpy as np
import pytest

import kronop
from tests.emulation.batches import host_compiler

_INCLUDE = Path(kronop.__file__).parent / "emit/cuda/include"
# An iterator that accesses what is `place` bytes from the start.
_PROGRAM = """
#include "kronop/cutlass_interleaved_columns.cuh"
struct Given {
  using Params = int;
  using Element = char;
  char* at;
  Given(int, char* start, long, int, long place) : at(start + place) {}
  char* get() const { return at; }
};
extern "C" long taken_from(char* start, long place) {
  return kronop::cutlass_kernels::InOrderOfSums<Given>(0, start, 0, 0, place).get() - start;
}
"""


def _place_of_column(column: int) -> int:
    """Where CUTLASS's own kernels expect a column: what its `reorder_column` does for them."""
    per_thread, per_instruction = 32 // 4, 8 // 4
    return (
        column // 32 * 32
        + column % per_thread // per_instruction * 8
        + column % 32 // per_thread * per_instruction
        + column % per_instruction
    )


@pytest.mark.skipif(host_compiler() is None, reason="no g++")
def test_each_place_is_filled_with_the_column_that_belongs_there(tmp_path: Path) -> None:
    source, library = tmp_path / "columns.cpp", tmp_path / "columns.so"
    source.write_text(_PROGRAM)
    flags = ("-std=c++17", "-shared", "-fPIC", "-DKRONOP_EMULATION", "-Wno-unknown-pragmas")
    command = [str(host_compiler()), *flags, f"-I{_INCLUDE}", str(source), "-o", str(library)]
    subprocess.run(command, check=True)
    function = ctypes.CDLL(str(library)).taken_from
    function.argtypes, function.restype = (ctypes.c_void_p, ctypes.c_long), ctypes.c_long
    columns = np.arange(96)
    places = np.array([_place_of_column(int(column)) for column in columns])
    assert sorted(places) == [*columns]
    for start in (1 << 20, (1 << 20) + 48):  # A tensor begins at any multiple of 16 bytes.
        for half in (0, 16):
            taken = [function(start, 32 * int(place) + half) for place in places]
            assert taken == [32 * int(column) + half for column in columns]
