"""Tiles of matrix products on GPUs: those that no kernel has, and the choice among the others."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import pytest

import kronop
from kronop.compiler import cutlass_headers as headers
from kronop.descriptions.datatype import (
    ColumnMajor,
    DataType,
    float8_e5m2,
    float16,
    float32,
    int8,
    int64,
)
from kronop.descriptions.epilogue import LinearCombination
from kronop.descriptions.math_instruction import MathInstruction
from kronop.descriptions.strided import Strided
from kronop.descriptions.tile import KernelScheduleType
from kronop.emit.cuda.default_math import tensor_cores_where_faster
from kronop.emit.plan import Plan
from kronop.families.gemm.cuda import choice, group_split
from kronop.families.gemm.cuda.group_design import GemmGroup
from kronop.families.gemm.description import GemmDescription, GemmProblem
from kronop.families.gemm.floors import LeastOfGemm
from kronop.families.gemm.size import GemmSize
from kronop.target import Target

_SM_90A = Target.parse("sm_90a")
_TENSOR_OP, _SIMT = MathInstruction.tensor_op, MathInstruction.simt
_MATH = {"f16": _TENSOR_OP(float16), "simt f32": _SIMT(float32)}


@pytest.fixture
def _without_cutlass(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(headers, "missing", lambda: "not installed")


@pytest.mark.parametrize(
    ("shape", "stages", "warps", "name", "said"),
    [
        ((128, 128, 32), 12, (2, 2, 1), "f16", "12 stages x (128 x 32 + 32 x 128) x 2 = 196608"),
        ((128, 128, 32), 1, (2, 2, 1), "f16", "1 stage"),
        ((128, 128, 32), 3, (2, 2, 2), "f16", "2 warps along K"),
        ((128, 120, 32), 3, (2, 2, 1), "f16", "64 x 60"),
        ((128, 128, 8), 3, (2, 2, 1), "f16", "multiple of 16"),
        ((256, 256, 32), 3, (2, 2, 1), "f16", "registers of 255"),
        ((256, 256, 32), 2, (8, 8, 1), "f16", "2048 threads"),
        ((128, 128, 8), 4, (4, 2, 1), "simt f32", "4 stages"),
        ((128, 96, 8), 2, (4, 4, 1), "simt f32", "multiple of 64 x 128"),
        ((128, 128, 12), 2, (4, 2, 1), "simt f32", "evenly"),
    ],
)
@pytest.mark.usefixtures("_without_cutlass")
def test_tiles_that_no_kernel_of_kronop_s_has(
    shape: Any, stages: int, warps: Any, name: str, said: str
) -> None:
    math = _MATH[name]
    tile = kronop.TileDescription(list(shape), stages, list(warps), math)
    a = kronop.TensorDescription(math.element_a)
    sums = math.element_accumulator
    what = GemmDescription(
        math=math,
        tile=tile,
        A=a,
        B=a,
        Y=a,
        epilogue=LinearCombination(math.element_a, 1, sums, sums),
    )
    status = choice.supports(what, Target.parse("sm_80"))
    assert not status
    assert said in status.reason


def test_choice() -> None:
    """Small products get small tiles."""
    target = Target.parse("sm_80")
    a = kronop.TensorDescription(float16, alignment=8)
    what = GemmDescription(
        math=_TENSOR_OP(float16),
        tile=None,
        A=a,
        B=a,
        Y=a,
        epilogue=LinearCombination(float16, 8, float32, float32),
    )

    def best(*size: int) -> Any:
        plans = choice.plans(what, target, 99, GemmSize(*size))
        assert "us for" in plans[0].explain()
        return plans[0].steps[0].design

    large, small = best(8192), best(96)
    assert large.tile_m * large.tile_n >= 128 * 128
    assert small.tile_m * small.tile_n < 64 * 128
    assert tensor_cores_where_faster(int64, target) == _SIMT(int64)
    assert tensor_cores_where_faster(int8, target) == _TENSOR_OP(int8)
    assert tensor_cores_where_faster(float8_e5m2, target) == _TENSOR_OP(float8_e5m2)


@pytest.mark.parametrize(
    ("target", "expected"),
    [
        *(("sm_75", _SIMT), ("sm_80", _TENSOR_OP), ("sm_86", _SIMT), ("sm_89", _SIMT)),
        *(("sm_90a", _TENSOR_OP), ("sm_100", _TENSOR_OP), ("sm_120", _SIMT)),
    ],
)
def test_float32_is_multiplied_by_the_faster_cores(target: str, expected: Any) -> None:
    """Three products of TF32 take longer than one of ordinary cores on the cards that have twice
    as many of these, also on those whose tensor cores are twice as fast as a GeForce's."""
    card = Target.parse(target)
    assert tensor_cores_where_faster(float32, card) == expected(float32)
    assert card.gpu is not None
    twice = card.of_card("L4", card.cores, card.gpu.hertz)
    assert tensor_cores_where_faster(float32, twice) == expected(float32)


