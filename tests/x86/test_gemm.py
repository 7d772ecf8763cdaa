"""Matrix products on CPUs, against NumPy."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import kronop
from kronop.families.gemm.arguments import GemmArguments
from kronop.families.gemm.description import GemmDescription
from kronop.families.gemm.operation import GemmOperationUniversal
from kronop.families.gemm.size import GemmSize
from kronop.families.gemm.vocabulary import Mode
from kronop.families.gemm.x86 import cutting
from kronop.families.gemm.x86.design import HostGemm
from kronop.target import Target
from tests import support

_ELEMENTS = (*support.ELEMENTS, *support.FLOAT8)
_HERE = Target.parse("x86")
# Plans for each width of vectors, compiled for less where the machine has less.
_TARGETS = (
    _HERE.baseline,
    dataclasses.replace(_HERE, vector_bytes=32, registers=16),
    dataclasses.replace(_HERE, vector_bytes=64, registers=32),
)
_ANY = kronop.TensorDescription


def _operation(
    element: kronop.DataType, target: Target = _HERE, epilogue: Any = None, tile: Any = None
) -> GemmOperationUniversal:
    epilogue = epilogue or support.linear(element)
    operand, result = _ANY(element), _ANY(epilogue.element_output)
    if tile is None:
        # Where the target has AMX tiles, these tests are of its vectors.
        tile = kronop.TileDescription(
            (_ROWS, _COLUMNS, _DEPTH), 1, (1, 1, 1), kronop.MathInstruction.simt(element)
        )
    return GemmOperationUniversal(target, tile, operand, operand, result, epilogue)


# Small blocks, so that small problems have several of them and several slabs.
_ROWS, _COLUMNS, _DEPTH = 24, 192, 16


def _values(random: np.random.Generator, shape: tuple[int, ...], element: kronop.DataType) -> Any:
    return support.random_array(random, shape, element)


def _laid_out(array: Any, layout: str) -> Any:
    """The same values with other strides."""
    if layout == "transposed":
        return np.ascontiguousarray(array.swapaxes(-1, -2)).swapaxes(-1, -2)
    if layout == "backwards":
        return np.ascontiguousarray(array[..., ::-1, ::-1])[..., ::-1, ::-1]
    if layout == "apart":
        wide = np.zeros((*array.shape[:-1], 3 * array.shape[-1] + 1), array.dtype)
        wide[..., 1::3] = array
        return wide[..., 1::3]
    return array


class Check:
    """Runs an operation on random values, and compares every element of the result.

    Args:
        run: runs arguments; None for the operation itself.
    """

    def __init__(
        self, operation: GemmOperationUniversal, run: Callable[[GemmArguments], None] | None = None
    ) -> None:
        self.operation, self.random = operation, np.random.default_rng(1)
        self.run = run or operation.run
        what: GemmDescription = operation.description
        self.what, self.element, self.output = what, what.A.element, what.Y.element

    def __call__(
        self,
        size: tuple[int, int, int],
        layouts: tuple[str, str, str] = ("plain", "plain", "plain"),
        scalars: tuple[float, ...] = (),
        batch: tuple[tuple[int, ...], tuple[int, ...]] = ((), ()),
        *,
        bias: bool = False,
        in_place: bool = False,
        threads: int = 2,
        **more: Any,
    ) -> GemmArguments:
        (m, n, k), random = size, self.random
        a = _laid_out(_values(random, (*batch[0], m, k), self.element), layouts[0])
        b = _laid_out(_values(random, (*batch[1], k, n), self.element), layouts[1])
        shape = (*np.broadcast_shapes(*batch), m, n)
        output_op = self.operation.epilogue_type(*scalars)
        y = _laid_out(support.poison(shape, self.output), layouts[2])
        source = None
        if output_op.beta:
            source = _laid_out(_values(random, shape, self.output), layouts[0])
            if in_place:
                y[...] = source
        added = _values(random, (n,), self.output) if bias else None
        arguments = GemmArguments(
            self.operation,
            A=a,
            B=b,
            C=y if in_place else source,
            D=y,
            output_op=output_op,
            bias=added,
            **more,
        )
        arguments.share_among(threads)
        self.run(arguments)
        self._compare(a, b, source, added, output_op, y)
        if layouts[2] == "apart":
            assert not np.delete(y.base, np.s_[1::3], -1).any()
        return arguments

    def product(self, a: Any, b: Any) -> Any:
        """The plain product of arrays of any type."""
        kind, shape = support.numpy_type(self.element), (a.shape[0], b.shape[1])
        y = support.poison(shape, self.output)
        self.run(GemmArguments(self.operation, A=a.astype(kind), B=b.astype(kind), D=y))
        return y

    def _compare(self, a: Any, b: Any, source: Any, bias: Any, output_op: Any, y: Any) -> None:
        what, wide = self.what, np.float64 if self.element.kind == "float" else np.int64
        a, b = a.astype(wide), b.astype(wide)
        if source is not None and self.output.kind == "float":
            source = source.astype(np.float64)
        if bias is not None and self.output.kind == "float":
            bias = bias.astype(np.float64)
        value = what.reference(a, b, source, output_op, bias)
        if value.dtype.kind == "i":
            support.Expected(value, 0).check(y)
            return
        magnitude = support.magnitudes_of(what).reference(np.abs(a), np.abs(b))
        steps = a.shape[-1] + 1
        bound = support.error_bound(what, value, magnitude, steps, source, bias, output_op)
        support.Expected(value, bound).check(y)


# Around the edges of tiles and slabs, and of blocks; fewer columns than vectors have; nothing.
_SIZES = (
    (13, 97, 9),
    (25, 200, 33),
    (1, 3, 50),
    (70, 5, 17),
    (49, 48, 16),
    (9, 17, 1),
    (5, 20, 0),
    (0, 5, 3),
    (3, 0, 3),
)
_LAYOUTS = ("plain", "transposed", "backwards", "apart")


# int8, which has a kernel of its own, for vectors of every width.
@pytest.mark.spread(element=(*_ELEMENTS, kronop.float64, kronop.int8, kronop.int8), target=_TARGETS)
def test_values(element: kronop.DataType, target: Target) -> None:
    check = Check(_operation(element, target))
    for at, size in enumerate(_SIZES):
        layouts = [_LAYOUTS[(at + more) % 4] for more in range(3)]
        check(size, (layouts[0], layouts[1], layouts[2]), (2, -1) if at % 2 else ())
    for layout in _LAYOUTS:
        check((26, 101, 35), (layout, layout, layout), (1, 3), bias=True)
        check((26, 101, 35), ("plain", "transposed", layout), (2, 1), in_place=True)
        check((13, 34, 7), ("transposed", "plain", layout), bias=True)
    for lead in (((2, 3), (3,)), ((), (2,)), ((2, 1, 2), (1, 2, 1)), ((0,), ())):
        check((14, 35, 18), ("plain", "backwards", "transposed"), (1, 2), lead, bias=True)
    assert check((5, 3, 2), batch=((2, 1, 2, 1, 2), (2, 1))).size == GemmSize(5, 3, 2, 16)


_EPILOGUES = {
    "clamp": (
        kronop.int8,
        kronop.LinearCombinationClamp(kronop.int8, 1, kronop.int32, kronop.int32),
    ),
    "narrow": (kronop.int8, kronop.LinearCombination(kronop.int8, 1, kronop.int32, kronop.int32)),
    "fast": (kronop.int8, kronop.FastLinearCombinationClamp(kronop.int8, 1)),
    "wider": (
        kronop.bfloat16,
        kronop.LinearCombination(kronop.float32, 1, kronop.float32, kronop.float32),
    ),
    "gelu": (
        kronop.float16,
        kronop.LinearCombinationGeneric(
            kronop.gelu(kronop.float32), kronop.float16, 1, kronop.float32, kronop.float32
        ),
    ),
    "leaky": (
        kronop.float64,
        kronop.LinearCombinationGeneric(
            kronop.leaky_relu(kronop.float64), kronop.float64, 1, kronop.float64, kronop.float64
        ),
    ),
}


@pytest.mark.parametrize("name", list(_EPILOGUES))
def test_epilogues(name: str) -> None:
    element, epilogue = _EPILOGUES[name]
    check = Check(_operation(element, epilogue=epilogue))
    scalars = (1, 2, 0.25) if name == "leaky" else (1, 2)
    for layout in ("plain", "transposed"):
        check((27, 50, 33), ("plain", "plain", layout), scalars, bias=True)
        check((27, 50, 0), ("plain", "plain", layout), scalars, bias=True, in_place=True)


@functools.cache
def _float32() -> Check:
    return Check(_operation(kronop.float32))


@pytest.mark.parametrize("target", _TARGETS, ids=lambda item: f"{item.vector_bytes}")
def test_integers_wrap_around(target: Target) -> None:
    for element in (kronop.int32, kronop.int64, kronop.int8):
        kind, result = np.dtype(element.name), np.int64 if element is kronop.int64 else np.int32
        least, most = np.iinfo(kind).min, np.iinfo(kind).max
        a = np.random.default_rng(1).integers(least, most, (7, 41), kind, endpoint=True)
        a[0], a[1] = least, most
        y = Check(_operation(element, target)).product(a, a.T)
        np.testing.assert_array_equal(y, a.astype(result) @ a.T.astype(result))


def test_operands_that_repeat() -> None:
    check = _float32()
    row, column = np.arange(1, 31, dtype=np.float32), np.arange(1, 21, dtype=np.float32)
    a, b = np.broadcast_to(row, (20, 30)), np.broadcast_to(column, (30, 20))
    for first, second in ((a, b), (b.T, b), (a, a.T), (b.T, a.T)):
        arguments = GemmArguments(check.operation, A=first, B=second)
        check.operation.run(arguments)
        np.testing.assert_array_equal(arguments.D, first @ second)


def test_sources_that_repeat() -> None:
    check, random = _float32(), np.random.default_rng(2)
    a, b = random.integers(-9, 10, (2, 40, 40)).astype(np.float32)
    for shape in ((40, 1), (1, 40), (1, 1), (40,)):
        c = random.integers(-9, 10, shape).astype(np.float32)
        for turned in (False, True):
            d = support.poison((40, 40), kronop.float32)
            d = d.T if turned else d
            op = check.operation.epilogue_type(1, 2)
            check.operation.run(GemmArguments(check.operation, A=a, B=b, C=c, D=d, output_op=op))
            np.testing.assert_array_equal(d, a @ b + 2 * c)


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_special_values_stay_where_they_belong(value: float) -> None:
    check = _float32()
    for m, n, k in ((13, 70, 33), (5, 3, 17), (60, 7, 40)):
        a, b = np.ones((m, k), np.float32), np.ones((k, n), np.float32)
        a[m - 1, k - 1] = b[k - 2, n - 1] = value
        for layout in ("plain", "transposed"):
            d = _laid_out(support.poison((m, n), kronop.float32), layout)
            check.operation.run(GemmArguments(check.operation, A=a, B=b, D=d))
            expected = np.full((m, n), k, np.float32)
            expected[m - 1], expected[:, n - 1] = value, value
            np.testing.assert_array_equal(d, expected)


def test_a_source_of_nan_is_not_read_where_beta_is_0() -> None:
    check = _float32()
    a, c = np.ones((20, 20), np.float32), np.full((20, 20), np.nan, np.float32)
    op = check.operation.epilogue_type(3, 0)
    arguments = GemmArguments(check.operation, A=a, B=a, C=c, D=c, output_op=op)
    check.operation.run(arguments)
    assert (c == 60).all()


@pytest.mark.parametrize("element", [kronop.float32, kronop.int8], ids=lambda item: item.name)
def test_slices_and_threads(element: kronop.DataType, monkeypatch: pytest.MonkeyPatch) -> None:
    # As if products were long enough for many threads.
    monkeypatch.setattr(cutting.planning, "OPERATIONS_PER_THREAD", 1)
    monkeypatch.setattr(cutting, "_LEAST_SLICE", 10)
    cutting.cut.cache_clear()
    check = Check(_operation(element))
    for threads in (1, 3, 16):
        for size in ((7, 20, 130), (50, 210, 40), (1, 1, 100), (130, 9, 75), (3, 4, 0)):
            check(size, ("plain", "plain", "transposed"), (2, 3), threads=threads, bias=True)
            check(size, batch=((2, 2), (2, 1)), threads=threads)
        check((33, 40, 70), gemm_mode=Mode.GemmSplitKParallel, split_k_slices=3, threads=threads)
    design = check.operation.plan.steps[0].design
    assert isinstance(design, HostGemm)
    assert design.cut(7, 20, 130, 1, 16).slices > 1
    cutting.cut.cache_clear()


def test_a_new_result_has_the_described_layout() -> None:
    a = np.arange(6, dtype=np.float32).reshape(2, 3)
    stack = np.stack([a, a, a])
    for layout, strides in ((kronop.RowMajor, (24, 12, 4)), (kronop.ColumnMajor, (24, 4, 8))):
        operation = GemmOperationUniversal(
            "x86",
            None,
            _ANY(kronop.float32),
            _ANY(kronop.float32),
            _ANY(kronop.float32, layout),
            support.linear(kronop.float32),
        )
        arguments = GemmArguments(operation, A=stack, B=np.eye(3, dtype=np.float32))
        operation.run(arguments)
        assert arguments.D.strides == strides
        np.testing.assert_array_equal(arguments.D, stack)


def test_a_beta_is_asked_for_whatever_was_called_before() -> None:
    a = np.ones((2, 2), np.float32)
    for _ in range(4):
        kronop.gemm.matmul(a, a, a, beta=0)
    with pytest.raises(kronop.ArgumentError, match="beta: expected a number, because c"):
        kronop.gemm.matmul(a, a, a)
    for beta in ("", [], np.ones(2), False):
        with pytest.raises(kronop.KronopError, match="beta"):
            kronop.gemm.matmul(a, a, beta=beta)
    with pytest.raises(kronop.ArgumentError, match="activation: expected None or"):
        kronop.gemm.matmul(a, a, activation=["relu"])


def test_messages_name_the_arguments_of_the_one_line_form() -> None:
    a = np.ones((2, 2), np.float32)
    with pytest.raises(kronop.ElementTypeError, match="element type of out"):
        kronop.gemm.matmul(a, a, out=np.empty((2, 2)))
    with pytest.raises(kronop.ElementTypeError, match="element type of c"):
        kronop.gemm.matmul(a, a, np.empty((2, 2)), beta=1)


def test_extents_of_a_coordinate_are_counted() -> None:
    for extents in ((4, -1, -1), (-1, 4, 4), (4, 4, 1.5)):
        with pytest.raises(kronop.ArgumentError, match="extent"):
            kronop.gemm.GemmCoord(*extents)


def test_sizes_of_a_run_of_which_only_m_is_told() -> None:
    operation = _float32().operation
    assert operation.sizes(5) == operation.sizes(GemmSize(5, 5, 5))


_VECTORS = [((4,), (4,)), ((4,), (2, 4, 3)), ((2, 5, 4), (4,)), ((4,), (4, 3)), ((5, 4), (4,))]


@pytest.mark.parametrize("shapes", _VECTORS)
def test_vectors_are_one_row_or_column_that_the_result_has_not(shapes: Any) -> None:
    random = np.random.default_rng(3)
    a, b = (random.integers(-9, 9, item).astype("f8") for item in shapes)
    expected = np.matmul(a, b)
    np.testing.assert_array_equal(kronop.gemm.matmul(a, b), expected, strict=True)
    out = np.full(expected.shape, 3.0)
    assert kronop.gemm.matmul(a, b, out, alpha=2, beta=1, out=out) is out
    np.testing.assert_array_equal(out, 2 * expected + 3)
    for c in (np.float64(2), np.array(2.0), expected[..., -1:] if expected.ndim else expected):
        np.testing.assert_array_equal(kronop.gemm.matmul(a, b, c, beta=3), expected + 3 * c)


def test_a_number_is_added_to_all_of_a_product() -> None:
    a = np.eye(3)
    np.testing.assert_array_equal(kronop.gemm.matmul(a, a, np.array(2.0), beta=0.5), a + 1)


def test_vectors_are_refused_with_the_shapes_that_were_given() -> None:
    a, b = np.ones(3), np.ones((3, 5))
    for given, told in (
        ((a, np.ones((4, 5))), r"shape of A and B: .* got \(\(3,\), \(4, 5\)\)"),
        ((a, b, np.ones((2, 5)), 1, 1), r"shape of C: expected \(5,\), .* got \(2, 5\)"),
        ((b.T, a, None, 1, 0, None, None, b), r"shape of D: expected \(5,\).* got \(3, 5\)"),
    ):
        with pytest.raises(kronop.ArgumentError, match=told):
            kronop.gemm.matmul(*given)
    for given in ((a, 3), (3, a), (a, a, 3, 1, 1), (a, a, None, 1, None, None, None, 3)):
        with pytest.raises(kronop.ElementTypeError, match=r"expected a tensor .* got int"):
            kronop.gemm.matmul(*given)
