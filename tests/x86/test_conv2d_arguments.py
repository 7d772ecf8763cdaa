"""What convolutions take, give back and refuse, on a CPU."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
import pytest

import kronop
from kronop.families.conv2d.description import convolved
from kronop.families.conv2d.size import Conv2dSize, shapes_of
from kronop.families.conv2d.vocabulary import Operator
from tests import support
from tests.trees import several

F32 = kronop.float32
_NHWC = kronop.TensorDescription(F32, kronop.TensorNHWC)
_LINEAR = support.linear(F32)
_UNITY = kronop.conv.StrideSupport.Unity
_SIZE = Conv2dSize(2, 5, 6, 4, 8, 3, 3, pad_h=1, pad_w=1)
# What is unusual; all of it with the kernels of `_SIZE`.
_EDGES = {
    "no images": Conv2dSize(0, 5, 6, 4, 8, 3, 3),
    "one pixel": Conv2dSize(2, 1, 1, 4, 8, 1, 1),
    "a filter as large as an image": Conv2dSize(2, 3, 4, 4, 8, 3, 4),
    "padding beyond a filter": Conv2dSize(1, 3, 4, 4, 8, 2, 2, pad_h=5, pad_w=3),
    "dilation beyond an image": Conv2dSize(
        1, 3, 4, 4, 8, 2, 3, pad_h=3, pad_w=7, dilation_h=5, dilation_w=6
    ),
    "results of padding alone": Conv2dSize(1, 1, 1, 4, 8, 1, 1, pad_h=2, pad_w=2, stride_h=3),
    "no channels": Conv2dSize(2, 5, 6, 0, 8, 3, 3),
    "no filters": Conv2dSize(2, 5, 6, 4, 0, 3, 3),
    "no results": Conv2dSize(2, 2, 6, 4, 8, 3, 3),
}


@functools.cache
def _operation(kind: Operator, epilogue: Any = _LINEAR, strides: Any = None) -> Any:
    return kronop.Conv2dOperation(kind, None, "x86", None, _NHWC, _NHWC, _NHWC, strides, epilogue)


def drawn(*shape: int, seed: int = 0) -> Any:
    """Small whole numbers, whose sums are exact."""
    return np.random.default_rng(seed).integers(-3, 4, shape).astype(np.float32)


def _operands(kind: Operator, size: Conv2dSize = _SIZE) -> list[Any]:
    """A, B and C, channels last."""
    shapes = shapes_of(size)
    return [drawn(*shapes[name], seed=seed) for seed, name in enumerate(kind.tensors)]


def sums_of(kind: Operator, a: Any, b: Any, size: Conv2dSize = _SIZE) -> Any:
    return convolved(kind, a.astype(np.float64), b.astype(np.float64), size)


def _run(kind: Operator, *given: Any, **named: Any) -> Any:
    operation = _operation(kind)
    arguments = kronop.Conv2dArguments(operation, *given, **named)
    operation.run(arguments)
    arguments.sync()
    return arguments


@pytest.mark.parametrize("kind", Operator)
def test_edges(kind: Operator) -> None:
    for told, size in _EDGES.items():
        a, b, _ = _operands(kind, size)
        found = _run(kind, size, a, b).D
        np.testing.assert_array_equal(found, sums_of(kind, a, b, size), err_msg=told)


@pytest.mark.parametrize("kind", Operator)
def test_sources(kind: Operator) -> None:
    """C may be D, flat, or what broadcasts; a D may have gaps."""
    a, b, c = _operands(kind)
    sums, output_op = sums_of(kind, a, b), _operation(kind).epilogue_type(2.0, 3.0)
    for source in (c, c.ravel(), c[0, 0, 0], c[:, :1, :1, :1], c[:1, :1, :1, :1].ravel()):
        found = _run(kind, _SIZE, a, b, source, None, output_op)
        broadcast = source.reshape(c.shape) if source.size == c.size else source
        np.testing.assert_array_equal(found.D, 2 * sums + 3 * broadcast)
        assert found.bias is (source.ndim == 1 and source.size != c.size)
    d = c.ravel().copy()
    _run(kind, _SIZE, a.ravel(), b.ravel(), d, d, output_op)
    np.testing.assert_array_equal(d.reshape(c.shape), 2 * sums + 3 * c)
    gaps = np.full((*c.shape[:3], 2 * c.shape[3]), 7, np.float32)
    _run(kind, _SIZE, a, b, D=gaps[..., ::2])
    np.testing.assert_array_equal(gaps[..., ::2], sums)
    assert (gaps[..., 1::2] == 7).all()


def test_problem_sizes_are_in_the_words_of_cutlass() -> None:
    a, b, _ = _operands(Operator.fprop)
    problem = _run(Operator.fprop, _SIZE, a, b).problem_size
    assert isinstance(problem, kronop.conv.Conv2dProblemSize)
    assert (problem.N, problem.P, problem.Q, problem.K, problem.pad_h) == (2, 5, 6, 8, 1)
    assert problem.mode is kronop.conv.Mode.cross_correlation
    assert kronop.conv.implicit_gemm_tensor_c_size(Operator.fprop, problem) == 2 * 5 * 6 * 8
    with pytest.raises(AttributeError):
        problem.missing  # noqa: B018


def test_fewer_results_by_cutlass_than_by_torch() -> None:
    """Where a filter is dilated, CUTLASS's formula has fewer results."""
    four, two = kronop.Tensor4DCoord, kronop.MatrixCoord
    problem = kronop.conv.Conv2dProblemSize(
        four(1, 9, 9, 4), four(8, 3, 3, 4), four(0, 0, 0, 0), two(1, 1), two(2, 2)
    )
    torchs = Conv2dSize(1, 9, 9, 4, 8, 3, 3, dilation_h=2, dilation_w=2)
    assert (problem.P, problem.Q, torchs.p, torchs.q) == (4, 4, 5, 5)
    a, b, _ = _operands(Operator.fprop, torchs)
    few, all_ = (_run(Operator.fprop, size, a, b).D for size in (problem, torchs))
    np.testing.assert_array_equal(few, all_[:, :4, :4])


