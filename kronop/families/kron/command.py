"""Kronecker products on the command line."""

from __future__ import annotations

import argparse
import math
import re
from collections.abc import Mapping, Sequence

from kronop.core.command import DEFAULT_ROWS, Command, Common, Flag, MakeTensor, one_shape, rows_of
from kronop.errors import ArgumentError
from kronop.families.kron.api import kron_arguments
from kronop.families.kron.arguments import KronMatmulArguments
from kronop.families.kron.description import Side
from kronop.families.kron.operation import KronMatmulOperation

_FACTOR = re.compile(r"([1-9]\d*)(?:x([1-9]\d*))?(?:\^([1-9]\d*))?")
_FORMER = re.compile(r"\d+(x\d+(:\d+)?(\^\d+)?)+")


class _Command(Command):
    shapes = "factors as 8x8,8x8,5x3 or 8^2,5x3, with rows as 1024:8^2,5x3"
    products = "Kronecker products"
    examples: Mapping[str, str] = {
        "1024:8^5": "1024 rows, five factors of 8 x 8",
        "16:4x3^2,7 --left": "(F1 x F2 x F3) X; 4 x 3, 4 x 3, 7 x 7",
    }
    flags: Mapping[str, Flag] = {"--left": Flag("X on the right of the product (gekmm)")}

    def size(self, options: argparse.Namespace, shapes: Sequence[str]) -> int | None:
        return shape_of(shapes[0])[0]

    def operation(
        self, options: argparse.Namespace, shapes: Sequence[str], common: Common
    ) -> KronMatmulOperation:
        factors = shape_of(one_shape("kron", shapes, "of all factors", ","))[1]
        return KronMatmulOperation(*common, factors, _side(options))

    def arguments(
        self, options: argparse.Namespace, shape: str, rows: int | None, tensor: MakeTensor
    ) -> KronMatmulArguments:
        side, (own, shapes) = _side(options), shape_of(shape)
        size = math.prod(item[0 if side is Side.Right else 1] for item in shapes)
        rows = rows or own or DEFAULT_ROWS
        x = tensor((rows, size) if side is Side.Right else (size, rows))
        return kron_arguments(x, [tensor(item) for item in shapes], side)


COMMAND = _Command()


def _side(options: argparse.Namespace) -> Side:
    return Side.Left if options.left else Side.Right


def shape_of(text: str) -> tuple[int | None, list[tuple[int, int]]]:
    """(M or None, the factors) as they are written: `256:8^3,5x3` is 256 rows, three factors of 8
    x 8 and one of 5 x 3 (rows x columns); without `256:` the rows are given elsewhere.

    Raises:
        ArgumentError: it is not written so.
    """
    rows, rest = rows_of(text)
    factors: list[tuple[int, int]] = []
    for item in rest.split(","):
        found = _FACTOR.fullmatch(item)
        if found is None:
            raise ArgumentError(
                "shape",
                expected="factors of positive sizes as 8^3,5x3, or with rows as 1024:8^3,5x3",
                got=repr(text),
                hint=_hint(text),
            )
        size, columns, count = found.groups()
        factors += [(int(size), int(columns or size))] * int(count or 1)
    return rows, factors


def formerly(text: str) -> str | None:
    """What is written `16x4:3^2x7` in the notation that `bench` once had, as it is written now:
    `16:4x3^2,7`. None if it is not of that notation."""
    if not _FORMER.fullmatch(text):
        return None
    rows, *factors = text.split("x")
    return f"{rows}:{','.join(item.replace(':', 'x') for item in factors)}"


def _hint(text: str) -> str:
    now = formerly(text)
    return "4x3 is a factor of 4 x 3, ^3 repeats one" if now is None else f"write {now}"
