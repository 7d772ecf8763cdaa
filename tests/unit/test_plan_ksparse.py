"""Which kernels the planner takes for Kronecker-sparse products, and which of them are launched."""

from __future__ import annotations

from typing import Any

import pytest

import kronop
from kronop.descriptions.strided import NOTHING, Strided
from kronop.families.ksparse.description import KSparseProblem
from tests import support

_HALVES = [kronop.float16, kronop.bfloat16]
_MANY, _FEW = 25088, 16
# Of which no block holds the weights.
_LANES = (1, 512, 512, 32)
# Of whose lanes a block has some.
_SHARED = (1, 48, 48, 96)
_PACK, _IMAGES = "kronop::pack_weights", "kronop::pack_images"
_GROUP, _MMA, _MOVE = "kronop::contract_group", "kronop::contract_mma", "kronop::move_lanes"


def _operation(target: str, element: Any, pattern: Any, **options: Any) -> Any:
    alignment = 16 // element.bytes
    return support.ksparse_operation(target, element, pattern, alignment=alignment, **options)


def _products(plan: Any) -> list[str]:
    """Templates of the steps that do not prepare weights."""
    return [name for name in support.templates(plan) if not name.startswith("kronop::pack")]


@pytest.mark.parametrize("batch_last", [False, True])
@pytest.mark.parametrize("pattern", [(6, 64, 64, 1), (1, 768, 192, 2), (1, 1024, 1024, 1)])
@pytest.mark.parametrize("element", _HALVES)
def test_many_rows_of_16_bits_are_for_warp_groups(
    element: Any, pattern: Any, batch_last: bool
) -> None:
    operation = _operation("sm_90a", element, pattern, batch_last=batch_last)
    assert _products(operation.plan) == [_GROUP]
    assert _products(operation.candidates(1, _MANY)[0]) == [_GROUP]


@pytest.mark.parametrize("element", [kronop.float16, kronop.float32])
def test_few_rows_are_for_single_warps(element: Any) -> None:
    operation = _operation("sm_90a", element, (6, 64, 64, 1))
    assert support.templates(operation.candidates(1, _FEW)[0]) == [_MMA]


@pytest.mark.parametrize("rows", [None, _MANY, _FEW])
@pytest.mark.parametrize("pattern", [(6, 64, 64, 1), (1, 48, 48, 128)])
@pytest.mark.parametrize("element", [*_HALVES, kronop.float32])
def test_older_gpus_have_single_warps_only(element: Any, pattern: Any, rows: Any) -> None:
    plans = _operation("sm_80", element, pattern).candidates(8, rows)
    assert {name for plan in plans for name in support.templates(plan)} == {_MMA}


@pytest.mark.parametrize("target", ["sm_80", "sm_90a"])
@pytest.mark.parametrize("pattern", [(6, 64, 64, 1), (1, 48, 48, 128)])
def test_float64_has_single_warps_only(target: str, pattern: Any) -> None:
    plans = _operation(target, kronop.float64, pattern).candidates(8)
    assert {name for plan in plans for name in support.templates(plan)} == {_MMA}


@pytest.mark.parametrize("pattern", [_LANES, (1, 1024, 1024, 16)])
@pytest.mark.parametrize("element", _HALVES)
def test_many_lanes_of_16_bits_are_brought_apart(element: Any, pattern: Any) -> None:
    operation = _operation("sm_90a", element, pattern)
    assert _products(operation.plan) == [_MOVE, _MOVE, _GROUP, _MOVE]
    # Behind the features, the batch is contiguous whatever the lanes.
    behind = _operation("sm_90a", element, pattern, batch_last=True)
    assert _products(behind.plan) == [_GROUP]


def test_lanes_that_are_apart_are_in_the_workspace() -> None:
    operation = _operation("sm_90a", kronop.float16, _LANES)
    _, b, c, d = _LANES
    apart = 2 * (b + c) * d  # Bytes of X and Y of a row.
    packed = 2 * b * c * d
    assert 512 * apart <= operation.workspace_bytes(512, 1) <= 512 * apart + packed
    # So much at most, and as many rows as that holds.
    assert operation.workspace_bytes(1 << 24, 1) <= (256 << 20) + packed


