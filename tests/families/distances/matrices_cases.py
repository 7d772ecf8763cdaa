"""Random calls of `cdist` and `kernel_matrix`, and of all plans that they could have."""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass
from typing import Any

import numpy as np

import kronop
from kronop import kernels
from kronop.emit.plan import Plan
from kronop.families.distance import api
from kronop.families.distance.form import GENERAL_POWERS, Bound, TermKind, sum_of, value_of
from kronop.families.distance.size import DistanceSize
from tests import support
from tests.families.distances import drawn

_PRODUCTS = (TermKind.Dot, TermKind.NormA, TermKind.NormB)
_MODES = ("use_mm_for_euclid_dist", "donot_use_mm_for_euclid_dist")
# More plans than there are for any operation.
_EVERY = 1000
# Points and features of which products of warp groups are faster than other tiles, and how many of
# the cases have them.
_MANY, _WIDE, _OFTEN = (129, 200, 257, 300), (130, 257, 270), 0.12
# Roundings of a term besides those of its sum. A power of a float takes a logarithm and an
# exponential, of some units each.
_STEPS, _OF_POWER = 16, 120


@dataclass(frozen=True)
class Case:
    """One call: its points in float64 as they were rounded, and what it is called with.

    Where `candidate` is a number, the plan is one that the planner had to choose from, not the one
    that is modelled to be the fastest for these few points.
    """

    points: tuple[Any, Any]
    bound: Bound
    mode: str
    element: str
    same: bool
    layouts: tuple[int, int, int]
    diagonal: int
    candidate: int | None

    def __str__(self) -> str:
        shapes = " ".join(str(item.shape) for item in self.points)
        return f"{self.element} {shapes} same={self.same} {self.mode} {self.bound.form}"

    def run(self, device: str) -> str:
        """What is wrong with its result; empty if nothing is."""
        x1, x2 = (
            drawn.tensor(drawn.laid_out(item, way), self.element, device)
            for item, way in zip(self.points, self.layouts[:2], strict=True)
        )
        x2, values = x1 if self.same else x2, drawn.bound_on(self.bound, self.element, device)

        def call(out: Any) -> None:
            if self.candidate is None:
                api.matrix_of(x1, x2, values, self.mode, out, self.diagonal)
                return
            arguments = api.distance_arguments(x1, x2, values, self.mode, out, self.diagonal)
            served = arguments.operation.serve(self._plan(arguments.operation, arguments.size))
            arguments.run(served.kernels, None, served)

        wanted, bound = expected(
            *self.points, self.bound, self.element, self.is_expanded, self.diagonal
        )
        return drawn.trouble(call, wanted, bound, self.element, device, self.layouts[2])

    def plan(self, target: str) -> Plan:
        x1, x2 = self.points
        epilogue = support.linear(element := getattr(kronop, self.element))
        operation = kronop.DistanceOperation(
            *(target, None, *[kronop.TensorDescription(element)] * 3, epilogue, self.bound.form),
            *(self.same, self.is_expanded),
        )
        batch = math.prod(np.broadcast_shapes(x1.shape[:-2], x2.shape[:-2]))
        size = DistanceSize(x1.shape[-2], x2.shape[-2], x1.shape[-1], batch)
        return self._plan(operation, size)

    def _plan(self, operation: kronop.DistanceOperation, size: DistanceSize) -> Plan:
        if self.candidate is None:
            return operation.plan_for(size)
        plans = operation.candidates(_EVERY, size.bucket())
        return plans[self.candidate % len(plans)]

    @property
    def is_expanded(self) -> bool:
        return self.mode == _MODES[0]


