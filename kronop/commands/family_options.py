"""Command-line options shared by several commands: the family, its shapes and its flags."""

from __future__ import annotations

import argparse
from typing import Any

from kronop import families
from kronop.core.command import Command
from kronop.errors import ArgumentError, mismatch


def add(parser: argparse.ArgumentParser, several: str) -> None:
    """Adds options for the family, its shapes, and the flags of all families.

    `several` begins the shapes' help, to say whether there may be more than one.
    """
    commands = _commands()
    told = [f"{command.shapes} ({name})" for name, command in commands.items()]
    parser.add_argument("family", choices=tuple(commands))
    parser.add_argument("shape", nargs="+", help=f"{several}{', '.join(told)}")
    for name, command in commands.items():
        for name_of_flag, flag in command.flags.items():
            how: dict[str, Any] = (
                {"metavar": flag.takes} if flag.takes else {"action": "store_true"}
            )
            parser.add_argument(name_of_flag, help=f"{name}: {flag.text}", **how)


def chosen(options: argparse.Namespace) -> Command:
    """The `Command` of the family that the user named.

    Raises:
        ArgumentError: a flag of another family is set.
    """
    commands = _commands()
    own = commands[options.family]
    for name, command in commands.items():
        for flag in command.flags:
            is_set = getattr(options, flag.removeprefix("--").replace("-", "_"))
            if is_set and flag not in own.flags:
                raise ArgumentError(
                    mismatch(
                        f"flags of {options.family}",
                        expected=f"no {flag}, which is of {name}",
                        got=flag,
                        hint="leave it out",
                    )
                )
    return own


def _commands() -> dict[str, Command]:
    return {
        family.name: family.command.get()
        for family in families.FAMILIES
        if family.command is not None
    }
