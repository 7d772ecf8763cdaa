"""How chains of Kronecker-sparse factors are cut into steps."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import pytest

import kronop
from kronop.emit.plan import PerRow
from kronop.families.ksparse import chains
from kronop.families.ksparse.cuda import chain_choice, chain_cuts
from kronop.families.ksparse.cuda.chain_design import ChainMma
from kronop.families.ksparse.cuda.chain_pair import pairs
from tests import support

_QKV = ((2, 48, 192, 1), (1, 192, 48, 2))


def _operation(target: str, element: Any, patterns: Any = _QKV, **options: Any) -> Any:
    return support.chain_operation(
        target, element, patterns, alignment=16 // element.bytes, **options
    )


def _factors(plan: Any) -> list[int]:
    return [piece.factors for piece in support.chain_of(plan).pieces]


def test_a_pair_is_fused_where_that_takes_less_time() -> None:
    plan = _operation("sm_80", kronop.float16).plan
    (step,) = plan.steps
    assert isinstance(step.design, ChainMma)
    operations = 2 * (2 * 48 * 192 + 192 * 48 * 2)
    assert step.per_row == PerRow(bytes=(384 + 384) * 2, operations=operations)
    ((name, reason),) = plan.rejected
    assert name == "a product + a product"
    assert "cycles, the best" in reason


@pytest.mark.parametrize("element", [kronop.int32, kronop.int64])
def test_integers_and_given_tiles_are_products_of_their_own(element: Any) -> None:
    operation = _operation("sm_90a", element)
    assert all(_factors(plan) == [1, 1] for plan in operation.candidates(6))


def test_a_long_chain_takes_few_launches() -> None:
    operation = _operation("sm_80", kronop.float16, (*_QKV, *_QKV, _QKV[0]))
    assert len(_factors(operation.plan)) == 3
    assert sum(_factors(operation.plan)) == 5


def test_other_cuts_and_tiles_are_candidates_in_one_order() -> None:
    operation = _operation("sm_90a", kronop.float32)
    plans = operation.candidates(12)
    assert plans[0] == operation.plan
    assert {tuple(_factors(plan)) for plan in plans} == {(2,), (1, 1)}
    assert len({plan.steps for plan in plans}) == 12
    shorter = operation.candidates(5)
    assert [plan.steps for plan in shorter] == [plan.steps for plan in plans[:5]]


def test_few_rows_get_a_plan_of_their_own_or_the_usual_one() -> None:
    operation = _operation("sm_80", kronop.float16)
    (few,) = operation.candidates(1, 64)
    assert sum(_factors(few)) == 2
    (many,) = operation.candidates(1, 16384)
    assert many.steps == operation.plan.steps


@pytest.mark.parametrize("lanes", [3, 5, 9, 17])
def test_warps_without_lanes_read_within_shared_memory(lanes: int) -> None:
    patterns = ((3, 32, 2, lanes), (1, 3, 96, lanes))
    operation = support.chain_operation("sm_90a", kronop.float16, patterns)
    pairs = chain_choice.candidates(
        *(chains.product(operation.description, index) for index in (0, 1)),
        operation.target,
        None,
        200,
    )
    assert pairs
    for _, design in pairs:
        second = design.second
        whole = -(-second.lanes // second.tile.lanes) * second.tile.lanes
        last = (second.groups - 1) * second.lanes + whole
        read = design.room.middle + last * design.m * design.middle_pitch * 2
        assert read <= design.shared_bytes <= operation.target.shared_bytes


def test_equal_tiles_of_other_lanes_stay_candidates_for_some_rows() -> None:
    operation = _operation("sm_90a", kronop.float16, ((2, 16, 16, 32), (2, 16, 16, 32)))
    one, two = (chains.product(operation.description, index) for index in (0, 1))
    every = [item for _, item in chain_choice.candidates(one, two, operation.target, 4096)]
    work = chain_cuts.Work(operation.description, operation.target, 4096)
    kept = [item for _, item in chain_cuts._fused(work, 0, 1 << 20)]
    first = kept[0]
    tiles = first.first.tile, first.second.tile, first.stages, first.resident
    others = {
        item.lanes
        for item in every
        if (item.first.tile, item.second.tile, item.stages, item.resident) == tiles
    }
    assert others > {first.lanes}, "no other pair has the tile"
    assert len(set(kept)) == len(kept)
    assert set(kept) == set(every)


def test_what_is_between_pieces_is_in_two_buffers_that_take_turns() -> None:
    operation = _operation("sm_80", kronop.int32, ((1, 10, 8, 1), (1, 30, 10, 1), (1, 7, 30, 1)))
    # Rows of 10 and of 30 elements, each of whole accesses, for 5 rows.
    assert support.chain_of(operation.plan).buffers(5) == (256, 768)
    assert operation.workspace_bytes(5, 1) == 1024


def test_a_fused_pair_wants_no_workspace() -> None:
    operation = _operation("sm_80", kronop.float16)
    assert operation.workspace_bytes(1000, 1) == 0


def test_parts_of_a_pair_share_no_feature() -> None:
    description = _operation("sm_90a", kronop.float16, ((6, 8, 8, 4), (4, 24, 6, 8))).description
    one, two = (chains.product(description, index) for index in (0, 1))
    (pair,) = [item for item in pairs(one, two) if item.lanes == 4]
    assert (pair.parts, pair.groups, pair.all_lanes) == (2, (3, 2), (4, 8))
    # A part's features of the middle, as results of one and as operand of the other.
    ends = zip(
        pair.groups, (pair.first.produced, pair.second.contracted), pair.all_lanes, strict=True
    )
    assert [math.prod(sizes) for sizes in ends] == [96, 96]


def test_a_tile_that_does_not_fit_says_why() -> None:
    description = _operation("sm_80", kronop.float32, ((1, 4096, 64, 1), (1, 64, 4096, 1)))
    description = description.description
    one, two = (chains.product(description, index) for index in (0, 1))
    (pair,) = pairs(one, two)
    first, second = (next(chain_choice.products(pair, index, 64, 128)) for index in (0, 1))
    design = ChainMma(
        first=first, second=second, parts=1, common_lanes=1, lanes=1, stages=2, resident=False
    )
    status = design.status(kronop.Target.parse("sm_80"))
    assert not status
    assert "bytes of shared memory" in status.reason


def test_a_chain_is_described_by_equal_values() -> None:
    description = _operation("x86", kronop.float32).description
    assert description == _operation("x86", kronop.float32).description
    assert dataclasses.replace(description, batch_last=True) != description
    assert (description.input_columns, description.output_columns) == (384, 384)
