"""Remembered plans: a new process reads from compiled_cache.db the plan an earlier process made.

A plan is stored under a digest of the planner's source, the description, the target and the size.
Another version of kronop, or an edited one, therefore never finds it. The stored plan is text that
is checked when it is read; a text that fails any check is ignored and the plan is made anew.
"""

from __future__ import annotations

import functools
import hashlib
import itertools
import os
from collections.abc import Iterator
from typing import Any

from kronop import compiler
from kronop.compiler.keys import SCHEMA, digest
from kronop.compiler.rows import Memo
from kronop.emit.emitter import Emitter
from kronop.emit.plan import Plan
from kronop.emit.plan_text import from_text, to_text
from kronop.errors import DescriptionError, warn
from kronop.late import spec_of
from kronop.size import Size
from kronop.target import Target
from kronop.version import IMPORTED_AT, __version__

_PACKAGE = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
# Folders that no planner may import (tests/unit/test_rooms.py enforces it): an edit there changes
# no plan, so their files are not part of the planner's digest. In other packages than kronop such
# a name says nothing.
_NO_ROOMS = frozenset({"__pycache__"})
_OTHER_ROOMS = _NO_ROOMS | {"args", "bench", "commands", "compiler", "torch"}
# Descriptions whose plans can't be written as text: the user is warned once of each.
_untold: set[type] = set()


def plan(description: Any, emitter: Emitter, target: Target, size: Size | None = None) -> Plan:
    """The emitter's plan for problems of about `size`; a `size` of None means large problems.

    Raises:
        DescriptionError: the emitter does not support the description.
    """
    found = candidate(description, emitter, target, size, 0)
    assert found is not None
    return found


@functools.lru_cache(maxsize=1024)
def candidate(
    description: Any, emitter: Emitter, target: Target, size: Size | None, place: int
) -> Plan | None:
    """The emitter's candidate plan at `place`, counted from 0; None if it has fewer candidates.

    Raises:
        DescriptionError: the emitter does not support the description.
    """
    source = _planner(emitter.package)
    # Descriptions consist of frozen values only, so their repr identifies them completely.
    of = (repr(description), repr(target), () if size is None else repr(size), place)
    key = digest("kronop plan", SCHEMA, __version__, source, *of) if source else ""
    found = _read(key, description, target, emitter.package) if source else None
    if found is None:
        found = _made(description, emitter, target, size, place)
        if found is not None and source:
            _keep(key, found, description, emitter)
    return found


def _keep(key: str, found: Plan, description: Any, emitter: Emitter) -> None:
    folders = _folders(emitter.package)
    # Planning may have imported modules that were edited after the digest was taken. The plan
    # would then be stored under the digest of a source that did not make it.
    if _stamp(folders) != _first_stamp(folders):
        return
    try:
        text = to_text(found, description.epilogue)
    except TypeError as error:  # A mistake of the family, but its plan can be run.
        if (kind := type(description)) not in _untold:
            _untold.add(kind)
            warn(f"plans of {kind.__name__} are made anew in each process: {error}")
        return
    compiler.default_cache().keep_plan(key, text)


def _made(
    description: Any, emitter: Emitter, target: Target, size: Size | None, place: int
) -> Plan | None:
    if place:
        every = emitter.candidates(description, target, place + 1, size)
        return every[place] if len(every) > place else None
    status = emitter.supports(description, target)
    if not status:
        raise DescriptionError(f"{type(description).__name__} on {target}: {status.reason}")
    return emitter.plan(description, target, size)


def _read(key: str, description: Any, target: Target, package: str) -> Plan | None:
    text = compiler.default_cache().plan(key)
    try:
        return None if text is None else from_text(text, target, description.epilogue, package)
    except ValueError:
        return None


def _folders(top: str) -> tuple[str, ...]:
    """The folders whose modules take part in planning: kronop's own and, for a family outside this
    package, those of the top-level package `top` of its planner.

    None are given if that is a single module: its other modules could be anywhere.
    """
    if top == __name__.partition(".")[0]:
        return (_PACKAGE,)
    spec = spec_of(top)
    others = (spec and spec.submodule_search_locations) or ()
    return (_PACKAGE, *others) if others else ()


@functools.cache
def _planner(top: str) -> str:
    """A digest of the source of all planning code; empty if a file may have changed since import.

    The source on disk may then differ from the code in memory, and no plan is read or stored. The
    digest is empty as well if it is unknown which modules take part: see `_folders`.
    """
    folders = _folders(top)
    parts = [_planner_of_kronop(), *map(_contents, folders[1:])]
    if _first_stamp(folders) is None or not all(parts):
        return ""
    return digest("planner", *parts) if len(parts) > 1 else parts[0]


@functools.cache
def _planner_of_kronop() -> str:
    stamp = _first_stamp((_PACKAGE,))
    if stamp is None:
        return ""
    cache = compiler.default_cache()
    place = digest("planner", _PACKAGE)
    memo = cache.recall(place)
    if memo is not None and memo.stamp == stamp:
        return memo.identity
    found = _contents(_PACKAGE)
    if found:
        cache.remember(Memo(place=place, library=_PACKAGE, stamp=stamp, identity=found))
    return found


@functools.cache
def _first_stamp(folders: tuple[str, ...]) -> str | None:
    return _stamp(folders)


def _stamp(folders: tuple[str, ...]) -> str | None:
    """A digest of names, sizes and times of the planner's files; None where one has changed since
    it was imported, or can't be found."""
    stamps = []
    try:
        for file in itertools.chain.from_iterable(map(_files, folders)):
            found = file.stat()
            # Tools that restore the modification time of an edited file can't set its ctime.
            times = found.st_mtime_ns, found.st_ctime_ns
            if max(times) >= IMPORTED_AT:
                return None
            stamps.append((file.path, found.st_size, *times, found.st_ino))
    except OSError:
        return None
    return hashlib.sha256(repr(sorted(stamps)).encode()).hexdigest() if stamps else None


def _contents(folder: str) -> str:
    parts = []
    try:
        for file in _files(folder):
            with open(file.path, "rb") as opened:
                parts.append((os.path.relpath(file.path, folder), opened.read()))
    except OSError:
        return ""
    return digest("planner", *sorted(parts))


def _files(folder: str) -> Iterator[os.DirEntry[str]]:
    """All Python files below the folder; below kronop's own, without those in `_OTHER_ROOMS`."""
    left_out = _OTHER_ROOMS if folder == _PACKAGE else _NO_ROOMS
    pending = [folder]
    while pending:
        folder = pending.pop()
        with os.scandir(folder) as entries:
            for entry in entries:
                if entry.name.endswith(".py"):
                    yield entry
                elif entry.name not in left_out and entry.is_dir():
                    pending.append(entry.path)
