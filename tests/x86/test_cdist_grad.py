"""Gradients of distances on CPUs, against the float64 reference."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest

import kronop
from kronop import compiler
from kronop.emit.render import render
from kronop.families.distance import GRADIENT
from kronop.families.distance.form import TermKind
from kronop.families.distance.gradient_arguments import DistanceGradientArguments
from kronop.families.distance.gradient_size import GradientSize
from kronop.target import Target
from tests import distance_gradients, support

_HERE = "x86"
_POWERS = (0.5, 1, 1.5, 2, 2.5, 3, 4, 1.3, 0.7)


def _operation(
    power: Any, element: Any = kronop.float32, target: object = _HERE
) -> kronop.DistanceGradientOperation:
    plain = kronop.TensorDescription(element)
    return kronop.DistanceGradientOperation(
        target, None, plain, plain, plain, plain, plain, support.linear(element), power
    )


def _operands(
    sizes: tuple[int, int, int, int],
    element: Any = kronop.float32,
    layout: str = "rows",
    batch: tuple[int, ...] = (),
) -> list[Any]:
    o, n, k, m = sizes
    random = np.random.default_rng(5)
    shapes = ((k, m), (n, k), (o, k), (n, m))
    return [distance_gradients.array(random, (*batch, *shape), element, layout) for shape in shapes]


def _check(power: Any, operands: list[Any], element: Any = kronop.float32) -> None:
    what = _operation(power, element).description
    p = power if what.power is TermKind.General else None
    a, b, c, d = operands
    y = kronop.cdist_grad(a, b, c, d, power)
    assert y.dtype == a.dtype
    distance_gradients.check(y, what, a, b, c, d, p=p)


@pytest.mark.parametrize("power", _POWERS)
def test_powers(power: Any) -> None:
    _check(power, _operands((4, 37, 300, 45)))
    # More rows than columns, which are too few for a vector.
    _check(power, _operands((4, 70, 21, 3)))


@pytest.mark.parametrize("element", [kronop.float64, kronop.float16, kronop.bfloat16])
@pytest.mark.parametrize("power", [1, 2, 1.3])
def test_element_types(power: Any, element: Any) -> None:
    _check(power, _operands((4, 9, 21, 67), element), element)


@pytest.mark.parametrize("outputs", [1, 2, 3, 7, 9])
def test_outputs(outputs: int) -> None:
    for sizes in ((outputs, 5, 30, 300), (outputs, 40, 9, 2)):
        _check(2, _operands(sizes))
    if outputs == 1:
        for sizes in ((1, 5, 30, 300), (1, 40, 9, 2)):
            a, b, _, d = _operands(sizes)
            _check(1, [a, b, None, d])


@pytest.mark.parametrize("layout", distance_gradients.LAYOUTS)
def test_layouts_and_batches(layout: str) -> None:
    a, b, c, d = _operands((4, 9, 17, 21), layout=layout, batch=(2, 3))
    _check(1.3, [a, b, c, d])
    out = np.full((21, 3, 2, 4, 9), np.nan, np.float32).transpose(2, 1, 3, 4, 0)
    result = kronop.cdist_grad(a[0], b[:, :1], c[1, 2], d, 1.3, out=out)
    assert result is out
    what = _operation(1.3).description
    distance_gradients.check(out, what, a[0], b[:, :1], c[1, 2], d, p=1.3)


def test_powers_of_the_batch() -> None:
    a, b, c, d = _operands((4, 9, 17, 21), batch=(3,))
    what = _operation(TermKind.General).description
    for dtype in (np.float32, np.float64):
        powers = np.asarray([0.6, 1.0, 4.2], dtype)
        # Three times, since repeated calls go another way.
        for _ in range(3):
            y = kronop.cdist_grad(a, b, c, d, powers)
            distance_gradients.check(y, what, a, b, c, d, p=np.float32(powers))
    y = kronop.cdist_grad(a[0], b[0], c[0], d[0], powers)
    distance_gradients.check(y, what, a[:1], b[:1], c[:1], d[:1], p=np.float32(powers))


@pytest.mark.parametrize("element", [kronop.float32, kronop.float64])
@pytest.mark.parametrize("sizes", [(2, 9, 300, 45), (1, 70, 21, 3)])
def test_relative_powers(sizes: Any, element: Any) -> None:
    operation = _operation(TermKind.Relative, element)
    for at, p in enumerate((3.7, np.array([0.6, 1.0, 4.2], support.numpy_type(element)))):
        batch = (3,) if at else ()
        a, b, c, d = _operands(sizes, element, distance_gradients.LAYOUTS[at], batch)
        d[..., 0] = b[..., 0]  # A pair without a difference.
        largest = distance_gradients.largest_of(b, d)
        arguments = DistanceGradientArguments(
            operation=operation, A=a, B=b, C=c, D=d, L=largest, p=p
        )
        operation.run(arguments)
        y = arguments.Y
        distance_gradients.check(y, operation.description, a, b, c, d, p=p, largest=largest)
    for other, given, told in (
        (operation, None, "L with the power Relative: expected a tensor"),
        (_operation(1.3, element), largest, "L with the power General: expected none"),
    ):
        with pytest.raises(kronop.ArgumentError, match=told):
            DistanceGradientArguments(operation=other, A=a, B=b, D=d, L=given, p=1.3)


def test_powers_beyond_the_type() -> None:
    """1e39 is computed as a large power, as in float64, and not as infinity."""
    a, c, d = np.ones((3, 1), np.float32), None, np.zeros((1, 1), np.float32)
    for sizes, expected in (((0.5, -0.25, 0), 0), ((1, 0.5, 0), -1), ((2, 1, 0.5), -np.inf)):
        y = kronop.cdist_grad(a, np.array([sizes], np.float32), c, d, 1e39)
        assert y.tolist() == [[expected]]


@pytest.mark.parametrize("power", _POWERS)
def test_values_that_are_no_numbers(power: Any) -> None:
    for sizes in ((4, 9, 17, 21), (4, 40, 17, 3)):
        a, b, c, d = _operands(sizes)
        b[1, 3] = d[2, 1] = np.nan
        _check(power, [a, b, c, d])
        y = kronop.cdist_grad(a, b, c, d, power)
        assert np.isnan(y[:, 1]).all()
        assert np.isnan(y[:, 2, 1]).all()
        assert np.isfinite(y[:, 3:]).all()


@pytest.mark.parametrize("power", _POWERS)
def test_equal_points_add_nothing(power: Any) -> None:
    b = np.random.default_rng(1).standard_normal((5, 40)).astype(np.float32)
    c = np.ones((4, 40), np.float32)
    y = kronop.cdist_grad(np.diag(c[0]), b, c, b, power)
    np.testing.assert_array_equal(y, 0)


def test_nothing_to_sum_up_or_to_compute() -> None:
    a, b, c, d = _operands((4, 9, 0, 21))
    np.testing.assert_array_equal(kronop.cdist_grad(a, b, c, d, 1.3), np.zeros((4, 9, 21)))
    for sizes in ((0, 9, 4, 21), (2, 0, 4, 21), (2, 9, 4, 0)):
        assert kronop.cdist_grad(*_operands(sizes)).shape == (sizes[0], sizes[1], sizes[3])


def test_a_source_is_added() -> None:
    operation = _operation(1)
    a, b, c, d = _operands((3, 9, 17, 21))
    z = np.random.default_rng(2).standard_normal((3, 9, 21)).astype(np.float32)
    y, scalars = z.copy(), operation.epilogue_type(2, -3)
    arguments = DistanceGradientArguments(
        operation=operation, A=a, B=b, C=c, D=d, Z=y, Y=y, output_op=scalars
    )
    operation.run(arguments)
    distance_gradients.check(y, operation.description, a, b, c, d, z, scalars)


@pytest.mark.parametrize("arch", ["x86-generic", "x86-avx2", "x86-avx512"])
def test_vectors_of_every_width_compile_and_fit(arch: str) -> None:
    """Plans for each width of vectors, compiled for less where the machine has less."""
    target = Target.parse(arch)
    here = dataclasses.replace(
        Target.parse(_HERE), vector_bytes=target.vector_bytes, registers=target.registers
    )
    a, b, c, d = _operands((4, 9, 40, 70))
    what = _operation(1.3).description
    plan = GRADIENT.emitter(here).plan(what, here, GradientSize(70, 9, 40, 4))
    (binary,) = compiler.compile_sources(render(plan), here)
    operation = _operation(1.3)
    y = support.poison((4, 9, 70), kronop.float32)
    arguments = DistanceGradientArguments(operation=operation, A=a, B=b, C=c, D=d, Y=y, p=1.3)
    _, kernels = compiler.load_all((binary,), render(plan), here)
    arguments.run(kernels, None, plan)
    distance_gradients.check(y, what, a, b, c, d, p=1.3)


@pytest.mark.parametrize(
    ("change", "error", "words"),
    [
        ({"p": 0}, kronop.ArgumentError, "positive"),
        ({"p": -1.0}, kronop.ArgumentError, "positive"),
        ({"p": float("inf")}, kronop.ArgumentError, "largest difference"),
        ({"p": float("nan")}, kronop.ArgumentError, "positive"),
        ({"p": "2"}, kronop.ElementTypeError, "a real number"),
        ({"p": True}, kronop.ElementTypeError, "a real number"),
        ({"p": np.ones(3, np.float32)}, kronop.ArgumentError, "shape of Y"),
        ({"kernel_matrix": np.ones((8, 3), np.float32)}, kronop.ArgumentError, "extent"),
        ({"data_z": np.ones(3, np.float32)}, kronop.ArgumentError, "two dimensions"),
        ({"data_x": np.ones((5, 7))}, kronop.ElementTypeError, "float32"),
        ({"coefficients": np.ones((2, 8), np.float32)}, kronop.ArgumentError, "extent K of C"),
        ({"data_x": [[1.0]]}, kronop.ElementTypeError, "data_x|B"),
        ({"kernel_matrix": np.ones((7, 3), int)}, kronop.ElementTypeError, "float"),
    ],
)
def test_errors(change: dict[str, Any], error: type[Exception], words: str) -> None:
    given = {
        "kernel_matrix": np.ones((7, 3), np.float32),
        "data_x": np.ones((5, 7), np.float32),
        "coefficients": np.ones((2, 7), np.float32),
        "data_z": np.ones((5, 3), np.float32),
        "out": np.ones((2, 5, 3), np.float32),
    }
    with pytest.raises(error, match=words):
        kronop.cdist_grad(**(given | change))


def test_results_overlap_no_operand() -> None:
    memory = np.ones((3, 5, 3), np.float32)
    with pytest.raises(kronop.ArgumentError, match="overlap"):
        kronop.cdist_grad(
            np.ones((7, 3), np.float32),
            np.ones((5, 7), np.float32),
            np.ones((2, 7), np.float32),
            memory[0],
            out=memory[:2],
        )
    with pytest.raises(kronop.ArgumentError, match="shape of Y"):
        kronop.cdist_grad(*_operands((2, 5, 7, 3)), out=memory)


def test_arguments_have_powers_of_the_operations_kind() -> None:
    a, b, c, d = _operands((4, 5, 7, 3))
    operands = {"A": a, "B": b, "C": c, "D": d}
    with pytest.raises(kronop.ArgumentError, match="General"):
        DistanceGradientArguments(operation=_operation(1.3), **operands)
    with pytest.raises(kronop.ArgumentError, match="kind"):
        DistanceGradientArguments(operation=_operation(2), **operands, p=3)
    with pytest.raises(kronop.ArgumentError, match="power"):
        _operation(TermKind.Dot)
    operation = _operation(1.3)
    arguments = DistanceGradientArguments(operation=operation, **operands, p=2)
    operation.run(arguments)
    distance_gradients.check(arguments.Y, operation.description, a, b, c, d, p=2.0)
