"""Kernels of pairs of points on CPUs, compiled and run below the level of operations."""

from __future__ import annotations

import dataclasses
import functools
from typing import Any

import numpy as np
import pytest

import kronop
from kronop import compiler
from kronop.descriptions.expression import variable
from kronop.descriptions.graph import Graph
from kronop.descriptions.strided import Strided
from kronop.emit.plan import Plan
from kronop.emit.render import render
from kronop.families.distance.description import (
    DistanceDescription,
    DistanceProblem,
    Value,
)
from kronop.families.distance.form import Form, Term, TermKind, sum_of
from kronop.families.distance.kernels import Cosine, Gaussian, PowerNorm
from kronop.families.distance.size import DistanceSize
from kronop.families.distance.x86 import choice
from kronop.target import Target
from tests import distance_kinds, support

_FLOATS = (kronop.float32, kronop.float64, kronop.float16, kronop.bfloat16)
_HERE = Target.parse("x86")
# Plans for each width of vectors, compiled for less where the machine has less.
_TARGETS = (
    _HERE.baseline,
    dataclasses.replace(_HERE, vector_bytes=32, registers=16),
    dataclasses.replace(_HERE, vector_bytes=64, registers=32),
)


def _sum(*terms: Term, values: int = 0, vectors: int = 0, regularized: bool = False) -> Form:
    """The sum of the terms, as a kernel."""
    names = [variable(sum_of(at)) for at in range(len(terms))]
    return Form(
        terms=terms,
        expression=Graph.of(functools.reduce(lambda a, b: a + b, names)),
        values=values,
        vectors=vectors,
        regularized=regularized,
    )


def _kinds(*kinds: TermKind) -> tuple[Term, ...]:
    return tuple(Term(kind=kind) for kind in kinds)


_K = TermKind
_FORMS = {
    "few roots": _sum(*_kinds(_K.Zero, _K.Half, _K.One)),
    "more roots": _sum(*_kinds(_K.ThreeHalves, _K.FiveHalves, _K.Infinity)),
    "powers": _sum(*_kinds(_K.Two, _K.Three, _K.Four), values=1, regularized=True),
    "general": _sum(
        Term(kind=_K.General, value=1),
        Term(kind=_K.General, value=0, vector=1),
        Term(kind=_K.Two, vector=0),
        values=3,
        vectors=2,
        regularized=True,
    ),
    "scaled": _sum(Term(kind=_K.One, vector=0), Term(kind=_K.Infinity, vector=0), vectors=1),
    "relative": _sum(
        *_kinds(_K.Largest, _K.One), Term(kind=_K.Relative, value=0), values=2, regularized=True
    ),
    "cosine": Cosine().bound().form,
}
# Below this, results need not be normal numbers.
_LEAST = 1e-37
_LAYOUTS = ("plain", "transposed", "backwards", "apart")


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


