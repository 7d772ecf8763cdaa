"""The planner of the CUDA cells: what it chooses, what it refuses and why, what it launches."""

from __future__ import annotations

import itertools
import math
import re
import struct
from typing import Any

import pytest

from kronop.artifacts import Launch
from kronop.descriptions.datatype import (
    DataType,
    bfloat16,
    float16,
    float32,
    float64,
    int8,
    int32,
    result_type,
)
from kronop.descriptions.epilogue import LinearCombination
from kronop.descriptions.math_instruction import MathInstruction, OpClass
from kronop.descriptions.strided import Strided
from kronop.descriptions.tensor import TensorDescription
from kronop.descriptions.tile import TileDescription
from kronop.emit.cuda.contraction.design import ContractDesign, merged_rows
from kronop.emit.cuda.contraction.mma import MmaContract
from kronop.emit.cuda.operands import MOST_BLOCKS, View, allows_vectors
from kronop.emit.design import Design
from kronop.emit.plan import PerRow, Plan, Step
from kronop.emit.render import render
from kronop.errors import DescriptionError
from kronop.families.kron.cuda.bytewise import ByteStyle
from kronop.families.kron.cuda.contract_pass import ContractPass
from kronop.families.kron.cuda.half import HalfStyle
from kronop.families.kron.cuda.kron_mma import KronMma
from kronop.families.kron.cuda.mma_style import MmaStyle, runs_of
from kronop.families.kron.cuda.pass_design import KronPass, TiledPass
from kronop.families.kron.cuda.passes import ends_of, work_of
from kronop.families.kron.cuda.pipeline import KronPasses
from kronop.families.kron.cuda.shapes import PassShape, multiply_adds, shrinking
from kronop.families.kron.cuda.tile import KronTile
from kronop.families.kron.declaration import MATMUL
from kronop.families.kron.description import KronMatmulDescription, KronProblem, Side
from kronop.families.ksparse.declaration import PRODUCT
from kronop.families.ksparse.description import KSparseDescription
from kronop.target import Target
from tests import support
from tests.covering import combinations

KRON, KSPARSE = MATMUL.emitters["cuda"], PRODUCT.emitters["cuda"]
TARGETS = [Target.parse("sm_80"), Target.parse("sm_90a")]
HOPPER = TARGETS[1]
SIMT = MathInstruction.simt(float32)


def kron(
    factors: list[tuple[int, int]],
    element: DataType = float32,
    *,
    alignment: int = 1,
    side: Side = Side.Right,
    tiles: TileDescription | None = None,
    instruction: MathInstruction | None = None,
) -> KronMatmulDescription:
    instruction = instruction or MathInstruction.simt(element)
    accumulator, output = instruction.element_accumulator, result_type(element)
    tensor = TensorDescription(element, alignment=alignment)
    return KronMatmulDescription(
        math=instruction,
        tile=tiles,
        X=tensor,
        F=tensor,
        Y=TensorDescription(output, alignment=alignment),
        factors=tuple(factors),
        side=side,
        epilogue=LinearCombination(output, alignment, accumulator, accumulator),
    )


def ksparse(
    pattern: tuple[int, int, int, int],
    element: DataType = float32,
    *,
    batch_last: bool = False,
    tiles: TileDescription | None = None,
    alignment: int = 1,
    instruction: MathInstruction | None = None,
) -> KSparseDescription:
    instruction = instruction or MathInstruction.simt(element)
    tensor = TensorDescription(element, alignment=alignment)
    accumulator = instruction.element_accumulator
    return KSparseDescription(
        math=instruction,
        tile=tiles,
        X=tensor,
        W=support.weights_description(element, pattern, alignment),
        Y=tensor,
        pattern=pattern,
        batch_last=batch_last,
        epilogue=LinearCombination(element, 1, accumulator, accumulator),
    )


def problem(
    description: KronMatmulDescription, rows: int, batch: tuple[int, ...] = (), workspace: int = 0
) -> KronProblem:
    def dense(pointer: int, columns: int) -> Strided:
        lead = tuple(math.prod(batch[axis + 1 :]) * rows * columns for axis in range(len(batch)))
        return Strided(pointer=pointer, strides=(columns, 1), batch=lead)

    factors = tuple(
        Strided(pointer=1 << 20, strides=(q, 1), batch=(0,) * len(batch))
        for _, q in description.contractions
    )
    return KronProblem(
        rows=rows,
        batch=batch,
        x=dense(1 << 30, description.input_columns),
        factors=factors,
        z=None,
        y=dense(1 << 40, description.output_columns),
        scalars=(1.0, 0.0),
        workspace=workspace,
        threads=1,
    )


