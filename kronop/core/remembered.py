"""Plans that are made once: a new process reads from compiled_cache.db what an earlier one planned.

A plan is kept under a digest of the planner's own source, of the description, the target and the
size that it is for. So another kronop, or one that was edited, never sees it. What is read is text
that is checked; where anything is odd, the plan is made anew.
"""

from __future__ import annotations

import functools
import hashlib
import os
import sys
from collections.abc import Iterator
from typing import Any

from kronop import compiler
from kronop.compiler.keys import SCHEMA, digest
from kronop.compiler.rows import Memo
from kronop.emit.emitter import Emitter
from kronop.emit.plan import Plan
from kronop.emit.plan_text import from_text, to_text
from kronop.errors import DescriptionError
from kronop.size import Size
from kronop.target import Target
from kronop.version import IMPORTED_AT, __version__

_PACKAGE = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
# Rooms that no planner may import (tests/unit/test_rooms.py): an edit there changes no plan.
_OTHER_ROOMS = frozenset({"args", "bench", "commands", "compiler", "torch", "__pycache__"})


def plan(
    description: Any, emitter: Emitter[Any, Any], target: Target, size: Size | None = None
) -> Plan:
    """The emitter's plan for problems of about that size; None for large ones.

    Raises:
        DescriptionError: the emitter does not support the description.
    """
    found = candidate(description, emitter, target, size, 0)
    assert found is not None
    return found


@functools.lru_cache(maxsize=1024)
def candidate(
    description: Any, emitter: Emitter[Any, Any], target: Target, size: Size | None, place: int
) -> Plan | None:
    """The emitter's candidate number `place`, from 0; None where it has not so many.

    Raises:
        DescriptionError: the emitter does not support the description.
    """
    source = _planner(type(emitter))
    # Descriptions are frozen values all the way down: their text is all there is to them.
    of = (repr(description), repr(target), () if size is None else repr(size), place)
    key = digest("kronop plan", SCHEMA, __version__, source, *of) if source else ""
    found = _read(key, description, target) if source else None
    if found is None:
        found = _made(description, emitter, target, size, place)
        # Modules are imported when they are first needed: they may be newer than what was digested.
        if found is not None and source and _stamp(_PACKAGE) == _first_stamp():
            compiler.default_cache().keep_plan(key, to_text(found, description.epilogue))
    return found


def _made(
    description: Any, emitter: Emitter[Any, Any], target: Target, size: Size | None, place: int
) -> Plan | None:
    if place:
        every = emitter.candidates(description, target, place + 1, size)
        return every[place] if len(every) > place else None
    status = emitter.supports(description, target)
    if not status:
        raise DescriptionError(f"{type(description).__name__} on {target}: {status.reason}")
    return emitter.plan(description, target, size)


def _read(key: str, description: Any, target: Target) -> Plan | None:
    text = compiler.default_cache().plan(key)
    try:
        return None if text is None else from_text(text, target, description.epilogue)
    except ValueError:
        return None


@functools.cache
def _planner(emitter: type) -> str:
    """A digest of the source of all that plans; empty where it can't be told which source runs."""
    own = _planner_of_kronop()
    if not own or emitter.__module__.partition(".")[0] == __name__.partition(".")[0]:
        return own
    # A family from elsewhere: what is in its emitter's folder plans as well.
    folder = os.path.dirname(os.path.abspath(sys.modules[emitter.__module__].__file__ or ""))
    return digest("planner", own, _contents(folder)) if _stamp(folder) else ""


@functools.cache
def _planner_of_kronop() -> str:
    stamp = _first_stamp()
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
def _first_stamp() -> str | None:
    return _stamp(_PACKAGE)


def _stamp(folder: str) -> str | None:
    """A digest of names, sizes and times of the planner's files; None where one has changed since
    it was imported, or can't be found."""
    stamps = []
    try:
        for file in _files(folder):
            found = file.stat()
            # Who restores a time of modification can't restore that of the change.
            if max(found.st_mtime_ns, found.st_ctime_ns) >= IMPORTED_AT:
                return None
            stamps.append(
                (file.path, found.st_size, found.st_mtime_ns, found.st_ctime_ns, found.st_ino)
            )
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
    """All Python files there, but those of rooms of kronop that do not plan."""
    pending = [folder]
    while pending:
        folder = pending.pop()
        with os.scandir(folder) as entries:
            for entry in entries:
                if entry.name.endswith(".py"):
                    yield entry
                elif entry.name not in _OTHER_ROOMS and entry.is_dir():
                    pending.append(entry.path)
