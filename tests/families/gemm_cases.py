"""Random matrix products, of all plans that they could have, compared number by number.

Operands are whole numbers so small that all sums are exact in every type.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

import kronop
from kronop.core import calls
from kronop.emit.plan import Plan
from kronop.families.gemm import api
from kronop.families.gemm.size import GemmSize
from tests.families.distances import drawn

_ELEMENTS = (
    *("float64", "float32", "float16", "bfloat16", "float8_e4m3fn", "float8_e5m2"),
    *("int64", "int32", "int8"),
)
_EXTENTS = (0, 1, 2, 7, 8, 16, 31, 33, 64, 65, 100, 127, 128, 129, 136, 200, 257, 264, 300)
_DEPTHS = (0, 1, 2, 7, 8, 16, 31, 32, 33, 64, 65, 72, 128, 200, 264, 520, 1032)
_LEADS: tuple[tuple[int, ...], ...] = ((), (), (), (3,), (2, 3))
# More plans than there are for any operation.
_EVERY = 1000
_LAYOUTS = 7
# So many of the operands' numbers are not 0 that sums stay near this.
_SUM = 12


@dataclass(frozen=True)
class Case:
    """One call: operands in float64, and what it is called with.

    Where `candidate` is a number, the plan is one that the planner had to choose from.
    """

    operands: dict[str, Any]
    alpha: int
    beta: int | None
    activation: str | None
    element: str
    output: str
    layouts: tuple[int, ...]
    candidate: int | None
    in_place: bool

    def __str__(self) -> str:
        shapes = " ".join(f"{name}{item.shape}" for name, item in self.operands.items())
        return (
            f"{self.element} -> {self.output} {shapes} alpha={self.alpha} beta={self.beta}"
            f" {self.activation} layouts={self.layouts} plan={self.candidate}"
        )

    def run(self, device: str) -> str:
        """What is wrong with its results; empty if nothing is."""
        a, b = (
            _tensor(laid_out(self.operands[name], way), self.element, device)
            for name, way in zip("ab", self.layouts, strict=False)
        )
        wanted = self._wanted()
        memory, out = drawn.room(wanted.shape, self.output, device, *self._turned_and_aligned)
        c, bias = (
            _tensor(self.operands[name], self.output, device) if name in self.operands else None
            for name in ("c", "bias")
        )
        for times in range(3):  # Later calls are repeated ones.
            if self.in_place:
                out.copy_(c)
            else:
                out.fill_(drawn.GUARD - 1)
            given = out if self.in_place else c
            try:
                self._call(a, b, given, bias, out)
            except kronop.KronopError as error:
                return f"call {times}: {type(error).__name__} {error}"
            found = out.double().cpu().numpy()
            wrong = ~((found == wanted) | (np.isnan(found) & np.isnan(wanted)))
            if wrong.any():
                at = np.argwhere(wrong)[0].tolist()
                values = f"{found[tuple(at)]} for {wanted[tuple(at)]}"
                return f"call {times}: {wrong.sum()} of {wrong.size} wrong, at {at}: {values}"
            out.fill_(drawn.GUARD)
            if not bool((memory == drawn.GUARD).all()):
                return f"call {times}: memory around the result was written"
        return ""

    @property
    def _turned_and_aligned(self) -> tuple[bool, bool]:
        """How the result lies in memory."""
        return self.layouts[2] % 2 == 1, self.layouts[2] // 2 % 2 == 1

    def _call(self, a: Any, b: Any, c: Any, bias: Any, out: Any) -> None:
        if self.candidate is None:
            kronop.gemm.matmul(
                a, b, c, self.alpha, self.beta, bias=bias, activation=self.activation, out=out
            )
            return
        arguments = api.arguments_of(a, b, c, self.alpha, self.beta, bias, self.activation, out)
        operation: Any = arguments.operation
        served = operation.serve(self._plan(operation, arguments.size))
        arguments.run(served.kernels, None, served)
        arguments.sync()

    def _wanted(self) -> Any:
        """The result by NumPy, in float64, as the type of the result holds it."""
        product = self.operands["a"] @ self.operands["b"] * self.alpha
        if self.beta:
            product = product + self.beta * self.operands["c"]
        if "bias" in self.operands:
            product = product + self.operands["bias"]
        if self.activation is not None:
            product = np.maximum(product, 0)
        if self.output == "int8":
            product = np.clip(product, -128, 127)
        return np.asarray(drawn.rounded(product, self.output))

    def plan(self, target: str) -> Plan:
        what = [
            kronop.TensorDescription(
                getattr(kronop, self.element),
                kronop.ColumnMajor if way == 1 else kronop.RowMajor,
                16 // getattr(kronop, self.element).bytes if way < 2 else 1,
            )
            for way in self.layouts[:2]
        ]
        turned, aligned = self._turned_and_aligned
        result = kronop.TensorDescription(
            getattr(kronop, self.output),
            kronop.ColumnMajor if turned else kronop.RowMajor,
            16 // getattr(kronop, self.output).bytes if aligned else 1,
        )
        epilogue = calls.epilogue_of(what[0].element, result, self.activation)
        operation = kronop.GemmOperationUniversal(target, None, *what, result, epilogue)
        a, b = self.operands["a"], self.operands["b"]
        batch = math.prod(np.broadcast_shapes(a.shape[:-2], b.shape[:-2]))
        return self._plan(operation, GemmSize(a.shape[-2], b.shape[-1], a.shape[-1], batch))

    def _plan(self, operation: Any, size: GemmSize) -> Plan:
        if self.candidate is None:
            return operation.plan_for(size)  # type: ignore[no-any-return]
        plans = operation.candidates(_EVERY, size.bucket())
        return plans[self.candidate % len(plans)]  # type: ignore[no-any-return]


def laid_out(array: Any, way: int) -> Any:
    """The same values in memory of other strides: the first two ways are aligned to 16 bytes."""
    if way in (0, 1):
        moved = array if way == 0 else array.swapaxes(-1, -2)
        room = np.zeros((*moved.shape[:-1], -(-moved.shape[-1] // 16) * 16))
        room[..., : moved.shape[-1]] = moved
        found = room[..., : moved.shape[-1]]
        return found if way == 0 else found.swapaxes(-1, -2)
    if way == 6:  # One row, or one problem, for all.
        return np.broadcast_to(array[..., :1, :], array.shape)
    return drawn.laid_out(array, way - 1)


def _tensor(array: Any, element: str, device: str) -> Any:
    import torch

    held = torch.from_numpy(np.asarray(array, np.float64))
    made = torch.empty_strided(
        held.shape, held.stride(), dtype=getattr(torch, element), device=device
    )
    if 0 in held.stride() and made.numel():
        made[..., :1, :].copy_(held[..., :1, :])
        return made
    return made.copy_(held)


def make(random: np.random.Generator) -> Case:
    element = str(random.choice(_ELEMENTS))
    m, n = (int(random.choice(_EXTENTS)) for _ in "mn")
    k = int(random.choice(_DEPTHS))
    lead = _LEADS[random.integers(len(_LEADS))]
    layouts = tuple(int(item) for item in random.integers(_LAYOUTS, size=3))
    if random.random() < 0.5:
        layouts = (*(int(item) for item in random.integers(2, size=2)), layouts[2])
    output = {"float8_e4m3fn": "bfloat16", "float8_e5m2": "float16"}.get(element, element)
    if element == "int8":
        output = str(random.choice(("int32", "int8")))
    own = lead if random.random() < 0.6 else ()
    operands = {
        "a": _whole(random, (*lead, m, k), (_SUM / max(k, 1)) ** 0.5),
        "b": _whole(random, (*own, k, n), (_SUM / max(k, 1)) ** 0.5),
    }
    if random.random() < 0.3 and "float" in element and m and n and k:
        operands["a"][..., 0 if layouts[0] == 6 else m // 2, k // 2] = np.nan
    for name, way in zip("ab", layouts, strict=False):
        if way == 6:
            operands[name] = np.array(laid_out(operands[name], way))
    beta = [None, 1, -3][random.integers(3)]
    if beta is not None:
        operands["c"] = random.integers(-5, 6, (*lead, m, n)).astype(np.float64)
    if random.random() < 0.4:
        operands["bias"] = random.integers(-9, 10, n).astype(np.float64)
    floats = "float" in element
    return Case(
        operands=operands,
        alpha=int(random.choice((1, 2, -1))),
        beta=beta,
        activation="relu" if floats and random.random() < 0.25 else None,
        element=element,
        output=output,
        layouts=layouts,
        candidate=int(random.integers(_EVERY)) if random.random() < 0.5 else None,
        in_place=beta is not None and bool(random.random() < 0.5),
    )


def _whole(random: np.random.Generator, shape: tuple[int, ...], density: float) -> Any:
    """-1, 0 and 1."""
    return random.integers(-1, 2, shape).astype(np.float64) * (random.random(shape) < density)
