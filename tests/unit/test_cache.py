"""compiled_cache.db under many processes, damage, upgrades and folders that can't be used."""

from __future__ import annotations

import contextlib
import os
import signal
import sqlite3
import stat
import subprocess
import sys
import threading
import time
import warnings
from pathlib import Path

import pytest

from kronop import knobs
from kronop.__main__ import main
from kronop.artifacts import Binary, BinaryFormat, Origin, Resources
from kronop.compiler import Cache, build, patience
from kronop.compiler import cache as cache_module
from kronop.compiler.claims import claim
from kronop.compiler.folders import cache_folder
from kronop.compiler.keys import SCHEMA
from kronop.compiler.rows import Memo, Winner
from kronop.errors import ArgumentError

ROOT = Path(__file__).parents[2]
KEY = "a1" * 32

PREAMBLE = f"""
import os, sys, time
from pathlib import Path
sys.path.insert(0, {str(ROOT)!r})
from kronop.artifacts import Binary, BinaryFormat, Resources
from kronop.compiler import Cache
cache = Cache(Path(sys.argv[1]))
def binary(key, size=5000):
    return Binary(key=key, entry="kernel", arch="sm_80", format=BinaryFormat.CUBIN,
                  image=key.encode()[:1] * size, resources=Resources(), log="", compiler="test")
"""


def make(key: str = KEY, image: bytes = b"\x7fELF" * 500) -> Binary:
    return Binary(
        key=key,
        entry="kernel",
        arch="sm_80",
        format=BinaryFormat.CUBIN,
        image=image,
        resources=Resources(registers=40, spill_bytes=0, static_shared_bytes=1024),
        log="no remarks",
        compiler="test 1.0",
        seconds=0.25,
    )


def winner(key: str, description: str) -> Winner:
    texts = dict.fromkeys(("fingerprint", "target", "device", "size", "serves", "name"), "")
    return Winner(
        key=key,
        place=1,
        description=description,
        nanoseconds=1,
        untuned_nanoseconds=2,
        **texts,
    )


def start(script: str, folder: Path, *arguments: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", PREAMBLE + script, str(folder), *arguments],
        stdout=subprocess.PIPE,
        text=True,
    )


@pytest.fixture
def cache(tmp_path: Path) -> Cache:
    return Cache(tmp_path / "cache")


def test_what_is_put_comes_back(cache: Cache) -> None:
    cache.put(make(), "the source")
    found = Cache(cache.folder).get(KEY)
    assert found is not None
    assert (found.image, found.resources, found.log) == (
        make().image,
        make().resources,
        "no remarks",
    )
    assert (found.origin, found.seconds) == (Origin.DISK, 0.25)
    assert cache.get("b2" * 32) is None


def test_files_are_private(cache: Cache) -> None:
    cache.put(make(), "")
    assert stat.S_IMODE(cache.folder.stat().st_mode) == 0o700
    for path in cache.folder.iterdir():
        assert stat.S_IMODE(path.stat().st_mode) == 0o600, path


def test_clear_removes_what_killed_processes_left(cache: Cache) -> None:
    cache.clear()
    left = cache.folder / f"{'0' * 64}.claim"
    left.touch()
    with claim(cache.folder / "held.claim"):
        cache.clear()
        assert not left.exists()
        assert (cache.folder / "held.claim").exists()


def test_list_show_clear(cache: Cache) -> None:
    cache.put(make(), "the source")
    cache.put(make("a2" * 32), "another")
    assert {entry.key for entry in cache.list()} == {KEY, "a2" * 32}
    assert cache.list()[0].size == len(make().image) + len("another") + len("no remarks")
    record = cache.show("a1")
    assert (record.source, record.binary.key) == ("the source", KEY)
    for prefix in ("a", "ff"):
        with pytest.raises(ArgumentError, match="start of one cached key"):
            cache.show(prefix)
    assert cache.clear() == 2
    assert cache.list() == ()


