"""Plans for x86: order of digits, passes, tiles, what is rejected, scratch."""

from __future__ import annotations

import itertools
import math
import re
import signal

import pytest

import kronop
from kronop.descriptions.strided import Strided
from kronop.emit.render import render
from kronop.errors import DescriptionError
from kronop.families.kron.declaration import MATMUL
from kronop.families.kron.description import KronMatmulDescription, KronProblem, Side
from kronop.families.kron.x86.kron_parts import Kind, KronWork, Setting
from kronop.families.kron.x86.kron_plan import merge
from kronop.families.kron.x86.kron_tiles import KronTiles
from kronop.families.kron.x86.kron_vectors import KronVectors
from kronop.families.ksparse.declaration import CHAIN as CHAINS
from kronop.families.ksparse.declaration import PRODUCT
from kronop.families.ksparse.description import KSparseDescription
from kronop.families.ksparse.x86.ksparse_tiles import (
    KSparseTiles,
    TilesAlongBatch,
    TilesAlongOutputs,
)
from kronop.families.ksparse.x86.ksparse_vectors import KSparseVectors
from kronop.target import Target
from tests import support

KRON, KSPARSE, CHAIN = (kind.emitters["x86"] for kind in (MATMUL, PRODUCT, CHAINS))
SHAPES = {
    "mixed": ((2, 3), (5, 2), (6, 4)),
    "ones": ((1, 1),) * 70,
    "prime": ((127, 31), (1, 7)),
    "long": ((505, 3),),
    "fives": ((5, 5),) * 5,
    "eights": ((8, 8),) * 5,
    "large": ((128, 128),) * 3,
}


def kron(
    factors,
    *,
    element=kronop.float32,
    tile=None,
    side=Side.Right,
    layout=kronop.RowMajor,
    math_instruction=None,
):
    math_instruction = math_instruction or kronop.MathInstruction.simt(element)
    accumulator = math_instruction.element_accumulator
    matrix = kronop.TensorDescription(element, layout)
    return KronMatmulDescription(
        math=math_instruction,
        tile=tile,
        X=matrix,
        F=kronop.TensorDescription(element),
        Y=matrix,
        epilogue=kronop.LinearCombination(element, 1, accumulator, accumulator),
        factors=tuple(factors),
        side=side,
    )


def ksparse(pattern, *, element=kronop.float32, tile=None, batch_last=False):
    math_instruction = kronop.MathInstruction.simt(element)
    accumulator = math_instruction.element_accumulator
    matrix = kronop.TensorDescription(element)
    return KSparseDescription(
        math=math_instruction,
        tile=tile,
        X=matrix,
        W=matrix,
        Y=matrix,
        batch_last=batch_last,
        pattern=pattern,
        epilogue=kronop.LinearCombination(element, 1, accumulator, accumulator),
    )


def tile_of(m, n, k, *, stages=1, warps=(1, 1, 1)):
    simt = kronop.MathInstruction.simt(kronop.float32)
    return kronop.TileDescription([m, n, k], stages, list(warps), simt)


def cost_of_order(factors, order):
    sizes = [p for p, _ in factors]
    total = 0
    for index in order:
        total += math.prod(sizes) * factors[index][1]
        sizes[index] = factors[index][1]
    return total


@pytest.mark.parametrize(
    "factors", [((20, 30), (50, 20), (60, 40)), ((11, 3), (3, 11), (7, 7)), ((9, 90), (90, 9))]
)
def test_digits_are_applied_in_the_cheapest_order(factors):
    plan = KRON.plan(kron(factors), Target.parse("x86-avx512"))
    least = min(
        cost_of_order(factors, order) for order in itertools.permutations(range(len(factors)))
    )
    passes = plan.steps[0].design.passes
    if len(passes) == 1:
        order = [product.digit for product in passes[0].products]
        assert cost_of_order(factors, order) == least
    assert plan.steps[0].per_row.operations >= 2 * least


