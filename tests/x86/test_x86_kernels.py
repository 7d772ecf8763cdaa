"""The x86 kernels of both families, compiled and run below the level of operations."""

from __future__ import annotations

import dataclasses
import math

import ml_dtypes
import numpy as np
import pytest

import kronop
from kronop import compiler
from kronop.descriptions.strided import NOTHING, Strided
from kronop.emit.plan import Plan
from kronop.emit.render import render
from kronop.emit.x86 import planning
from kronop.families.kron.declaration import MATMUL
from kronop.families.kron.description import KronMatmulDescription, KronProblem, Side
from kronop.families.kron.x86.kron_parts import Kind
from kronop.families.ksparse.declaration import CHAIN as CHAINS
from kronop.families.ksparse.declaration import PRODUCT
from kronop.families.ksparse.description import (
    KSparseChainDescription,
    KSparseChainProblem,
    KSparseDescription,
    KSparseProblem,
)
from kronop.target import Target
from tests import support
from tests.support import chain_operation, cpu_targets, templates

ARCHS = cpu_targets()
# Plans of AVX-512, compiled for less where the machine has less.
WIDE = (
    "x86-avx512"
    if "x86-avx512" in ARCHS
    else dataclasses.replace(Target.parse(ARCHS[-1]), vector_bytes=64, registers=32)
)
FLOATS = (kronop.float32, kronop.float64, kronop.float16, kronop.bfloat16)
ELEMENTS = (*FLOATS, kronop.int32, kronop.int64)
UNIT = {"float32": 2.0**-24, "float64": 2.0**-53, "float16": 2.0**-11, "bfloat16": 2.0**-8}
TINY = {"float32": 0.0, "float64": 0.0, "float16": 2.0**-24, "bfloat16": 0.0}


def dtype_of(element):
    return np.dtype(ml_dtypes.bfloat16 if element == kronop.bfloat16 else element.name)


def random_array(random, shape, element):
    if element.kind == "int":
        return random.integers(-9, 10, shape).astype(dtype_of(element))
    return random.standard_normal(shape).astype(dtype_of(element))


def poisoned(shape, element, offset=16):
    """An array that begins `offset` bytes after a cache line."""
    dtype = dtype_of(element)
    size = math.prod(shape) * dtype.itemsize
    memory = np.empty(size + 128, np.uint8)
    start = -memory.ctypes.data % 64 + offset
    array = memory[start : start + size].view(dtype).reshape(shape)
    array[...] = np.nan if element.kind == "float" else 77
    return array


def strided(array, how):
    """The same values under other strides."""
    if how == "transposed":
        return np.ascontiguousarray(array.swapaxes(-1, -2)).swapaxes(-1, -2)
    if how == "turned":
        return np.ascontiguousarray(array.swapaxes(1, 2)).swapaxes(1, 2)
    if how == "negative":
        return np.ascontiguousarray(array[..., ::-1, ::-1])[..., ::-1, ::-1]
    return array