@pytest.mark.parametrize(
    ("pattern", "batch_last"), [((4, 16, 16, 1), False), ((1, 48, 16, 4), True)]
)
def test_small_weights_are_packed_in_the_block(pattern: Any, batch_last: bool) -> None:
    # Out of order: to be split, or of several lanes.
    element = kronop.float16 if batch_last else kronop.float32
    plan = _operation("sm_90a", element, pattern, batch_last=batch_last).plan
    assert support.templates(plan) == [_GROUP]
    assert plan.steps[0].design.packs


@pytest.mark.parametrize(
    ("element", "pattern"),
    [(kronop.float32, (1, 1024, 1024, 1)), (kronop.float16, (1, 192, 768, 4))],
)
def test_large_weights_come_as_images(element: Any, pattern: Any) -> None:
    operation = _operation("sm_90a", element, pattern)
    assert support.templates(operation.plan) == [_IMAGES, _GROUP]
    assert not operation.plan.steps[1].design.packs
    _, b, c, d = pattern
    values = 2 if element is kronop.float32 else 1  # What a split weight becomes.
    assert operation.workspace_bytes(_MANY, 1) == b * c * d * element.bytes * values
    assert _launched(operation, _contiguous(pattern)) == [0, 1]


@pytest.mark.parametrize(
    ("pattern", "begins"), [((1, 1024, 1024, 1), True), ((1, 48, 48, 8), True), (_SHARED, False)]
)
def test_products_begin_while_weights_are_packed_unless_blocks_share_lines(
    pattern: Any, begins: bool
) -> None:
    operation = _operation("sm_90a", kronop.float32, pattern)
    pack, product = operation.launches(_problem(operation, _contiguous(pattern)))
    assert (pack.overlaps, product.overlaps) == (False, begins)


@pytest.mark.parametrize("element", _HALVES)
def test_contiguous_weights_of_one_lane_are_read_where_they_are(element: Any) -> None:
    _, b, c, d = pattern = (6, 64, 64, 1)
    operation = _operation("sm_90a", element, pattern)
    assert support.templates(operation.plan) == [_PACK, _GROUP]
    assert _launched(operation, _contiguous(pattern)) == [1]
    assert _launched(operation, (2 * b * c * d, c * d, d, 1)) == [1], "a slice of groups"
    transposed = (b * c * d, d, b * d, 1)
    assert _launched(operation, transposed) == [0, 1]
    assert _launched(operation, (b * c, c, 1, 1), weights=_WEIGHTS + 2) == [0, 1], "misaligned"


_X, _WEIGHTS, _Y, _WORKSPACE = 1 << 32, 2 << 32, 3 << 32, 4 << 32


def _contiguous(pattern: Any) -> tuple[int, int, int, int]:
    _, b, c, d = pattern
    return (b * c * d, c * d, d, 1)


def _launched(operation: Any, strides: Any, **options: Any) -> list[int]:
    """Which steps of the plan are launched for weights of these strides."""
    return [launch.step for launch in operation.launches(_problem(operation, strides, **options))]


def _problem(
    operation: Any, strides: Any, weights: int = _WEIGHTS, has_z: bool = False
) -> KSparseProblem:
    description = operation.description
    y = Strided(pointer=_Y, strides=(description.output_columns, 1))
    return KSparseProblem(
        rows=_MANY,
        x=Strided(pointer=_X, strides=(description.input_columns, 1)),
        weights=Strided(pointer=weights, strides=strides),
        z=y if has_z else None,
        bias=NOTHING,
        y=y,
        scalars=(1.0, 0.0),
        workspace=_WORKSPACE,
        threads=1,
    )


def test_lanes_are_moved_around_each_product_those_of_a_source_too() -> None:
    operation = _operation("sm_90a", kronop.float16, _LANES)
    count = len(operation.plan.steps)
    part, part_z, product, join = range(count - 4, count)
    plain, both = (_launched(operation, _contiguous(_LANES), has_z=has) for has in (False, True))
    # Weights once; then as many rows at once as the workspace holds, so several times.
    turns = len(plain) // 3
    assert turns > 1
    assert plain == [*range(count - 4), *[part, product, join] * turns]
    assert both == [*range(count - 4), *[part, part_z, product, join] * turns]
