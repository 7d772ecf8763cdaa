"""Reads and writes the rows of `compiled_cache.db`, each of which carries a checksum."""

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

# `size` and the times come before the long columns, because SQLite reads a row from its start.
_COLUMNS = (
    *("key", "entry", "arch", "format", "compiler", "seconds", "resources", "checksum"),
    *("size", "created", "last_used", "log", "source", "image"),
)
# Whenever a folder on a search path changes, a new memo is made and the old one becomes useless.
_KEPT_MEMOS = 64
_KEPT_WINNERS = 16384
# A plan that takes more is made anew in each process, and plans and winners take at most this part
# of a full cache each.
_MOST_PLAN, _SHARE = 1 << 20, 16
# Plans take about 3 KB each. Their keys contain the planner's digest, so the plans of another
# version of kronop are never read again; this bound removes them in the end.
_KEPT_PLANS = 4096
# Rows with damaged numbers, which an index has. SQLite allows no larger rows, so that sums of sizes
# can't overflow. Times are seconds since 1970.
_MOST_BYTES, _LAST_SECOND = 2**31, 1e11
_DELETE_DAMAGED = f"""DELETE FROM kernels WHERE typeof(size) != 'integer'
    OR size NOT BETWEEN 0 AND {_MOST_BYTES} OR typeof(last_used) != 'real'
    OR last_used NOT BETWEEN 0 AND {_LAST_SECOND}"""