@pytest.mark.parametrize("arch", ["x86-avx512", "x86-avx2", "x86-generic"])
@pytest.mark.parametrize("shape", SHAPES)
def test_every_digit_is_applied_once_and_passes_chain(shape, arch):
    description = kron(SHAPES[shape])
    design = KRON.plan(description, Target.parse(arch)).steps[0].design
    digits, products = design.digits, [one for item in design.passes for one in item.products]
    assert sorted(one.digit for one in products) == list(range(len(digits)))
    assert math.prod(digit.contracted for digit in digits) == description.input_columns
    assert math.prod(digit.produced for digit in digits) == description.output_columns
    registers = Target.parse(arch).registers
    for tile, digit in ((one.tile, digits[one.digit]) for one in products):
        assert 1 <= tile.panel <= digit.produced
        assert (tile.rows + 1) * tile.vectors + 1 <= registers


@pytest.mark.parametrize("arch", ["x86-avx512", "x86-avx2", "x86-generic"])
@pytest.mark.parametrize("layout", [kronop.RowMajor, kronop.ColumnMajor])
def test_factors_whose_product_leaves_the_caches_have_a_pass_each(layout, arch):
    large = ((1024, 1024),) * 2
    for factors, element in ((large, kronop.float32), (((512, 512),) * 2, kronop.float64)):
        description = kron(factors, element=element, layout=layout)
        design = KRON.plan(description, Target.parse(arch)).steps[0].design
        assert [len(item.products) for item in design.passes] == [1, 1]
    few = KRON.plan(kron(((64, 64),) * 2), Target.parse(arch)).steps[0].design
    assert len(few.passes) == 1


@pytest.mark.parametrize("arch", ["x86-avx512", "x86-avx2", "x86-generic"])
def test_results_stay_in_place_only_where_no_tile_reads_what_another_wrote(arch):
    shapes = *SHAPES.values(), ((8, 8),) * 6, ((4, 4),) * 7, ((7, 7),) * 4, ((8, 6), (9, 9))
    kept = 0
    for factors in shapes:
        for plan in KRON.candidates(kron(factors), Target.parse(arch), 12):
            design = plan.steps[0].design
            for item in design.passes:
                assert not item.products[0].in_place
                for one in item.products:
                    kept += one.in_place
                    if one.in_place:
                        check_in_place(design, item, one)
    assert kept


@pytest.mark.parametrize("arch", ["x86-avx512", "x86-avx2"])
def test_runs_that_are_read_have_an_odd_number_of_lines(arch):
    target, padded = Target.parse(arch), set()
    shapes = (
        ((8, 8),) * 4,
        ((8, 8),) * 5,
        ((4, 4),) * 7,
        ((8, 16), (128, 256)),
        ((3, 5), *((8, 8),) * 4),
    )
    for factors, element in itertools.product(shapes, (kronop.float32, kronop.float64)):
        description = kron(factors, element=element)
        for plan in KRON.candidates(description, target, 12):
            passes = plan.steps[0].design.passes
            assert passes[0].pad == 0
            for before, item in itertools.pairwise(passes):
                if item.pad:
                    padded.add((before.kind, before.lanes > 1))
                    check_padded(plan, before, item, element.bytes)
    assert {(Kind.Whole, False), (Kind.Whole, True)} <= padded


def check_padded(plan, before, item, size):
    """One line after each run of the pass that reads; scratch has room for it."""
    design = plan.steps[0].design
    assert item.kind is Kind.Trail
    assert item.pad * size == 64
    extents = [digit.contracted for digit in design.digits]
    for earlier in design.passes[: design.passes.index(item)]:
        for one in earlier.products:
            extents[one.digit] = design.digits[one.digit].produced
    trail = math.prod(extents[max(one.digit for one in item.products) + 1 :])
    assert trail * size // 64 % 2 == 0
    runs = math.prod(extents) // trail
    assert design.shared_bytes >= design.row_tile * runs * (trail * size + 64)
    # A product along its outputs takes the rows of several groups together.
    is_along = before.kind is Kind.Whole and before.products[-1].right == 1
    assert not is_along or before.lanes == 1


