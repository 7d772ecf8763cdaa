"""On the command line: `show scaled 8`."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tests.families.scaled.api import scaled_arguments
from tests.families.scaled.arguments import ScaledArguments
from tests.families.scaled.operation import ScaledOperation


class _Command:
    shapes = "columns"
    flags: Mapping[str, str] = {}

    def operation(
        self, options: argparse.Namespace, shapes: Sequence[str], common: Sequence[Any]
    ) -> ScaledOperation:
        return ScaledOperation(*common, int(shapes[0]))

    def arguments(
        self,
        options: argparse.Namespace,
        shape: str,
        rows: int,
        tensor: Callable[[tuple[int, ...]], Any],
    ) -> ScaledArguments:
        return scaled_arguments(tensor((rows, int(shape))), tensor((rows, int(shape))))


COMMAND = _Command()
