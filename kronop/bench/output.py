"""What a run tells while it goes on, and where it writes."""

from __future__ import annotations

import sys
from pathlib import Path

from kronop.errors import ArgumentError, mismatch


class Progress:
    """What is being done now, on standard error: one line that changes where it is a terminal."""

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
    """Whether files of these names can be written, asked before anything is measured.

    Raises:
        ArgumentError: the folder of one is not there.
    """
    for name in filter(None, names):
        if not Path(name).absolute().parent.is_dir():
            raise ArgumentError(
                mismatch(
                    "output", expected="a file in a folder", got=name, hint="make the folder first"
                )
            )