def test_least_recently_used_go_first(tmp_path: Path) -> None:
    cache = Cache(tmp_path / "cache", limit_bytes=500_000)
    keys = [f"{index:064x}" for index in range(4)]
    for key in keys:
        cache.put(make(key, b"x" * 200_000), "")
    assert {entry.key for entry in cache.list()} == set(keys[-2:])
    cache.put(make(KEY, b"x" * 900_000), "")
    assert [entry.key for entry in cache.list()] == [KEY]


def test_everything_in_the_file_counts(tmp_path: Path) -> None:
    cache = Cache(tmp_path / "cache", limit_bytes=2_000_000)
    for index in range(4):
        cache.put(make(f"{index:064x}", b"x" * 100_000), "")
    cache.keep_plan("long", "x" * (1 << 20 | 1))
    for index in range(60):
        cache.keep_plan(f"plan {index}", "x" * 50_000)
        cache.crown(winner(f"winner {index}", "x" * 50_000))
    cache.close()  # Free pages are used again, so the file stays as small as what is in it.
    assert cache.path.stat().st_size < 2_500_000
    assert len(cache.list()) == 4
    plans = [place for place in range(60) if cache.plan(f"plan {place}") is not None]
    kept = [item.key for item in cache.winners()]
    assert (plans[-1], kept[-1], cache.plan("long")) == (59, "winner 59", None)
    assert len(plans) + len(kept) < 30


def test_a_late_use_is_noted(cache: Cache, monkeypatch: pytest.MonkeyPatch) -> None:
    cache.put(make(), "")
    created = cache.list()[0].last_used
    cache.get(KEY)
    assert cache.list()[0].last_used == created
    monkeypatch.setattr(time, "time", lambda: created + 7200.0)
    assert cache.get(KEY) is not None
    assert cache.list()[0].last_used == created + 7200.0


COMPILE_ONCE = """
keys = [f"{index:064x}" for index in range(5)]
for key in keys:
    if cache.get(key) is None:
        with cache.claim(key) as held:
            assert held
            if cache.get(key) is None:
                with open(sys.argv[2], "a") as log:
                    log.write(key + chr(10))
                time.sleep(0.02)
                cache.put(binary(key), "source")
assert all(cache.get(key).image == binary(key).image for key in keys)
"""


def test_eight_processes_compile_each_key_once(tmp_path: Path) -> None:
    log = tmp_path / "log"
    running = [start(COMPILE_ONCE, tmp_path / "cache", str(log)) for _ in range(8)]
    assert [process.wait(60) for process in running] == [0] * 8
    assert sorted(log.read_text().split()) == [f"{index:064x}" for index in range(5)]
    assert not list((tmp_path / "cache").glob("*.claim"))