def _strided(array: Any, batch: tuple[int, ...], own: int) -> tuple[int, list[int]]:
    array = np.broadcast_to(array, (*batch, *array.shape[array.ndim - own :]))
    return array.ctypes.data, [stride // array.itemsize for stride in array.strides]


def _matrix(array: Any, batch: tuple[int, ...]) -> Strided:
    pointer, strides = _strided(array, batch, 2)
    return Strided(pointer=pointer, strides=(*strides[-2:],), batch=tuple(strides[:-2]))


def _description(
    form: Form,
    element: kronop.DataType,
    output: kronop.DataType | None = None,
    *,
    symmetric: bool = False,
    expanded: bool = False,
) -> DistanceDescription:
    output, compute = output or element, support.accumulator(element)
    return DistanceDescription(
        math=kronop.MathInstruction.simt(element),
        tile=None,
        X1=kronop.TensorDescription(element),
        X2=kronop.TensorDescription(element),
        Y=kronop.TensorDescription(output),
        epilogue=kronop.LinearCombination(output, 1, compute, compute),
        kernel=form,
        symmetric=symmetric,
        expanded=expanded,
    )


def _plan(what: DistanceDescription, target: Target) -> Plan:
    """The cheapest plan that is symmetric or expanded if it may be."""
    return next(
        plan
        for plan in choice.plans(what, target, 1000, DistanceSize(40, 40, 10))
        for design in [plan.steps[0].design]
        if (design.symmetric, design.expanded) == (what.symmetric, what.expanded)
    )


class Kernel:
    """A compiled plan, which runs on arrays."""

    def __init__(self, what: DistanceDescription, target: Target) -> None:
        self.what, self.plan = what, _plan(what, target)
        (binary,) = compiler.compile_sources(render(self.plan), target)
        self._kernel = compiler.load(binary, target)
        self.random = np.random.default_rng(1)

    def array(self, *shape: int) -> Any:
        kind = support.numpy_type(self.what.X1.element)
        return (self.random.integers(-15, 16, shape) / 8).astype(kind)

    def run(
        self,
        x1: Any,
        x2: Any,
        y: Any,
        z: Any = None,
        scalars: tuple[float, float] = (1, 0),
        values: Any = (),
        vectors: Any = (),
        diagonal: int = 0,
        threads: int = 2,
    ) -> None:
        batch = y.shape[:-2]
        held, divisors = [], []
        for item in values:
            pointer, strides = _strided(item, batch, 0)
            memory = Strided(pointer=pointer, strides=(), batch=tuple(strides))
            held.append(Value(memory=memory) if item.ndim else Value(float(item)))
        for item in vectors:
            pointer, strides = _strided(item, batch, 1)
            *leading, step = strides
            memory = Strided(pointer=pointer, strides=(step,), batch=tuple(leading))
            divisors.append(Value(memory=memory))
        problem = DistanceProblem(
            m=y.shape[-2],
            n=y.shape[-1],
            k=x1.shape[-1],
            batch=batch,
            x1=_matrix(x1, batch),
            x2=_matrix(x2, batch),
            z=_matrix(z, batch) if scalars[1] else None,
            y=_matrix(y, batch),
            values=tuple(held),
            vectors=tuple(divisors),
            diagonal=diagonal,
            scalars=self.what.epilogue.epilogue_type(*scalars).scalars,
            threads=threads,
        )
        if y.size:  # Arguments launch nothing for no results.
            self.launch(problem)

    def launch(self, problem: DistanceProblem) -> None:
        for launch in self.plan.launches(problem):
            self._kernel.bind(launch)(0)

    def check(
        self,
        sizes: tuple[int, int, int],
        layout: str = "plain",
        y_layout: str = "plain",
        scalars: tuple[float, float] = (1, 0),
        batch: tuple[tuple[int, ...], tuple[int, ...]] = ((2, 3), (3,)),
        diagonal: int = 0,
    ) -> Any:
        """Runs a problem with random points, and compares every element of the result.

        Each sum has an error of less than k + 64 roundings of the sum of its terms' sizes, of which
        64 are for the term itself, such as a power, and for the functions of sums.
        """
        (m, n, k), what = sizes, self.what
        kind = support.numpy_type(what.math.element_accumulator)
        x1 = _laid_out(self.array(*batch[0], m, k), layout)
        x2 = x1 if what.symmetric else _laid_out(self.array(*batch[1], n, k), layout)
        lead = np.broadcast_shapes(*batch)
        values = [np.asarray(1.25 + at, kind) for at in range(what.kernel.values)]
        if values and lead:
            values[0] = np.linspace(0.7, 3.3, lead[-1]).astype(kind)
        vectors = [
            (1 + (np.arange(k) + at) % 3 / 2).astype(kind) for at in range(what.kernel.vectors)
        ]
        if vectors and lead:
            vectors[0] = vectors[0] * np.arange(1, lead[-1] + 1, dtype=kind)[:, None]
        y = support.poison((*lead, m, n), what.Y.element)
        z = _laid_out(self.random.standard_normal(y.shape).astype(y.dtype), y_layout)
        y = _laid_out(y, y_layout)
        self.run(x1, x2, y, z, scalars, values, vectors, diagonal)
        bound = what.epilogue.epilogue_type(*scalars)
        source = z.astype(np.float64) if scalars[1] else None
        expected = what.reference(x1, x2, source, bound, values, vectors, diagonal)
        size = np.abs(what.reference(x1, x2, None, None, values, vectors, diagonal))
        if what.kernel is _FORMS["cosine"]:
            size = 1.0
        elif what.expanded:
            norms = [(np.abs(x.astype(float)) ** 2).sum(-1).max(initial=0) for x in (x1, x2)]
            size = 8 * max(norms)
        unit = support.unit(what.math.element_accumulator)
        error = abs(scalars[0]) * (k + 64) * unit * size
        error = error + 2 * support.unit(what.Y.element) * np.abs(expected)
        if scalars[1]:
            error = error + 4 * unit * np.abs(scalars[1] * source)
        assert y.shape == expected.shape
        assert (np.abs(y.astype(np.float64) - expected) <= error + _LEAST).all()
        if y_layout == "apart":
            assert not np.delete(y.base, np.s_[1::3], -1).any()
        return y


# Sizes below and above those of tiles, and more features than a slab has, or none.
_SIZES = ((13, 70, 9), (1, 3, 300), (9, 17, 1), (5, 2, 0))


@pytest.mark.spread(form=[*_FORMS] * 2, element=_FLOATS, target=_TARGETS)
def test_values(form: str, element: kronop.DataType, target: Target) -> None:
    kernel = Kernel(_description(_FORMS[form], element), target)
    for at, sizes in enumerate(_SIZES):
        kernel.check(sizes, _LAYOUTS[at], _LAYOUTS[at - 1], (2.0, -1.0) if at % 2 else (1.0, 0.0))
    for batch in (((), ()), ((2, 1, 2), (1, 2, 2))):
        kernel.check((6, 8, 5), "plain", "transposed", batch=batch, diagonal=-2)
    for sizes in ((3, 41, 2), (0, 5, 2), (5, 0, 2)):
        kernel.check(sizes, diagonal=38)
    kernel.check((4, 4, 3), batch=((0,), ()))
    _check_special(kernel)
    if form == "cosine":
        check_lengths(kernel)


def check_lengths(kernel: Kernel) -> None:
    """Cosines of points of all sizes, whose squares of float32 may be too large or vanish."""
    element, kind = kernel.what.X1.element, support.numpy_type(kernel.what.X1.element)
    most = {kronop.float64: 500, kronop.float16: 10}.get(element, 120)
    points = [kernel.array(count, 9).astype(np.float64) for count in (7, 41)]
    for each in points:
        each[3] = 0
    expected = kernel.what.kernel.evaluate(*points)
    sized = [(x * 2.0 ** (np.arange(len(x)) * 40 % (2 * most) - most)[:, None]) for x in points]
    y = support.poison((7, 41), kernel.what.Y.element)
    kernel.run(*(x.astype(kind) for x in sized), y)
    # 9 products, a square root, and the rounding of the result.
    error = 32 * 2.0**-24 + 2 * support.unit(kernel.what.Y.element) * np.abs(expected)
    assert (np.abs(y.astype(np.float64) - expected) <= error).all()


def _check_special(kernel: Kernel) -> None:
    """That NaN gives NaN in its row or column only, and differences of equal points are 0."""
    x1, x2 = kernel.array(11, 7), kernel.array(35, 7)
    x1[3, 2], x2[20, 6], x2[30] = np.nan, np.nan, x1[5]
    y = support.poison((11, 35), kernel.what.Y.element)
    form, kind = kernel.what.kernel, support.numpy_type(kernel.what.math.element_accumulator)
    values = [np.asarray(value, kind) for value in (1.5, 0.6, 0.25)[3 - form.values :]]
    vectors = [np.ones(7, kind)] * form.vectors
    kernel.run(x1, x2, y, values=values, vectors=vectors, diagonal=-100)
    found = np.isnan(y.astype(np.float64))
    expected = np.zeros_like(found)
    expected[3], expected[:, 20] = True, True
    np.testing.assert_array_equal(found, expected)
    if not {term.kind for term in form.terms} & {_K.Dot, _K.NormA, _K.NormB}:
        assert y[5, 30] == 0


@pytest.mark.spread(kinds=distance_kinds.KINDS, dtype=[np.float32, np.float64])
def test_nan_comes_through_every_term(kinds: Any, dtype: Any) -> None:
    random = np.random.default_rng(1)
    x1, x2 = (random.uniform(0.5, 2, (count, 5)).astype(dtype) for count in (7, 35))
    x1[3, 2] = x2[20, 4] = np.nan
    v = np.ones((35, 1), dtype)
    for kind in kinds:
        kernel = distance_kinds.OneOf(kinds, kind)
        expected = distance_kinds.nan_of(kind, (7, 35), 3, 20)
        found = kronop.kernel_matrix(x1, x2, kernel)
        np.testing.assert_array_equal(np.isnan(found), expected, kind.name)
        some = np.delete(x2, 20, 0)
        rows = np.isnan(kronop.kernel_matmul(x1, some, v[1:], kernel))[:, 0]
        np.testing.assert_array_equal(rows, expected[:, 0], kind.name)


@pytest.mark.spread(element=_FLOATS, target=_TARGETS, vectors=[0, 1])
def test_expanded_squares(element: kronop.DataType, target: Target, vectors: int) -> None:
    form = _sum(Term(kind=_K.Two, vector=vectors - 1), vectors=vectors)
    kernel = Kernel(_description(form, element, expanded=True), target)
    for at, sizes in enumerate(((13, 70, 9), (9, 33, 300), (2, 5, 0))):
        kernel.check(sizes, _LAYOUTS[at], _LAYOUTS[at])
    # Points far from the origin: a common offset costs nothing but what it rounds off the points.
    kind = support.numpy_type(kernel.what.math.element_accumulator)
    scales = [np.full(21, 2, kind)] * vectors
    x1, x2 = (kernel.array(count, 21) + 256 for count in (9, 40))
    kernel.run(x1, x2, y := support.poison((9, 40), element), vectors=scales)
    expected = form.evaluate(x1.astype(float), x2.astype(float), (), scales)
    assert np.abs(y.astype(float) - expected).max() <= 2.0**-7 * expected.max()
    # The distance of a point to itself, which is at another index here.
    points, y = x2.copy(), support.poison((26, 40), element)
    kernel.run(points[4:30], points, y, vectors=scales)
    assert not np.diagonal(y, 4).any()
    assert y.astype(float).min() >= 0
    points[7, 3] = np.nan
    kernel.run(points[4:30], points, y, vectors=scales)
    expected = np.zeros(y.shape, bool)
    expected[3], expected[:, 7] = True, True
    np.testing.assert_array_equal(np.isnan(y.astype(float)), expected)


@pytest.mark.spread(element=_FLOATS, target=_TARGETS, expanded=[False, True])
def test_symmetric(element: kronop.DataType, target: Target, expanded: bool) -> None:
    form = _sum(*_kinds(_K.Two), values=1, regularized=True)
    kernel = Kernel(_description(form, element, symmetric=True, expanded=expanded), target)
    for at, size in enumerate((3, 70)):
        y = kernel.check((size, size, 11), _LAYOUTS[at], _LAYOUTS[at + 1], batch=((2,), (2,)))
        np.testing.assert_array_equal(y, y.swapaxes(-1, -2))
    kernel.check((45, 45, 5), scalars=(0.5, 2.0), diagonal=7)
    kernel.check((45, 45, 300), diagonal=-7)


@pytest.mark.spread(element=_FLOATS[:2] * 2, target=(_TARGETS[0], _HERE, _HERE, _TARGETS[0]))
def test_powers_of_all_sizes(element: kronop.DataType, target: Target) -> None:
    """|d|^p to 8 roundings, and 16 p more; what is hardly a normal number may be 0."""
    kernel = Kernel(_description(PowerNorm(2.2, root=False).bound().form, element), target)
    limits = np.finfo(support.numpy_type(element))
    exponents = np.linspace(np.log2(limits.smallest_subnormal) + 1, limits.maxexp - 1, 300)
    d = np.array([*2.0**exponents, 0, np.inf, limits.max]).astype(limits.dtype)
    powers = np.array([0.125, 0.9, 1.3, 2.7, 60.0], limits.dtype)
    y = support.poison((5, 1, d.size), element)
    kernel.run(np.zeros((1, 1), limits.dtype), d[:, None], y, values=[powers])
    with np.errstate(over="ignore", under="ignore", invalid="ignore"):
        expected = (d.astype(np.longdouble) ** powers.astype(np.longdouble)[:, None])[:, None]
        assert (np.isinf(y) == np.isinf(expected.astype(limits.dtype))).all()
        is_normal = (expected >= 4 * limits.tiny) & (expected <= limits.max)
        error = np.abs(y / expected - 1)[is_normal]
    factor = np.broadcast_to(powers[:, None, None], y.shape)[is_normal]
    assert (error <= (4 + 8 * factor) * 2 * limits.eps).all()
    assert (y[expected < limits.tiny / 4] == 0).all()


NORM = PowerNorm(17.0).bound().form


def check_norms(kernel: Any) -> None:
    """The distance of points whose differences and powers are anywhere in the type's range.

    Quotients of differences and their powers have errors of 8 + 8 p roundings, also on a GPU, which
    the root divides by p; the root, a power too, has some of its own.
    """
    kind = support.numpy_type(kernel.what.X1.element)
    limits = np.finfo(kind)
    powers = np.array([0, 2.0**-30, 0.05, 1.3, 16, 60, 120, 1e6, limits.max], kind)
    powers[0] = limits.smallest_subnormal
    some = np.array([[1, 1, 1], [1, 0.97, 0], [0, 0, -0.3], [1, -0.99, 0.98]])
    sizes = 2.0 ** np.linspace(limits.minexp + 4, limits.maxexp - 2, 40)
    d = (sizes[:, None, None] * some).reshape(-1, 3).astype(kind)
    y = support.poison((powers.size, 1, len(d)), kernel.what.Y.element)
    kernel.run(np.zeros((1, 3), kind), d, y, values=[powers])
    exact, p = np.abs(d.astype(np.longdouble)), powers.astype(np.longdouble)[:, None, None]
    largest = exact.max(-1, keepdims=True)
    with np.errstate(over="ignore", under="ignore"):
        factor = np.broadcast_to(1 + 1 / powers[:, None], y[:, 0].shape)
        expected = (largest * ((exact / largest) ** p).sum(-1, keepdims=True) ** (1 / p))[..., 0]
    is_known = expected < limits.max / 2
    error = np.abs(y[:, 0][is_known] / expected[is_known] - 1)
    assert (error <= 32 * limits.eps * factor[is_known]).all()
    assert np.isinf(y[:, 0][expected > 2 * limits.max.astype(np.longdouble)]).all()
    special = [[0, 0, 0], [np.inf, 1, 0], [1, np.inf, -np.inf], [np.inf, np.nan, 0], [0, np.nan, 1]]
    y = support.poison((powers.size, 1, 5), kernel.what.Y.element)
    kernel.run(np.zeros((1, 3), kind), np.array(special, kind), y, values=[powers])
    wanted = np.array([0, np.inf, np.inf, np.nan, np.nan], kind)
    np.testing.assert_array_equal(y, np.broadcast_to(wanted, y.shape))


@pytest.mark.spread(element=_FLOATS[:2], target=(_TARGETS[0], _HERE))
def test_norms_of_all_sizes(element: kronop.DataType, target: Target) -> None:
    check_norms(Kernel(_description(NORM, element), target))


def test_kernel_functions() -> None:
    kernel = (2.0 * Gaussian(1.5) + Cosine()).bound()
    run = Kernel(_description(kernel.form, kronop.float32), _HERE)
    x1, x2, y = run.array(9, 5), run.array(21, 5), support.poison((9, 21), kronop.float32)
    values = [np.asarray(item, np.float32) for item in kernel.values]
    run.run(x1, x2, y, values=values)
    expected = kernel.form.evaluate(x1.astype(float), x2.astype(float), kernel.values)
    assert np.abs(y - expected).max() <= 64 * 2.0**-24 * 3