def check_in_place(design, item, one):
    digit, tile = design.digits[one.digit], one.tile
    assert one is not item.products[0]
    assert digit.contracted == digit.produced == tile.rows == tile.panel
    assert item.kind is not Kind.Whole or one.right > 1
    extent = {Kind.Whole: one.right, Kind.RowsAndLead: one.right * item.lanes}
    extent = extent.get(item.kind, item.lanes)
    chunk = tile.vectors * tile.width
    assert extent % chunk == 0 or (item.kind is Kind.Whole and 2 * extent == chunk)


def setting(factors):
    sums = kronop.float32
    work = KronWork(
        element=sums,
        output=sums,
        accumulator=sums,
        epilogue=kronop.LinearCombination(sums, 1, sums, sums),
        vector_bytes=64,
        contractions=factors,
    )
    return Setting(
        work=work,
        target=Target.parse("x86-avx512"),
        width=16,
        bytes=4,
        x_by_rows=False,
        y_by_rows=False,
        converts=False,
        typical_rows=64,
        rows=None,
        held=None,
        unroll=None,
    )


@pytest.mark.parametrize(
    "factors", [[(1, 4096)] * 2, [(4096, 1)] * 2, [(1, 300)] * 3, [(1, 65536)] * 2]
)
def test_long_and_narrow_digits_take_little_scratch(factors):
    plan = KRON.plan(kron(factors), Target.parse("x86-avx512"))
    assert plan.workspace_bytes(10, 1) < 1 << 25


def test_rows_that_take_too_much_scratch_are_refused_with_those_that_fit():
    tile = lambda rows: kronop.TileDescription(  # noqa: E731
        [rows, 8, 4], 1, [1, 1, 1], kronop.MathInstruction.simt(kronop.float32)
    )
    target = Target.parse("x86-avx512")
    status = KRON.supports(kron([(8, 8)] * 4, tile=tile(2**30)), target)
    assert "bytes of scratch" in status.reason
    fits = int(status.reason.rsplit(" ", 1)[1])
    plan = KRON.plan(kron([(8, 8)] * 4, tile=tile(fits)), target)
    assert 1 << 27 < plan.workspace_bytes(fits, 1) <= 1 << 28


@pytest.mark.parametrize(
    ("factors", "merged"),
    [
        (((1, 1),) * 70, 1),
        (((2, 2),) * 6, 2),
        (((8, 8),) * 4, 4),
        (((1, 1), (8, 8), (1, 1), (8, 8)), 2),
    ],
)
def test_small_neighbours_are_merged(factors, merged):
    digits = merge(setting(factors))
    assert len(digits) == merged
    assert [digit.first for digit in digits[1:]] == [digit.end for digit in digits[:-1]]
    assert math.prod(digit.contracted for digit in digits) == math.prod(p for p, _ in factors)


def test_merging_never_costs_multiply_adds_beyond_its_savings():
    for factors in itertools.product([(1, 1), (2, 2), (2, 3), (3, 2), (5, 5)], repeat=3):
        apart = sum(digit.produced * digit.contracted for digit in merge(setting(factors)))
        assert apart <= 5 * sum(p * q for p, q in factors) + 36


@pytest.mark.parametrize(
    ("tile", "words"),
    [
        (tile_of(16, 4096, 4, stages=2), "stages is 2"),
        (tile_of(16, 4096, 4, warps=(1, 2, 1)), "use [1, 1, 1]"),
        (tile_of(16, 4096, 64), "at most 16"),
        (tile_of(16, 7, 4), "raise threadblock_shape[1] to 8"),
    ],
)
def test_a_tile_that_does_not_fit_is_rejected_with_what_to_change(tile, words):
    status = KRON.supports(kron(((8, 8),) * 4, tile=tile), Target.parse("x86-avx512"))
    assert not status
    assert words in status.reason
    with pytest.raises(kronop.KronopError, match=re.escape(words)):
        KRON.plan(kron(((8, 8),) * 4, tile=tile), Target.parse("x86-avx512"))


def test_a_tile_steers_the_plan():
    plan = KRON.plan(kron(((8, 8),) * 4, tile=tile_of(5, 64, 2)), Target.parse("x86-avx2"))
    design = plan.steps[0].design
    assert design.row_tile == 5
    assert {one.tile.unroll for item in design.passes for one in item.products} == {2}
    assert peak_of(design) <= 64


