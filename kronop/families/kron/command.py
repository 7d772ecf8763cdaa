"""Kronecker products on the command line."""

from __future__ import annotations

import argparse
import math
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from kronop.core.command import DEFAULT_ROWS, Command, Flag
from kronop.errors import ArgumentError, mismatch
from kronop.families.kron.api import kron_arguments
from kronop.families.kron.arguments import KronMatmulArguments
from kronop.families.kron.description import Side
from kronop.families.kron.operation import KronMatmulOperation

_FACTOR = re.compile(r"(\d+)(?:x(\d+))?(?:\^(\d+))?")


class _Command(Command):
    shapes = "factors as 8x8,8x8,5x3 or 8^2,5x3"
    flags: Mapping[str, Flag] = {"--left": Flag("X on the right of the product (gekmm)")}

    def operation(
        self, options: argparse.Namespace, shapes: Sequence[str], common: Sequence[Any]
    ) -> KronMatmulOperation:
        if len(shapes) > 1:
            raise ArgumentError(
                mismatch(
                    "shape of kron",
                    expected="one, of all factors",
                    got=" ".join(shapes),
                    hint=f"join them by commas: {','.join(shapes)}",
                )
            )
        return KronMatmulOperation(*common, factors_of(shapes[0]), _side(options))

    def arguments(
        self,
        options: argparse.Namespace,
        shape: str,
        rows: int | None,
        tensor: Callable[[tuple[int, ...]], Any],
    ) -> KronMatmulArguments:
        side, shapes = _side(options), factors_of(shape)
        size = math.prod(item[0 if side is Side.Right else 1] for item in shapes)
        rows = DEFAULT_ROWS if rows is None else rows
        x = tensor((rows, size) if side is Side.Right else (size, rows))
        return kron_arguments(x, [tensor(item) for item in shapes], side)


COMMAND = _Command()


def _side(options: argparse.Namespace) -> Side:
    return Side.Left if options.left else Side.Right


def factors_of(text: str) -> list[tuple[int, int]]:
    """Factors as they are written on the command line: `8x5,3` is 8 x 5 and 3 x 3, and `8^4` is
    four of 8 x 8."""
    found = [_FACTOR.fullmatch(item) for item in text.split(",")]
    factors: list[tuple[int, int]] = []
    for item in found:
        if item is None:
            raise ArgumentError(
                mismatch(
                    "shape", expected="factors as 8x8,8x5 or 8^3,5", got=text, hint="see --help"
                )
            )
        rows, columns, count = item.groups()
        factors += [(int(rows), int(columns or rows))] * int(count or 1)
    return factors
