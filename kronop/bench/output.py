"""The check of output files."""

from __future__ import annotations

from pathlib import Path

from kronop.errors import ArgumentError


def check_folders(*names: str | None) -> None:
    """Checks, before anything is measured, that the folders of output files exist.

    Raises:
        ArgumentError: a folder does not exist.
    """
    for name in filter(None, names):
        if not Path(name).absolute().parent.is_dir():
            raise ArgumentError(
                "output", expected="a file in a folder", got=name, hint="make the folder first"
            )
