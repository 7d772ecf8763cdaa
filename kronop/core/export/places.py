"""The folder of an export: whether it can take the files, and how they come there."""

from __future__ import annotations

import os
import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from kronop.errors import ArgumentError, mismatch


def prepare(folder: Any, name: str, mark: str) -> Path:
    """Makes the folder if it is missing.

    Args:
        folder: of the export.
        name: of the exported library.
        mark: what the header of every export of the same operation has, and no other header.

    Raises:
        ArgumentError: the folder can't be used, or has another export of this name.
    """
    header = Path(folder) / "include" / f"{name}.h"
    try:
        header.parent.mkdir(parents=True, exist_ok=True)
        before = header.read_text(encoding="utf-8", errors="replace") if header.exists() else mark
    except (OSError, ValueError) as error:
        raise _unusable(folder, error) from error
    if mark not in before:
        raise ArgumentError(
            mismatch(
                f"{name} in {folder}",
                expected="no other operation's export of this name",
                got=str(header),
                hint="give this one another folder or name (--name), or remove that one",
            )
        )
    return Path(folder)


def write(root: Path, files: Mapping[str, str | bytes]) -> None:
    """Puts files, by their places below `root`, where they belong.

    Raises:
        ArgumentError: the folder can't be used.
    """
    try:
        for place, content in files.items():
            _write(root / place, content.encode() if isinstance(content, str) else content)
    except OSError as error:
        raise _unusable(root, error) from error


def _write(path: Path, content: bytes) -> None:
    """Puts a new file in the place of an older one: programs that have loaded that one keep it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    # Other processes may export to the same folder.
    new = path.with_name(f".{path.name}.{uuid.uuid4().hex}")
    try:
        new.write_bytes(content)
        new.replace(path)
    finally:
        new.unlink(missing_ok=True)


def _unusable(folder: Any, error: Exception) -> ArgumentError:
    return ArgumentError(
        mismatch(
            "folder of an export",
            expected="one that can be written",
            got=f"{os.fspath(folder)!r}: {getattr(error, 'strerror', None) or error}",
            hint="name another folder",
        )
    )