def peak_of(design):
    """Most elements of a row that a state holds."""
    return max(
        one.left * one.right * size
        for item in design.passes
        for one in item.products
        for digit in [design.digits[one.digit]]
        for size in (digit.contracted, digit.produced)
    )


@pytest.mark.parametrize(
    ("held", "peak", "groups"),
    [
        (8, 8, [1, 1, 1, 1]),
        (63, 8, [1, 1, 1, 1]),
        (64, 64, [2, 2]),
        (511, 64, [2, 2]),
        (512, 512, [1, 3]),
        (4096, 4096, [4]),
        (8192, 4096, [4]),
    ],
)
def test_tile_n_groups_digits_into_passes(held, peak, groups):
    description = kron(((8, 8),) * 4, tile=tile_of(16, held, 4))
    design = KRON.plan(description, Target.parse("x86-avx512")).steps[0].design
    assert peak_of(design) == peak
    assert sorted(len(item.products) for item in design.passes) == groups


def test_candidates_grow_with_passes_and_no_faster():
    tile = tile_of(1, 2, 1)
    description = kron(((2, 2),) * 24, tile=tile, layout=kronop.ColumnMajor)
    plans = KRON.candidates(description, Target.parse("x86-avx2"), 10_000)
    assert max(len(plan.steps[0].design.passes) for plan in plans) == 24
    assert len(plans) < 24 * 10


def test_lanes_of_rows_are_bounded_whatever_the_tile():
    description = kron(((4, 4),) * 2, tile=tile_of(400_000, 16, 4), layout=kronop.ColumnMajor)
    for plan in KRON.candidates(description, Target.parse("x86-avx2"), 100):
        assert max(item.lanes for item in plan.steps[0].design.passes) <= 256


def test_a_state_beyond_the_cache_is_rejected_with_the_sizes():
    target = Target.parse("x86-avx512")
    status = KRON.supports(kron(((128, 128),) * 3, tile=tile_of(16, 1 << 21, 4)), target)
    assert status.reason == (
        "Tile_N of 2097152 takes 16777216 bytes for two states of 2097152 elements of a row,"
        " and the level-2 cache has 1048576; lower threadblock_shape[1] to 16384"
    )
    # Digits that are larger than any cache can not be held in part.
    for n in (16383, 16384, 1 << 20):
        status = KRON.supports(kron(((16384, 3),), tile=tile_of(16, n, 4)), target)
        assert bool(status) == (n >= 16384)


def test_tensor_cores_are_rejected():
    instruction = kronop.MathInstruction(
        [8, 8, 4],
        kronop.float64,
        kronop.float64,
        kronop.float64,
        kronop.OpClass.TensorOp,
        kronop.MathOperation.multiply_add,
    )
    matrix = kronop.TensorDescription(kronop.float64)
    description = KronMatmulDescription(
        math=instruction,
        tile=None,
        X=matrix,
        F=matrix,
        Y=matrix,
        factors=((8, 8),),
        epilogue=kronop.LinearCombination(kronop.float64, 1, kronop.float64, kronop.float64),
    )
    status = KRON.supports(description, Target.parse("x86"))
    assert not status
    assert "use OpClass.Simt" in status.reason


def test_ksparse_tiles():
    target = Target.parse("x86-avx512")
    status = KSPARSE.supports(ksparse((2, 8, 8, 1), tile=tile_of(10, 8, 8)), target)
    assert not status
    assert "multiple of 16" in status.reason
    step = KSPARSE.plan(ksparse((2, 48, 96, 3), tile=tile_of(64, 12, 32)), target).steps[0]
    design = step.design
    assert (design.row_tile, design.outputs, design.depth) == (64, 12, 32)
    assert design.outputs % design.tile == 0


@pytest.mark.parametrize("shape", SHAPES)
def test_names_are_identifiers_of_bounded_length(shape):
    plan = KRON.plan(kron(SHAPES[shape]), Target.parse("x86-generic"))
    assert re.fullmatch(r"[a-z]\w{1,99}", plan.steps[0].entry)
    (source,) = render(plan)
    assert not re.search(r"\b(for|while|if)\b", re.sub(r"//.*", "", source.text))