def matrix(array, swap, batch=()):
    """The canonical form of `array` broadcast to `batch`."""
    array = np.broadcast_to(array, (*batch, *array.shape[-2:]))
    *outer, row, column = (stride // array.itemsize for stride in array.strides)
    row, column = (column, row) if swap else (row, column)
    return Strided(pointer=array.ctypes.data, strides=(row, column), batch=tuple(outer))


def load(plan):
    (binary,) = compiler.compile_sources(render(plan), plan.target)
    return compiler.load(binary, plan.target)


def launch(plan, problem, rows, threads=2, load=load):
    """Runs a problem in a workspace that has guards on both sides."""
    size = plan.workspace_bytes(rows, threads)
    memory = np.full(size + 256, 0xFF, np.uint8)
    start = 64 + -memory.ctypes.data % 64
    problem = dataclasses.replace(problem, workspace=memory.ctypes.data + start, threads=threads)
    kernels = [load(Plan(target=plan.target, steps=(step,))) for step in plan.steps]
    launches = plan.launches(problem)
    for item in launches:
        kernels[item.step].bind(item)(0)
    assert (memory[:start] == 0xFF).all()
    assert (memory[start + size :] == 0xFF).all()
    return launches


def check(description, actual, expected, magnitude, contracted, output):
    """|error| <= 2 eps (contracted sizes) sum |x| |f| ..., and the rounding of the output.

    With the tile instruction also of what is between two factors, and of products of factors.
    """
    if output.kind == "int":
        np.testing.assert_array_equal(actual.astype(np.int64), expected)
        return
    sums = 2 * UNIT[description.math.element_accumulator.name] * (contracted + 4) * magnitude
    bound = sums + 2 * UNIT[output.name] * np.abs(expected) + TINY[output.name]
    is_kron = isinstance(description, KronMatmulDescription)
    if is_kron and description.math == kronop.MathInstruction.amx():
        bound += 2 * len(description.factors) * UNIT["bfloat16"] * magnitude
    assert (np.abs(actual.astype(np.float64) - expected) <= bound).all()


def run_kron(
    factors,
    rows,
    *,
    element=kronop.float32,
    output=None,
    side=Side.Right,
    arch="x86",
    scalars=(1, 0),
    batch=(),
    x_batch=None,
    f_batch=(),
    views=(None, None, None),
    in_place=False,
    tile=None,
    candidate=0,
    offset=16,
    place=lambda array: array,
    load=load,
):
    """Returns what was launched; Y begins `offset` bytes after a cache line."""
    random = np.random.default_rng(rows)
    output = output or element
    math_instruction = MATMUL.emitters["x86"].instruction(element, Target.parse(arch))
    accumulator = math_instruction.element_accumulator
    layouts = [kronop.ColumnMajor if view == "transposed" else kronop.RowMajor for view in views]
    description = KronMatmulDescription(
        math=math_instruction if tile is None else tile.math_instruction,
        tile=tile,
        X=kronop.TensorDescription(element, layouts[0]),
        F=kronop.TensorDescription(element),
        Y=kronop.TensorDescription(output, layouts[2]),
        factors=tuple(factors),
        side=side,
        epilogue=kronop.LinearCombination(output, 1, accumulator, accumulator),
    )
    swap = side is Side.Left
    x_shape = (*(batch if x_batch is None else x_batch), *description.x_shape(rows))
    x = place(strided(random_array(random, x_shape, element), views[0]))
    fs = [strided(random_array(random, (*f_batch, *shape), element), views[1]) for shape in factors]
    fs = [place(f) for f in fs]
    z = strided(random_array(random, (*batch, *description.y_shape(rows)), output), views[2])
    y = z if in_place else place(strided(poisoned(z.shape, output, offset), views[2]))
    op = description.epilogue.epilogue_type(*scalars)
    source = z.copy() if scalars[1] else None
    problem = KronProblem(
        rows=rows,
        batch=batch,
        x=matrix(x, swap, batch),
        factors=tuple(matrix(f, swap, batch) for f in fs),
        z=matrix(z, swap, batch) if scalars[1] else None,
        y=matrix(y, swap, batch),
        scalars=op.scalars,
        workspace=0,
        threads=0,
    )
    plans = MATMUL.emitters["x86"].candidates(description, Target.parse(arch), candidate + 1)
    plan, count = plans[min(candidate, len(plans) - 1)], rows * math.prod(batch)
    launched = launch(plan, problem, count, load=load)
    expected = description.reference(x, fs, source, op)
    magnitude = description.reference(
        np.abs(x.astype(float)), [np.abs(f.astype(float)) for f in fs]
    )
    magnitude = abs(scalars[0]) * magnitude + abs(scalars[1]) * np.abs(z.astype(float)).max()
    contracted = sum(p for p, _ in description.contractions)
    check(description, y, expected, magnitude, contracted, output)
    return plan.steps[0], launched


def run_ksparse(
    pattern,
    rows,
    *,
    element=kronop.float32,
    epilogue=None,
    last=False,
    arch="x86",
    scalars=(1, 0),
    bias=False,
    views=(None, None, None),
    tile=None,
    offset=16,
    in_place=False,
    place=lambda array: array,
    load=load,
):
    """Returns what was launched; `views` are of X, W and Y, `offset` is that of Y from a line."""
    random = np.random.default_rng(rows)
    math_instruction = PRODUCT.emitters["x86"].instruction(element, Target.parse(arch))
    accumulator = math_instruction.element_accumulator
    epilogue = epilogue or kronop.LinearCombination(element, 1, accumulator, accumulator)
    output = epilogue.element_output
    layouts = [kronop.ColumnMajor if view == "transposed" else kronop.RowMajor for view in views]
    description = KSparseDescription(
        math=math_instruction,
        tile=tile,
        X=kronop.TensorDescription(element, layouts[0]),
        W=kronop.TensorDescription(element),
        Y=kronop.TensorDescription(output, layouts[2]),
        pattern=pattern,
        batch_last=last,
        epilogue=epilogue,
    )
    x = place(strided(random_array(random, description.x_shape(rows), element), views[0]))
    w = place(strided(random_array(random, pattern, element), views[1]))
    z = strided(random_array(random, description.y_shape(rows), output), views[2])
    y = z if in_place else place(strided(poisoned(z.shape, output, offset), views[2]))
    source = z.copy() if scalars[1] else None
    added = random_array(random, (description.output_columns,), output) if bias else None
    op = description.epilogue.epilogue_type(*scalars)
    problem = KSparseProblem(
        rows=rows,
        x=matrix(x, last),
        weights=support.strided(w, 4),
        z=matrix(z, last) if scalars[1] else None,
        bias=support.strided(added, 1) if bias else NOTHING,
        y=matrix(y, last),
        scalars=op.scalars,
        workspace=0,
        threads=0,
    )
    plan = PRODUCT.emitters["x86"].plan(description, Target.parse(arch))
    launched = launch(plan, problem, rows, load=load)
    expected = description.reference(x, w, source, added, op)
    plain = dataclasses.replace(
        description, epilogue=kronop.LinearCombination(output, 1, accumulator, accumulator)
    )
    magnitude = plain.reference(np.abs(x.astype(float)), np.abs(w.astype(float)))
    magnitude = abs(scalars[0]) * magnitude + abs(scalars[1]) * np.abs(z.astype(float)).max() + 4
    check(description, y, expected, magnitude, pattern[2], output)
    return plan.steps[0], launched


def run_chain(
    patterns,
    rows,
    steps,
    *,
    element=kronop.float32,
    last=False,
    scalars=(1, 0),
    bias=False,
    view=None,
    threads=2,
    arch="x86",
    offset=16,
):
    """The result of the plan that has so many steps, and whether it went past the caches."""
    random = np.random.default_rng(rows)
    simt = kronop.MathInstruction.simt(element)
    accumulator = simt.element_accumulator
    layout = kronop.ColumnMajor if view == "transposed" else kronop.RowMajor
    tensor = kronop.TensorDescription(element, layout)
    description = KSparseChainDescription(
        math=simt,
        tile=None,
        X=tensor,
        W=kronop.TensorDescription(element),
        Y=tensor,
        patterns=tuple(patterns),
        batch_last=last,
        epilogue=kronop.LinearCombination(element, 1, accumulator, accumulator),
    )
    x = strided(random_array(random, description.x_shape(rows), element), view)
    ws = [strided(random_array(random, pattern, element), view) for pattern in patterns]
    z = strided(random_array(random, description.y_shape(rows), element), view)
    y = strided(poisoned(z.shape, element, offset), view)
    added = random_array(random, (description.output_columns,), element)
    problem = KSparseChainProblem(
        rows=rows,
        x=matrix(x, last),
        weights=tuple(support.strided(w, 4) for w in ws),
        z=matrix(z, last) if scalars[1] else None,
        bias=support.strided(added, 1) if bias else NOTHING,
        y=matrix(y, last),
        scalars=description.epilogue.epilogue_type(*scalars).scalars,
        workspace=0,
        threads=0,
    )
    plans = CHAINS.emitters["x86"].candidates(description, Target.parse(arch), 2)
    (plan,) = (plan for plan in plans if len(plan.steps) == steps)
    launched = launch(plan, problem, rows, threads)
    return y.astype(np.float64), field(plan.steps[-1], launched[-1:], "stream")


KRON_SHAPES = {
    "mixed": [(2, 3), (5, 2), (6, 4)],
    "row": [(1, 7)],
    "prime": [(127, 31)],
    "long": [(505, 3)],
    "fives": [(5, 5)] * 5,
    "seventy": ([(1, 1)] * 9 + [(2, 2)] + [(1, 1)] * 4) * 5,
}


@pytest.mark.parametrize(
    ("shape", "arch"),
    [
        *((shape, ARCHS[-1]) for shape in KRON_SHAPES if shape != "fives"),
        *(pytest.param("fives", arch, marks=pytest.mark.optimised) for arch in ARCHS),
    ],
)
def test_kron_shapes_rows_sides_and_strides(shape, arch):
    for side in Side:
        for rows in (1, 3, 17, 100):
            run_kron(KRON_SHAPES[shape], rows, side=side, arch=arch)
        for view in ("transposed", "negative"):
            run_kron(
                KRON_SHAPES[shape], 17, side=side, arch=arch, scalars=(0.5, 2), views=(view,) * 3
            )
    run_kron(KRON_SHAPES[shape], 17, arch=arch, scalars=(2, 3), in_place=True)


@pytest.mark.parametrize("factors", [[(8, 8)] * 5, [(16, 16)] * 4, [(4096, 2), (2, 3)]])
def test_kron_rows_beyond_the_caches(factors):
    run_kron(factors, 3)
    run_kron(factors, 17, side=Side.Left)


def test_factors_whose_product_leaves_the_caches_are_two_matrix_products():
    step, _ = run_kron([(512, 512)] * 2, 1, element=kronop.float64, scalars=(2, 3))
    assert [len(item.products) for item in step.design.passes] == [1, 1]


def field(step, launched, name):
    offset = step.design.signature.offsets()[name]
    return int.from_bytes(launched[0].parameters[offset : offset + 8], "little", signed=True)


@pytest.mark.covering(
    candidate=range(1, 12),
    shape=[([(5, 7), (6, 4), (9, 20)], 11), ([(8, 8)] * 4, 3)],
    side=list(Side),
    scalars=[(1, 0), (2, 3)],
)
def test_kron_candidates_agree(candidate, shape, side, scalars):
    run_kron(*shape, candidate=candidate, side=side, scalars=scalars)


@pytest.mark.parametrize("factors", [[(16, 16)] * 5, [(17, 15), (31, 33), (43, 50)]])
def test_threads_share_a_row(factors):
    for rows, scalars in ((1, (1, 0)), (3, (2, 3))):
        for candidate in (0, 3):
            step, launched = run_kron(factors, rows, scalars=scalars, candidate=candidate)
            assert field(step, launched, "together") == 1


def test_threads_share_packed_factors_that_change():
    batch, factors = (5,), [(43, 50), (60, 64)]
    step, launched = run_kron(factors, 1, batch=batch, x_batch=batch, f_batch=batch)
    assert field(step, launched, "together") == 1


@pytest.mark.parametrize("arch", [*ARCHS[1:2], WIDE], ids=lambda arch: str(arch))
def test_results_stay_in_place_and_runs_are_padded(arch):
    """After blocks of one fiber and of several; with rows of one thread and with shared ones."""
    kept, padded = False, set()
    for factors, element in ((4, kronop.float64), (5, kronop.float32), (5, kronop.float64)):
        for rows in (1, 5):
            step, _ = run_kron([(8, 8)] * factors, rows, element=element, arch=arch)
            passes = step.design.passes
            kept |= any(product.in_place for item in passes for product in item.products)
            if any(item.pad for item in passes):
                padded.add(passes[0].lanes > 1)
    assert kept
    assert padded == {False, True}


def pairs_of(step, half):
    """Whether each product whose vectors two fibers share is the last of its pass."""
    for item in step.design.passes:
        for product in item.products:
            is_half = product.right == half < product.tile.width
            if item.kind is Kind.Whole and is_half and half > 1:
                yield product is item.products[-1]


@pytest.mark.parametrize("element", [kronop.float32, kronop.float64], ids=lambda item: item.name)
@pytest.mark.parametrize("arch", [ARCHS[-1], WIDE], ids=["widest", "wide"])
def test_fibers_share_vectors(element, arch):
    """In the middle of a pass, last in one, and where an odd count of them cannot."""
    vector_bytes = Target.parse(arch).vector_bytes
    half = vector_bytes // (2 * element.bytes)
    found = set()
    for factors in (
        [(16, 16), (16, 16), (half, half)],
        [(6, 8), (3, 4), (2 * half, half)],
        [(3, 5), (16, 16), (half, half)],
        [(8, 2), (2, 2), (64, 4)],
        [(2, 8), (64, 6), (32, 12), (8, 4)],
    ):
        step, _ = run_kron(factors, 3, arch=arch, element=element)
        found |= set(pairs_of(step, half))
    # Vectors of 16 bytes are not shared.
    assert found == ({False, True} if vector_bytes > 16 else set())


@pytest.mark.covering(
    factors=[[(8, 8)] * 4, [(16, 16), (5, 32)], [(3, 5), (16, 64)], [(4, 64), (3, 5)]],
    arch=list(dict.fromkeys((*ARCHS, WIDE))),
    element=[kronop.float32, kronop.float64],
    candidate=[0, 1, 2],
)
def test_results_that_go_past_the_caches(factors, arch, element, candidate, monkeypatch):
    for name in ("_PASSING", "_PASSING_IN_PARTS", "_FAR"):
        monkeypatch.setattr(planning, name, 0)
    for offset in (0, 16):
        options = {"element": element, "candidate": candidate, "offset": offset}
        step, launched = run_kron(factors, 9, arch=arch, **options)
        last = step.design.passes[-1]
        is_near = last.products[-1].right * element.bytes <= 1024
        in_order = last.kind is Kind.Whole and is_near
        is_streamed = Target.parse(arch).vector_bytes == 64 or in_order
        assert field(step, launched, "stream") == is_streamed
        assert field(step, launched, "ahead") == 1


@pytest.mark.parametrize("pattern", [(3, 48, 40, 1), (2, 96, 24, 3), (1, 20, 33, 16)])
@pytest.mark.parametrize("last", [False, True])
def test_sparse_results_that_go_past_the_caches(pattern, last, monkeypatch):
    for name in ("_PASSING", "_FAR"):
        monkeypatch.setattr(planning, name, 0)
    for rows in (70, 96):
        for offset in (0, 16):
            step, launched = run_ksparse(pattern, rows, last=last, arch=WIDE, offset=offset)
            assert field(step, launched, "stream") == field(step, launched, "ahead") == 1
            assert step.design.streams == (last or pattern[3] == 1)


@pytest.mark.parametrize("last", [False, True])
def test_results_of_chains_that_go_past_the_caches(last, monkeypatch):
    for name in ("_PASSING", "_FAR"):
        monkeypatch.setattr(planning, name, 0)
    for rows in (96, 133):
        patterns = (2, 16, 9, 6), (6, 32, 32, 1)
        assert compare_chain(patterns, rows, last=last, arch=WIDE, offset=0) == 1


@pytest.mark.covering(element=ELEMENTS, arch=ARCHS, side=list(Side))
def test_kron_elements(element, arch, side):
    run_kron([(7, 9), (3, 4), (8, 8)], 35, element=element, arch=arch, side=side, scalars=(2, 3))


@pytest.mark.parametrize("output", FLOATS, ids=lambda item: item.name)
@pytest.mark.parametrize("element", FLOATS, ids=lambda item: item.name)
def test_kron_output_of_another_element(element, output):
    run_kron([(3, 5)] * 3, 13, element=element, output=output)


@pytest.mark.parametrize(
    ("batch", "x_batch", "f_batch"),
    [
        ((3, 4), (3, 1), (1, 4)),
        ((3, 2, 4), (4,), (3, 1, 1)),
        ((2, 3, 2, 5), None, ()),
        ((50,), None, ()),
    ],
)
def test_kron_batches_broadcast(batch, x_batch, f_batch):
    for side in Side:
        run_kron(
            [(2, 3), (5, 2), (6, 4)], 5, side=side, batch=batch, x_batch=x_batch, f_batch=f_batch
        )


@pytest.mark.parametrize("shape", [(1, 512, 1), (5, 4096, 2), (33, 64, 8)])
def test_kron_tiles(shape):
    tile = kronop.TileDescription(
        list(shape), 1, [1, 1, 1], kronop.MathInstruction.simt(kronop.float32)
    )
    run_kron([(8, 8)] * 4, 40, tile=tile)


@pytest.mark.covering(
    pattern=[(1, 2, 2, 1), (3, 5, 7, 2), (2, 17, 5, 5), (2, 9, 13, 3), (3, 11, 9, 64)],
    arch=ARCHS,
    last=[False, True],
    transposed=[False, True],
)
def test_ksparse_patterns_batches_and_strides(pattern, arch, last, transposed):
    options = {"last": last, "arch": arch}
    views = ("transposed",) * 3 if transposed else (None,) * 3
    for rows in (1, 35, 100):
        run_ksparse(pattern, rows, bias=rows > 1, views=views, **options)
    for other in {views, ("negative",) * 3}:
        run_ksparse(pattern, 35, scalars=(0.5, 2), views=other, **options)


@pytest.mark.parametrize("last", [False, True])
@pytest.mark.parametrize("element", ELEMENTS, ids=lambda item: item.name)
def test_ksparse_elements(element, last):
    run_ksparse((2, 9, 13, 3), 35, element=element, last=last, bias=True, scalars=(2, 3))


@pytest.mark.optimised
@pytest.mark.parametrize("arch", ARCHS)
def test_ksparse_large_batch_and_many_outputs(arch):
    run_ksparse((2, 48, 96, 4), 1000, bias=True, arch=arch)
    run_ksparse((1, 300, 500, 2), 200, last=True, arch=arch)


@pytest.mark.parametrize("shape", [(64, 8, 4), (32, 5, 3), (16, 100, 100)])
def test_ksparse_tiles(shape):
    tile = kronop.TileDescription(
        list(shape), 1, [1, 1, 1], kronop.MathInstruction.simt(kronop.float32)
    )
    run_ksparse((2, 9, 13, 3), 100, tile=tile, bias=True)


CHAIN = ((2, 13, 9, 5), (13, 4, 10, 1), (4, 7, 13, 1))


def compare_chain(patterns, rows, **options):
    """To the bit: middles are rounded alike, sums are in one order, scalars are powers of two.

    Returns whether results went past the caches.
    """
    whole, streamed = run_chain(patterns, rows, 1, **options)
    apart, _ = run_chain(patterns, rows, len(patterns), **options)
    assert np.isfinite(whole).all()
    np.testing.assert_array_equal(whole, apart)
    return streamed


@pytest.mark.parametrize("element", ELEMENTS, ids=lambda element: element.name)
def test_a_chain_in_one_kernel_is_the_products_apart(element):
    for rows, threads in ((1, 1), (7, 2), (133, 1), (301, 3)):
        compare_chain(CHAIN[:2], rows, element=element, bias=True, threads=threads)
    compare_chain(CHAIN[:2], 133, element=element, scalars=(2, 4), view="negative")


@pytest.mark.optimised
def test_a_chain_of_three_in_one_kernel():
    compare_chain(CHAIN, 301, last=True, bias=True, scalars=(2, 4))


def test_a_transposed_chain_in_one_kernel():
    compare_chain(CHAIN[:2], 133, scalars=(2, 4), view="transposed")


def test_chains_in_one_kernel_keep_what_is_between_in_the_cache():
    def steps(patterns, **options):
        operation = chain_operation("x86-avx2", kronop.float32, patterns, **options)
        return templates(operation.plan)

    fused = "kronop::ksparse_chain"
    assert steps(((1, 192, 48, 8), (2, 48, 192, 4))) == [fused]
    # Too little, too much, and weights that no cache holds.
    assert len(steps(((2, 48, 192, 1), (1, 192, 48, 2)))) == 2
    assert len(steps(((1, 4096, 2, 1), (1, 2, 4096, 1)))) == 2
    assert len(steps(((1, 1024, 1024, 1), (1, 1024, 1024, 1)))) == 2
