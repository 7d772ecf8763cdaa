"""Random convolutions of all kinds, types and geometries."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

import kronop
from kronop.args.device import target_of
from kronop.args.tensor import view
from kronop.descriptions.datatype import result_type
from kronop.emit.plan import Plan
from kronop.families.conv2d.arguments import Conv2dArguments
from kronop.families.conv2d.description import convolved
from kronop.families.conv2d.size import Conv2dSize, shapes_of
from kronop.families.conv2d.vocabulary import Operator
from tests import support
from tests.families.distances import drawn

_ELEMENTS = ("float16", "bfloat16", "float32", "float64", "int8", "int32", "int64")
_CHANNELS = (1, 2, 3, 4, 5, 8, 16, 24, 32, 40, 64, 72, 128, 136, 200)
_EXTENTS = (1, 2, 3, 5, 7, 8, 14, 17, 31)
_TAPS = (1, 1, 2, 3, 3, 3, 5, 7)
_MOST = 3e8  # Multiply-adds.
# How often tensor cores multiply float32, as three TF32 products.
_SPLIT = 0.3


@dataclass(frozen=True)
class Case:
    """One call, of numbers so small and so few that all sums are exact in all types."""

    kind: Operator
    size: Conv2dSize
    a: Any
    b: Any
    bias: Any
    element: str
    alignments: tuple[int, int]
    activation: bool
    beta: int

    def __str__(self) -> str:
        told = f"{self.kind.name} {self.element} of {self.alignments}, beta {self.beta}"
        return f"{told}{', relu' * self.activation}, {self.size}"

    def run(self, device: str) -> str:
        """What is wrong with its result; empty if nothing is."""
        a, b = (drawn.tensor(item, self.element, device) for item in (self.a, self.b))
        operation, output = self._operation(target_of(view(a, "A"))), self._output.name
        bias = None if self.bias is None else drawn.tensor(self.bias, output, device)
        wanted, c = self._expected()
        for times in range(2):
            y = drawn.tensor(np.full(wanted.shape, -77), output, device)
            source = drawn.tensor(c, output, device) if self.beta else None
            output_op = operation.epilogue_type(1, self.beta)
            arguments = Conv2dArguments(operation, self.size, a, b, source, y, output_op, bias=bias)
            operation.run(arguments)
            arguments.sync()
            found = (y if output.startswith("int") else y.double()).cpu().numpy()
            wrong = found != wanted
            if wrong.any():
                at = np.argwhere(wrong)[0]
                return (
                    f"run {times}: {wrong.sum()} of {wrong.size} wrong, at {at.tolist()}"
                    f" {found[*at]} for {wanted[*at]}; {operation.plan_for(self.size)}"
                )
        return ""

    def plan(self, target: str) -> Plan:
        return self._operation(target).plan_for(self.size)

    @property
    def _output(self) -> kronop.DataType:
        return result_type(getattr(kronop, self.element))

    def _operation(self, target: Any) -> Any:
        element, output = getattr(kronop, self.element), self._output
        A, B = (
            kronop.TensorDescription(element, kronop.TensorNHWC, item) for item in self.alignments
        )
        C = kronop.TensorDescription(output, kronop.TensorNHWC)
        sums = support.accumulator(element)
        epilogue: Any = kronop.LinearCombination(output, 1, sums, sums)
        if self.activation:
            epilogue = kronop.LinearCombinationGeneric(kronop.relu(sums), output, 1, sums, sums)
        words = (self.kind, None, target, None, A, B, C, None, epilogue)
        return kronop.Conv2dOperation(*words)

    def _expected(self) -> tuple[Any, Any]:
        """(the result, C)."""
        found = convolved(self.kind, self.a.astype(np.int64), self.b.astype(np.int64), self.size)
        c = np.arange(found.size).reshape(found.shape) % 7 - 3
        found = found + self.beta * c + (0 if self.bias is None else self.bias)
        return np.maximum(found, 0) if self.activation else found, c


def make(random: np.random.Generator) -> Case:
    kind = Operator(str(random.choice([item.value for item in Operator])))
    while True:
        size = _size(random)
        if size.products <= _MOST and all(math.prod(it) < 3e6 for it in shapes_of(size).values()):
            break
    element = str(random.choice(_ELEMENTS))
    shapes = shapes_of(size)
    terms = kind.extents(size)[2]
    a, b = (
        _whole(random, shapes[of], min(1.0, (64 / max(terms, 1)) ** 0.5)) for of in kind.tensors[:2]
    )
    columns = shapes[kind.tensors[2]][-1]
    has_bias = random.random() < 0.3
    channels = [shapes[of][-1] for of in kind.tensors[:2]]
    most = 16 // getattr(kronop, element).bytes if random.random() < 0.8 else 1
    return Case(
        kind=kind,
        size=size,
        a=a,
        b=b,
        bias=random.integers(-3, 4, columns) if has_bias else None,
        element=element,
        alignments=(math.gcd(most, channels[0]), math.gcd(most, channels[1])),
        activation=element.startswith(("float", "bfloat")) and bool(random.random() < 0.2),
        beta=int(random.choice((0, 0, 0, 1, 2))),
    )


def _size(random: np.random.Generator) -> Conv2dSize:
    def pick(values: tuple[int, ...]) -> int:
        return int(random.choice(values))

    if random.random() < 0.15:
        return _first_layer(random, pick)
    h, w, r, s = pick(_EXTENTS), pick(_EXTENTS), pick(_TAPS), pick(_TAPS)
    c, k, groups = pick(_CHANNELS), pick(_CHANNELS), 1
    if random.random() < 0.25:
        groups = pick((2, 3, 4, 8, 32))
        c, k = groups * pick(_CHANNELS[:8]), groups * pick((1, 1, 2, 3, 8, 16))
    elif random.random() < 0.2:  # One channel and one or few filters each.
        groups = c = pick(_CHANNELS)
        k, r, s = c * pick((1, 1, 1, 2, 4)), pick((3, 3, 5, 7)), pick((3, 3, 5, 7))
    plain = random.random() < 0.4
    stride = (1, 1) if plain else (pick((1, 1, 2, 2, 3)), pick((1, 1, 2, 2, 3)))
    dilation = (1, 1) if plain or random.random() < 0.6 else (pick((1, 2, 3)), pick((1, 2, 3)))
    pads = [pick((0, 0, (taps - 1) // 2, taps - 1, taps + 1)) for taps in (r, s)]
    size = Conv2dSize(
        pick((1, 1, 2, 3, 5)),
        *(h, w, c, k, r, s),
        pad_h=pads[0],
        pad_w=pads[1],
        stride_h=stride[0],
        stride_w=stride[1],
        dilation_h=dilation[0],
        dilation_w=dilation[1],
        groups=groups,
        flipped=bool(random.random() < 0.15),
    )
    if random.random() < 0.1:  # Results of which more, or fewer, exist than torch computes.
        size = dataclasses.replace(size, p=max(1, size.p - 1), q=size.q + 1)
    return size


def _first_layer(random: np.random.Generator, pick: Callable[[tuple[int, ...]], int]) -> Conv2dSize:
    """The first layer of a network, in small: filters of many pixels, and few channels."""
    taps, stride = ((7, 2), (3, 1), (3, 2), (5, 1), (4, 4), (8, 8))[random.integers(6)]
    pad = pick((0, taps // 2))
    return Conv2dSize(
        pick((1, 2, 4)),
        *(pick((17, 32, 45, 56)), pick((17, 32, 45, 70)), pick((1, 2, 3, 3, 3, 4))),
        *(pick((5, 16, 32, 64)), taps, taps),
        pad_h=pad,
        pad_w=pad,
        stride_h=stride,
        stride_w=stride,
        dilation_w=pick((1, 1, 2)),
        flipped=bool(random.random() < 0.15),
    )


def _whole(random: np.random.Generator, shape: tuple[int, ...], density: float) -> Any:
    """-1, 0 and 1."""
    return random.integers(-1, 2, shape) * (random.random(shape) < density)
