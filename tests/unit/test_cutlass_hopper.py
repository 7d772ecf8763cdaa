"""Kernels of CUTLASS 3.x: what is refused, and how they are launched; headers that stand in."""

from __future__ import annotations

import ctypes
import dataclasses
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import kronop
from kronop.compiler import cutlass_headers as headers
from kronop.core.operation import Operation
from kronop.descriptions.strided import Strided
from kronop.emit.cuda import cutlass as adapters
from kronop.families.gemm.description import GemmProblem
from kronop.families.gemm.size import GemmSize
from kronop.target import Target
from kronop.tensor_map import TensorMap
from tests.cutlass_cases import COLUMN, EVERY, HOPPER, ROW, Case
from tests.emulation.batches import host_compiler

SM_80, SM_90 = Target.parse("sm_80"), Target.parse("sm_90a")
HALF, SHARED = HOPPER["hopper f16"], HOPPER["hopper bf16"]
Kernel, Results = kronop.KernelScheduleType, kronop.EpilogueScheduleType


@pytest.fixture(autouse=True)
def _with_headers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(headers, "missing", lambda: "")


REFUSED: dict[str, tuple[Case, str]] = {
    "depth": (HALF.but(tile=(128, 128, 32)), "tile K of 32 float16 is not 128 bytes"),
    "rows": (SHARED.but(tile=(64, 128, 64)), "tile M of 64 is no multiple of 128"),
    "columns": (HALF.but(tile=(128, 40, 64)), "tile N of 40 is no multiple of 16"),
    "columns of bytes": (
        HOPPER["hopper s8"].but(tile=(128, 48, 128)),
        "tile N of 48 is no multiple of 32",
    ),
    "sums": (HALF.but(tile=(128, 256, 64), stages=2), "256 sums of a tile; 128 fit"),
    "odd columns": (SHARED.but(tile=(128, 72, 64)), "tile N of 72 is no multiple of 16"),
    "stages": (HALF.but(stages=1), "2 stages or more"),
    "shared": (HALF.but(stages=8), "8 stages of 32768, in all 263168 bytes"),
    "cluster": (HALF.but(cluster=(1, 2, 1)), r"a cluster of \(1, 2, 1\)"),
    "warps": (HALF.but(warps=(2, 2, 1)), r"\(2, 2, 1\) warps; ping-pong has \(4, 1, 1\)"),
    "A": (HALF.but(layouts=(COLUMN, COLUMN, ROW)), "A is column-major; maps"),
    "B": (HALF.but(layouts=(ROW, ROW, ROW)), "B is row-major; maps"),
    "alignment": (HALF.but(alignments=(8, 4, 8)), "B promises 4 elements"),
    "math": (
        HOPPER["hopper tf32"].but(operation=kronop.MathOperation.multiply_add_fast_f16),
        "no products by",
    ),
    "float16 sums": (
        HALF.but(sums=kronop.float16, output=kronop.float32),
        "float16 become float16",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_tiles_that_are_refused(name: str) -> None:
    case, reason = REFUSED[name]
    status = case.design().status(SM_90)
    assert not status
    with pytest.raises(AssertionError, match=reason):
        raise AssertionError(status.reason)


def test_8_bit_floats_have_multiples_of_16_columns() -> None:
    case = EVERY["hopper e4m3"]
    for columns in (48, 80):
        assert case.but(tile=(128, columns, 128)).design().status(SM_90)
    assert not case.but(tile=(128, 72, 128)).design().status(SM_90)


def test_every_case_is_a_kernel_of_sm_90a_alone() -> None:
    for case in HOPPER.values():
        assert case.design().status(SM_90), case
        assert case.design().seconds(GemmSize(4096), SM_90) > 0
        assert "sm_80 has no warp-group" in case.design().status(SM_80).reason


def _steered(case: Case, **schedules: Any) -> Operation[Any, Any]:
    what = case.description()
    tile = dataclasses.replace(what.tile, **schedules) if schedules else what.tile
    return kronop.GemmOperationUniversal("sm_90a", tile, what.A, what.B, what.Y, what.epilogue)


def test_words_that_only_cutlass_has_are_steered_to_it() -> None:
    for asked, design in (
        ({}, "GemmWarpGroup"),
        ({"epilogue_schedule": Results.NoSmemWarpSpecialized}, "CutlassHopper"),
        ({"cluster_shape": (4, 1, 1)}, "CutlassHopper"),
    ):
        (step,) = _steered(HALF.but(stages=5), **asked).plan.steps
        assert type(step.design).__name__ == design
    for asked, reason in (
        ({"tile_scheduler": kronop.TileSchedulerType.StreamK}, "stream-K"),
        (
            {"cluster_shape": (4, 1, 1), "epilogue_schedule": Results.TmaWarpSpecialized},
            "leave from registers",
        ),
        (
            {"kernel_schedule": Kernel.TmaWarpSpecializedCooperative},
            r"TmaWarpSpecializedCooperative has \(8, 1, 1\) warps",
        ),
    ):
        with pytest.raises(kronop.DescriptionError, match=reason):
            _steered(HALF, **asked)


def _problem(**changes: Any) -> GemmProblem:
    given: dict[str, Any] = {
        "m": 1000,
        "n": 776,
        "k": 520,
        "batch": (),
        "a": Strided(pointer=4096, strides=(520, 1)),
        "b": Strided(pointer=8192, strides=(1, 520)),
        "y": Strided(pointer=1 << 20, strides=(776, 1)),
        "z": None,
        "bias": None,
        "scalars": (2.0, 0.0),
        "threads": 1,
        "workspace": 1 << 22,
    }
    return GemmProblem(**{**given, **changes})


def test_a_launch_prepares_the_next_one() -> None:
    design = HALF.design()
    first, second = design.launches(_problem(), SM_90)
    offsets = design.signature.offsets()
    at = offsets["prepares"]
    assert (first.parameters[at], second.parameters[at]) == (1, 0)
    assert first.parameters[:at] == second.parameters[:at]
    assert (first.grid, second.grid) == ((2, 1, 1), (8 * 7, 1, 1))
    assert design.workspace(GemmSize(1000, 776, 520), SM_90, 1) == 2048
    maps = {offset: item for offset, _, item in second.blocks}
    a, b = maps[offsets["a_map"]], maps[offsets["b_map"]]
    assert isinstance(a, TensorMap)
    assert isinstance(b, TensorMap)
    # Each block of a cluster of two brings half of B's columns.
    assert (a.extents, a.strides[0], a.box) == ((520, 1000, 1), 1040, (64, 128, 1))
    assert (b.extents, b.strides[0], b.box) == ((520, 776, 1), 1040, (64, 64, 1))


def test_batches_step_in_both_operands_or_run_one_by_one() -> None:
    design, plain = HALF.design(), _problem()

    def batched(item: Strided, *strides: int) -> Strided:
        return dataclasses.replace(item, batch=strides)

    y = batched(plain.y, 776000)
    moving = {"a": batched(plain.a, 520000), "b": batched(plain.b, 403520), "y": y}
    assert len(design.launches(_problem(batch=(3,), **moving), SM_90)) == 2
    repeated = {**moving, "b": batched(plain.b, 0)}
    assert len(design.launches(_problem(batch=(3,), **repeated), SM_90)) == 6


def test_problems_that_are_refused() -> None:
    bias = Strided(pointer=1 << 21, strides=(0, 1))
    design = HALF.design()
    for changes, reason in (
        ({"slices": 2}, "split_k_slices: expected 1"),
        ({"k": 0}, "K: expected at least 1"),
        ({"bias": bias, "z": _problem().y}, "bias: expected none beside C"),
    ):
        with pytest.raises(kronop.ArgumentError, match=reason):
            design.launches(_problem(**changes), SM_90)
    _, second = design.launches(_problem(bias=bias, scalars=(3.0, 0.0)), SM_90)
    words = np.frombuffer(second.parameters, np.int64)
    offsets = design.signature.offsets()
    got = [int(words[offsets[f"source_{axis}"] // 8]) for axis in ("row", "column", "batch")]
    assert got == [0, 1, 0]
    assert np.frombuffer(second.parameters, np.float64)[offsets["scalars"] // 8 + 1] == 1


_DIVISION = """
#include "cutlass/uint128.h"
using Word = unsigned long long;
extern "C" Word divided(Word low, Word high, Word by) {
  return cutlass::uint128_t(low, high) / by;
}
"""


@pytest.mark.skipif(host_compiler() is None, reason="no g++")
def test_the_division_that_stands_in(tmp_path: Path) -> None:
    """CUTLASS's own is a breakpoint on a device; schedulers of tiles divide for magic numbers."""
    source, library, own = tmp_path / "d.cpp", tmp_path / "d.so", tmp_path / "cutlass"
    own.mkdir()
    (own / "cutlass.h").write_text("#define CUTLASS_HOST_DEVICE inline\n")
    source.write_text(_DIVISION)
    overrides = Path(adapters.__file__).parent / "overrides"
    flags = ("-std=c++17", "-shared", "-fPIC", f"-I{overrides}", f"-I{tmp_path}")
    command = [str(host_compiler()), *flags, str(source), "-o", str(library)]
    subprocess.run(command, check=True)
    function = ctypes.CDLL(str(library)).divided
    function.argtypes, function.restype = (ctypes.c_uint64,) * 3, ctypes.c_uint64
    for divisor in (3, 7, 56, 1000, 2**31 - 1, 2**63 - 25, 2**63 + 1, 2**64 - 1):
        power = 1 << (divisor.bit_length() - 1)
        for high, low in ((0, power), (power, power), (power, 0), (divisor - 1, 2**64 - 1)):
            whole = (high << 64 | low) // divisor if high < divisor else None
            if whole is not None:
                assert function(low, high, divisor) == whole