def test_name_carries_the_short_plan():
    assert (
        KRON.plan(kron(((8, 8),) * 4), Target.parse("x86-avx512")).steps[0].entry
        == "kron_f32_8x8p4_avx512"
    )


def test_losers_have_reasons():
    plan = KRON.plan(kron(((8, 8),) * 4), Target.parse("x86-avx512"))
    assert plan.rejected
    assert all(reason for _, reason in plan.rejected)
    assert "rejected" in plan.explain()


def problem(rows, batch, x_batch, factor_batch, *, threads=2):
    matrix = Strided(pointer=64, strides=(64, 1), batch=x_batch)
    factor = Strided(pointer=64, strides=(8, 1), batch=factor_batch)
    return KronProblem(
        rows=rows,
        batch=batch,
        x=matrix,
        factors=(factor, factor),
        z=None,
        y=matrix,
        scalars=(1.0, 0.0),
        workspace=64,
        threads=threads,
    )


def field(step, launch, name):
    offset = step.design.signature.offsets()[name]
    return int.from_bytes(launch.parameters[offset : offset + 8], "little", signed=True)


@pytest.mark.parametrize(
    ("rows", "batch", "x_batch", "factor_batch", "folded"),
    [
        (4, (3, 5), (5 * 256, 256), (0, 0), 60),
        (4, (3,), (999,), (0,), 4),
        (1, (7,), (999,), (0,), 7),
        (4, (5,), (256,), (64,), 4),
    ],
)
def test_batches_that_continue_the_rows_become_rows(rows, batch, x_batch, factor_batch, folded):
    plan = KRON.plan(kron(((8, 8),) * 2), Target.parse("x86-avx2"))
    (launch,) = plan.launches(problem(rows, batch, x_batch, factor_batch))
    assert field(plan.steps[0], launch, "rows") == folded


def test_small_problems_take_one_thread_and_large_ones_all():
    plan = KRON.plan(kron(((8, 8),) * 2), Target.parse("x86-avx2"))
    (small,) = plan.launches(problem(4, (), (), ()))
    (large,) = plan.launches(problem(100_000, (), (), (), threads=6))
    assert field(plan.steps[0], small, "threads") == 1
    assert field(plan.steps[0], large, "threads") == 6


def test_workspace_is_a_slice_per_thread_that_has_work():
    plan = KRON.plan(kron(((8, 8),) * 4), Target.parse("x86-avx2"))
    one = plan.steps[0].design.shared_bytes
    assert one % 64 == 0
    assert [plan.workspace_bytes(rows, 8) for rows in (0, 3, 100)] == [0, one, 8 * one]


@pytest.mark.parametrize(("rows", "together"), [(1, 1), (3, 1), (8, 0), (1024, 0)])
def test_threads_share_a_row_where_rows_do_not_come_out_even(rows, together):
    plan = KRON.plan(kron(((16, 16),) * 5), Target.parse("x86-avx2"))
    (launch,) = plan.launches(problem(rows, (), (), (), threads=2))
    assert field(plan.steps[0], launch, "threads") == 2
    assert field(plan.steps[0], launch, "together") == together


AMX = Target.parse("x86-amx")


def on_tiles(factors, **options):
    math_instruction = KRON.instruction(kronop.bfloat16, AMX)
    return kron(factors, element=kronop.bfloat16, math_instruction=math_instruction, **options)


