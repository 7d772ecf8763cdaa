"""The tables of `compiled_cache.db`: created, and replaced if they are not those of the schema."""

from __future__ import annotations

import sqlite3
import time

# SQLite stores these texts verbatim, and `_is_ready` compares them. Whoever changes one must also
# change SCHEMA.
_TABLES = {
    "kernels": """CREATE TABLE kernels (
        key TEXT PRIMARY KEY, entry TEXT NOT NULL, arch TEXT NOT NULL, format TEXT NOT NULL,
        compiler TEXT NOT NULL, seconds REAL NOT NULL, resources TEXT NOT NULL,
        checksum TEXT NOT NULL, size INTEGER NOT NULL, created REAL NOT NULL,
        last_used REAL NOT NULL, log TEXT NOT NULL, source TEXT NOT NULL, image BLOB NOT NULL)""",
    "kernels_by_use": "CREATE INDEX kernels_by_use ON kernels (last_used, size)",
    "compilers": """CREATE TABLE compilers (
        place TEXT PRIMARY KEY, library BLOB NOT NULL, stamp TEXT NOT NULL,
        identity TEXT NOT NULL, checksum TEXT NOT NULL)""",
    "winners": """CREATE TABLE winners (
        key TEXT PRIMARY KEY, place INTEGER NOT NULL, fingerprint TEXT NOT NULL,
        description TEXT NOT NULL, target TEXT NOT NULL, device TEXT NOT NULL,
        size TEXT NOT NULL, serves TEXT NOT NULL, name TEXT NOT NULL, nanoseconds INTEGER NOT NULL,
        untuned_nanoseconds INTEGER NOT NULL, checksum TEXT NOT NULL)""",
    "plans": """CREATE TABLE plans (
        key TEXT PRIMARY KEY, plan TEXT NOT NULL, checksum TEXT NOT NULL)""",
}


def prepare(db: sqlite3.Connection, schema: int, patience: float) -> None:
    """Sets `db` up, and replaces all its tables if they are not those of `schema`.

    Args:
        db: a connection that was just opened.
        schema: the version number of the tables.
        patience: the longest time in seconds to wait for other processes.
    """
    _decode(db)
    _write_ahead(db, patience)
    db.execute("PRAGMA synchronous = NORMAL")
    if _is_ready(db, schema):
        return
    db.execute("BEGIN IMMEDIATE")
    try:
        if not _is_ready(db, schema):
            _drop_all(db)
            for statement in _TABLES.values():
                db.execute(statement)
            db.execute(f"PRAGMA user_version = {schema}")
    except BaseException:
        db.execute("ROLLBACK")
        raise
    db.execute("COMMIT")


def can_be_read(db: sqlite3.Connection, schema: int) -> bool:
    """Sets `db` up, from which is only read, and returns whether its tables are of `schema`."""
    _decode(db)
    return _is_ready(db, schema)


def _decode(db: sqlite3.Connection) -> None:
    # Damaged text must decode without an exception, so that its checksum fails instead.
    db.text_factory = lambda raw: raw.decode("utf-8", errors="replace")


def wait_at_most(db: sqlite3.Connection, seconds: float) -> None:
    """Lets SQLite wait up to `seconds` for a lock."""
    db.execute(f"PRAGMA busy_timeout = {round(seconds * 1e3)}")


def _write_ahead(db: sqlite3.Connection, patience: float) -> None:
    """Turns the write-ahead log on, retrying here because SQLite does not wait for other processes
    in this statement."""
    deadline = time.monotonic() + patience
    while True:
        try:
            db.execute("PRAGMA journal_mode = WAL")
            return
        except sqlite3.OperationalError as error:
            is_busy = error.sqlite_errorcode & 0xFF == sqlite3.SQLITE_BUSY
            if not is_busy or time.monotonic() > deadline:
                raise
        time.sleep(0.002)


def _is_ready(db: sqlite3.Connection, schema: int) -> bool:
    """Whether the tables are those of `schema`, and nothing else exists (no trigger, no view)."""
    version = int(db.execute("PRAGMA user_version").fetchone()[0])
    if version != schema:
        return False
    return {name: text for _, name, text in _everything(db)} == _TABLES


def _everything(db: sqlite3.Connection) -> list[tuple[str, str, str]]:
    """(kind, name, SQL) of every object in `db`, without SQLite's internal ones."""
    query = "SELECT type, name, sql FROM sqlite_master WHERE name NOT LIKE 'sqlite!_%' ESCAPE '!'"
    return db.execute(query).fetchall()


def _drop_all(db: sqlite3.Connection) -> None:
    for kind, name, _ in _everything(db):
        quoted = name.replace('"', '""')
        # Dropping a table also drops its indexes and triggers.
        if kind in ("table", "view"):
            db.execute(f'DROP {kind} IF EXISTS "{quoted}"')