@pytest.mark.parametrize(
    ("changed", "told"),
    [
        ({"A": drawn(2, 4, 5, 6)}, r"shape of A: expected \(2, 5, 6, 4\), got \(2, 4, 5, 6\)"),
        ({"A": drawn(239)}, r"shape of A: expected \(2, 5, 6, 4\), got \(239,\)"),
        ({"B": drawn(8, 3, 4, 4)}, r"shape of B: expected \(8, 3, 3, 4\)"),
        (
            {"B": drawn(8, 3, 3, 4).astype(np.float64)},
            "element type of B: expected kronop.float32",
        ),
        ({"C": drawn(7)}, "shape of C"),
        ({"C": None}, "C: expected a tensor, because beta is 1"),
        ({"D": drawn(2, 5, 5, 8)}, r"shape of D: expected \(2, 5, 6, 8\)"),
        ({"bias": drawn(7)}, r"shape of bias: expected \(8,\), got \(7,\)"),
        ({"bias": np.zeros(8)}, "element type of bias: expected kronop.float32, the type of D"),
        ({"problem_size": None, "A": drawn(240)}, "shape of A: expected four dimensions"),
        ({"problem_size": (2, 5, 6, 4)}, "problem_size: expected a kronop.conv.Conv2dProblemSize"),
        ({"split_k_slices": 0}, "split_k_slices: expected one of .* a positive integer"),
        ({"split_k_mode": "Serial"}, "split_k_mode"),
    ],
)
def test_arguments_that_are_refused(
    changed: dict[str, Any], told: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    compile_nothing(monkeypatch)
    operation = _operation(Operator.fprop)
    a, b, c = _operands(Operator.fprop)
    given = {"problem_size": _SIZE, "A": a, "B": b, "C": c, "D": np.empty_like(c)}
    output_op = operation.epilogue_type(1.0, 1.0)
    with pytest.raises(kronop.KronopError, match=told) as caught:
        kronop.Conv2dArguments(operation, **{**given, "output_op": output_op, **changed})
    assert "; " in str(caught.value)


def test_kinds_that_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    compile_nothing(monkeypatch)
    a, b, _ = _operands(Operator.wgrad)
    with pytest.raises(kronop.ArgumentError, match=r"shape of bias: expected \(4,\)"):
        kronop.Conv2dArguments(_operation(Operator.wgrad), _SIZE, a, b, bias=drawn(8))
    a, b, _ = _operands(Operator.dgrad)
    with pytest.raises(kronop.ArgumentError, match="D and A: expected separate memory"):
        kronop.Conv2dArguments(_operation(Operator.dgrad), _SIZE, a, b, D=a.ravel()[:240])
    strided = Conv2dSize(2, 5, 6, 4, 8, 3, 3, stride_h=2)
    a, b, _ = _operands(Operator.fprop, strided)
    with pytest.raises(kronop.ArgumentError, match="stride_support is Unity"):
        kronop.Conv2dArguments(_operation(Operator.fprop, strides=_UNITY), strided, a, b)


def compile_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any) -> None:
        raise AssertionError("something was compiled")

    monkeypatch.setattr(kronop.compiler, "compile_sources", refuse)