@pytest.mark.parametrize(("target", "cores"), [("sm_120", "FP64"), ("sm_80", "tensor")])
def test_floors_of_float64_by_tensor_cores_that_are_no_faster(target: str, cores: str) -> None:
    double = kronop.float64
    least = LeastOfGemm(element=double, output=double, sums=double, multiplied=double)
    assert least.floor(Target.parse(target)).unit == f"{cores} cores"


@pytest.mark.parametrize("math", [_SIMT(float8_e5m2), _TENSOR_OP(float8_e5m2)])
def test_8_bit_floats_need_a_gpu_that_converts_them(math: MathInstruction) -> None:
    result = kronop.TensorDescription(float16)
    what = GemmDescription(
        math=math,
        tile=None,
        A=kronop.TensorDescription(float8_e5m2),
        B=kronop.TensorDescription(float8_e5m2),
        Y=result,
        epilogue=LinearCombination(float16, 1, float32, float32),
    )
    assert "sm_80 cannot convert" in choice.supports(what, Target.parse("sm_80")).reason
    assert choice.supports(what, Target.parse("sm_90a"))


def _of_warp_groups(
    tile: kronop.TileDescription | None = None, element: DataType = float16, alignment: int = 8
) -> GemmDescription:
    a = kronop.TensorDescription(element, alignment=alignment)
    return GemmDescription(
        math=_TENSOR_OP(element),
        tile=tile,
        A=a,
        B=replace(a, layout=ColumnMajor),
        Y=replace(a, alignment=1),
        epilogue=LinearCombination(element, 1, float32, float32),
    )


_TILE = kronop.TileDescription(
    [128, 128, 64],
    4,
    [4, 1, 1],
    _TENSOR_OP(float16),
    kernel_schedule=KernelScheduleType.TmaWarpSpecializedPingpong,
)


@pytest.mark.parametrize(
    ("changed", "alignment", "arch", "said"),
    [
        ({"stages": 1}, 8, "sm_90a", "1 stage"),
        (
            {"threadblock_shape": (128, 96, 64)},
            8,
            "sm_90a",
            "128 x 256 x 64 (at most 3 stages) of 8 warps that share them",
        ),
        ({"warp_count": (8, 1, 1)}, 8, "sm_90a", "of 4 warps that take them in turn"),
        ({}, 1, "sm_90a", "A promises 1 elements"),
        ({}, 8, "sm_80", "sm_80 has no warp-group products"),
    ],
)
@pytest.mark.usefixtures("_without_cutlass")
def test_tiles_that_no_warp_groups_have(
    changed: dict[str, Any], alignment: int, arch: str, said: str
) -> None:
    fields = {
        name: getattr(_TILE, name)
        for name in ("threadblock_shape", "stages", "warp_count", "math_instruction")
    }
    schedule = {"kernel_schedule": _TILE.kernel_schedule}
    tile = kronop.TileDescription(**{**fields, **schedule, **changed})
    status = choice.supports(_of_warp_groups(tile, alignment=alignment), Target.parse(arch))
    assert not status
    assert said in status.reason


@pytest.mark.usefixtures("_without_cutlass")
def test_a_tile_that_no_warps_have_either() -> None:
    """Its stages are too many for warp groups, and its warps' sums for registers."""
    tile = kronop.TileDescription([128, 256, 64], 4, [4, 1, 1], _TENSOR_OP(float16))
    reason = choice.supports(_of_warp_groups(tile), _SM_90A).reason
    assert "registers" in reason
    assert "; of warp groups: 128 x 128 x 64 (at most 6 stages), 128 x 256 x 64" in reason


@pytest.mark.parametrize(
    ("shape", "stages", "cluster", "math", "told"),
    [
        ((128, 128, 64), None, None, _TENSOR_OP(float16), "128 x 128 in turn, 6 stages"),
        ((128, 128, 64), 4, (1, 1, 1), _TENSOR_OP(float16), "128 x 128 in turn, 4 stages"),
        ((64, 256, 64), None, (2, 1, 1), _TENSOR_OP(float16), "64 x 256 in turn"),
        ((128, 128, 32), None, (1, 1, 1), _TENSOR_OP(float16), "2 x 2 warps, .* 4 stages"),
        ((256, 128, 64), None, None, _TENSOR_OP(float16), "4 x 2 warps, .* 4 stages"),
        ((128, 128, 8), None, None, _SIMT(float16), "tiles of 128 x 128 x 8, threads of"),
    ],
)
@pytest.mark.usefixtures("_without_cutlass")
def test_what_a_tile_leaves_out_is_chosen(
    shape: Any, stages: Any, cluster: Any, math: MathInstruction, told: str
) -> None:
    tile = kronop.TileDescription(shape, stages, None, math, cluster_shape=cluster)
    what = replace(_of_warp_groups(), math=math, tile=tile)
    design = _plan(what, _SM_90A).steps[0].design
    assert re.search(told, str(design)), str(design)


