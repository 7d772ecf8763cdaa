"""The rows of `compiled_cache.db`: what is read and written, and the checksum over each of them."""

from __future__ import annotations

import dataclasses
import json
import os
import sqlite3
from collections.abc import Mapping
from typing import Any

from kronop.artifacts import Binary, BinaryFormat, Origin, Resources
from kronop.compiler.keys import digest
from kronop.frozen import dataclass

# `size` and the times stand before the long columns: SQLite reads a row from its start.
_COLUMNS = (
    "key",
    "entry",
    "arch",
    "format",
    "compiler",
    "seconds",
    "resources",
    "checksum",
    "size",
    "created",
    "last_used",
    "log",
    "source",
    "image",
)
# Every folder on a search path that changes makes another memo; old ones are of no use.
_KEPT_MEMOS = 64
_KEPT_WINNERS = 16384
# Of 3 KB each. The planner's digest is in their keys: a new kronop leaves the old one's behind.
_KEPT_PLANS = 4096
_READ = f"SELECT {', '.join(_COLUMNS)} FROM kernels WHERE key = ?"
_WRITE = f"INSERT OR REPLACE INTO kernels VALUES ({', '.join('?' * len(_COLUMNS))})"


_OF_WINNER = (
    "key",
    "place",
    "fingerprint",
    "description",
    "target",
    "device",
    "size",
    "serves",
    "name",
    "nanoseconds",
    "untuned_nanoseconds",
    "checksum",
)
_NUMBERS_OF_WINNER = ("place", "nanoseconds", "untuned_nanoseconds")
_WINNERS = f"SELECT {', '.join(_OF_WINNER)} FROM winners"


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """A row that passed its checksum."""

    binary: Binary
    source: str
    created: float
    last_used: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Memo:
    """What a compiler told of itself to an earlier process, and under which circumstances.

    Attributes:
        place: digest of all that decides which library a process loads.
        library: path of the library that was loaded.
        stamp: digest of that file.
        identity: what the compiler then said it was.
    """

    place: str
    library: str
    stamp: str
    identity: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Winner:
    """Which candidate tuning found fastest.

    Attributes:
        key: digest of description, target, device and size.
        place: which of the planner's candidates it is, from 0.
        fingerprint: digest of that candidate's sources.
        description: the operation's, as text.
        target: its name.
        device: what was measured on, with its driver.
        size: the bucket of sizes that it is for, in words, and serves: which these are.
        name: the operation's, as in its kernels.
        nanoseconds: what a run took.
        untuned_nanoseconds: what a run of the planner's own choice took.
    """

    key: str
    place: int
    fingerprint: str
    description: str
    target: str
    device: str
    size: str
    serves: str
    name: str
    nanoseconds: int
    untuned_nanoseconds: int

    @property
    def checksum(self) -> str:
        """A digest of all of it."""
        return digest("winner", *dataclasses.astuple(self))


def read(db: sqlite3.Connection, key: str) -> tuple[object, ...] | None:
    found: tuple[object, ...] | None = db.execute(_READ, (key,)).fetchone()
    return found


def write(db: sqlite3.Connection, values: tuple[object, ...], key: str, limit_bytes: int) -> None:
    db.execute("BEGIN IMMEDIATE")
    try:
        db.execute(_WRITE, values)
        total = int(db.execute("SELECT SUM(size) FROM kernels").fetchone()[0])
        if total > limit_bytes:
            _evict(db, key, total - limit_bytes)
    except BaseException:
        db.execute("ROLLBACK")
        raise
    db.execute("COMMIT")


def _evict(db: sqlite3.Connection, kept: str, excess: int) -> None:
    """Delete the least recently used rows but `kept` until `excess` bytes are gone."""
    oldest = "SELECT key, size FROM kernels WHERE key != ? ORDER BY last_used"
    for key, size in db.execute(oldest, (kept,)).fetchall():
        if excess <= 0:
            return
        delete(db, key)
        excess -= size


def delete(db: sqlite3.Connection, key: str) -> None:
    db.execute("DELETE FROM kernels WHERE key = ?", (key,))


def delete_image(db: sqlite3.Connection, key: str, image: bytes) -> None:
    db.execute("DELETE FROM kernels WHERE key = ? AND image = ?", (key, image))


def touch(db: sqlite3.Connection, key: str, now: float) -> None:
    db.execute("UPDATE kernels SET last_used = ? WHERE key = ?", (now, key))


def summary(db: sqlite3.Connection) -> tuple[tuple[Any, ...], ...]:
    return tuple(
        db.execute(
            "SELECT key, entry, arch, compiler, size, seconds, created, last_used FROM kernels "
            "ORDER BY last_used DESC, key"
        )
    )


def clear(db: sqlite3.Connection) -> int:
    count = db.execute("DELETE FROM kernels").rowcount
    db.execute("DELETE FROM compilers")
    db.execute("DELETE FROM winners")
    db.execute("DELETE FROM plans")
    db.execute("VACUUM")
    return count