def test_the_instruction_is_that_of_the_target():
    assert KRON.instruction(kronop.bfloat16, AMX) == kronop.MathInstruction.amx()
    for element, target in (
        (kronop.bfloat16, Target.parse("x86-avx512")),
        (kronop.float16, AMX),
        (kronop.int8, AMX),
    ):
        assert KRON.instruction(element, target) == kronop.MathInstruction.simt(element)
    for element in (kronop.bfloat16, kronop.int8):
        assert KSPARSE.instruction(element, AMX) == kronop.MathInstruction.amx(element)
        assert CHAIN.instruction(element, AMX) == kronop.MathInstruction.simt(element)
    assert KSPARSE.instruction(kronop.float16, AMX) == kronop.MathInstruction.simt(kronop.float16)
    with pytest.raises(DescriptionError, match="element type of AMX tiles: expected bfloat16 or"):
        kronop.MathInstruction.amx(kronop.float32)
    status = KRON.supports(on_tiles(((32, 32),)), Target.parse("x86-avx512"))
    assert re.search("has no tensor cores for TensorOp 16x16x32", status.reason)


@pytest.mark.parametrize(
    ("factors", "digits"),
    [
        (((128, 128),) * 2, (128, 128)),
        (((64, 64),) * 3, (64, 64, 64)),
        (((8, 8),) * 4, (64, 64)),
        (((16, 16),) * 4, (16, 16, 16, 16)),
    ],
)
def test_tiles_take_large_digits_and_merged_ones(factors, digits):
    plan = KRON.plan(on_tiles(factors), AMX)
    (step,) = plan.steps
    assert isinstance(step.design, KronTiles)
    assert "cycles per row, on tiles" in plan.explain(), "what was not chosen is said"
    assert tuple(digit.contracted for digit in step.design.digits) == digits
    assert step.per_row.operations == 2 * math.prod(p for p, _ in factors) * sum(digits)


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"factors": ((8, 8),) * 2}, "on vectors about"),
        ({"factors": ((64, 64),) * 2, "side": Side.Left}, "contiguous along the digits"),
        ({"factors": ((20000, 20000),)}, "bytes of scratch in each thread"),
    ],
)
def test_vectors_take_the_rest_with_a_reason(options, reason):
    plan = KRON.plan(on_tiles(**options), AMX)
    assert isinstance(plan.steps[0].design, KronVectors)
    assert plan.rejected[0][0].startswith("on tiles")
    assert reason in plan.rejected[0][1]


def test_simt_on_a_machine_with_tiles_is_that_of_avx512():
    narrow = Target.parse("x86-avx512")
    for element in (kronop.bfloat16, kronop.float32):
        description = kron(((64, 64),) * 2, element=element)
        (step,), (other,) = KRON.plan(description, AMX).steps, KRON.plan(description, narrow).steps
        assert step.design == other.design


def test_tiles_take_no_tile_description():
    tile = kronop.TileDescription([16, 64, 4], 1, [1, 1, 1], kronop.MathInstruction.amx())
    status = KRON.supports(on_tiles(((64, 64),), tile=tile), AMX)
    assert "leave it out, or use MathInstruction.simt" in status.reason


def test_tiles_share_out_rows_but_never_a_row():
    (step,) = (plan := KRON.plan(on_tiles(((64, 64),) * 3), AMX)).steps
    for rows in (1, 3, 1000):
        problem = KronProblem(
            rows=rows,
            batch=(),
            x=Strided(pointer=0, strides=(64**3, 1)),
            factors=(Strided(pointer=0, strides=(64, 1)),) * 3,
            z=None,
            y=Strided(pointer=0, strides=(64**3, 1)),
            scalars=(1, 0),
            workspace=0,
            threads=2,
        )
        (launch,) = plan.launches(problem)
        values = {
            name: int.from_bytes(launch.parameters[at : at + 8], "little")
            for name, at in step.design.signature.offsets().items()
        }
        assert values["together"] == 0
        assert values["plain"] == 1, "sums are rounded by the kernel: no epilogue has to run"
        assert values["threads"] == min(rows, 2)
        assert values["threads"] * step.design.shared_bytes <= plan.workspace_bytes(rows, 2)
        assert values["stream"] == (rows * 64**3 * 2 > 8 << 20)


def sparse_on_tiles(pattern, element=kronop.bfloat16, **options):
    return support.ksparse_operation(AMX, element, pattern, **options).plan


