"""The folder of an export: whether it can take the files, and how they come there."""

from __future__ import annotations

import contextlib
import os
import uuid
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from kronop.errors import ArgumentError


@contextlib.contextmanager
def prepared(folder: str | os.PathLike[str], name: str, mark: str) -> Iterator[Path]:
    """The folder, made if it is missing; if what follows fails, what was new is gone again.

    Args:
        folder: of the export.
        name: of the exported library.
        mark: what the header of every export of the same operation has, and no other header.

    Raises:
        ArgumentError: the folder can't be used, or has another export of this name.
    """
    header = Path(folder) / "include" / f"{name}.h"
    new = _new(header.parent)
    try:
        try:
            header.parent.mkdir(parents=True, exist_ok=True)
            exists = header.exists()
            before = header.read_text(encoding="utf-8", errors="replace") if exists else mark
        except (OSError, ValueError) as error:
            raise _unusable(folder, error) from error
        if mark not in before:
            raise ArgumentError(
                f"{name} in {folder}",
                expected="no other operation's export of this name",
                got=str(header),
                hint="give this one another folder or name (--name), or remove that one",
            )
        yield Path(folder)
    except BaseException:
        _remove(new)
        raise


def write(root: Path, files: Mapping[str, str | bytes]) -> None:
    """Puts files, by their places below `root`, where they belong: all of them or, of those that
    were not there, none.

    Raises:
        ArgumentError: the folder can't be used.
    """
    new: list[Path] = []
    try:
        for place, content in files.items():
            new += _new(root / place)
            _write(root / place, content.encode() if isinstance(content, str) else content)
    except BaseException as error:
        _remove(new)
        if isinstance(error, OSError):
            raise _unusable(root, error) from error
        raise


def _new(path: Path) -> list[Path]:
    """What is not there of a path and the folders that it is in, the outermost first."""
    return [item for item in (*reversed(path.parents), path) if not os.path.lexists(item)]


def _remove(new: Sequence[Path]) -> None:
    """Removes files, and folders in which nothing is that others have put there."""
    for path in reversed(new):
        with contextlib.suppress(OSError, ValueError):  # ValueError: it can't be a path.
            path.rmdir() if path.is_dir() else path.unlink()


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


def _unusable(folder: str | os.PathLike[str], error: Exception) -> ArgumentError:
    return ArgumentError(
        "folder of an export",
        expected="one that can be written",
        got=f"{os.fspath(folder)!r}: {getattr(error, 'strerror', None) or error}",
        hint="name another folder",
    )