def recall(db: sqlite3.Connection, place: str) -> Memo | None:
    """The memo of `place`, or None where there is none or its checksum does not hold."""
    query = "SELECT library, stamp, identity, checksum FROM compilers WHERE place = ?"
    found = db.execute(query, (place,)).fetchone()
    try:
        if found is None or found[3] != digest(place, *found[:3]):
            return None
        library = os.fsdecode(found[0])
    except TypeError:
        return None
    return Memo(place=place, library=library, stamp=str(found[1]), identity=str(found[2]))


def remember(db: sqlite3.Connection, memo: Memo) -> None:
    """Keep `memo` and the latest of the others."""
    values = (memo.place, os.fsencode(memo.library), memo.stamp, memo.identity)
    db.execute(
        "INSERT OR REPLACE INTO compilers VALUES (?, ?, ?, ?, ?)", (*values, digest(*values))
    )
    _keep_latest(db, "compilers", _KEPT_MEMOS)


def winner(db: sqlite3.Connection, key: str) -> Winner | None:
    """The winner of `key`, or None where there is none or its checksum does not hold."""
    found = db.execute(f"{_WINNERS} WHERE key = ?", (key,)).fetchone()
    return None if found is None else checked_winner(dict(zip(_OF_WINNER, found, strict=True)))


def winners(db: sqlite3.Connection) -> list[Winner]:
    """All winners whose checksums hold, the oldest first."""
    every = db.execute(f"{_WINNERS} ORDER BY rowid").fetchall()
    found = (checked_winner(dict(zip(_OF_WINNER, row, strict=True))) for row in every)
    return [item for item in found if item is not None]


def checked_winner(values: Mapping[str, Any]) -> Winner | None:
    """The winner of these fields; None where one is missing, or not what the checksum is of."""
    whole: dict[str, Any] = {name: values.get(name) for name in _OF_WINNER}
    sizes = (whole[name] for name in _NUMBERS_OF_WINNER)
    texts = (value for name, value in whole.items() if name not in _NUMBERS_OF_WINNER)
    if not all(isinstance(value, str) for value in texts):
        return None
    if not all(type(size) is int and size >= 0 for size in sizes):
        return None
    checksum = whole.pop("checksum")
    found = Winner(**whole)
    return found if found.checksum == checksum else None


def crown(db: sqlite3.Connection, found: Winner) -> None:
    """Keep `found` and the latest of the others."""
    values = (*dataclasses.astuple(found), found.checksum)
    db.execute(f"INSERT OR REPLACE INTO winners VALUES ({', '.join('?' * len(values))})", values)
    _keep_latest(db, "winners", _KEPT_WINNERS)


def plan(db: sqlite3.Connection, key: str) -> str | None:
    """The text of the plan of `key`, or None where there is none or its checksum does not hold."""
    found = db.execute("SELECT plan, checksum FROM plans WHERE key = ?", (key,)).fetchone()
    if found is None or not isinstance(found[0], str):
        return None
    return found[0] if found[1] == digest("plan", key, found[0]) else None


def keep_plan(db: sqlite3.Connection, key: str, text: str) -> None:
    """Keep the text of a plan and the latest of the others."""
    values = (key, text, digest("plan", key, text))
    db.execute("INSERT OR REPLACE INTO plans VALUES (?, ?, ?)", values)
    _keep_latest(db, "plans", _KEPT_PLANS)


def _keep_latest(db: sqlite3.Connection, table: str, count: int) -> None:
    # A row that is written or replaced gets the highest number.
    db.execute(f"DELETE FROM {table} WHERE rowid <= (SELECT MAX(rowid) FROM {table}) - ?", (count,))


def format_row(binary: Binary, source: str, now: float) -> tuple[object, ...]:
    """The values of a row, in the order of the columns."""
    resources = json.dumps(dataclasses.asdict(binary.resources), sort_keys=True)
    texts = (binary.key, binary.entry, binary.arch, binary.format.value, binary.compiler)
    size = len(binary.image) + len(source) + len(binary.log)
    return (
        *texts,
        binary.seconds,
        resources,
        digest(*texts, resources, binary.log, source, binary.image),
        size,
        now,
        now,
        binary.log,
        source,
        binary.image,
    )


def parse(values: tuple[object, ...]) -> Row | None:
    """The row, or None where its checksum does not hold or a value is not of its type."""
    row = dict(zip(_COLUMNS, values, strict=True))
    names = ("key", "entry", "arch", "format", "compiler", "resources", "log", "source", "image")
    try:
        if row["checksum"] != digest(*(row[name] for name in names)):
            return None
        binary = Binary(
            key=str(row["key"]),
            entry=str(row["entry"]),
            arch=str(row["arch"]),
            format=BinaryFormat(row["format"]),
            image=_bytes(row["image"]),
            resources=Resources(**json.loads(str(row["resources"]))),
            log=str(row["log"]),
            compiler=str(row["compiler"]),
            origin=Origin.DISK,
            seconds=_number(row["seconds"]),
        )
        created, last_used = _number(row["created"]), _number(row["last_used"])
    except (TypeError, ValueError):
        return None
    return Row(binary=binary, source=str(row["source"]), created=created, last_used=last_used)


def _bytes(value: object) -> bytes:
    if not isinstance(value, bytes):
        raise TypeError("image is no bytes")
    return value


def _number(value: object) -> float:
    if not isinstance(value, (int, float)):
        raise TypeError("expected a number")
    return float(value)
