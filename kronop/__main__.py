"""The command line: `python -m kronop demo | show | matrix | cache | bench | tune | export`."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from kronop import knobs
from kronop.commands import bench, cache, demo, export, matrix, show, tune
from kronop.errors import KronopError

_COMMANDS = {
    "demo": demo,
    "show": show,
    "matrix": matrix,
    "cache": cache,
    "bench": bench,
    "tune": tune,
    "export": export,
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs one command; returns 0 if it succeeded, 1 for kronop's own errors."""
    parser = argparse.ArgumentParser(prog="python -m kronop", description=__doc__)
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


if __name__ == "__main__":
    sys.exit(main())