def make(random: np.random.Generator) -> Case:
    wide = random.random() < _OFTEN
    element = str(random.choice(drawn.ELEMENTS[1:] if wide else drawn.ELEMENTS))
    m, n = (int(random.choice(_MANY if wide else drawn.EXTENTS)) for _ in "mn")
    k = int(random.choice(_WIDE if wide else drawn.FEATURES))
    lead = drawn.LEADS[random.integers(3 if wide else 4)]
    same = bool(random.random() < 0.2)
    x1, x2 = points(random, lead, (m, n), k, element)
    regularization = [None, None, 0.25][random.integers(3)]
    x2 = x1 if same else x2
    dims = max(x1.ndim, x2.ndim) - 2
    kernel = _of_products(random) if wide else drawn.kernel(random, lead, k)
    return Case(
        points=(x1, x2),
        bound=kernel.bound(dims, regularization),
        mode=_MODES[int(random.random() < (0.2 if wide else 0.6))],
        element=element,
        same=same,
        layouts=tuple(int(item) for item in random.integers(drawn.LAYOUTS, size=3)),
        diagonal=int(random.integers(-3, 4)),
        candidate=int(random.integers(_EVERY)) if random.random() < 0.5 else None,
    )


def _of_products(random: np.random.Generator) -> kernels.Kernel:
    """A kernel that is computed from products of points."""
    return [
        kernels.PowerNorm(2.0, root=False),
        kernels.PowerNorm(2.0),
        kernels.Gaussian(float(random.uniform(10, 30))),
        kernels.Linear(),
        kernels.Polynomial(2, 0.5),
        kernels.Cosine(),
        kernels.Linear() * kernels.RationalQuadratic(1.5, 20.0),
    ][random.integers(7)]


def points(
    random: np.random.Generator,
    lead: tuple[int, ...],
    counts: tuple[int, int],
    k: int,
    element: str,
) -> tuple[Any, Any]:
    """Points of both sides, of which some may be equal; the second ones may be without batches."""
    away = float(random.integers(0, 3)) if random.random() < 0.3 else 0.0
    x1 = drawn.points(random, (*lead, counts[0], k), element, away)
    other = lead if random.random() < 0.7 else ()
    x2 = drawn.points(random, (*other, counts[1], k), element, away)
    if all(counts) and random.random() < 0.5:
        x2[..., 0, :] = x1[(0,) * (x1.ndim - 2)][0]
    return x1, x2


def expected(
    x1: Any, x2: Any, given: Bound, element: str, expanded: bool, diagonal: int = 0
) -> tuple[Any, Any]:
    """(the kernel matrix in float64, a bound of the error of each element)."""
    form, eps = given.form, drawn.unit_of_sums(element)
    values = [np.asarray(item, np.float64) for item in given.values]
    vectors = [np.asarray(item, np.float64) for item in given.vectors]
    features = x1.shape[-1]
    inputs, errors = {}, []
    norms = _largest(x1) + _largest(x2)
    for index, term in enumerate(form.terms):
        total = term.of(x1, x2, values, vectors)
        size = total
        if term.kind in _PRODUCTS:
            size = term.of(np.abs(x1), np.abs(x2), values, vectors)
        steps = features + _STEPS
        if term.kind in GENERAL_POWERS:  # The root of a high power has the smaller an error.
            steps = features + _OF_POWER * np.maximum(1, values[term.value][..., None, None])
        error = eps * steps * size
        if expanded and term.kind is TermKind.Two:
            error = error + 4 * eps * (features + 8) * norms**2
        inputs[sum_of(index)] = total
        errors.append(error)
    inputs |= {value_of(i): item[..., None, None] for i, item in enumerate(values)}
    with np.errstate(all="ignore"):
        value = form.expression.evaluate(inputs)
        bound = np.zeros(np.shape(value))
        for signs in itertools.product((-1, 1), repeat=len(errors)):
            moved = {
                sum_of(i): np.maximum(inputs[sum_of(i)] + sign * error, _least(form.terms[i].kind))
                for i, (sign, error) in enumerate(zip(signs, errors, strict=True))
            }
            changed = form.expression.evaluate(inputs | moved)
            bound = np.maximum(bound, np.abs(changed - value))
    whole = form.evaluate(x1, x2, values, vectors, diagonal)
    magnitude = np.abs(whole) + np.abs(value)
    least = 2.0**-24 if element == "float16" else 1e-37  # Of what is subnormal.
    return whole, bound + 64 * eps * magnitude + 2 * drawn.UNITS[element] * np.abs(whole) + least


def _least(kind: TermKind) -> float:
    return -np.inf if kind is TermKind.Dot else 0.0


def _largest(items: Any) -> Any:
    return np.sqrt((items**2).sum(-1)).max(initial=0.0)
