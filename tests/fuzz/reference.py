"""Reference products in float64 or in integers that wrap around, with bounds of their errors.

The functions work on NumPy arrays and on torch tensors, by using only what both have. They are
independent of the references of the descriptions, so that the two check each other.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from kronop.descriptions import activation as activations
from kronop.descriptions.datatype import DataType, float64
from kronop.descriptions.expression import variable
from kronop.descriptions.graph import Graph
from tests import support
from tests.fuzz.case import Call, Problem

_LIMB = 16
Between = Callable[[Any], Any]


def as_it_is(x: Any) -> Any:
    """Leaves intermediate results between factors unchanged, as in an exact product."""
    return x


def product(
    problem: Problem, x: Any, parts: Sequence[Any], g: Any = None, between: Between = as_it_is
) -> Any:
    """The problem's product of wide operands, without an epilogue.

    Args:
        between: is applied to each intermediate result between two factors.
    """
    if problem.of_kron:
        return kron(x, parts, problem.left, between)
    if problem.is_weight_gradient:
        return weight_gradient(problem, x, g, parts)
    return ksparse(x, parts, problem.batch_last, between)


def kron(x: Any, factors: Sequence[Any], left: bool, between: Between = as_it_is) -> Any:
    """x (F1 x ... x FN), or (F1 x ... x FN) x."""
    if x.ndim == 1:
        y = kron(x[:, None] if left else x[None], factors, left, between)
        return y[..., 0] if left else y[..., 0, :]
    if left:
        turned = [item.swapaxes(-1, -2) for item in factors]
        return kron(x.swapaxes(-1, -2), turned, False, between).swapaxes(-1, -2)
    lead, count = x.shape[:-2], x.shape[-2]
    for place, factor in enumerate(factors):
        x = between(x) if place else x
        size, made = factor.shape[-2:]
        # The first digit is contracted and becomes the last one; after all factors the digits are
        # in their original order.
        x = x.reshape(*lead, count, size, -1).swapaxes(-1, -2)
        rest = x.shape[-2]
        x = _matmul(x.reshape(*lead, count * rest, size), factor)
        lead = x.shape[:-2]
        x = x.reshape(*lead, count, rest * made)
    return x


def ksparse(x: Any, weights: Sequence[Any], batch_last: bool, between: Between = as_it_is) -> Any:
    """x K1' K2' ..., or with the batch last K2 K1 x."""
    lead = x.shape[1:] if batch_last else x.shape[:-1]
    x = x.reshape(x.shape[0], -1).T if batch_last else x.reshape(-1, x.shape[-1])
    count = x.shape[0]
    for place, weight in enumerate(weights):
        x = between(x) if place else x
        a, b, c, d = weight.shape
        groups = _moved(x.reshape(count, a, c, d), (1, 3, 0, 2))
        x = _moved(_matmul(groups, _moved(weight, (0, 3, 2, 1))), (2, 0, 3, 1))
        x = x.reshape(count, a * b * d)
    return x.T.reshape(-1, *lead) if batch_last else x.reshape(*lead, -1)


def weight_gradient(problem: Problem, x: Any, g: Any, factors: Sequence[Any]) -> Any:
    """The gradient of weights, of tied weights, or of several factors in one vector."""
    a, b, c, d = problem.shapes[0]
    if problem.batch_last:
        x, g = x.swapaxes(-1, -2), g.swapaxes(-1, -2)
    front, count = x.shape[:-2], x.shape[-2]
    x = _moved(x.reshape(-1, count, a, c, d), (0, 2, 4, 1, 3))
    g = _moved(g.reshape(-1, count, a, b, d), (0, 2, 4, 3, 1))
    sums = g @ x  # (products, a, d, b, c)
    if not problem.tied:
        return _moved(sums, (0, 1, 3, 4, 2)).reshape(*front, a, b, c, d)
    sums = sums.sum((1, 2)).swapaxes(-1, -2)
    return _of_factors(problem, sums[0], factors) if problem.factors else sums.reshape(*front, c, b)


def _of_factors(problem: Problem, sums: Any, factors: Sequence[Any]) -> Any:
    count, einsum = len(factors), np.einsum if isinstance(sums, np.ndarray) else _torch().einsum
    digits = [size for shape in problem.factors for size in shape]
    rows, columns = "abcd"[:count], "efgh"[:count]
    of_rows, of_columns = digits[::2], digits[1::2]
    sums = sums.reshape(*of_rows, *of_columns)
    found = []
    for own in range(count):
        others = [at for at in range(count) if at != own]
        inputs = ",".join([rows + columns, *(rows[at] + columns[at] for at in others)])
        result = einsum(
            f"{inputs}->{rows[own]}{columns[own]}", sums, *(factors[at] for at in others)
        )
        found.append(result.reshape(-1))
    return np.concatenate(found) if isinstance(sums, np.ndarray) else _torch().cat(found)


def _moved(item: Any, axes: tuple[int, ...]) -> Any:
    return item.transpose(axes) if isinstance(item, np.ndarray) else item.permute(axes)


def _torch() -> Any:
    import torch

    return torch


def _matmul(one: Any, other: Any) -> Any:
    """A matrix product, also for integers on a GPU, for which torch has none."""
    if isinstance(one, np.ndarray) or one.is_floating_point() or not one.is_cuda:
        return one @ other
    return matmul_by_limbs(one, other)


def matmul_by_limbs(one: Any, other: Any) -> Any:
    """The product modulo 2^64 of torch's int64 matrices, by exact products in float64.

    Values are split into digits of 16 bits: float64 sums of up to 2^21 products of two digits are
    exact.
    """
    limbs = range(64 // _LIMB)
    ones, others = ([item >> _LIMB * at & 2**_LIMB - 1 for at in limbs] for item in (one, other))
    total = 0
    for first in limbs:
        for second in limbs[: len(limbs) - first]:
            part = ones[first].double() @ others[second].double()
            total = total + (part.long() << _LIMB * (first + second))
    return total


class Expected:
    """An expected result, and for each element the largest error that rounding explains.

    Args:
        problem, call: the problem and call whose result it is.
        x, parts, g, z, bias: the operands in wide types; None for operands that the call lacks.
    """

    def __init__(
        self, problem: Problem, call: Call, x: Any, parts: Sequence[Any], g: Any, z: Any, bias: Any
    ) -> None:
        accumulated = product(problem, x, parts, g)
        if bias is not None and problem.batch_last:
            bias = bias.reshape(-1, *[1] * (accumulated.ndim - 1))
        self._element, total = call.output, 0
        if problem.element.kind == "int":
            accumulator = support.accumulator(problem.element)
            total = _wrapped(accumulated, accumulator)
        else:
            total = accumulated
        total = call.alpha * total
        if z is not None:
            total = total + call.beta * z
        if bias is not None:
            total = total + bias
        if problem.element.kind == "int":
            self.value = _in_range(total, call.output, problem.element)
            self.bound = 0
            return
        self.value = total if call.activation is None else activated(call.activation, total)
        magnitude = abs(call.alpha) * product(
            problem, abs(x), [abs(item) for item in parts], None if g is None else abs(g)
        )
        self.bound = _bound(problem, call, magnitude, z, bias, self.value)

    def trouble(self, actual: Any) -> str:
        """What is wrong with a result, given in a wide type; "" if nothing is."""
        if actual.shape != self.value.shape:
            return f"shape {tuple(actual.shape)} for {tuple(self.value.shape)}"
        error = abs(actual - self.value)
        # Written with `<=` and negated, so that NaN counts as wrong.
        bad = ~(error <= self.bound)
        if not bad.any():
            return ""
        count = int(bad.sum())
        scale = float(abs(self.value).max())
        worst = float(error.max())
        at = [
            int(index)
            for index in (np.argwhere(bad) if isinstance(bad, np.ndarray) else bad.nonzero())[0]
        ]
        return (
            f"{count} of {math.prod(bad.shape)} elements beyond the bound, the first one at {at}:"
            f" {float(actual[tuple(at)])} for {float(self.value[tuple(at)])};"
            f" largest error {worst:.3g} of values up to {scale:.3g}"
        )


def activated(name: str, value: Any) -> Any:
    """The activation of values in a wide type."""
    if name == "hardswish":  # torch's GPU kernel multiplies by a float32 1/6, for all types.
        return value * (value + 3).clip(0, 6) / 6
    if not isinstance(value, np.ndarray):
        return getattr(_torch().nn.functional, name)(value)
    activation = getattr(activations, name)(float64)
    graph = Graph.of(activation.expression(variable("x")))
    return graph.evaluate({"x": value, **dict(activation.parameters)})


def _wrapped(values: Any, element: DataType) -> Any:
    if element.bits == 64:
        return values
    half = 1 << element.bits - 1
    return (values + half) % (2 * half) - half


def _in_range(values: Any, output: DataType, element: DataType) -> Any:
    """The values brought into the result's range: int8 results of int8 operands saturate, all
    others wrap around."""
    if output.bits == 8 and element.bits == 8:
        return values.clip(-128, 127)
    return _wrapped(values, output)


def _bound(problem: Problem, call: Call, magnitude: Any, z: Any, bias: Any, value: Any) -> Any:
    """The error bound of tests/support.py, for all families."""
    unit_of_sums = support._UNIT[support.accumulator(problem.element)]
    total = magnitude
    if z is not None:
        total = total + abs(call.beta) * abs(z)
    if bias is not None:
        total = total + abs(bias)
    unit = support._UNIT[call.output]
    bound = 2 * (_terms(problem, call) + 8) * unit_of_sums * total
    bound = bound + 2 * unit * abs(value) + 2 * support._TINY[call.output]
    if call.activation is not None:
        bound = bound + support.ROUNDINGS_OF_ACTIVATIONS * unit_of_sums * abs(value)
    if rounds_between(problem):
        bound = bound + 2 * len(problem.shapes) * support._UNIT[problem.element] * magnitude
    return bound


def rounds_between(problem: Problem) -> bool:
    """Whether intermediate results between factors are rounded to the operands' type: always in
    chains; in Kronecker products of 16-bit types on tensor cores and AMX tiles."""
    if problem.is_weight_gradient:
        return False
    if not problem.of_kron:
        return len(problem.shapes) > 1
    return problem.element.bytes == 2 and (problem.on_gpu or problem.target == "x86-amx")


def repeats(call: Call) -> bool:
    """Whether sums may contain the same term many times, so that its errors don't cancel."""
    operands = (call.x, *call.parts, *((call.g,) if call.g else ()))
    return any(
        stride == 0 < extent - 1
        for item in operands
        for stride, extent in zip(item.strides, item.shape, strict=True)
    )


def walk(terms: int, repeats: bool) -> float:
    """The number of rounding errors that effectively add up in a sum of values of both signs.

    NOTE: partial sums of such values grow as the root of the number of terms, and so do their
    rounding errors. Tensor cores truncate; adding 16 terms at once, their error in all was measured
    as 0.05 times the root of the number of terms.
    """
    return float(terms if repeats else min(terms, 64 + 0.25 * math.sqrt(terms)))


def _terms(problem: Problem, call: Call) -> float:
    """The number of products and sums that contribute to an element of the result."""
    if problem.of_kron:
        return sum(shape[problem.left] for shape in problem.shapes) + len(problem.shapes)
    if not problem.is_weight_gradient:
        return sum(pattern[2] for pattern in problem.shapes) + 1
    a, b, c, d = problem.shapes[0]
    rows = call.x.shape[-1 if problem.batch_last else -2]
    terms = rows * (a * d if problem.tied else 1) + 32
    terms += b * c + len(problem.factors) if problem.factors else 0
    return walk(terms, repeats(call))
