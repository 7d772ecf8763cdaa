"""What a family declares for the command line: how its shapes and flags are written."""

from __future__ import annotations

import argparse
import dataclasses
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol, TypeAlias

from kronop.args.base import Arguments
from kronop.core.operation import AnyOperation
from kronop.descriptions.epilogue import Epilogue
from kronop.descriptions.tensor import TensorDescription
from kronop.errors import ArgumentError
from kronop.frozen import dataclass
from kronop.size import Size
from kronop.tensors import Tensor

Common: TypeAlias = tuple[
    object, None, TensorDescription, TensorDescription, TensorDescription, Epilogue
]
"""What constructors of operations take before the sizes: the target, no tile, the two operands, the
result and the epilogue."""

MakeTensor: TypeAlias = Callable[[tuple[int, ...]], Tensor]
"""Makes a tensor of a given shape."""

# M where neither the user nor the notation of shapes gives one.
DEFAULT_ROWS = 1024


_ROWS = re.compile(r"([1-9]\d*):(.*)", re.S)


def rows_of(text: str) -> tuple[int | None, str]:
    """(M, what follows) of a shape with its rows in front, `256:8^3`; (None, all of it) of one
    without."""
    found = _ROWS.fullmatch(text)
    return (int(found[1]), found[2]) if found else (None, text)


def one_shape(
    family: str, shapes: Sequence[str], parts: str, by: str, whole: re.Pattern[str] | None = None
) -> str:
    """The only one of the shapes that a command got.

    Args:
        parts: of which a shape consists.
        by: what joins them.
        whole: what a shape looks like; None if parts do too.

    Raises:
        ArgumentError: there are several.
    """
    if len(shapes) > 1:
        is_whole = whole is not None and whole.fullmatch(shapes[0])
        joined = f"join them by {'commas' if by == ',' else by}: {by.join(shapes)}"
        raise ArgumentError(
            f"shape of {family}",
            expected=f"one, {parts}",
            got=" ".join(shapes),
            hint="name one at a time" if is_whole else joined,
        )
    return shapes[0]


@dataclass(frozen=True, slots=True)
class Flag:
    """A flag of one family.

    Attributes:
        text: its help text.
        takes: what the value is called that follows the flag; "" if none does.
    """

    text: str
    takes: str = ""


class Command(Protocol):
    """The command-line form of one family.

    Attributes:
        products: what its operations are, for the list of families.
        shapes: how a shape is written, for the help text.
        examples: shapes and flags, and what they mean; at least one.
        flags: the flags that only this family has.
    """

    @property
    def products(self) -> str: ...

    @property
    def shapes(self) -> str: ...

    @property
    def examples(self) -> Mapping[str, str]: ...

    @property
    def flags(self) -> Mapping[str, Flag]:
        return {}

    def operation(
        self, options: argparse.Namespace, shapes: Sequence[str], common: Common
    ) -> AnyOperation:
        """The operation for these shapes; `common` holds its constructor's arguments up to the
        sizes."""
        ...

    def size(self, options: argparse.Namespace, shapes: Sequence[str]) -> Size | int | None:
        """The size whose plan is shown for these shapes; None if they say nothing of it, which
        shows the plan for many rows."""
        return None

    def of_rows(self, options: argparse.Namespace, size: Any, rows: int) -> Any:
        """The size with so many rows, the first of its extents."""
        return dataclasses.replace(size, **{dataclasses.fields(size)[0].name: rows})

    def fixed(self, options: argparse.Namespace) -> Mapping[str, object]:
        """Further arguments of the operation, which an exported library has for good."""
        return {}

    def arguments(
        self, options: argparse.Namespace, shape: str, rows: int | None, tensor: MakeTensor
    ) -> Arguments:
        """The arguments that the family's one-line function would run; `tensor` makes a tensor of
        a given shape. `rows` is None where the user gave none."""
        ...
