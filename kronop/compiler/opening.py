"""Opens compiled_cache.db: to read and write, or to read alone where nothing can be written."""

from __future__ import annotations

import os
import sqlite3
from pathlib import Path

from kronop.compiler import tables
from kronop.compiler.folders import UntrustedError, make_private_file
from kronop.compiler.keys import SCHEMA

Inode = tuple[int, int]
# SQLite's answers where it may not make the files that it keeps beside the database.
_NO_FILES_BESIDE = {sqlite3.SQLITE_READONLY, sqlite3.SQLITE_CANTOPEN}


def make_file(path: Path) -> str | None:
    """Makes the file `path`, in a folder that `make_private_folder` has checked, if it is missing.

    Returns:
        None, or why an existing file can only be read.

    Raises:
        UntrustedError: others could write to the file.
        OSError: it can't be made, or be opened.
    """
    reason = make_private_file(path)
    if reason is None and not os.access(path.parent, os.W_OK):
        return f"files can't be made in {path.parent}"
    return reason


def inode(path: Path) -> Inode | None:
    """What tells this file from another one of the same name; None if there is none."""
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_dev, found.st_ino


def open_to_read(path: Path, patience: float) -> sqlite3.Connection:
    """Opens the file where nothing can be written, with SQLite's log if there is one.

    Where SQLite may not make the files of its log, the database is read as one that nobody changes:
    what is half written nevertheless fails its checksum.

    Raises:
        UntrustedError: its tables are those of another version.
        sqlite3.Error: it can't be read.
    """
    try:
        return _read(path, patience, "?mode=ro")
    except sqlite3.Error as error:
        if error.sqlite_errorcode & 0xFF not in _NO_FILES_BESIDE:
            raise
    return _read(path, patience, "?mode=ro&immutable=1")


def _read(path: Path, patience: float, query: str) -> sqlite3.Connection:
    connection = connect(path, patience, query)
    try:
        if tables.can_be_read(connection, SCHEMA):
            return connection
        raise UntrustedError(f"{path} has other tables than this version of kronop")
    except BaseException:
        connection.close()
        raise


def connect(path: Path, patience: float, query: str = "") -> sqlite3.Connection:
    """Opens the file; `query` has SQLite's settings of a URI. Waits up to `patience` seconds."""
    return sqlite3.connect(
        f"{path.as_uri()}{query}",
        timeout=patience,
        isolation_level=None,
        check_same_thread=False,
        uri=True,
    )
