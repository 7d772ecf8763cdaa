"""The command line: `kronop demo | doctor | show | matrix | cache | bench | tune | export`."""

from __future__ import annotations

import argparse
import difflib
import re
import sys
from collections.abc import Sequence
from typing import Any, NoReturn

from kronop import knobs
from kronop.commands import bench, cache, demo, doctor, export, matrix, show, tune
from kronop.errors import KronopError
from kronop.version import __version__

_COMMANDS = {
    "demo": demo,
    "doctor": doctor,
    "show": show,
    "matrix": matrix,
    "cache": cache,
    "bench": bench,
    "tune": tune,
    "export": export,
}


_EXAMPLES = """\
examples:
  kronop doctor                              what works here, and what to install
  kronop demo                                a product from its description to its result
  kronop show kron 8^5 --target sm_90a       its plan on an H100, without one
  kronop bench kron --shapes 256:8^3         its speed here, beside other libraries'
  kronop tune kron 1024:8^5                  the fastest tiles for later runs
  kronop export kron 8^5 --out folder        a C library
"""


class _Parser(argparse.ArgumentParser):
    """Tells what was probably meant."""

    def error(self, message: str) -> NoReturn:
        super().error(message + self._suggestion(message))

    def _suggestion(self, message: str) -> str:
        choice = re.search(r"invalid choice: '(.+?)' \(choose from (.+)\)", message)
        if choice:
            return _meant(choice[1], re.findall(r"[\w-]+", choice[2]))
        unknown = re.search(r"unrecognized arguments: (--[\w-]+)", message)
        if unknown is None:
            return ""
        return _meant(unknown[1], _options_of(self))


def _options_of(parser: argparse.ArgumentParser) -> list[str]:
    """Those of a parser and of all its commands."""
    found = [*parser._option_string_actions]
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            found += [name for item in action.choices.values() for name in _options_of(item)]
    return found


def _meant(given: str, known: Sequence[str]) -> str:
    close = difflib.get_close_matches(given, known, n=1)
    return f"; did you mean {close[0]}?" if close else ""


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs one command; returns 0 if it succeeded, 1 for kronop's own errors."""
    whole: dict[str, Any] = {"formatter_class": argparse.RawDescriptionHelpFormatter}
    parser = _Parser(prog=_program(), description=__doc__, epilog=_EXAMPLES, **whole)
    parser.add_argument("--version", action="version", version=f"kronop {__version__}")
    commands = parser.add_subparsers(dest="command", required=True)
    for name, module in _COMMANDS.items():
        summary = (module.__doc__ or "").splitlines()[0]
        module.configure(commands.add_parser(name, help=summary, description=summary))
    options = parser.parse_args(arguments)
    try:
        knobs.current()  # Every command reports a KRONOP_* variable with a wrong name or value.
        _COMMANDS[options.command].execute(options)
    except KronopError as error:
        print(f"kronop: {error}", file=sys.stderr)
        return 1
    except BrokenPipeError:  # The reader of our output has ended, as `head` does in `| head`.
        sys.stderr.close()
        return 0
    return 0


def _program() -> str:
    """What was typed: the script, or the module."""
    return "python -m kronop" if sys.argv[0].endswith("__main__.py") else "kronop"


if __name__ == "__main__":
    sys.exit(main())