def test_sizes_that_are_refused() -> None:
    for changed, told in (
        ({"stride_h": 2.0}, "extent stride_h: expected an integer"),
        ({"dilation_w": 2**31}, "dilation_w: expected at most 2147483647"),
        ({"p": -2}, "extent p: expected an integer of at least 0"),
        ({"groups": 0}, "groups: expected at least 1"),
    ):
        with pytest.raises(kronop.ArgumentError, match=told):
            Conv2dSize(1, **changed)


@pytest.mark.parametrize("kind", Operator)
def test_memory_of_any_strides(kind: Operator) -> None:
    """Axes in any order, with gaps, and backwards."""
    operation = _operation(kind)
    operands = _operands(kind)
    expected = 2 * sums_of(kind, *operands[:2]) + 3 * operands[2]
    steps: tuple[Any, ...] = (slice(None), slice(None, None, 2), slice(None, None, -1))
    for seed in range(12):
        random, given = np.random.default_rng(seed), []
        for operand in operands:
            order = random.permutation(4)
            picked = [steps[int(random.integers(3))] for _ in order]
            shape = [
                operand.shape[axis] * (2 if pick.step == 2 else 1)
                for axis, pick in zip(order, picked, strict=True)
            ]
            memory = np.full(shape, 7, np.float32)[tuple(picked)].transpose(np.argsort(order))
            memory[...] = operand
            given.append(memory)
        a, b, c = given
        output_op = operation.epilogue_type(2.0, 3.0)
        arguments = kronop.Conv2dArguments(operation, _SIZE, a, b, c, c, output_op)
        operation.run(arguments)
        np.testing.assert_array_equal(c, expected)
        operation.run(arguments)  # Which goes on from the first run's result.
        np.testing.assert_array_equal(c, 3 * expected + expected - 3 * operands[2])


def test_trees() -> None:
    """Operands and results have the shape of D, or of the matrix that it is; or are flat."""
    kind, epilogue = Operator.fprop, several(F32, 1, F32, F32)
    size = Conv2dSize(2, 5, 6, 4, 8, 3, 3, pad_h=1, pad_w=1, stride_h=2, stride_w=2)
    a, b, c = _operands(kind, size)
    m, n = c.size // c.shape[-1], c.shape[-1]
    given = {"alpha": 2.0, "beta": 0.5, "bias": drawn(n, seed=5), "scale": drawn(m, seed=6)}
    expected = epilogue.evaluate(
        sums_of(kind, a, b, size).reshape(m, n), {**given, "c": c.reshape(m, n)}
    )
    for shape, column in ((c.shape, c.shape[:3]), ((m, n), (m,)), ((m * n,), (m, 1))):
        results = {
            "t": np.empty(shape, np.float32),
            **{name: np.empty(m, np.float32) for name in ("row_max", "row_sum")},
            **{name: np.empty(n, np.float32) for name in ("column_max", "column_sum")},
        }
        operation = _operation(kind, epilogue)
        output_op = operation.epilogue_type(
            **{**given, "scale": given["scale"].reshape(column)},
            c=c.reshape(shape),
            problem_size=[m, n],
            **results,
        )
        arguments = kronop.Conv2dArguments(operation, size, a, b, output_op=output_op)
        operation.run(arguments)
        for name, value in {"d": arguments.D, **results}.items():
            wanted = expected[name]
            np.testing.assert_allclose(value.reshape(wanted.shape), wanted, rtol=1e-5, atol=1e-3)
    in_groups = Conv2dSize(2, 5, 6, 4, 8, 3, 3, groups=2)
    a, b, _ = _operands(kind, in_groups)
    with pytest.raises(kronop.ArgumentError, match="axis of row_max: expected 'column', since"):
        kronop.Conv2dArguments(operation, in_groups, a, b, output_op=output_op)


