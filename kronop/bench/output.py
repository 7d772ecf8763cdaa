"""The progress line of a run, and the check of its output files."""

from __future__ import annotations

import sys
from pathlib import Path

from kronop.errors import ArgumentError, mismatch


class Progress:
    """A line on standard error that says what is being done; nothing if that is not a terminal."""

    def __init__(self, subject: str) -> None:
        self._subject = subject
        self._changes = sys.stderr.isatty()

    def tell(self, what: str) -> None:
        if self._changes:
            print(f"\r\033[K{self._subject}: {what}", end="", file=sys.stderr, flush=True)

    def clear(self) -> None:
        if self._changes:
            print("\r\033[K", end="", file=sys.stderr, flush=True)


def check_folders(*names: str | None) -> None:
    """Checks, before anything is measured, that the folders of output files exist.

    Raises:
        ArgumentError: a folder does not exist.
    """
    for name in filter(None, names):
        if not Path(name).absolute().parent.is_dir():
            raise ArgumentError(
                mismatch(
                    "output", expected="a file in a folder", got=name, hint="make the folder first"
                )
            )