@pytest.mark.parametrize("target", ["x86", "sm_80", "sm_90a"])
def test_sums_of_float16_need_no_tile(target: str) -> None:
    half = kronop.TensorDescription(float16, alignment=8)
    sums = LinearCombination(float16, 8, float16, float16)
    operation = kronop.GemmOperationUniversal(target, None, half, half, half, sums)
    assert operation.description.math.element_accumulator is float16
    ordinary = kronop.MathInstruction([1, 1, 1], float16, float16, float16)
    tile = kronop.TileDescription([128, 128, 8], None, None, ordinary, [1, 1, 1])
    operation = kronop.GemmOperationUniversal(target, tile, half, half, half, sums)
    assert operation.plan.steps[0].least.sums is float32


@pytest.mark.parametrize("element", [float32, float16])
def test_blocks_share_both_operands(element: DataType) -> None:
    """A column of tiles after the other, each block would read a row of A of its own."""
    what = _of_warp_groups(element=element, alignment=16 // element.bytes)
    design = _plan(what, Target.parse("sm_80")).steps[0].design
    assert design.band * design.tile_n == 1024
    tile = kronop.TileDescription([64, 64, 16], 4, [2, 2, 1], what.math)
    for swizzle in (kronop.IdentitySwizzle1, kronop.IdentitySwizzle4):
        steered = replace(what, tile=tile, swizzling_functor=swizzle)
        assert _plan(steered, Target.parse("sm_80")).steps[0].design.band == swizzle.value


@pytest.mark.usefixtures("_without_cutlass")
def test_warp_groups_do_not_cut_sums() -> None:
    size = GemmSize(4096, slices=4)
    for plan in choice.plans(_of_warp_groups(), _SM_90A, 99, size):
        assert not isinstance(plan.steps[-1].design, GemmGroup)
    with pytest.raises(kronop.ArgumentError, match="split_k_slices: expected 1"):
        _plan(_of_warp_groups(_TILE), _SM_90A, size)


def test_extents_that_warp_groups_do_not_count() -> None:
    """A plan is for all sizes below twice its own."""
    for size in (GemmSize(2**30, 8, 8), GemmSize(8, 2**30, 8), GemmSize(8, 8, 2**30)):
        plan = _plan(_of_warp_groups(), _SM_90A, size)
        assert not isinstance(plan.steps[-1].design, GemmGroup)
    plan = _plan(_of_warp_groups(_TILE), _SM_90A, GemmSize(2**31, 8, 8))
    problem = _problem((), m=2**31)
    with pytest.raises(kronop.ArgumentError, match="at most 2147418112, got 2147483648"):
        plan.launches(problem)


@pytest.mark.parametrize(
    ("batch", "backward", "launches"),
    [((2, 50), None, 2), ((50, 2), None, 2), ((3, 50, 2), 1, 100), ((4, 5), 0, 4), ((), None, 1)],
)
def test_batches_of_warp_groups(
    batch: tuple[int, ...], backward: int | None, launches: int
) -> None:
    """The longest dimension that maps may step along is one launch."""
    plan = _plan(_of_warp_groups(_TILE), _SM_90A)
    problem = _problem(batch)
    if backward is not None:
        steps = [-step if at == backward else step for at, step in enumerate(problem.a.batch)]
        problem = replace(problem, a=replace(problem.a, batch=tuple(steps)))
    assert len(plan.launches(problem)) == launches


def test_batches_are_split_in_turns() -> None:
    """float32 of a long batch takes no more scratch memory than what runs at once."""
    what = _of_warp_groups(element=float32, alignment=4)
    plan = _plan(what, _SM_90A, GemmSize(4096, batch=8))
    assert len(plan.steps) == 2
    once = group_split.at_once(GemmSize(4096))
    each = plan.workspace_bytes(GemmSize(4096), 1)
    assert once == 2
    for batch in (1, 2, 5):
        size = GemmSize(4096, batch=batch)
        assert plan.workspace_bytes(size, 1) <= min(batch, once) * each
    problem = _problem((5,), m=4096, n=4096, k=4096)
    # A and B are split before each product.
    assert len(plan.launches(problem)) == 3 * 3


def _plan(what: GemmDescription, target: Target, size: GemmSize | None = None) -> Plan:
    return choice.plans(what, target, 1, size)[0]


def _problem(batch: tuple[int, ...], m: int = 64, n: int = 64, k: int = 64) -> GemmProblem:
    def matrix(pointer: int, rows: int, row: int, column: int = 1) -> Strided:
        steps = [rows * max(row, column)]
        for size in reversed(batch[1:]):
            steps.insert(0, steps[0] * size)
        strides = tuple(steps) if batch else ()
        return Strided(pointer=pointer, strides=(row, column), batch=strides)

    return GemmProblem(
        m=m,
        n=n,
        k=k,
        batch=batch,
        a=matrix(1 << 40, m, k),
        b=matrix(2 << 40, n, 1, k),
        y=matrix(3 << 40, m, n),
        z=None,
        bias=None,
        scalars=(1.0, 0.0),
        threads=1,
        workspace=4 << 40,
    )
