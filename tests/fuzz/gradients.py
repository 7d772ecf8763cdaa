"""The expected gradients of kronop.torch: those of the same product in float64."""

from __future__ import annotations

import math
from typing import Any

from tests import support
from tests.fuzz import reference
from tests.fuzz.case import Call, Problem
from tests.fuzz.tensors import Tensors


class Gradients:
    """The gradients of a call's operands, and the largest allowed error of each element.

    The allowed error has two parts. Errors of sums in the accumulator's type are bounded by the sum
    of the terms' magnitudes, which is the gradient of the product of magnitudes. Errors from
    rounding intermediate results to the operands' type add up like random numbers: they are bounded
    by the root of the sum of squares, from the gradient of the product of squares. If operands
    repeat the same numbers (stride 0), these errors are equal, and magnitudes bound them too.

    Args:
        tensors: the tensors of the call, filled.
        names: the operands whose gradients are compared, in order.
    """

    def __init__(self, tensors: Tensors, names: list[str]) -> None:
        problem, call = tensors.problem, tensors.call
        self._names = names
        exact, g = _operands(tensors, names), tensors["g"].detach().double()
        self._values = _differentiated(problem, call, exact, g)
        powers = [
            [
                size ** (1 / power)
                for size in _differentiated(
                    problem,
                    call,
                    {name: item.abs() ** power for name, item in exact.items()},
                    g.abs() ** power,
                    power,
                )
            ]
            for power in (1, 2)
        ]
        repeats = reference.repeats(call)
        terms = math.prod(call.x.shape) + math.prod(g.shape)
        terms += sum(math.prod(item.shape) for item in call.parts)
        unit = support._UNIT[problem.element]
        of_sums = 2 * support._UNIT[support.accumulator(problem.element)]
        of_sums *= reference.walk(terms, repeats) + 8
        self._bounds = [
            of_sums * size
            + 8 * (len(problem.shapes) + 2) * unit * (size if repeats else root)
            + 4 * unit * value.abs()
            + 2 * support._TINY[problem.element]
            for size, root, value in zip(*powers, self._values, strict=True)
        ]

    def trouble(self, found: list[Any]) -> str:
        """What is wrong with these gradients, in the order of the names; "" if nothing is."""
        for name, item, value, bound in zip(
            self._names, found, self._values, self._bounds, strict=True
        ):
            if item.shape != value.shape:
                return f"gradient of {name} of shape {tuple(item.shape)}"
            bad = ~((item.double() - value).abs() <= bound)
            if bad.any():
                at = tuple(bad.nonzero()[0].tolist())
                return (
                    f"gradient of {name}: {int(bad.sum())} of {bad.numel()} elements beyond the"
                    f" bound, the first one at {list(at)}: {float(item[at])} for"
                    f" {float(value[at])}, allowed {float(bound[at]):.3g}"
                )
        return ""


def _operands(tensors: Tensors, names: list[str]) -> dict[str, Any]:
    every = {f"parts[{index}]": item for index, item in enumerate(tensors.parts)}
    every |= {name: tensors[name] for name in ("x", "z", "bias")}
    return {name: every[name].detach().double() for name in names}


def _differentiated(
    problem: Problem, call: Call, operands: dict[str, Any], g: Any, power: int = 0
) -> list[Any]:
    """The gradients of the product of the operands.

    With a `power`, the operands are powers of magnitudes, and all intermediate results and their
    gradients are increased by that power of the least normal number: smaller values have the same
    rounding error as it.
    """
    import torch

    leaves = {name: item.clone().requires_grad_() for name, item in operands.items()}
    parts = [item for name, item in leaves.items() if name.startswith("parts")]
    alpha, beta = (abs(item) ** power if power else item for item in (call.alpha, call.beta))
    least = (support._TINY[problem.element] / support._UNIT[problem.element]) ** power
    between = _raised(least) if power else reference.as_it_is
    y = alpha * reference.product(problem, leaves["x"], parts, between=between)
    if call.z is not None:
        y = y + beta * leaves["z"]
    if call.bias is not None:
        bias = leaves["bias"]
        y = y + (bias.reshape(-1, *[1] * (y.ndim - 1)) if problem.batch_last else bias)
    return list(torch.autograd.grad(y, list(leaves.values()), g))


def _raised(least: float) -> Any:
    """A function that adds `least` to a tensor and to its gradient."""

    def added(x: Any) -> Any:
        raised = x + least
        raised.register_hook(lambda gradient: gradient + least)
        return raised

    return added
