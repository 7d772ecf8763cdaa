"""Random calls of `quantized_gemkm`, compared bit for bit with its definition."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

import kronop
from kronop.emit.plan import Plan
from kronop.families.quantized.description import EPILOGUE, Y
from tests.families.distances import drawn

# Of so many factors, the largest one.
_LARGEST = {1: 300, 2: 70, 3: 14, 4: 7}
_COUNTS = (1, 2, 2, 2, 3, 4)
_ROWS = (0, 1, 2, 37, 400)
_ELEMENTS = ("bfloat16", "float16", "float32")
_LEADS: tuple[tuple[int, ...], ...] = ((), (), (2,), (3, 2))
# Factors that fill tiles, among them those whose plans few others have, and how many cases have
# them.
_WHOLE = (
    ((64, 64), (64, 64)),
    ((64, 64), (128, 128)),
    ((128, 128), (192, 192)),
    ((16, 16), (16, 32)),
    ((8, 8), (8, 8), (8, 8), (8, 8)),
    ((5, 2070),),
    ((3, 2112),),
)
_OFTEN = 0.3


@dataclass(frozen=True)
class Case:
    """One call: whole numbers in float64 whose products are exact, but for infinities and NaN."""

    x: Any
    factors: tuple[Any, ...]
    bits: int
    clip: float
    element: str
    layouts: tuple[int, ...]

    def __str__(self) -> str:
        shapes = " ".join(str(item.shape) for item in (self.x, *self.factors))
        return f"{self.element} {shapes} bits={self.bits} clip={self.clip}"

    def run(self, device: str) -> str:
        """What is wrong with its results; empty if nothing is."""
        x, *factors = (
            drawn.tensor(drawn.laid_out(item, way), self.element, device)
            for item, way in zip((self.x, *self.factors), self.layouts, strict=True)
        )
        what = self._operation("sm_90a").description
        with np.errstate(invalid="ignore"):
            wanted = what.quantized(what.product.reference(self.x, self.factors), self.clip)
        for times in range(3):  # Later calls are repeated ones.
            found = kronop.quantized_gemkm(x, factors, bits=self.bits, clip=self.clip)
            for name, item, want in zip(("q", "scales"), found, wanted, strict=True):
                array = item.cpu().numpy().view(want.dtype)
                wrong = (array != want) & ~(np.isnan(array) & np.isnan(want))
                if array.shape != want.shape or wrong.any():
                    at = np.argwhere(wrong)[:1].tolist()
                    return f"call {times}: {wrong.sum()} of {wrong.size} of {name} wrong, at {at}"
        return ""

    def plan(self, target: str) -> Plan:
        batch = math.prod(np.broadcast_shapes(*(i.shape[:-2] for i in (self.x, *self.factors))))
        return self._operation(target).plan_for(batch * self.x.shape[-2])

    def _operation(self, target: str) -> Any:
        tensor = kronop.TensorDescription(getattr(kronop, self.element))
        shapes = [item.shape[-2:] for item in self.factors]
        return kronop.QuantizedKronOperation(
            target, None, tensor, tensor, Y, EPILOGUE, shapes, bits=self.bits
        )


def make(random: np.random.Generator) -> Case:
    if random.random() < _OFTEN:
        shapes = _WHOLE[random.integers(len(_WHOLE))]
    else:
        count = int(random.choice(_COUNTS))
        shapes = tuple(
            (int(p), int(q)) for p, q in random.integers(1, _LARGEST[count] + 1, (count, 2))
        )
    columns, produced = (math.prod(sizes) for sizes in zip(*shapes, strict=True))
    lead = _LEADS[random.integers(len(_LEADS))] if columns * produced < 1e6 else ()
    rows = int(random.choice(_ROWS))
    # So few numbers are not 0 that sums stay below 256, which all types have exactly.
    x = _whole(random, (*lead, rows, columns), 8 / columns**0.5)
    if rows > 2:
        x[..., 0, :], x[..., 1, columns // 2] = 0, [np.inf, np.nan][random.integers(2)]
    factors = []
    for p, q in shapes:
        own = lead if random.random() < 0.3 else ()
        factors.append(_whole(random, (*own, p, q), 4 / p**0.5))
    layouts = random.integers(drawn.LAYOUTS, size=1 + len(shapes))
    return Case(
        x=x,
        factors=tuple(factors),
        bits=8 if produced % 2 else int(random.choice((4, 8))),
        clip=float(random.choice((1.0, 1.0, 0.7))),
        element=str(random.choice(_ELEMENTS)),
        layouts=tuple(map(int, layouts)),
    )


def _whole(random: np.random.Generator, shape: tuple[int, ...], density: float) -> Any:
    """-1, 0 and 1."""
    return random.integers(-1, 2, shape).astype(np.float64) * (random.random(shape) < density)
