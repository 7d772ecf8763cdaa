"""Kronecker-sparse products on the command line."""

from __future__ import annotations

import argparse
import re
from collections.abc import Mapping, Sequence

from kronop.core.command import DEFAULT_ROWS, Command, Common, Flag, MakeTensor, rows_of
from kronop.errors import ArgumentError
from kronop.families.ksparse.api import sparse_arguments
from kronop.families.ksparse.arguments import SparseArguments
from kronop.families.ksparse.operation import KSparseChainOperation, KSparseOperation


class _Command(Command):
    shapes = "pattern as 6,64,64,1, or those of a chain, with rows as 256:6,64,64,1"
    products = "products with Kronecker-sparse factors"
    examples: Mapping[str, str] = {
        "6,64,64,1": "a factor I_6 x dense(64, 64)",
        "256:1,48,48,4 --batch-last": "256 columns of X, which is (features, batch)",
    }
    flags: Mapping[str, Flag] = {"--batch-last": Flag("X is (a c d, B)")}

    def size(self, options: argparse.Namespace, shapes: Sequence[str]) -> int | None:
        return rows_of(shapes[0])[0]

    def operation(
        self, options: argparse.Namespace, shapes: Sequence[str], common: Common
    ) -> KSparseOperation | KSparseChainOperation:
        first, *others = shapes
        patterns = [pattern_of(item) for item in (rows_of(first)[1], *others)]
        if len(patterns) > 1:
            return KSparseChainOperation(*common, patterns, options.batch_last)
        return KSparseOperation(*common, patterns[0], options.batch_last)

    def arguments(
        self, options: argparse.Namespace, shape: str, rows: int | None, tensor: MakeTensor
    ) -> SparseArguments:
        own, text = rows_of(shape)
        pattern = pattern_of(text)
        if len(pattern) != 4:
            raise ArgumentError("shape", expected="a,b,c,d", got=shape, hint="see --help")
        a, _, c, d = pattern
        features, rows = a * c * d, rows or own or DEFAULT_ROWS
        x = tensor((features, rows) if options.batch_last else (rows, features))
        return sparse_arguments(x, [tensor(pattern)], options.batch_last)


COMMAND = _Command()


def pattern_of(text: str) -> tuple[int, ...]:
    """The integers of a pattern as it is written on the command line."""
    if not re.fullmatch(r"\d+(,\d+)*", text):
        raise ArgumentError("shape", expected="a pattern as 6,64,64,1", got=text, hint="see --help")
    return tuple(map(int, text.split(",")))
