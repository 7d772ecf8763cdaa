"""Random calls of `kernel_matmul`."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

import kronop
from kronop import kernels
from kronop.emit.plan import Plan
from kronop.families.distance import api
from kronop.families.distance.form import Bound
from kronop.families.distance.product_size import KernelMatmulSize
from tests import support
from tests.families.distances import drawn
from tests.families.distances import matrices_cases as matrices

_COLUMNS = (0, 1, 1, 2, 3, 5, 8, 16, 17, 33)
# So many points on both sides that squared distances may come from products, and how many of
# the cases have them.
_MANY, _OFTEN = (4096, 4160, 4500), 0.03
# How much a value of a kernel may change where squared distances come from products: see
# product_block.cuh.
_CHANGE = 2e-5
# Rows whose differences from all points are in memory at once.
_ROWS = 256


@dataclass(frozen=True)
class Case:
    """One call: its operands in float64 as they were rounded, and the kernel."""

    points: tuple[Any, Any]
    v: Any
    bound: Bound
    element: str
    layouts: tuple[int, int, int, int]

    def __str__(self) -> str:
        shapes = " ".join(str(item.shape) for item in (*self.points, self.v))
        return f"{self.element} {shapes} {self.bound.form}"

    def run(self, device: str) -> str:
        """What is wrong with its result; empty if nothing is."""
        x1, x2, v = (
            drawn.tensor(drawn.laid_out(item, way), self.element, device)
            for item, way in zip((*self.points, self.v), self.layouts[:3], strict=True)
        )
        values = drawn.bound_on(self.bound, self.element, device)

        def call(out: Any) -> None:
            api.product_of(x1, x2, v, values, out)

        wanted, bound = self._expected()
        return drawn.trouble(call, wanted, bound, self.element, device, self.layouts[3])

    def plan(self, target: str) -> Plan:
        element = getattr(kronop, self.element)
        operation = kronop.KernelMatmulOperation(
            *(target, None, *[kronop.TensorDescription(element)] * 4),
            *(support.linear(element), self.bound.form),
        )
        x1, x2 = self.points
        batch = math.prod(
            np.broadcast_shapes(*(item.shape[:-2] for item in (*self.points, self.v)))
        )
        return operation.plan_for(
            KernelMatmulSize(x1.shape[-2], x2.shape[-2], x1.shape[-1], batch, self.v.shape[-1])
        )

    def _expected(self) -> tuple[Any, Any]:
        """(the product in float64, a bound of the error of each element)."""
        x1, _ = self.points
        parts = [
            self._of_rows(x1[..., row : row + _ROWS, :], row)
            for row in range(0, max(x1.shape[-2], 1), _ROWS)
        ]
        wanted, bound = (np.concatenate(items, -2) for items in zip(*parts, strict=True))
        return wanted, bound

    def _of_rows(self, x1: Any, first: int) -> tuple[Any, Any]:
        """As `_expected`, for rows from `first` on: differences of all pairs take much memory."""
        wide = "float64" if self.element == "float64" else "float32"
        matrix, errors = matrices.expected(x1, self.points[1], self.bound, wide, False, first)
        if min(item.shape[-2] for item in self.points) >= min(_MANY):
            errors = errors + _CHANGE * np.abs(matrix)
        wanted, sizes = matrix @ self.v, np.abs(matrix) @ np.abs(self.v)
        of_sums = drawn.unit_of_sums(self.element) * (matrix.shape[-1] + 8)
        bound = errors @ np.abs(self.v) + of_sums * sizes
        least = 2.0**-24 if self.element == "float16" else 1e-37
        return wanted, bound + 2 * drawn.UNITS[self.element] * np.abs(wanted) + least


def make(random: np.random.Generator) -> Case:
    if random.random() < _OFTEN:
        return _large(random)
    element = str(random.choice(drawn.ELEMENTS))
    counts = tuple(int(random.choice(drawn.EXTENTS)) for _ in "mn")
    k, lead = int(random.choice(drawn.FEATURES)), drawn.LEADS[random.integers(4)]
    x1, x2 = matrices.points(random, lead, counts, k, element)
    of_v = lead if random.random() < 0.7 else ()
    v = drawn.points(random, (*of_v, counts[1], int(random.choice(_COLUMNS))), element)
    regularization = [None, None, 0.25][random.integers(3)]
    return Case(
        points=(x1, x2),
        v=v,
        bound=drawn.kernel(random, lead, k).bound(len(lead), regularization),
        element=element,
        layouts=tuple(int(item) for item in random.integers(drawn.LAYOUTS, size=4)),
    )


def _large(random: np.random.Generator) -> Case:
    """A smooth kernel of many points, on tensor cores where those are accurate enough."""
    element = str(random.choice(("float32", "float16", "bfloat16")))
    counts = tuple(int(random.choice(_MANY)) for _ in "mn")
    k, c = int(random.choice((1, 3, 5, 6, 20, 40))), int(random.choice((1, 3, 9, 16)))
    x1, x2 = matrices.points(random, (), counts, k, element)
    width = float(np.float32(random.choice((0.5, 4.0, 20.0))))
    kernel: kernels.Kernel = kernels.Gaussian(width)
    if random.random() < 0.3:
        kernel = kernels.RationalQuadratic(1.5, width)
    return Case(
        points=(x1, x2),
        v=drawn.points(random, (counts[1], c), element),
        bound=kernel.bound(0, [None, 0.25][random.integers(2)]),
        element=element,
        layouts=tuple(int(item) for item in random.integers(drawn.LAYOUTS, size=4)),
    )