def test_threads_share_one_cache(cache: Cache) -> None:
    def work(start_at: int) -> None:
        for index in range(start_at, start_at + 20):
            cache.put(make(f"{index:064x}"), "")
            assert cache.get(f"{index:064x}") is not None

    threads = [threading.Thread(target=work, args=(20 * index,)) for index in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(cache.list()) == 80


WRITE_FOR_EVER = """
print("ready", flush=True)
index = 0
while True:
    cache.put(binary(f"{index:064x}", 200_000), "source")
    index += 1
"""


def test_kill_in_the_middle_of_a_write(tmp_path: Path) -> None:
    folder = tmp_path / "cache"
    for round_ in range(3):
        process = start(WRITE_FOR_EVER, folder)
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        time.sleep(0.05 + 0.03 * round_)
        process.send_signal(signal.SIGKILL)
        process.wait(10)
        process.stdout.close()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        cache = Cache(folder)
        entries = cache.list()
        assert entries
        for entry in entries:
            found = cache.get(entry.key)
            assert found is not None
            assert found.image == entry.key[:1].encode() * 200_000
        cache.put(make(), "")
        assert cache.get(KEY) is not None


HOLD = """
with cache.claim(sys.argv[2]):
    print("held", flush=True)
    time.sleep(60)
"""


def test_a_killed_claimant_blocks_nobody(tmp_path: Path) -> None:
    cache = Cache(tmp_path / "cache")
    process = start(HOLD, cache.folder, KEY)
    assert process.stdout is not None
    assert process.stdout.readline() == "held\n"
    with claim(cache.folder / f"{KEY}.claim", patience=0.05) as held:
        assert not held
    process.send_signal(signal.SIGKILL)
    process.wait(10)
    process.stdout.close()
    begin = time.monotonic()
    with cache.claim(KEY) as held:
        assert held
    assert time.monotonic() - begin < 5


def filled(folder: Path) -> Path:
    """A cache of twenty kernels, closed so that everything is in the main file."""
    cache = Cache(folder)
    for index in range(20):
        cache.put(make(f"{index:064x}", os.urandom(3000)), "source")
    cache.put(make(), "source")
    cache.close()
    return cache.path


def assert_recovers(folder: Path) -> None:
    """Reading gives the right image or a miss, and what is written afterwards is kept."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        cache = Cache(folder)
        found = cache.get(KEY)
        assert found is None or found.image == make().image
        for index in range(20):
            cache.get(f"{index:064x}")
        cache.put(make(), "again")
        again = Cache(folder).get(KEY)
        assert again is not None
        assert again.image == make().image


@pytest.mark.parametrize("keep", [0, 1, 50, 100, 4096, 5000, 20_000])
def test_truncated_file(tmp_path: Path, keep: int) -> None:
    path = filled(tmp_path / "cache")
    os.truncate(path, keep)
    assert_recovers(path.parent)


@pytest.mark.parametrize("place", [0, 16, 100, 4096, 8192, 30_000, -4096, -2000])
def test_scribbled_file(tmp_path: Path, place: int) -> None:
    path = filled(tmp_path / "cache")
    size = path.stat().st_size
    with path.open("r+b") as file:
        file.seek(place if place >= 0 else size + place)
        file.write(os.urandom(1500))
    assert_recovers(path.parent)


def test_garbage_instead_of_a_database(tmp_path: Path) -> None:
    folder = tmp_path / "cache"
    folder.mkdir(mode=0o700)
    (folder / cache_module.FILE_NAME).write_bytes(b"not a database at all" * 999)
    (folder / f"{cache_module.FILE_NAME}-wal").write_bytes(os.urandom(5000))
    assert_recovers(folder)


def test_damage_that_can_not_be_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = filled(tmp_path / "cache")
    path.write_bytes(b"scribbled" * 1000)

    unlink = os.unlink

    def refuse(name: str, **others: int | None) -> None:
        # The module is everybody's: finalizers that run meanwhile remove files of their own.
        if not str(name).startswith(str(path)):
            return unlink(name, **others)
        raise PermissionError(13, "Permission denied", name)

    monkeypatch.setattr(cache_module.os, "unlink", refuse)
    assert_memory_only(path.parent, "not a database; .*Permission denied")


def test_damage_under_an_open_connection(cache: Cache) -> None:
    for index in range(20):
        cache.put(make(f"{index:064x}", os.urandom(3000)), "source")
    cache.path.unlink()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        cache.put(make(), "source")
        cache.put(make(), "source")
    found = Cache(cache.folder).get(KEY)
    assert found is not None
    assert found.image == make().image


@pytest.mark.parametrize(
    "change",
    [
        "image = x'00'",
        "arch = 'sm_90a'",
        "resources = '{}'",
        "entry = 'other'",
        "compiler = 'test 1.1'",
        "format = 'so'",
        "log = 'x'",
        "source = 'another'",
        "checksum = 'x'",
        "image = CAST(image AS TEXT)",
        "seconds = 'soon'",
    ],
)
def test_a_changed_row_is_deleted(cache: Cache, change: str) -> None:
    cache.put(make(), "source")
    cache.close()
    with sqlite3.connect(cache.path) as db:
        before = db.execute("SELECT * FROM kernels").fetchall()
        db.execute(f"UPDATE kernels SET {change}")
        assert db.execute("SELECT * FROM kernels").fetchall() != before
    assert cache.get(KEY) is None
    assert cache.list() == ()


_ODD = (2**63 - 1, -(2**63), 0, 1e300, float("inf"), "", "x" * 70, b"\xff\x00", None)
OTHER = "b2" * 32


def _store(cache: Cache, table: str, key: str) -> None:
    """Stores something under that key."""
    if table == "kernels":
        cache.put(make(key), "source")
    elif table == "compilers":
        cache.remember(Memo(place=key, library="/lib", stamp="stamp", identity="NVRTC 13"))
    elif table == "winners":
        texts = ("fingerprint", "description", "target", "device", "size", "serves", "name")
        numbers = ("place", "nanoseconds", "untuned_nanoseconds")
        cache.crown(Winner(key=key, **dict.fromkeys(texts, "text"), **dict.fromkeys(numbers, 1)))
    else:
        cache.keep_plan(key, "a plan")


def _stored(cache: Cache, table: str, key: str) -> object:
    """What is found under that key."""
    if table == "kernels":
        found = cache.get(key)
        return found and found.image
    ways = {"compilers": cache.recall, "winners": cache.winner, "plans": cache.plan}
    return ways[table](key)


@pytest.mark.parametrize("table", ["kernels", "compilers", "winners", "plans"])
def test_no_value_disables_the_cache_or_is_believed(table: str, cache: Cache) -> None:
    """Every column of every table, and the numbers that SQLite gives rows, with odd values."""
    _store(cache, table, KEY)
    whole = _stored(cache, table, KEY)
    assert whole
    with contextlib.closing(sqlite3.connect(cache.path, isolation_level=None)) as db:
        columns = [row[1] for row in db.execute(f"PRAGMA table_info({table})")]
        for column in (*columns, "rowid"):
            for value in _ODD:
                _store(cache, table, KEY)
                with contextlib.suppress(sqlite3.IntegrityError):
                    where = f"{columns[0]} = ?"
                    db.execute(f"UPDATE {table} SET {column} = ? WHERE {where}", (value, KEY))
                assert _stored(cache, table, KEY) in (None, whole), (column, value)
                for _ in range(2):  # The first time may begin the numbers of rows anew.
                    _store(cache, table, OTHER)
                assert _stored(cache, table, OTHER), (column, value)
            with knobs.using(cache_dir=cache.folder):
                main(["cache", "list"])
    assert cache.keeps


def test_a_row_planted_under_another_key_is_a_miss(cache: Cache) -> None:
    cache.put(make(), "source")
    cache.close()
    with sqlite3.connect(cache.path) as db:
        db.execute("UPDATE kernels SET key = ?", ("b2" * 32,))
    assert cache.get("b2" * 32) is None


@pytest.mark.parametrize("schema", [0, SCHEMA - 1, SCHEMA + 1])
def test_another_schema_is_a_miss(cache: Cache, schema: int) -> None:
    cache.put(make(), "source")
    cache.close()
    with sqlite3.connect(cache.path) as db:
        db.execute("DROP TABLE kernels")
        db.execute("CREATE TABLE kernels (key TEXT, pickled BLOB)")
        db.execute("INSERT INTO kernels VALUES (?, x'00')", (KEY,))
        db.execute(f"PRAGMA user_version = {schema}")
    assert cache.get(KEY) is None
    cache.put(make(), "source")
    assert cache.get(KEY) is not None


def test_a_schema_that_changes_under_an_open_connection(cache: Cache) -> None:
    cache.put(make(), "source")
    with sqlite3.connect(cache.path) as db:
        db.execute("DROP TABLE kernels")
        db.execute("PRAGMA user_version = 999")
    assert cache.get(KEY) is None
    cache.put(make(), "source")
    assert cache.get(KEY) is not None


@pytest.mark.parametrize("is_open", [False, True])
@pytest.mark.parametrize(
    "change",
    [
        "DROP TABLE kernels",
        "DROP TABLE winners",
        "DROP INDEX kernels_by_use",
        "ALTER TABLE kernels ADD COLUMN pickled BLOB",
        "ALTER TABLE kernels RENAME COLUMN image TO picture",
        "CREATE TRIGGER refuse BEFORE INSERT ON kernels BEGIN SELECT RAISE(ABORT, 'no'); END",
        "DROP TABLE kernels; CREATE VIEW kernels AS SELECT * FROM winners",
        'CREATE TABLE "of ""someone"" else" (a)',
    ],
)
def test_tables_of_the_right_version_that_are_not_ours_are_made_anew(
    cache: Cache, change: str, is_open: bool
) -> None:
    cache.put(make(), "source")
    if not is_open:
        cache.close()
    with contextlib.closing(sqlite3.connect(cache.path)) as db:
        db.executescript(change)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        cache.put(make("b2" * 32), "source")
        again = Cache(cache.folder)
        again.put(make("c3" * 32), "source")
        assert again.get("c3" * 32) is not None
        assert cache.get("c3" * 32) is not None
        assert (again.winners(), again.recall("here")) == ([], None)


def assert_memory_only(folder: Path, reason: str) -> None:
    cache = Cache(folder)
    with pytest.warns(RuntimeWarning, match=reason):
        cache.put(make(), "source")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert cache.get(KEY) is None
        cache.put(make(), "source")
        assert cache.list() == ()
        with cache.claim(KEY) as held:
            assert not held


def test_a_file_where_the_folder_should_be(tmp_path: Path) -> None:
    (tmp_path / "cache").write_text("")
    assert_memory_only(tmp_path / "cache", "memory only")
    assert_memory_only(tmp_path / "cache" / "below", "memory only")


@pytest.mark.skipif(
    not Path("/proc/self").exists(), reason="needs a folder that is read-only even for root"
)
def test_a_read_only_folder() -> None:
    assert_memory_only(Path("/proc/self"), "memory only")


def test_a_database_that_can_not_be_opened(cache: Cache, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(path: Path) -> None:
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr(cache_module.opening, "make_private_file", refuse)
    assert_memory_only(cache.folder, "Permission denied")


def test_a_folder_that_others_can_write(tmp_path: Path) -> None:
    (tmp_path / "cache").mkdir()
    (tmp_path / "cache").chmod(0o777)
    assert_memory_only(tmp_path / "cache", "chmod go-w")
    assert not list((tmp_path / "cache").iterdir())


def test_a_link_that_is_turned_leads_nowhere_else(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to("first")
    cache = Cache(tmp_path / "link")
    cache.put(make(), "source")
    (tmp_path / "link").unlink()
    (tmp_path / "link").symlink_to("second")
    assert cache.get(KEY) is not None
    cache.close()
    assert cache.get(KEY) is not None
    assert not (tmp_path / "second").exists()


@pytest.mark.skipif(not hasattr(os, "geteuid"), reason="users have numbers on POSIX systems only")
def test_a_folder_of_someone_else(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "cache").mkdir(mode=0o700)
    if os.geteuid() == 0:  # Whose folders everybody trusts.
        os.chown(tmp_path / "cache", 4242, -1)
    monkeypatch.setattr(os, "geteuid", lambda: 123456)
    assert_memory_only(tmp_path / "cache", "belongs to user")


def test_a_busy_database_is_a_miss(cache: Cache, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(patience, "_BUSY_SECONDS", 0.05)
    monkeypatch.setattr(patience, "_COMPILING_SECONDS", 0.05)
    cache.put(make("b2" * 32), "source")
    other = sqlite3.connect(cache.path, isolation_level=None)
    other.execute("BEGIN EXCLUSIVE")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        cache.put(make(), "source")
        assert cache.get(KEY) is None
        other.execute("ROLLBACK")
        cache.put(make(), "source")
    assert cache.get(KEY) is not None
    other.close()


def test_a_writer_that_goes_on_is_waited_for_once(
    cache: Cache, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(patience, "_COMPILING_SECONDS", 0.4)
    cache.put(make("b2" * 32), "source")
    with contextlib.closing(sqlite3.connect(cache.path, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        begin = time.monotonic()
        for _ in range(5):
            cache.put(make(), "source")
        assert time.monotonic() - begin < 1.5
        assert cache.get("b2" * 32) is not None
        monkeypatch.setattr(cache, "_patience", patience.Patience())
        begin = time.monotonic()
        cache.put(make(), "source")
        assert time.monotonic() - begin > 0.3
        other.execute("ROLLBACK")
    cache.put(make(), "source")
    assert cache.get(KEY) is not None


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this system")
def test_a_forked_child_opens_the_file_again(cache: Cache) -> None:
    cache.put(make(), "source")
    child = os.fork()
    if child == 0:
        ok = cache.get(KEY) is not None
        cache.put(make("b2" * 32), "from the child")
        os._exit(0 if ok else 1)
    assert os.waitpid(child, 0)[1] == 0
    found = cache.get("b2" * 32)
    assert found is not None
    assert cache.get(KEY) is not None


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this system")
def test_no_child_is_forked_while_sqlite_works(cache: Cache) -> None:
    """It would inherit locks of that library, which nobody opens."""
    inside, ended = threading.Event(), threading.Event()

    def work(db: sqlite3.Connection) -> None:
        inside.set()
        time.sleep(0.2)
        ended.set()

    thread = threading.Thread(target=cache._run, args=(work, None))
    thread.start()
    inside.wait()
    child = os.fork()
    if child == 0:
        os._exit(0 if ended.is_set() else 1)
    assert os.waitpid(child, 0)[1] == 0
    thread.join()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this system")
def test_a_fork_inside_a_claim_does_not_keep_it(cache: Cache) -> None:
    release, wait = os.pipe()
    with cache.claim(KEY):
        child = os.fork()
        if child == 0:
            os.close(wait)
            os.read(release, 1)
            os._exit(0)
    with claim(cache.folder / f"{KEY}.claim", patience=1) as held:
        assert held
    os.close(wait)
    os.waitpid(child, 0)
    os.close(release)


def test_the_folder_follows_the_knob_and_the_system(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    with knobs.using(cache_dir=tmp_path):
        assert cache_folder() == tmp_path
    with knobs.using(cache_dir=None):
        monkeypatch.setattr(sys, "platform", "linux")
        monkeypatch.setenv("XDG_CACHE_HOME", "/somewhere")
        assert cache_folder() == Path("/somewhere/kronop")
        monkeypatch.setenv("XDG_CACHE_HOME", "relative")
        monkeypatch.setenv("HOME", "/home/someone")
        assert cache_folder() == Path("/home/someone/.cache/kronop")
        monkeypatch.setattr(sys, "platform", "darwin")
        assert cache_folder() == Path("/home/someone/Library/Caches/kronop")
        monkeypatch.setattr(sys, "platform", "win32")
        monkeypatch.setenv("LOCALAPPDATA", "/local")
        assert cache_folder() == Path("/local/kronop")


class _Interrupting(set[int]):
    """Ctrl-C arrives just when a thread has been marked."""

    def add(self, thread: int) -> None:
        super().add(thread)
        raise KeyboardInterrupt


def test_an_interrupt_leaves_no_thread_marked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cache_module, "_threads_inside", _Interrupting())
    with pytest.raises(KeyboardInterrupt), cache_module._alone(threading.Lock()):
        pass
    assert not cache_module.is_interrupted()
    process = build._Process()
    process.threads = _Interrupting()
    with pytest.raises(KeyboardInterrupt), process.turn("key"):
        pass
    assert not process.is_interrupted()