@pytest.mark.parametrize(
    ("pattern", "options", "way"),
    [
        ((6, 64, 64, 1), {}, TilesAlongOutputs),
        ((6, 64, 64, 1), {"batch_last": True}, TilesAlongBatch),
        ((6, 64, 64, 1), {"layout": kronop.ColumnMajor}, TilesAlongBatch),
        ((1, 192, 48, 2), {}, TilesAlongBatch),
        ((1, 768, 192, 64), {}, TilesAlongBatch),
    ],
)
@pytest.mark.parametrize("element", [kronop.bfloat16, kronop.int8])
def test_tiles_take_sparse_products_of_two_types(element, pattern, options, way):
    plan = sparse_on_tiles(pattern, element, **options)
    (step,) = plan.steps
    design = step.design
    assert isinstance(design, way)
    assert design.depth == pattern[2], "never split"
    assert design.row_tile % 32 == 0
    assert 2 * design.vector_work < step.per_row.operations // 2, "threads start later"
    assert all(what.startswith("lanes along") for what, _ in plan.rejected)
    assert design.state_bytes <= 1 << 20


@pytest.mark.parametrize(
    ("pattern", "reason"),
    [((64, 4, 2, 4), "on vectors about"), ((1, 16, 32768, 2), "bytes for X and results")],
)
def test_vectors_take_other_sparse_products_with_a_reason(pattern, reason):
    plan = sparse_on_tiles(pattern)
    assert isinstance(plan.steps[0].design, KSparseVectors)
    assert plan.rejected[0][0].startswith("on tiles")
    assert reason in plan.rejected[0][1]


def test_candidates_are_tiles_and_the_vectors_that_they_beat():
    operation = support.ksparse_operation(AMX, kronop.int8, (6, 64, 64, 1))
    first, *others = (plan.steps[0].design for plan in operation.candidates(3))
    assert isinstance(first, KSparseTiles)
    assert len(others) == 2
    assert all(isinstance(design, KSparseVectors) for design in others)
    assert operation.candidates(1) == (operation.plan,)


def test_sparse_products_on_tiles_take_no_tile_description():
    math_instruction = kronop.MathInstruction.amx(kronop.int8)
    tile = kronop.TileDescription([16, 64, 4], 1, [1, 1, 1], math_instruction)
    with pytest.raises(DescriptionError, match="leave it out, or use MathInstruction"):
        support.ksparse_operation(AMX, kronop.int8, (6, 64, 64, 1), tile=tile)


def test_chains_stay_on_vectors():
    patterns = ((2, 48, 192, 1), (1, 192, 48, 2))
    plan = support.chain_operation(AMX, kronop.bfloat16, patterns).plan
    headers = {step.design.instantiation(plan.target).header for step in plan.steps}
    assert headers == {"ksparse.hpp"}
    tile = kronop.TileDescription([16, 64, 4], 1, [1, 1, 1], kronop.MathInstruction.amx())
    with pytest.raises(DescriptionError, match="has no tensor cores for TensorOp 16x16x32"):
        support.chain_operation(AMX, kronop.bfloat16, patterns, tile=tile)


def test_kronecker_products_of_int8_stay_on_vectors():
    status = KRON.supports(
        kron(
            ((64, 64),) * 2,
            element=kronop.int8,
            math_instruction=kronop.MathInstruction.amx(kronop.int8),
        ),
        AMX,
    )
    assert "has no tensor cores for TensorOp 16x16x64" in status.reason


@pytest.fixture
def soon():
    """Ends a test that does not end, rather than the suite."""

    def end(*_):
        raise TimeoutError("not planned within 10 seconds")

    before = signal.signal(signal.SIGALRM, end)
    signal.alarm(10)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


@pytest.mark.skipif(not hasattr(signal, "alarm"), reason="no alarms on this system")
@pytest.mark.usefixtures("soon")
@pytest.mark.parametrize("target", ["x86-generic", "x86-avx512", "x86-amx"])
@pytest.mark.parametrize("place", range(4))
def test_any_extent_is_planned_at_once(target, place):
    pattern = [1, 1, 1, 1]
    pattern[place] = 2**40
    for element in (kronop.float32, kronop.bfloat16):
        operation = support.ksparse_operation(target, element, pattern)
        assert operation.candidates(3)[0].steps