def member(launch: Launch, step: Step, name: str) -> int:
    """An integer or pointer member of the packed parameter struct; the first of an array."""
    value: int = struct.unpack_from("=q", launch.parameters, step.design.signature.offsets()[name])[
        0
    ]
    return value


def covered(plan: Plan) -> list[int]:
    """The digits of all steps, in the order of the steps."""
    result: list[int] = []
    for step in plan.steps:
        design = step.design
        assert isinstance(design, KronPass)
        result += range(design.first, design.first + len(design.work.shape.group))
    return result


SHAPES = [
    [(8, 8)] * 5,
    [(8, 8)] * 6,
    [(8, 8)] * 8,
    [(16, 16)] * 4,
    [(16, 16)] * 5,
    [(32, 32)] * 4,
    [(64, 64)] * 2,
    [(128, 128)] * 3,
    [(2, 3), (5, 2), (6, 4)],
    [(1, 7)],
    [(127, 31)],
    [(505, 3)],
    [(20000, 20000)],
    [(31, 29)] * 3,
    [(2, 2)] * 14,
    [(3, 50)] * 2,
    [(1, 1)] * 70,
]


@pytest.mark.parametrize("target", TARGETS, ids=str)
@pytest.mark.parametrize("factors", SHAPES, ids=lambda item: f"{item[0]}p{len(item)}")
def test_every_digit_is_contracted_once_within_the_limits(
    request: pytest.FixtureRequest, factors: list[tuple[int, int]], target: Target
) -> None:
    choices = {"element": (float32, float64, float16), "side": tuple(Side), "alignment": (1, 2)}
    for case in combinations(full=request.config.getoption("--full"), **choices):
        description = kron(factors, **case)
        assert KRON.supports(description, target)
        plan = KRON.plan(description, target)
        assert sorted(covered(plan)) == list(range(len(factors)))
        for index, step in enumerate(plan.steps):
            assert step.design.shared_bytes <= target.shared_bytes
            assert 32 <= step.design.threads <= 1024
            assert (step.design.epilogue is None) == (index < len(plan.steps) - 1)
            assert re.fullmatch(r"[A-Za-z_]\w{0,99}", step.entry)
            assert step.per_row.bytes > 0


@pytest.mark.parametrize(
    ("base", "count", "steps"), [(8, 5, 1), (8, 4, 1), (8, 6, 2), (16, 5, 2), (32, 3, 2), (8, 8, 2)]
)
def test_few_passes(base: int, count: int, steps: int) -> None:
    assert len(KRON.plan(kron([(base, base)] * count, alignment=4), HOPPER).steps) == steps


def test_operations_of_a_pass_are_those_of_its_formula() -> None:
    (step,) = KRON.plan(kron([(8, 8)] * 5, alignment=4), HOPPER).steps
    assert step.per_row == PerRow(bytes=2 * 4 * 8**5, operations=2 * 5 * 8 * 8**5)


def test_the_order_of_digits_minimises_operations() -> None:
    digits = [(2, 3), (5, 2), (6, 4), (3, 3)]
    best = min(multiply_adds(list(order), 1, 1) for order in itertools.permutations(digits))
    assert multiply_adds(sorted(digits, key=shrinking), 1, 1) == best


def test_the_shapes_of_a_tile_do_not_conflict() -> None:
    plan = KRON.plan(kron([(8, 8)] * 5, alignment=4), HOPPER)
    design = plan.steps[0].design
    assert isinstance(design, KronTile)
    assert design.pad_shift != 0
    assert design.pad_adds


def test_equal_descriptions_give_equal_plans_and_text() -> None:
    first, second = (KRON.plan(kron([(8, 8)] * 6), HOPPER) for _ in range(2))
    assert first == second
    assert render(first) == render(second)


def test_tensor_cores_are_refused_with_the_way_out() -> None:
    instruction = MathInstruction([16, 8, 16], float16, float16, float32, OpClass.TensorOp)
    description = kron([(8, 8)], float16, instruction=instruction)
    status = KRON.supports(description, HOPPER)
    assert not status
    assert "use OpClass.Simt" in status.reason
    with pytest.raises(DescriptionError, match=r"OpClass\.Simt"):
        KRON.plan(description, HOPPER)


