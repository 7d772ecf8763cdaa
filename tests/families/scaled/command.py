"""On the command line: `show scaled 8`."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from kronop.core.command import DEFAULT_ROWS, Command, Flag
from tests.families.scaled.api import scaled_arguments
from tests.families.scaled.arguments import ScaledArguments
from tests.families.scaled.operation import ScaledOperation


class _Command(Command):
    products = "products element by element"
    shapes = "columns"
    examples: Mapping[str, str] = {"8": "rows of 8 elements"}
    flags: Mapping[str, Flag] = {}

    def operation(
        self, options: argparse.Namespace, shapes: Sequence[str], common: Sequence[Any]
    ) -> ScaledOperation:
        return ScaledOperation(*common, int(shapes[0]))

    def arguments(
        self,
        options: argparse.Namespace,
        shape: str,
        rows: int | None,
        tensor: Callable[[tuple[int, ...]], Any],
    ) -> ScaledArguments:
        rows = DEFAULT_ROWS if rows is None else rows
        return scaled_arguments(tensor((rows, int(shape))), tensor((rows, int(shape))))


COMMAND = _Command()
