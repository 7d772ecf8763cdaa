"""Quantized Kronecker products on the command line: `show quantized 64^2 --bits 8`."""

from __future__ import annotations

import argparse
import math
from collections.abc import Mapping, Sequence

from kronop.core.command import DEFAULT_ROWS, Command, Common, Flag, MakeTensor, one_shape
from kronop.errors import ArgumentError
from kronop.families.kron.command import shape_of
from kronop.families.quantized.api import quantized_arguments
from kronop.families.quantized.arguments import QuantizedKronArguments
from kronop.families.quantized.description import EPILOGUE, Y
from kronop.families.quantized.operation import QuantizedKronOperation

_DEFAULT_BITS = 4


class _Command(Command):
    shapes = "factors as 64^2 or 64,128, with rows as 4096:64^2"
    products = "quantized Kronecker products"
    examples: Mapping[str, str] = {
        "4096:64^2": "4096 rows, two factors, 4 bits",
        "64,128 --bits 8": "factors of two sizes, 8 bits",
    }
    flags: Mapping[str, Flag] = {"--bits": Flag("of an integer, 4 or 8 (default 4)", "BITS")}

    def size(self, options: argparse.Namespace, shapes: Sequence[str]) -> int | None:
        return shape_of(shapes[0])[0]

    def operation(
        self, options: argparse.Namespace, shapes: Sequence[str], common: Common
    ) -> QuantizedKronOperation:
        target, tile, X, F, *_ = common
        factors = shape_of(one_shape("quantized", shapes, "of all factors", ","))[1]
        return QuantizedKronOperation(target, tile, X, F, Y, EPILOGUE, factors, bits=_bits(options))

    def arguments(
        self, options: argparse.Namespace, shape: str, rows: int | None, tensor: MakeTensor
    ) -> QuantizedKronArguments:
        own, shapes = shape_of(shape)
        x = tensor((rows or own or DEFAULT_ROWS, math.prod(item[0] for item in shapes)))
        return quantized_arguments(x, [tensor(item) for item in shapes], _bits(options))


COMMAND = _Command()


def _bits(options: argparse.Namespace) -> int:
    text = options.bits
    if text is None:
        return _DEFAULT_BITS
    if text not in ("4", "8"):
        raise ArgumentError("--bits", expected="4 or 8", got=text, hint="4 is usual")
    return int(text)