@pytest.mark.parametrize("element", [float32, float64, float16])
def test_floats_take_the_tensor_cores(element: DataType) -> None:
    instruction = KRON.instruction(element, Target.parse("sm_80"))
    assert instruction.opcode_class is OpClass.TensorOp
    alignment = 16 // element.bytes
    description = kron([(16, 16)] * 3, element, instruction=instruction, alignment=alignment)
    assert {type(step.design) for step in KRON.plan(description, HOPPER).steps} == {KronMma}
    assert KRON.instruction(int32, Target.parse("sm_80")) == MathInstruction.simt(int32)


def test_bytes_take_the_tensor_cores_and_share_what_simt_serves() -> None:
    instruction = KRON.instruction(int8, Target.parse("sm_80"))
    assert instruction == MathInstruction.tensor_op(int8)

    def design_of(factors: list[tuple[int, int]], **options: TileDescription) -> Design:
        (step,) = KRON.plan(kron(factors, int8, instruction=instruction, **options), HOPPER).steps
        return step.design

    for factors in ([(64, 64)] * 2, [(16, 16)] * 3):
        design = design_of(factors)
        assert isinstance(design, KronMma)
        assert isinstance(design.tile.style, ByteStyle)
        # Products of bytes are no bytes: nothing is multiplied out.
        assert design.tile.style.digits == tuple(factors)
    product = design_of([(200, 8)])
    assert product.instantiation(HOPPER).template == "kronop::contract_tiles"
    # A fragment has two bytes of each part of 8 contracted indices, of two parts or of four.
    tile = TileDescription([16, 1024, 1], 1, [2, 2, 1], instruction)
    for factors, size in (([(8, 8), (8, 8)], 128), ([(32, 8), (32, 8)], 256)):
        design = design_of(factors, tiles=tile)
        assert isinstance(design, KronMma)
        assert design.tile.style.factors_bytes()[0] == size


def test_tiny_factors_are_multiplied_out() -> None:
    assert runs_of(((2, 2),) * 7, 8) == (3, 3, 1)
    assert runs_of(((3, 2), (2, 5), (4, 1)), 8) == (1, 2)
    description = kron(
        [(2, 2)] * 12, instruction=KRON.instruction(float32, Target.parse("sm_80")), alignment=4
    )
    (step,) = KRON.plan(description, HOPPER).steps
    assert isinstance(step.design, KronMma)
    assert sum(step.design.runs) == 12
    assert min(p for p, _ in step.design.tile.style.digits) >= 8


def test_a_tile_of_the_tensor_cores_is_obeyed_or_refused_with_sizes() -> None:
    instruction = KRON.instruction(float32, Target.parse("sm_80"))
    tiles = TileDescription((4, 64, 8), 1, (4, 1, 1), instruction)
    (step,) = KRON.plan(kron([(8, 8)] * 2, tiles=tiles, instruction=instruction), HOPPER).steps
    assert isinstance(step.design, TiledPass)
    assert (step.design.rows, step.design.threads) == (4, 128)
    tiles = TileDescription((1, 1 << 18, 8), 1, (4, 1, 1), instruction)
    with pytest.raises(DescriptionError, match="200 does not fit"):
        KRON.plan(kron([(200, 200)], tiles=tiles, instruction=instruction), HOPPER)


def test_strides_keep_a_warps_lanes_in_different_banks() -> None:
    style = MmaStyle(
        digits=((8, 8),) * 3, accumulator=float32, splits=True, staged_in=True, staged_out=True
    )
    strides = style.strides(32)[1:]
    for stride in strides:
        # Four steps of the digit and eight neighbours of four floats: a wave of 8 threads each.
        banks = [
            (t * stride + 4 * g + e) % 32 for t in range(4) for g in range(2) for e in range(4)
        ]
        assert sorted(banks) == list(range(32))


