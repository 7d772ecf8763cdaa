"""Convolutions on the command line: `show conv2d 64x56x56x64/128x3x3 --stride 2 --padding 1`."""

from __future__ import annotations

import argparse
import math
import re
from collections.abc import Mapping, Sequence

from kronop.core.calls import check_activation, epilogue_of
from kronop.core.command import Command, Common, Flag, MakeTensor, one_shape
from kronop.descriptions.activation import ACTIVATION_NAMES
from kronop.descriptions.tensor import TensorDescription
from kronop.errors import ArgumentError
from kronop.families.conv2d.api import arguments_of
from kronop.families.conv2d.arguments import Conv2dArguments
from kronop.families.conv2d.geometry import Geometry
from kronop.families.conv2d.operation import Conv2dOperation
from kronop.families.conv2d.size import Conv2dSize, shapes_of
from kronop.families.conv2d.vocabulary import Operator, TensorNHWC

_SHAPE = re.compile(r"([1-9]\d*)x([1-9]\d*)x([1-9]\d*)x([1-9]\d*)/([1-9]\d*)x([1-9]\d*)x([1-9]\d*)")
_PAIR = re.compile(r"(\d+)(?:x(\d+))?")


class _Command(Command):
    shapes = "images N x H x W x C / filters K x R x S, as 64x56x56x64/128x3x3"
    products = "convolutions"
    examples: Mapping[str, str] = {
        "64x56x56x64/128x3x3 --stride 2 --padding 1": "64 images of 56 x 56 pixels, 128 filters",
        "64x56x56x64/64x3x3 --padding 1 --kind dgrad": "the gradient of the images",
    }
    flags: Mapping[str, Flag] = {
        "--kind": Flag(f"one of {', '.join(item.name for item in Operator)} (fprop)", "KIND"),
        "--stride": Flag("of patches, as 2 or 2x1 (1)", "HxW"),
        "--padding": Flag("zeros on both sides, or same (0)", "HxW"),
        "--dilation": Flag("of a filter's pixels (1)", "HxW"),
        "--groups": Flag("of channels and filters (1)", "GROUPS"),
        "--activation": Flag(f"one of {', '.join(ACTIVATION_NAMES)}", "NAME"),
    }

    def operation(
        self, options: argparse.Namespace, shapes: Sequence[str], common: Common
    ) -> Conv2dOperation:
        target, tile, a, _, result, _ = common
        check_activation(options.activation)
        of, kind = shapes_of(self.size(options, shapes)), _kind(options)
        # Each tensor as aligned as its channels are, if nothing else is asked for.
        asked = getattr(options, "alignment", None) is not None
        a, b, result = (
            TensorDescription(
                item.element,
                TensorNHWC,
                item.alignment if asked else math.gcd(of[name][-1], 16 // item.element.bytes),
            )
            for item, name in zip((a, a, result), kind.tensors, strict=True)
        )
        epilogue = epilogue_of(a.element, result, options.activation)
        return Conv2dOperation(kind, None, target, tile, a, b, result, None, epilogue)

    def size(self, options: argparse.Namespace, shapes: Sequence[str]) -> Conv2dSize:
        return _size_of(options, one_shape("conv2d", shapes, "images / filters", "/", _SHAPE))

    def arguments(
        self, options: argparse.Namespace, shape: str, rows: int | None, tensor: MakeTensor
    ) -> Conv2dArguments:
        size = _size_of(options, shape)
        if rows is not None:
            size = self.of_rows(options, size, rows)
        kind, shapes = _kind(options), shapes_of(size)
        a, b = (tensor(shapes[of]) for of in kind.tensors[:2])
        return arguments_of(kind, a, b, size, activation=options.activation)


COMMAND = _Command()


def _kind(options: argparse.Namespace) -> Operator:
    name = options.kind or "fprop"
    if name not in Operator.__members__:
        raise ArgumentError(
            "--kind",
            expected=f"one of {', '.join(Operator.__members__)}",
            got=repr(name),
            hint="as --kind dgrad",
        )
    return Operator[name]


def _size_of(options: argparse.Namespace, text: str) -> Conv2dSize:
    """The size that a shape and the flags say.

    Raises:
        ArgumentError: they are not written so, or do not fit.
    """
    found = _SHAPE.fullmatch(text)
    if not found:
        raise ArgumentError(
            "shape",
            expected="N x H x W x C / K x R x S, as 64x56x56x64/128x3x3",
            got=repr(text),
            hint="strides, padding, dilation and groups are flags",
        )
    n, h, w, c, k, r, s = map(int, found.groups())
    groups = _count("--groups", options.groups or "1")
    padding = options.padding
    geometry = Geometry.of(
        _numbers("--stride", options.stride or "1"),
        "same" if padding == "same" else _numbers("--padding", padding or "0", ", or same"),
        _numbers("--dilation", options.dilation or "1"),
        groups,
    )
    return geometry.size((n, c, h, w), (k, c // groups, r, s))


def _count(flag: str, text: str) -> int:
    if not re.fullmatch(r"[1-9]\d*", text):
        raise ArgumentError(flag, expected="a number", got=repr(text), hint=f"as {flag} 2")
    return int(text)


def _numbers(flag: str, text: str, more: str = "") -> tuple[int, int]:
    found = _PAIR.fullmatch(text)
    if not found:
        raise ArgumentError(
            flag, expected=f"a number, or two{more}", got=repr(text), hint=f"as {flag} 2x1"
        )
    first, second = found.groups()
    return int(first), int(second or first)