@kronop.epilogue_visitor(kinds={"bias": "row", "scale": "column"})
def kept(accum: Any, bias: Any, scale: Any) -> Any:
    t = accum + bias
    d = t * scale
    column_sum = kronop.sum(t, axis="column")
    return d, t, column_sum


def test_trees_of_nothing() -> None:
    """A result without pixels, of which NumPy's strides say nothing."""
    kind, size = Operator.fprop, _EDGES["no results"]
    operation, (a, b, c) = _operation(kind, of_filters(F32, 1, F32, F32)), _operands(kind, size)
    assert c.shape == (2, 0, 4, 8)
    scale, row_max = (np.zeros(c.shape[:3], np.float32) for _ in range(2))
    given = {"c": c, "bias": drawn(8), "scale": scale, "t": np.empty_like(c), "row_max": row_max}
    output_op = operation.epilogue_type(**given)
    operation.run(kronop.Conv2dArguments(operation, size, a, b, output_op=output_op))


@pytest.mark.parametrize("kind", [Operator.fprop, Operator.dgrad])
def test_trees_of_groups(kind: Operator) -> None:
    epilogue = kept(F32, 1, F32, F32)
    size = Conv2dSize(2, 5, 6, 4, 8, 3, 3, pad_w=1, groups=2)
    a, b, c = _operands(kind, size)
    m, n = c.size // c.shape[-1], c.shape[-1]
    given = {"bias": drawn(n, seed=5), "scale": drawn(m, seed=6)}
    expected = epilogue.evaluate(sums_of(kind, a, b, size).reshape(m, n), given)
    results = {"t": np.empty((m, n), np.float32), "column_sum": np.empty(n, np.float32)}
    operation = _operation(kind, epilogue)
    output_op = operation.epilogue_type(**given, **results)
    arguments = kronop.Conv2dArguments(operation, size, a, b, output_op=output_op)
    operation.run(arguments)
    for name, value in {"d": arguments.D, **results}.items():
        np.testing.assert_array_equal(value.reshape(expected[name].shape), expected[name])


# The edges of filters' gradients: groups, flipped filters, one pixel, few and many channels.
_FILTERS = (
    _SIZE,
    Conv2dSize(2, 9, 8, 4, 6, 3, 2, pad_h=1, pad_w=2, stride_w=3, dilation_w=2, groups=2),
    Conv2dSize(1, 5, 6, 5, 3, 3, 3, pad_h=1, flipped=True),
    Conv2dSize(1, 5, 6, 33, 70, 1, 1),
    Conv2dSize(1, 5, 6, 4, 4, 3, 3, groups=4, pad_h=1),
    Conv2dSize(3, 5, 6, 200, 3, 2, 2),
    _EDGES["no images"],
    _EDGES["no results"],
)


@kronop.epilogue_visitor(kinds={"c": "tensor", "bias": "row", "scale": "column"})
def of_filters(accum: Any, c: Any, bias: Any, scale: Any) -> Any:
    t = accum + bias + c
    d = t * scale
    row_max = kronop.maximum(t, axis="row")
    return d, t, row_max


def test_trees_of_filters() -> None:
    """The matrix of wgrad has a row for each pixel of a filter."""
    kind, epilogue = Operator.wgrad, of_filters(F32, 1, F32, F32)
    operation = _operation(kind, epilogue)
    for size in _FILTERS:
        a, b, c = _operands(kind, size)
        m, n = c.size // c.shape[-1], c.shape[-1]
        rows = {"bias": drawn(n, seed=5), "scale": drawn(m, seed=6)}
        sums = sums_of(kind, a, b, size).reshape(m, n)
        expected = epilogue.evaluate(sums, {**rows, "c": c.reshape(m, n)})
        rows["scale"] = rows["scale"].reshape(c.shape[:3])
        gaps = np.empty((*c.shape[:3], 2 * n), np.float32)
        results = {"t": np.empty(c.shape, np.float32), "row_max": np.empty(m, np.float32)}
        given = {**rows, **results, "c": c, "d": gaps[..., ::2], "problem_size": [m, n]}
        output_op = operation.epilogue_type(**given)
        operation.run(kronop.Conv2dArguments(operation, size, a, b, output_op=output_op))
        for name, value in {"d": gaps[..., ::2], **results}.items():
            wanted = expected[name]
            np.testing.assert_array_equal(value.reshape(wanted.shape), wanted, size.told())


