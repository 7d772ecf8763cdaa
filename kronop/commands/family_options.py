"""What several commands share: a parser for each family, with its shapes, flags and examples."""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import kronop
from kronop import families
from kronop.commands import parsing
from kronop.commands.parsing import Examples
from kronop.core.command import Command, Flag
from kronop.core.export.operands import RESULT, SOURCE, Operand, operands_of
from kronop.core.family import Family
from kronop.core.operation import AnyOperation
from kronop.descriptions.datatype import TENSOR_TYPES, Layout, result_type
from kronop.errors import ArgumentError

_ACCESS = 16  # The bytes of the widest access, to which rows are aligned where they can be.


def add(
    parser: argparse.ArgumentParser,
    examples: Callable[[str, Command], Examples],
    configure: Callable[[argparse.ArgumentParser], None],
    *,
    several: str = "",
    among: Callable[[Family], bool] = lambda family: True,
) -> None:
    """Adds a parser for each family that has a command.

    Args:
        parser: of the command.
        examples: of the command, for a family of that name.
        configure: adds the command's own options.
        several: begins the shapes' help, to say whether there may be more than one.
        among: whether the command is for this family.
    """
    commands = _commands()
    added = parser.add_subparsers(dest="family", required=True)
    for name in (item.name for item in families.FAMILIES if item.command and among(item)):
        command = commands[name]
        own = parsing.add(
            added,
            name,
            command.products,
            examples(name, command),
            description=f"{parser.description} Here: {command.products}.",
        )
        own.add_argument("shape", nargs="+", help=f"{several}{command.shapes}")
        # A flag of another family is known, to be refused in words.
        for flag, told in {flag: told for _, flag, told in _flags(commands)}.items():
            how: dict[str, Any] = {"metavar": told.takes} if told.takes else {}
            text = command.flags[flag].text if flag in command.flags else argparse.SUPPRESS
            own.add_argument(flag, help=text, **how or {"action": "store_true"})
        configure(own)


def examples_of(verb: str, *endings: str) -> Callable[[str, Command], Examples]:
    """A family's examples behind a command's name, and before the command's options: `endings`,
    one for each example."""

    def examples(name: str, command: Command) -> Examples:
        pairs = zip(command.examples.items(), endings, strict=False)
        return {f"{verb} {name} {words}{ending}": told for (words, told), ending in pairs}

    return examples


def chosen(options: argparse.Namespace) -> Command:
    """The `Command` of the family that the user named.

    Raises:
        ArgumentError: a flag of another family is set.
    """
    commands = _commands()
    own = commands[options.family]
    for name, flag, _ in _flags(commands):
        is_set = getattr(options, flag.removeprefix("--").replace("-", "_"))
        if is_set and flag not in own.flags:
            raise ArgumentError(
                f"flags of {options.family}",
                expected=f"no {flag}, which is of {name}",
                got=flag,
                hint="leave it out",
            )
    return own


def operation_of(
    options: argparse.Namespace, family: Command, alignments: tuple[int, int] = (1, 1)
) -> AnyOperation:
    """The operation that the user named, of rows whose elements are accessed so many at a time: of
    the first operand and of the result."""
    element = TENSOR_TYPES[options.dtype]
    accumulator = kronop.MathInstruction.simt(element).element_accumulator
    output, (first, last) = result_type(element), alignments
    x = kronop.TensorDescription(element, kronop.RowMajor, first)
    y = kronop.TensorDescription(output, kronop.RowMajor, last)
    epilogue = kronop.LinearCombination(output, last, accumulator, accumulator)
    common = (options.target, None, x, kronop.TensorDescription(element), y, epilogue)
    return family.operation(options, options.shape, common)


def aligned(
    operation: AnyOperation, options: argparse.Namespace, family: Command, sizes: Sequence[Any]
) -> AnyOperation:
    """The operation that the user named, whose rows are as aligned as those of dense operands of
    these sizes; `operation` is the one that promises nothing."""
    if operation.kind.arguments is None:
        return operation
    operands = operands_of(operation, sizes[0])
    result = next(item for item in operands if item.name == RESULT)
    first, last = _alignment(operands[0], sizes), _alignment(result, sizes)
    if (first, last) == (1, 1):
        return operation
    found = operation_of(options, family, (first, last))
    inputs = [item for item in operands_of(found, sizes[0]) if item.name not in (RESULT, SOURCE)]
    promised = [item for item in inputs if item.description.alignment > 1]
    least = math.gcd(first, *(_alignment(item, sizes) for item in promised))
    # Another operand may have shorter rows.
    return operation_of(options, family, (least, last)) if least < first else found


def _alignment(item: Operand, sizes: Sequence[Any]) -> int:
    """The most elements of an access to which every row of a dense operand is aligned."""
    most = _ACCESS // item.description.element.bytes
    axis = -2 if item.description.layout is Layout.ColumnMajor else -1
    return math.gcd(most, *(item.shape_for(size)[axis] for size in sizes))


def _flags(commands: Mapping[str, Command]) -> Iterator[tuple[str, str, Flag]]:
    """(family, flag, what it is) of all families."""
    for name, command in commands.items():
        for flag, told in command.flags.items():
            yield name, flag, told


def _commands() -> dict[str, Command]:
    return {
        family.name: family.command.get()
        for family in families.FAMILIES
        if family.command is not None
    }
