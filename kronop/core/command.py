"""What a family declares for the command line: how its shapes and flags are written."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

from kronop.args.base import Arguments
from kronop.core.operation import Operation


class Command(Protocol):
    """The command-line form of one family.

    Attributes:
        shapes: how a shape is written, for the help text.
        flags: the flags that only this family has, each with its help text.
    """

    @property
    def shapes(self) -> str: ...

    @property
    def flags(self) -> Mapping[str, str]: ...

    def operation(
        self, options: argparse.Namespace, shapes: Sequence[str], common: Sequence[Any]
    ) -> Operation[Any, Any, Any]:
        """The operation for these shapes; `common` holds its constructor's arguments up to the
        sizes."""
        ...

    def arguments(
        self,
        options: argparse.Namespace,
        shape: str,
        rows: int,
        tensor: Callable[[tuple[int, ...]], Any],
    ) -> Arguments:
        """The arguments that the family's one-line function would run; `tensor` makes a tensor of
        a given shape."""
        ...