def test_filters_reduce_no_columns() -> None:
    """But those of one pixel, of one group."""
    kind, epilogue = Operator.wgrad, kept(F32, 1, F32, F32)
    operation, size = _operation(kind, epilogue), _FILTERS[3]
    a, b, c = _operands(kind, size)
    m, n = c.size // c.shape[-1], c.shape[-1]
    given = {"bias": drawn(n, seed=5), "scale": drawn(m, seed=6)}
    results = {"t": np.empty((m, n), np.float32), "column_sum": np.empty(n, np.float32)}
    output_op = operation.epilogue_type(**given, **results)
    operation.run(kronop.Conv2dArguments(operation, size, a, b, output_op=output_op))
    expected = epilogue.evaluate(sums_of(kind, a, b, size).reshape(m, n), given)
    np.testing.assert_array_equal(results["column_sum"], expected["column_sum"])
    a, b, _ = _operands(kind)
    with pytest.raises(kronop.ArgumentError, match=r"expected 'row', since .* of 9 products"):
        kronop.Conv2dArguments(operation, _SIZE, a, b, output_op=output_op)


def test_biases_of_filters() -> None:
    """One number for each channel, beside a C too; and a C that is one."""
    kind = Operator.wgrad
    operation = _operation(kind)
    for size in _FILTERS:
        a, b, c = _operands(kind, size)
        bias, sums = drawn(2 * c.shape[-1], seed=7)[::2], 2 * sums_of(kind, a, b, size)
        for source in (None, c, bias[::-1], c[:, :1, :1, :1]):
            output_op = operation.epilogue_type(2.0, 0.0 if source is None else 3.0)
            given = {"C": source, "output_op": output_op, "bias": bias}
            arguments = kronop.Conv2dArguments(operation, size, a, b, **given)
            operation.run(arguments)
            more = bias if source is None else bias + 3 * source
            np.testing.assert_array_equal(arguments.D, sums + more, size.told())


@pytest.mark.parametrize("kind", [Operator.fprop, Operator.wgrad])
def test_a_reduction_takes_a_convolution_over(kind: Operator) -> None:
    """With its bias, and its D and C in their shapes or flat."""
    a, b, c = _operands(kind)
    operation = _operation(kind)
    reduction = kronop.ReductionOperation(
        kronop.MatrixCoord(4, 32), _NHWC, F32, epilogue_functor=_LINEAR
    )
    bias = drawn(c.shape[-1], seed=4) if kind is Operator.fprop else None
    for source in (c.copy(), c.ravel().copy()):
        arguments = kronop.Conv2dArguments(
            operation,
            _SIZE,
            a,
            b,
            D=source,
            split_k_mode=kronop.conv.SplitKMode.Parallel,
            split_k_slices=3,
            bias=bias,
        )
        size = kronop.conv.implicit_gemm_problem_size(kind, arguments.problem_size)
        output_op = reduction.epilogue_type(2.0, 3.0)
        given = ([size.m(), size.n()], 3, arguments.ptr_D, source, source, output_op)
        with pytest.raises(kronop.ArgumentError, match="partitions"):
            kronop.ReductionArguments(reduction, given[0], 2, *given[2:])
        reduced = kronop.ReductionArguments(reduction, *given)
        operation.run(arguments)  # Does nothing.
        reduction.run(reduced)
        reduced.sync()
        expected = 2 * sums_of(kind, a, b) + 3 * c + (0 if bias is None else bias)
        np.testing.assert_array_equal(reduced.D.reshape(c.shape), expected)
    serial = kronop.Conv2dArguments(operation, _SIZE, a, b)
    with pytest.raises(kronop.ElementTypeError, match=r"SplitKMode\.Parallel"):
        kronop.ReductionArguments(reduction, given[0], 3, serial.ptr_D, c, c)