@pytest.mark.parametrize("columns", [1, 5, 32])
@pytest.mark.parametrize(
    "digits", [((64, 64), (64, 64)), ((32, 20), (86, 86), (16, 16)), ((9, 5),)]
)
def test_rows_of_16_bit_elements_are_aligned_and_in_different_banks(
    digits: tuple[tuple[int, int], ...], columns: int
) -> None:
    style = HalfStyle(
        digits=digits, accumulator=float32, splits=False, staged_in=True, staged_out=True
    )
    strides = style.strides(columns)
    steps = strides[:-1] if columns == 1 else strides
    assert (strides[-1] == 1) == (columns == 1)
    assert all(stride % 16 == 8 for stride in steps)
    for outer, inner, digit in zip(strides, strides[1:], digits, strict=False):
        assert outer >= inner * max(digit)


def test_16_bit_operands_stay_as_they_are_in_one_pass() -> None:
    for element, expected in ((bfloat16, True), (float16, True), (float32, False)):
        instruction = MathInstruction.tensor_op(element)
        plan = KRON.plan(kron([(64, 64)] * 2, element, instruction=instruction), HOPPER)
        (step,) = plan.steps
        assert isinstance(step.design, KronMma)
        assert isinstance(step.design.tile.style, HalfStyle) is expected


def test_a_tile_steers_the_plan() -> None:
    tiles = TileDescription((4, 64, 8), 1, (2, 1, 1), SIMT)
    (step,) = KRON.plan(
        kron([(2, 3), (5, 2), (6, 4)], tiles=TileDescription((4, 90, 8), 1, (2, 1, 1), SIMT)),
        HOPPER,
    ).steps
    assert isinstance(step.design, TiledPass)
    assert (step.design.rows, step.design.threads) == (4, 64)
    plan = KRON.plan(kron([(8, 8)] * 4, tiles=tiles), HOPPER)
    assert len(plan.steps) == 2
    assert all(step.design.threads == 64 for step in plan.steps)


@pytest.mark.parametrize(
    ("shape", "stages", "warps", "text"),
    [
        ((64, 32768, 8), 1, (8, 1, 1), "bytes of shared memory"),
        ((1, 8, 8), 3, (4, 1, 1), "stages"),
        ((1, 64, 8), 1, (64, 1, 1), "warp_count"),
    ],
)
def test_a_tile_that_does_not_fit_says_what_to_change(
    shape: tuple[int, int, int], stages: int, warps: tuple[int, int, int], text: str
) -> None:
    plan = kron([(8, 8)] * 5, tiles=TileDescription(shape, stages, warps, SIMT))
    status = KRON.supports(plan, HOPPER)
    assert not status
    assert text in status.reason


def test_a_sparse_tile_steers_and_is_refused() -> None:
    tiles = TileDescription((64, 16, 4), 1, (2, 1, 1), SIMT)
    design = KSPARSE.plan(ksparse((2, 12, 20, 1), tiles=tiles), HOPPER).steps[0].design
    assert isinstance(design, ContractDesign)
    assert (design.m, design.n, design.k, design.stages) == (64, 16, 4, 1)
    assert design.threads == 64
    for shape, stages in (((4096, 4096, 64), 1), ((64, 16, 4), 9), ((63, 7, 4), 1)):
        status = KSPARSE.supports(
            ksparse((2, 12, 20, 1), tiles=TileDescription(shape, stages, (2, 1, 1), SIMT)), HOPPER
        )
        assert not status
        assert re.search("use|change", status.reason)


def test_rejected_candidates_carry_reasons() -> None:
    plan = KRON.plan(kron([(8, 8)] * 6, alignment=4), HOPPER)
    assert any("bytes of shared memory" in reason for _, reason in plan.rejected)
    sparse = KSPARSE.plan(ksparse((6, 64, 64, 1)), HOPPER)
    assert all(reason for _, reason in sparse.rejected)
    assert "rejected" in sparse.explain()


def test_the_workspace_holds_what_the_steps_pass_on() -> None:
    description = kron([(64, 16), (64, 32), (64, 8)])
    plan = KRON.plan(description, HOPPER)
    assert len(plan.steps) == 3
    size = plan.workspace_bytes(10, 1)
    base = 1 << 50
    launches = plan.launches(problem(description, 10, workspace=base))
    for before, after, old, new in zip(
        launches, launches[1:], plan.steps, plan.steps[1:], strict=False
    ):
        written = member(before, old, "y")
        assert written == member(after, new, "x")
        assert base <= written < base + size
    assert member(launches[-1], plan.steps[-1], "y") == 1 << 40
    assert KRON.plan(kron([(8, 8)] * 5), HOPPER).workspace_bytes(10, 1) == 0


