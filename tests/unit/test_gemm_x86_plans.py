"""How matrix products are planned for CPUs: cuts, tiles that users choose, floors."""

from __future__ import annotations

import math
from typing import Any

import pytest

import kronop
from kronop.families.gemm.operation import GemmOperationUniversal
from kronop.families.gemm.size import GemmSize
from kronop.families.gemm.x86 import choice
from kronop.families.gemm.x86.design import HostGemm
from kronop.target import Target
from tests import support

_ANY = kronop.TensorDescription
_TARGET = Target.parse("x86-avx512")


@pytest.mark.parametrize("threads", [1, 2, 3, 8, 64, 100])
def test_cuts_hold_every_result_and_occupy_threads(threads: int) -> None:
    design = GemmOperationUniversal(_TARGET, *_plain(kronop.float32)).plan.steps[0].design
    assert isinstance(design, HostGemm)
    rows, columns = design.tile
    for m, n, k, problems in (
        (1, 1, 1, 1),
        (4096, 4096, 4096, 1),
        (37, 2000, 300, 1),
        (64, 64, 10**6, 1),
    ):
        found = design.cut(m, n, k, problems, threads)
        assert found.rows % rows == found.columns % columns == 0
        assert found.rows <= design.most_rows
        assert found.columns <= design.most_columns
        assert found.slice * (found.slices - 1) < max(1, k) <= found.slice * found.slices
        each = found.rows * found.columns * found.slice
        busiest = math.ceil(found.items / found.threads) * each * found.threads
        if m * n * k > 2**24 and k > 1:
            assert busiest < 2 * m * n * k


def _plain(element: kronop.DataType, tile: Any = None) -> tuple[Any, ...]:
    operand, epilogue = _ANY(element), support.linear(element)
    return tile, operand, operand, _ANY(epilogue.element_output), epilogue


def _tile(shape: tuple[int, int, int], stages: int = 1, warps: Any = (1, 1, 1)) -> Any:
    return kronop.TileDescription(shape, stages, warps, kronop.MathInstruction.simt(kronop.float32))


def test_tiles_steer_blocks() -> None:
    operation = GemmOperationUniversal(_TARGET, *_plain(kronop.float32, _tile((48, 96, 64))))
    design = operation.plan.steps[0].design
    assert isinstance(design, HostGemm)
    assert (design.most_rows, design.most_columns, design.depth) == (48, 96, 64)
    assert (48 % design.tile[0], 96 % design.tile[1]) == (0, 0)


@pytest.mark.parametrize(
    ("tile", "message"),
    [
        (_tile((48, 7, 64)), "Tile_N is 7"),
        (_tile((3, 96, 64)), "Tile_M is 3"),
        (_tile((48, 96, 1 << 20)), "Tile_K is 1048576"),
        (_tile((1 << 14, 1 << 14, 64)), "bytes of scratch"),
        (_tile((48, 96, 64), stages=2), "stages is 2"),
        (_tile((48, 96, 64), warps=(2, 1, 1)), "warp_count"),
    ],
)
def test_tiles_that_do_not_fit_are_refused_with_numbers(tile: Any, message: str) -> None:
    with pytest.raises(kronop.DescriptionError, match=message):
        GemmOperationUniversal(_TARGET, *_plain(kronop.float32, tile))


def test_tensor_cores_of_gpus_are_refused() -> None:
    math = kronop.MathInstruction.tensor_op(kronop.float32)
    tile = kronop.TileDescription((48, 96, 64), 1, (1, 1, 1), math)
    with pytest.raises(kronop.DescriptionError, match="no tensor cores"):
        GemmOperationUniversal(_TARGET, *_plain(kronop.float32, tile))


def test_a_plan_tells_its_floor_and_what_it_beat() -> None:
    operation = GemmOperationUniversal("x86-avx512", *_plain(kronop.float32))
    told = operation.plan.explain(GemmSize(100, 200, 300))
    assert "vector arithmetic of a core: 6 million multiply-adds" in told
    assert "100 x 200 x 300" in told
    assert "vector registers" in told or "the best" in told


def test_most_sizes_have_one_kernel() -> None:
    what = GemmOperationUniversal(_TARGET, *_plain(kronop.float32)).description
    sizes = [GemmSize(m, n, k) for m in (1, 64, 4096) for n in (1, 64, 4096) for k in (64, 4096)]
    designs = {choice.plans(what, _TARGET, 1, size)[0].steps[0].design for size in sizes}
    assert len(designs) <= 3
