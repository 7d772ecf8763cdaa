"""What the gradients of kronop.torch have to be: those of the same product in float64."""

from __future__ import annotations

import math
from typing import Any

from tests import support
from tests.fuzz import reference
from tests.fuzz.case import Call, Problem
from tests.fuzz.tensors import Tensors

# Errors of long sums of values of both signs walk at random: so many times the root of the terms.
_WALK = 4.0


class Gradients:
    """The gradients of a call's operands, and for each element the largest error.

    The error of a sum is held to the sum of its terms' magnitudes, which is the gradient of the
    product of magnitudes.

    Args:
        tensors: filled.
        names: which operands, in their order.
    """

    def __init__(self, tensors: Tensors, names: list[str]) -> None:
        problem, call = tensors.problem, tensors.call
        self._names = names
        exact = _operands(tensors, names)
        self._values = _differentiated(problem, call, exact, tensors["g"].detach().double())
        sizes = {name: item.detach().abs() for name, item in exact.items()}
        g = tensors["g"].detach().double().abs()
        self._magnitudes = _differentiated(problem, call, sizes, g, magnitudes=True)
        self._unit = support._UNIT[problem.element]
        unit = support._UNIT[support.accumulator(problem.element)]
        self._share = 2 * unit * (_terms(tensors) + 8)
        # What is between two products is rounded, and parts of sums may be.
        self._share += 4 * (len(problem.shapes) + 2) * self._unit

    def trouble(self, found: list[Any]) -> str:
        """What is wrong with gradients in the order of the names; "" where nothing is."""
        tiny = max(support._TINY.values())
        for name, item, value, size in zip(
            self._names, found, self._values, self._magnitudes, strict=True
        ):
            if item.shape != value.shape:
                return f"gradient of {name} of shape {tuple(item.shape)}"
            bad = ~((item.double() - value).abs() <= self._share * size + 2 * tiny)
            if bad.any():
                at = tuple(bad.nonzero()[0].tolist())
                return (
                    f"gradient of {name}: {int(bad.sum())} of {bad.numel()} elements beyond the"
                    f" bound, the first one at {list(at)}: {float(item[at])} for"
                    f" {float(value[at])}, magnitudes {float(size[at]):.3g}"
                )
        return ""


def _terms(tensors: Tensors) -> float:
    """Terms of the longest sum; for sums of random signs about the root of their number."""
    problem, call = tensors.problem, tensors.call
    terms = math.prod(call.x.shape) + math.prod(tensors["g"].shape)
    terms += sum(math.prod(item.shape) for item in call.parts)
    # The same number many times is no random walk.
    if 0 in (*call.x.strides, *(call.g.strides if call.g else ())):
        return float(terms)
    return min(float(terms), _WALK * math.sqrt(terms) + 8 * len(problem.shapes))


def _operands(tensors: Tensors, names: list[str]) -> dict[str, Any]:
    every = {f"parts[{index}]": item for index, item in enumerate(tensors.parts)}
    every |= {name: tensors[name] for name in ("x", "z", "bias")}
    return {name: every[name].detach().double() for name in names}


def _differentiated(
    problem: Problem, call: Call, operands: dict[str, Any], g: Any, *, magnitudes: bool = False
) -> list[Any]:
    import torch

    leaves = {name: item.clone().requires_grad_() for name, item in operands.items()}
    parts = [item for name, item in leaves.items() if name.startswith("parts")]
    alpha, beta = (abs(call.alpha), abs(call.beta)) if magnitudes else (call.alpha, call.beta)
    y = alpha * reference.product(problem, leaves["x"], parts)
    if call.z is not None:
        y = y + beta * leaves["z"]
    if call.bias is not None:
        bias = leaves["bias"]
        y = y + (bias.reshape(-1, *[1] * (y.ndim - 1)) if problem.batch_last else bias)
    return list(torch.autograd.grad(y, list(leaves.values()), g))
