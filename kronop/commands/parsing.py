"""What all parsers of the command line share: examples below the help, and answers to typos."""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Mapping, Sequence
from types import ModuleType
from typing import Any, NoReturn

from kronop.errors import meant

# What is typed behind `kronop`, and what that does.
Examples = Mapping[str, str]
_EXAMPLES, _COLUMNS = "examples:", 100


class Parser(argparse.ArgumentParser):
    """A parser whose errors tell what was probably meant."""

    _given: Sequence[str] = ()

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        """As argparse's; but a command refuses what it does not know, for only its own options are
        likely to be meant."""
        self._given = sys.argv[1:] if args is None else args
        found, unknown = super().parse_known_args(args, namespace)
        if unknown:
            self.error(f"unrecognized arguments: {' '.join(unknown)}")
        return found, unknown

    def error(self, message: str) -> NoReturn:
        super().error(message + self._suggestion(message))

    def _suggestion(self, message: str) -> str:
        choice = re.search(r"invalid choice: '(.+?)' \(choose from (.+)\)", message)
        if choice:
            likely = meant(choice[1], re.findall(r"[\w-]+", choice[2]))
            early = not likely and any(word.startswith("--") for word in self._given[:1])
            return "; options follow it" if early else likely
        # Where an option is mistyped, another message may come first: that it is missing.
        given = [word.partition("=")[0] for word in self._given if word.startswith("--")]
        unknown = [
            word for word in given if not any(name.startswith(word) for name in self._names())
        ]
        if not unknown:
            return ""
        likely = meant(unknown[0], self._names(hidden=False))
        return likely if unknown[0] in message else likely.replace("?", f" by {unknown[0]}?")

    def _names(self, *, hidden: bool = True) -> list[str]:
        """Its options, with or without those that help does not show."""
        return [
            name
            for action in self._actions
            if hidden or action.help != argparse.SUPPRESS
            for name in action.option_strings
        ]


class _Formatter(argparse.HelpFormatter):
    """Fills lines, but not those of examples."""

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        return text if text.startswith(_EXAMPLES) else super()._fill_text(text, width, indent)


def add_module(commands: Any, name: str, module: ModuleType) -> None:
    """Adds a command, or a subject of one, whose module has a docstring, EXAMPLES and
    `configure`."""
    module.configure(add(commands, name, summary_of(module), module.EXAMPLES))


def add(
    commands: Any, name: str, summary: str, examples: Examples, description: str | None = None
) -> argparse.ArgumentParser:
    """Adds a command whose help ends with examples.

    Args:
        commands: of `add_subparsers`.
        summary: for the list of commands.
        description: what its own help begins with; None for the summary.
    """
    whole = description or f"{summary[:1].upper()}{summary[1:].rstrip('.')}."
    made: argparse.ArgumentParser = commands.add_parser(
        name, help=summary, description=whole, **with_examples(examples)
    )
    return made


def summary_of(module: ModuleType) -> str:
    return (module.__doc__ or "").splitlines()[0]


def with_examples(examples: Examples) -> dict[str, Any]:
    """Arguments of a parser whose help ends with examples: each in a line, if all fit in one."""
    width = max(map(len, examples))
    lines = [f"  kronop {words:{width}}   {told}" for words, told in examples.items()]
    if max(map(len, lines)) > _COLUMNS:
        lines = [f"  kronop {words}\n      {told}" for words, told in examples.items()]
    return {"formatter_class": _Formatter, "epilog": "\n".join([_EXAMPLES, *lines])}
