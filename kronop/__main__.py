"""The command line: `kronop demo | doctor | show | matrix | cache | bench | tune | export`."""

from __future__ import annotations

import argparse
import sys
import warnings
from collections.abc import Callable, Sequence
from typing import Any

from kronop import knobs
from kronop.commands import parsing
from kronop.errors import KronopError
from kronop.late import imported
from kronop.version import __version__

_COMMANDS = ("demo", "doctor", "show", "matrix", "cache", "bench", "tune", "export")

_SUMMARY = "Kronecker-structured operations: planned, compiled, measured and exported."
_EXAMPLES = {
    "doctor": "what works here, and what to install",
    "demo": "a product from its description to its result",
    "show kron 8^5 --target sm_90a": "its plan on an H200, without one",
    "bench kron --shapes 256:8^3": "its speed here, beside other libraries'",
    "tune kron 1024:8^5": "the fastest tiles for later runs",
    "export kron 8^5 --out folder": "a C library",
}


def parser(prog: str) -> argparse.ArgumentParser:
    """The whole command line, of the program of that name."""
    whole = parsing.Parser(prog=prog, description=_SUMMARY, **parsing.with_examples(_EXAMPLES))
    whole.add_argument("--version", action="version", version=f"kronop {__version__}")
    commands = whole.add_subparsers(dest="command", required=True)
    for name in _COMMANDS:
        parsing.add_module(commands, name, imported(f"kronop.commands.{name}"))
    return whole


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs one command; returns 0 if it succeeded, 1 for kronop's own errors, 130 after
    Ctrl-C."""
    with warnings.catch_warnings():
        warnings.showwarning = _show(warnings.showwarning)
        return _execute(arguments)


def _show(otherwise: Callable[..., None]) -> Callable[..., None]:
    """Tells kronop's warnings without a line of source: that is not one of the user's here."""

    def show(message: Warning | str, category: type[Warning], *where: Any, **more: Any) -> None:
        if category is RuntimeWarning:
            print(f"kronop: {message}", file=sys.stderr)
        else:
            otherwise(message, category, *where, **more)

    return show


def _execute(arguments: Sequence[str] | None) -> int:
    try:
        options = parser(_program()).parse_args(arguments)
        knobs.current()  # Every command reports a KRONOP_* variable with a wrong name or value.
        imported(f"kronop.commands.{options.command}").execute(options)
    except KronopError as error:
        print(f"kronop: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("kronop: interrupted", file=sys.stderr)
        return 130  # As shells tell of a command that Ctrl-C ended.
    except BrokenPipeError:  # The reader of our output has ended, as `head` does in `| head`.
        sys.stderr.close()
        return 0
    return 0


def _program() -> str:
    """What was typed: the script, or the module."""
    return "python -m kronop" if sys.argv[0].endswith("__main__.py") else "kronop"


if __name__ == "__main__":
    sys.exit(main())