# SQLite numbers rows upwards, but at random once the largest number is taken.
_LAST_ROW = 2**62
_READ = f"SELECT {', '.join(_COLUMNS)} FROM kernels WHERE key = ?"
_WRITE = f"INSERT OR REPLACE INTO kernels VALUES ({', '.join('?' * len(_COLUMNS))})"


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """A cached kernel, as `Cache.list` has it.

    Attributes:
        key: digest of everything that decides the binary.
        entry: the name of its function.
        arch: what it was compiled for.
        compiler: name and version.
        size: bytes that it takes in the cache.
        seconds: time of the compilation.
        created, last_used: seconds since 1970.

    Example:
        >>> tensor = kronop.TensorDescription(kronop.float32)
        >>> epilogue = kronop.LinearCombination(kronop.float32, 1, kronop.float32, kronop.float32)
        >>> operation = kronop.KronMatmulOperation(
        ...     "x86", None, tensor, tensor, tensor, epilogue, factors=((4, 4), (4, 4))
        ... )
        >>> kronop.compiler.forget()  # so that the cache is asked
        >>> (binary,) = kronop.compiler.compile_sources(operation.sources, operation.target)
        >>> entries = kronop.compiler.default_cache().list()
        >>> [entry.entry for entry in entries if entry.key == binary.key]
        ['kron_f32_4x4p2_...']
    """

    key: str
    entry: str
    arch: str
    compiler: str
    size: int
    seconds: float
    created: float
    last_used: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """One cached kernel with its source, as `Cache.show` gives it.

    Attributes:
        binary: the compiled kernel.
        source: the text that it was compiled from.
        created, last_used: seconds since 1970.

    Example:
        >>> tensor = kronop.TensorDescription(kronop.float32)
        >>> epilogue = kronop.LinearCombination(kronop.float32, 1, kronop.float32, kronop.float32)
        >>> operation = kronop.KronMatmulOperation(
        ...     "x86", None, tensor, tensor, tensor, epilogue, factors=((4, 4), (4, 4))
        ... )
        >>> kronop.compiler.forget()  # so that the cache is asked
        >>> (binary,) = kronop.compiler.compile_sources(operation.sources, operation.target)
        >>> record = kronop.compiler.default_cache().show(binary.key)
        >>> record.binary.image == binary.image, record.source == operation.sources[0].text
        (True, True)
    """

    binary: Binary
    source: str
    created: float
    last_used: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Memo:
    """The identity that a compiler gave to an earlier process, and when it may be believed.

    Attributes:
        place: digest of everything that decides which library or program a process uses.
        library: path of the library or program that was used.
        stamp: digest of that file.
        identity: the compiler's answer.
    """

    place: str
    library: str
    stamp: str
    identity: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Winner:
    """The candidate that tuning found fastest.

    Attributes:
        key: digest of description, target, device and size.
        place: its index among the planner's candidates, from 0.
        fingerprint: digest of that candidate's sources.
        description: repr of the operation's description.
        target: name of the target.
        device: name of the device that was measured, with its driver's version.
        size: the bucket of sizes that it is for, in words.
        serves: the sizes in that bucket, in words.
        name: the names of the kernels.
        nanoseconds: time of one run.
        untuned_nanoseconds: time of one run of the planner's own choice.
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
        """A digest of all attributes."""
        return digest("winner", *dataclasses.astuple(self))


_OF_WINNER = (*(field.name for field in dataclasses.fields(Winner)), "checksum")
_NUMBERS_OF_WINNER = ("place", "nanoseconds", "untuned_nanoseconds")
_WINNERS = f"SELECT {', '.join(_OF_WINNER)} FROM winners"


def read(db: sqlite3.Connection, key: str) -> tuple[object, ...] | None:
    found: tuple[object, ...] | None = db.execute(_READ, (key,)).fetchone()
    return found


def write(db: sqlite3.Connection, values: tuple[object, ...], key: str, limit_bytes: int) -> None:
    db.execute("BEGIN IMMEDIATE")
    try:
        db.execute(_DELETE_DAMAGED)
        db.execute(_WRITE, values)
        _shrink(db, key, limit_bytes)
    except BaseException:
        db.execute("ROLLBACK")
        raise
    db.execute("COMMIT")


def _shrink(db: sqlite3.Connection, kept: str, limit_bytes: int) -> None:
    """Frees pages until all tables together take `limit_bytes`: plans and winners leave most of
    them to kernels, of which the least recently used are deleted, except `kept`."""
    if _used(db) <= limit_bytes:
        return
    for table, column in (("plans", "plan"), ("winners", "description")):
        _keep_bytes(db, table, column, limit_bytes // _SHARE)
    oldest = "SELECT key FROM kernels WHERE key != ? ORDER BY last_used"
    for (key,) in db.execute(oldest, (kept,)).fetchall():
        if _used(db) <= limit_bytes:
            return
        delete(db, key)


def _used(db: sqlite3.Connection) -> int:
    """Bytes of the pages that hold anything; the file has free ones besides."""
    pages = "SELECT (page_count - freelist_count) * page_size FROM"
    pragmas = "pragma_page_count, pragma_freelist_count, pragma_page_size"
    return int(db.execute(f"{pages} {pragmas}").fetchone()[0])


def _keep_bytes(db: sqlite3.Connection, table: str, column: str, most: int) -> None:
    """Deletes the oldest rows of those whose long column takes more than `most` bytes."""
    total = 0
    for row, size in db.execute(f"SELECT rowid, LENGTH({column}) FROM {table} ORDER BY rowid DESC"):
        total += size
        if total > most:
            db.execute(f"DELETE FROM {table} WHERE rowid <= ?", (row,))
            return


def delete(db: sqlite3.Connection, key: str) -> None:
    db.execute("DELETE FROM kernels WHERE key = ?", (key,))


def delete_image(db: sqlite3.Connection, key: str, image: bytes) -> None:
    db.execute("DELETE FROM kernels WHERE key = ? AND image = ?", (key, image))


def touch(db: sqlite3.Connection, key: str, now: float) -> None:
    db.execute("UPDATE kernels SET last_used = ? WHERE key = ?", (now, key))


def entries(db: sqlite3.Connection) -> tuple[Entry, ...]:
    names = [item.name for item in dataclasses.fields(Entry)]
    query = f"SELECT {', '.join(names)} FROM kernels ORDER BY last_used DESC, key"
    every = (dict(zip(names, row, strict=True)) for row in db.execute(query))
    return tuple(Entry(**row) for row in every if _is_sound(row))


def _is_sound(row: Mapping[str, object]) -> bool:
    """Whether these columns of a kernel, which its checksum does not cover, can be shown."""
    try:
        for name in ("size", "seconds", "created", "last_used"):
            _number(row[name])
    except TypeError:
        return False
    return all(isinstance(row[name], str) for name in ("key", "entry", "arch", "compiler"))


def clear(db: sqlite3.Connection) -> int:
    count = db.execute("DELETE FROM kernels").rowcount
    db.execute("DELETE FROM compilers")
    db.execute("DELETE FROM winners")
    db.execute("DELETE FROM plans")
    db.execute("VACUUM")
    return count


def recall(db: sqlite3.Connection, place: str) -> Memo | None:
    """The memo of `place`; None if there is none or its checksum is wrong."""
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
    """Stores `memo`; the oldest memos beyond the limit are deleted."""
    values = (memo.place, os.fsencode(memo.library), memo.stamp, memo.identity)
    db.execute(
        "INSERT OR REPLACE INTO compilers VALUES (?, ?, ?, ?, ?)", (*values, digest(*values))
    )
    _keep_latest(db, "compilers", _KEPT_MEMOS)


def winner(db: sqlite3.Connection, key: str) -> Winner | None:
    """The winner of `key`; None if there is none or its checksum is wrong."""
    found = db.execute(f"{_WINNERS} WHERE key = ?", (key,)).fetchone()
    return None if found is None else checked_winner(dict(zip(_OF_WINNER, found, strict=True)))


def winners(db: sqlite3.Connection) -> list[Winner]:
    """All winners with a right checksum, the oldest first."""
    every = db.execute(f"{_WINNERS} ORDER BY rowid").fetchall()
    found = (checked_winner(dict(zip(_OF_WINNER, row, strict=True))) for row in every)
    return [item for item in found if item is not None]


def checked_winner(values: Mapping[str, object]) -> Winner | None:
    """The winner with these fields; None if a field is missing or damaged."""
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


def crown(db: sqlite3.Connection, found: Winner, limit_bytes: int) -> None:
    """Stores `found`; the oldest winners beyond the limit are deleted."""
    values = (*dataclasses.astuple(found), found.checksum)
    db.execute(f"INSERT OR REPLACE INTO winners VALUES ({', '.join('?' * len(values))})", values)
    _keep_latest(db, "winners", _KEPT_WINNERS)
    _shrink(db, "", limit_bytes)


def plan(db: sqlite3.Connection, key: str) -> str | None:
    """The text of the plan of `key`; None if there is none or its checksum is wrong."""
    found = db.execute("SELECT plan, checksum FROM plans WHERE key = ?", (key,)).fetchone()
    if found is None or not isinstance(found[0], str):
        return None
    return found[0] if found[1] == digest("plan", key, found[0]) else None


def keep_plan(db: sqlite3.Connection, key: str, text: str, limit_bytes: int) -> None:
    """Stores the text of a plan, unless it is too long; the oldest plans beyond the limit are
    deleted."""
    if len(text) > _MOST_PLAN:
        return
    values = (key, text, digest("plan", key, text))
    db.execute("INSERT OR REPLACE INTO plans VALUES (?, ?, ?)", values)
    _keep_latest(db, "plans", _KEPT_PLANS)
    _shrink(db, "", limit_bytes)


def _keep_latest(db: sqlite3.Connection, table: str, count: int) -> None:
    # A row gets the highest rowid when it is written or replaced.
    db.execute(f"DELETE FROM {table} WHERE rowid > {_LAST_ROW}")
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


def parse(values: tuple[object, ...]) -> Record | None:
    """The kernel of a row; None if its checksum is wrong or a value has the wrong type."""
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
    except (TypeError, ValueError, RecursionError):
        return None
    return Record(binary=binary, source=str(row["source"]), created=created, last_used=last_used)


def _bytes(value: object) -> bytes:
    if not isinstance(value, bytes):
        raise TypeError("image is no bytes")
    return value


def _number(value: object) -> float:
    """A number of seconds or bytes."""
    if not isinstance(value, (int, float)) or not 0 <= value <= _LAST_SECOND:
        raise TypeError("expected a number of seconds or bytes")
    return float(value)
