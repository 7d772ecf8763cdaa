"""What compiled_cache.db remembers of compilers."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest

from kronop.compiler import Cache
from kronop.compiler.rows import Memo


@pytest.fixture
def cache(tmp_path: Path) -> Cache:
    return Cache(tmp_path / "cache")


def make_memo(place: str = "here", **changes: str) -> Memo:
    values = {"library": "/lib/lib\udcffx.so", "stamp": "s", "identity": "test 1.0"} | changes
    return Memo(place=place, **values)


def test_memos_are_replaced_bounded_and_cleared(cache: Cache) -> None:
    cache.remember(make_memo())
    cache.remember(make_memo(identity="test 1.1"))
    assert cache.recall("here") == make_memo(identity="test 1.1")
    assert Cache(cache.folder).recall("there") is None
    for index in range(100):
        cache.remember(make_memo(f"place {index}"))
    assert [cache.recall(f"place {index}") is not None for index in (0, 35, 36, 99)] == [
        False,
        False,
        True,
        True,
    ]
    assert (cache.list(), cache.clear()) == ((), 0)
    assert cache.recall("place 99") is None


@pytest.mark.parametrize(
    "change",
    ["identity = 'other'", "stamp = 'x'", "library = 'x'", "library = 1.5", "checksum = 0"],
)
def test_a_changed_memo_is_not_believed(cache: Cache, change: str) -> None:
    cache.remember(make_memo())
    cache.close()
    with sqlite3.connect(cache.path) as db:
        db.execute(f"UPDATE compilers SET {change}")
    assert cache.recall("here") is None
    cache.remember(make_memo())
    assert cache.recall("here") == make_memo()
