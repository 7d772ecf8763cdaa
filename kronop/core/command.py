"""What the command line needs of a family: how its operations are written there."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

from kronop.args.base import Arguments
from kronop.core.operation import Operation


class Command(Protocol):
    """Of one family.

    Attributes:
        shapes: how a shape is written, for the help.
        flags: that belong to it alone, and what they say.
    """

    @property
    def shapes(self) -> str: ...

    @property
    def flags(self) -> Mapping[str, str]: ...

    def operation(
        self, options: argparse.Namespace, shapes: Sequence[str], common: Sequence[Any]
    ) -> Operation[Any, Any, Any]:
        """The operation of these shapes; `common`: all its arguments before its sizes."""
        ...

    def arguments(
        self,
        options: argparse.Namespace,
        shape: str,
        rows: int,
        tensor: Callable[[tuple[int, ...]], Any],
    ) -> Arguments:
        """Those that the one-line form runs, of tensors that `tensor` makes for a shape."""
        ...