def test_batches_fold_into_rows_where_factors_do_not_depend_on_them() -> None:
    description = kron([(8, 8)] * 2, alignment=4)
    plan = KRON.plan(description, HOPPER)
    (folded,) = plan.launches(problem(description, 10, (6, 7)))
    (flat,) = plan.launches(problem(description, 420))
    assert folded == flat


def test_grids_stop_at_the_limit() -> None:
    description = kron([(2, 2)])
    plan = KRON.plan(description, HOPPER)
    (launch,) = plan.launches(problem(description, 2**45))
    assert launch.grid == (MOST_BLOCKS, 1, 1)


@pytest.mark.parametrize(
    ("pointer", "row", "column", "width", "expected"),
    [
        (256, 64, 1, 4, 1),
        (260, 64, 1, 4, 0),
        (256, 63, 1, 4, 0),
        (256, 64, 2, 4, 0),
        (260, 63, 2, 1, 1),
    ],
)
def test_vectors_need_alignment(
    pointer: int, row: int, column: int, width: int, expected: int
) -> None:
    view: Any = View(pointer=pointer, strides={"row": (row,), "digit": (column,)})
    assert allows_vectors(view, {"row": (10,), "digit": (8,)}, "digit", width, float32) == expected


def test_integer_epilogues_take_integer_scalars() -> None:
    (step,) = KRON.plan(kron([(2, 2)], int32), HOPPER).steps
    assert "long long" in step.design.instantiation(HOPPER).parameters
    assert step.design.signature.fields[-1].scalar.cxx == "long long"


def test_a_pass_is_limited_in_factors() -> None:
    description = kron([(1, 1)] * 33)
    shape = PassShape(group=description.contractions, left=1, right=1)
    work = work_of(description, shape, ends_of(description))
    status = KronTile(work=work, rows=1, columns=1, threads=64).status(HOPPER)
    assert "33 factors" in status.reason


