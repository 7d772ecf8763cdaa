"""Random calls of `cdist_grad`."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

import kronop
from kronop.emit.plan import Plan
from kronop.families.distance.form import TermKind
from kronop.families.distance.gradient_api import cdist_grad
from kronop.families.distance.gradient_description import kind_of
from kronop.families.distance.gradient_size import GradientSize
from tests import support
from tests.families.distances import drawn

_POWERS = (0.5, 1, 1, 1.3, 1.5, 2, 2, 2, 2.5, 3, 3.7, 4)
_OUTPUTS = (None, 1, 2, 3, 4, 7, 8, 9, 17)
_EXTENTS = (0, 1, 2, 3, 5, 16, 31, 33, 64, 65, 128, 129, 200)
# So many of everything that squares are multiplied out, and how many of the cases have them.
_MANY, _OFTEN = (128, 130, 200), 0.12
# Roundings of a term besides those of its sum, and those of a power at most; see
# distance_gradients.py.
_STEPS = 64


@dataclass(frozen=True)
class Case:
    """One call: its operands in float64 as they were rounded, and the power."""

    operands: tuple[Any, Any, Any, Any]
    p: Any
    element: str
    layouts: tuple[int, ...]

    def __str__(self) -> str:
        shapes = " ".join(str(getattr(item, "shape", None)) for item in self.operands)
        return f"{self.element} {shapes} p={self.p}"

    def run(self, device: str) -> str:
        """What is wrong with its result; empty if nothing is."""
        a, b, c, d = (
            None if item is None else drawn.tensor(drawn.laid_out(item, way), self.element, device)
            for item, way in zip(self.operands, self.layouts[:4], strict=True)
        )
        p = drawn.value_on(self.p, self.element, device)

        def call(out: Any) -> None:
            cdist_grad(a, b, c, d, p, out)

        wanted, bound = self._expected()
        return drawn.trouble(call, wanted, bound, self.element, device, self.layouts[4])

    def plan(self, target: str) -> Plan:
        a, b, c, _ = self.operands
        element, power = getattr(kronop, self.element), self._power
        operation = kronop.DistanceGradientOperation(
            *(target, None, *[kronop.TensorDescription(element)] * 5),
            *(support.linear(element), power, power is TermKind.Two),
        )
        leads = (item.shape[:-2] for item in self.operands if item is not None)
        o = 1 if c is None else c.shape[-2]
        batch = math.prod(np.broadcast_shapes(*leads))
        return operation.plan_for(GradientSize(a.shape[-1], b.shape[-2], a.shape[-2], o, batch))

    @property
    def _power(self) -> TermKind:
        return TermKind.General if isinstance(self.p, np.ndarray) else kind_of(self.p)

    def _expected(self) -> tuple[Any, Any]:
        """(the sums in float64, a bound of the error of each)."""
        a, b, c, d = self.operands
        power = np.asarray(self.p, np.float64)[..., None, None, None]
        t = d[..., :, None, :] - b[..., :, :, None]  # (..., N, K, M)
        with np.errstate(divide="ignore"):
            slopes = np.where(t == 0, 0, np.abs(t) ** (power - 1))
        sizes = np.ones_like(slopes) if self._power is TermKind.One else slopes
        if self._power is TermKind.Two:
            # Multiplied out, around a point among the data.
            first = b[..., :1] if b.shape[-1] else 0.0
            sizes = np.abs(d - first)[..., :, None, :] + np.abs(b - first)[..., :, :, None]
        weights = a[..., None, :, :]
        terms, sizes = np.sign(t) * slopes * weights, sizes * np.abs(weights)
        if c is None:
            wanted, size = terms.sum(-2), sizes.sum(-2)
        else:
            wanted = np.einsum("...ok,...nkm->...onm", c, terms)
            size = np.einsum("...ok,...nkm->...onm", np.abs(c), sizes)
        error = drawn.unit_of_sums(self.element) * 2 * (a.shape[-2] + _STEPS) * size
        least = 2.0**-24 if self.element == "float16" else 1e-37
        return wanted, error + 2 * drawn.UNITS[self.element] * np.abs(wanted) + least


def make(random: np.random.Generator) -> Case:
    wide = random.random() < _OFTEN
    element = "float32" if wide else str(random.choice(drawn.ELEMENTS))
    k, n, m = (int(random.choice(_MANY if wide else _EXTENTS)) for _ in "knm")
    o, lead = _OUTPUTS[random.integers(len(_OUTPUTS))], drawn.LEADS[random.integers(4)]

    def operand(*shape: int) -> Any:
        """Values of few digits, so that many differences are 0."""
        own = lead if random.random() < 0.8 else ()
        return drawn.rounded(np.round(random.standard_normal((*own, *shape)), 1), element)

    p: Any = 2.0 if wide else float(random.choice(_POWERS))
    if not wide and random.random() < 0.15:
        p = random.uniform(1, 3, lead).astype(np.float32)
    return Case(
        operands=(
            operand(k, m),
            operand(n, k),
            None if o is None else operand(o, k),
            operand(n, m),
        ),
        p=p,
        element=element,
        layouts=tuple(int(item) for item in random.integers(drawn.LAYOUTS, size=5)),
    )