@pytest.mark.parametrize("batch", [(), (3, 700), (700, 3)])
def test_intermediates_beyond_a_gigabyte_go_in_parts(batch: tuple[int, ...]) -> None:
    description = kron(
        [(16, 16)] * 5, alignment=4, instruction=KRON.instruction(float32, Target.parse("sm_80"))
    )
    plan = KRON.plan(description, HOPPER)
    rows = 2100 // math.prod(batch)
    assert isinstance(plan.runnable, KronPasses)
    most = plan.runnable.rows_at_once(2100)
    assert most * description.input_columns * 4 <= 1 << 30
    assert plan.workspace_bytes(2100, 1) <= 1 << 30
    launches = plan.launches(problem(description, rows, batch, workspace=1 << 50))
    starts = [member(item, plan.steps[0], "x") for item in launches if item.step == 0]
    # Dense problems fold into rows: the parts are consecutive.
    assert starts == [
        (1 << 30) + part * most * description.input_columns * 4 for part in range(len(starts))
    ]
    assert len(starts) == -(-2100 // most)


@pytest.mark.parametrize("target", TARGETS)
def test_tiles_too_small_for_a_chunk_still_have_a_plan(target: Target) -> None:
    instruction = MathInstruction.tensor_op(float32)
    tiles = TileDescription((1, 64, 4), 1, (1, 1, 1), instruction)
    plan = KRON.plan(kron([(4, 4)] * 3, tiles=tiles, instruction=instruction), target)
    for step in plan.steps:
        assert isinstance(step.design, KronMma)
        assert step.design.exchanged(target) == 0


def test_factors_of_float16_are_multiplied_out_in_float32_only() -> None:
    for element, halves in ((float16, False), (bfloat16, True)):
        instruction = MathInstruction.tensor_op(element)
        description = kron([(4, 4)] * 4, element, alignment=8, instruction=instruction)
        for step in KRON.plan(description, HOPPER).steps:
            assert isinstance(step.design, KronMma)
            merged = max(step.design.runs) > 1
            assert merged or not halves
            assert not (merged and isinstance(step.design.tile.style, HalfStyle)) or halves


@pytest.mark.parametrize(
    ("factors", "rows"),
    [([(2, 2)] * 7, 16), ([(64, 64)] * 2, 8), ([(128, 128)] * 2, 1), ([(7, 7), (31, 31)], 1024)],
)
def test_few_rows_have_more_blocks(factors: list[tuple[int, int]], rows: int) -> None:
    description = kron(factors, instruction=MathInstruction.tensor_op(float32), alignment=4)
    many, few = (
        plan.launches(problem(description, rows, workspace=1 << 30))
        for plan in (KRON.plan(description, HOPPER), KRON.plan(description, HOPPER, rows))
    )
    assert few[0].grid[0] > 2 * many[0].grid[0]


def product_of(description: KronMatmulDescription, rows: int | None) -> ContractDesign:
    """The contraction that the only pass of a plan is."""
    (step,) = KRON.plan(description, HOPPER, rows).steps
    assert isinstance(step.design, ContractPass)
    return step.design.wrapped


@pytest.mark.parametrize("element", [float32, float64, bfloat16])
def test_large_factors_and_patterns_have_more_blocks_for_few_rows(element: DataType) -> None:
    instruction = MathInstruction.tensor_op(element)
    large = kron([(1024, 1024)], element, instruction=instruction, alignment=2)
    first, second = (product_of(large, rows) for rows in (None, 1))
    assert isinstance(first, MmaContract)
    assert isinstance(second, MmaContract)
    assert first.n > second.n == 16
    assert second.m == 16
    assert second.warps[3] in (4, 8)
    assert KRON.plan(large, HOPPER, 1024).steps == KRON.plan(large, HOPPER).steps
    sparse = ksparse((1, 512, 512, 1), element, instruction=instruction)
    many, few = (KSPARSE.plan(sparse, HOPPER, rows).steps[-1].design for rows in (None, 1))
    assert isinstance(many, ContractDesign)
    assert isinstance(few, ContractDesign)
    assert many.n > few.n


def test_row_axes_that_all_operands_walk_in_even_steps_are_one() -> None:
    def view(*strides: int) -> View:
        return View(pointer=64, strides={"row": strides, "lane": (1,)})

    def merged(x: View, z: View) -> tuple[tuple[int, ...], tuple[int, ...]]:
        views, extents = merged_rows({"x": x, "y": view(90, 30, 5), "z": z}, {"row": (2, 3, 6)})
        return extents["row"], views["y"].strides["row"]

    even, nothing = view(180, 60, 10), View(pointer=0, strides={"row": (0, 0, 0)})
    assert merged(even, nothing) == ((36, 1, 1), (5, 0, 0))
    assert merged(view(200, 60, 10), nothing) == ((2, 18, 1), (90, 5, 0))
    assert merged(even, view(180, 61, 10)) == ((2, 3, 6), (90, 30, 5))
    views, extents = merged_rows({"x": even, "y": even, "z": nothing}, {"row": (1, 3, 1)})
    assert (extents["row"], views["x"].strides["row"]) == ((3, 1, 1), (60, 0, 0))


def test_candidates_for_many_rows_begin_with_their_plan() -> None:
    description = kron([(8, 8)] * 5, instruction=MathInstruction.tensor_op(float32), alignment=4)
    assert KRON.plan(description, HOPPER, 1 << 20).steps == KRON.plan(description, HOPPER).steps
    assert KRON.candidates(description, HOPPER, 3, 1 << 20)[0].steps == (
        KRON.plan(description, HOPPER).steps
    )


@pytest.mark.parametrize("side", Side)
@pytest.mark.parametrize("element", [float32, float64, bfloat16])
@pytest.mark.parametrize("factors", [[(8, 8)] * 4, [(5, 5)] * 4, [(7, 7)] * 3, [(32, 32)] * 2])
def test_the_plan_for_many_rows_needs_no_count(
    factors: list[tuple[int, int]], element: DataType, side: Side
) -> None:
    instruction = MathInstruction.tensor_op(element)
    description = kron(factors, element, instruction=instruction, side=side, alignment=2)
    plan = KRON.plan(description, HOPPER)
    assert KRON.plan(description, HOPPER, 1 << 24).steps == plan.steps


@pytest.mark.parametrize("rows", [None, 16, 1 << 20])
def test_candidates_are_distinct(rows: int | None) -> None:
    description = kron([(8, 8)] * 4, instruction=MathInstruction.tensor_op(float32), alignment=4)
    found = KRON.candidates(description, HOPPER, 16, rows)
    assert len({plan.steps for plan in found}) == len(found)
