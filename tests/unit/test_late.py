"""Imports at first use: what a signal handler or a forked child finds that meets them half done."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from kronop import late
from kronop.late import imported, whole

_SLOW = "import os, threading, time\nthread = threading.get_ident()\n{}\ntime.sleep(.1)\nlast = 1\n"
_SIGNAL = "os.kill(os.getpid(), __import__('signal').SIGUSR1)"


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., str]]:
    """Makes modules that take 0.1 seconds to import, and returns their names."""
    monkeypatch.syspath_prepend(tmp_path)
    made: list[str] = []

    def make(line: str = "", file: str = "{}.py") -> str:
        name = f"slow_{tmp_path.name}_{len(made)}"
        path = tmp_path / file.format(name)
        path.parent.mkdir(exist_ok=True)
        path.write_text(_SLOW.format(line))
        made.append(name)
        return name

    yield make
    for name in made:
        sys.modules.pop(name, None)


@pytest.fixture
def handled(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[Callable[[], Any]], list[Any]]]:
    """Lets a function handle SIGUSR1; the list gets what it returns."""
    before = signal.getsignal(signal.SIGUSR1)

    def handle(function: Callable[[], Any]) -> list[Any]:
        found: list[Any] = []
        signal.signal(signal.SIGUSR1, lambda *_: found.append(function()))
        return found

    yield handle
    signal.signal(signal.SIGUSR1, before)


def _in_child(work: Callable[[], Any]) -> int:
    """The status of a forked child that does the work; 14 if it hangs."""
    child = os.fork()
    if child:
        return os.waitpid(child, 0)[1]
    signal.alarm(10)
    try:
        work()
        os._exit(0)
    finally:
        os._exit(1)
    return 1


def test_the_main_thread_lets_another_one_import(module: Callable[..., str]) -> None:
    name = module()
    found = imported(name)
    assert found is sys.modules[name]
    assert found.last == 1
    assert found.thread != threading.get_ident()
    assert imported(name) is found
    kept = weakref.ref(local := threading.Event())

    def fail(local: object) -> None:
        with pytest.raises(ModuleNotFoundError, match="no_such_module"):
            imported("no_such_module")

    fail(local)
    del local
    assert kept() is None  # The error has let its frames go.
    with pytest.raises(ZeroDivisionError):
        imported(module("1 / 0"))


def test_a_handler_finds_whole_modules(
    module: Callable[..., str], handled: Callable[..., list[Any]]
) -> None:
    name = module(_SIGNAL)
    found = handled(lambda: imported(name).last)
    assert imported(name).last == 1
    assert found == [1]


def test_ctrl_c_ends_no_import(module: Callable[..., str]) -> None:
    name = module(_SIGNAL.replace("USR1", "INT"))
    with pytest.raises(KeyboardInterrupt):
        imported(name)
    assert sys.modules[name].last == 1


@pytest.mark.parametrize("by_handler", [False, True])
def test_a_child_imports_what_its_parent_was_importing(
    module: Callable[..., str], handled: Callable[..., list[Any]], by_handler: bool
) -> None:
    if by_handler:
        name = module(_SIGNAL)
        found = handled(lambda: _in_child(lambda: imported(name).last))
        assert imported(name).last == 1
        assert found == [0]
        return
    name = module()
    thread = threading.Thread(target=imported, args=[name])
    thread.start()
    time.sleep(0.05)
    assert _in_child(lambda: imported(name).last) == 0
    thread.join()


def test_a_module_in_an_import_imports_its_neighbour(module: Callable[..., str]) -> None:
    """Another thread would wait for the package, and this one for that thread."""
    line = "from kronop.late import imported\nimported(__name__ + '.inner')"
    package = module(line, "{}/__init__.py")
    module("", f"{package}/inner.py")
    assert imported(package).inner.last == 1


def test_without_threads_it_imports_itself(
    module: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def start(*_: object) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(late._thread, "start_new_thread", start)
    assert imported(module()).thread == threading.get_ident()


def test_forks_wait_and_are_waited_for() -> None:
    inside, may_end, ended = threading.Event(), threading.Event(), threading.Event()

    def work() -> None:
        with whole():
            inside.set()
            may_end.wait()
            with whole():  # It does not wait for the fork that waits for it.
                ended.set()

    thread = threading.Thread(target=work)
    thread.start()
    inside.wait()
    threading.Timer(0.1, may_end.set).start()

    def check() -> None:
        assert ended.is_set()
        assert not late._inside
        with whole():
            pass

    assert _in_child(check) == 0
    thread.join()


def test_a_fork_holds_no_lock_that_imports_take(module: Callable[..., str]) -> None:
    """That of `logging`, which takes it at a fork, and which many packages use as they load."""
    name = module("time.sleep(.3)\n__import__('logging').getLogger('a')")
    code = (
        "import os, threading, time, kronop, logging\n"
        f"threading.Thread(target=kronop.late.imported, args=[{name!r}]).start()\n"
        "time.sleep(.1)\n"
        "began = time.monotonic()\n"
        "os.fork() or os._exit(0)\n"
        "print(time.monotonic() - began < 20)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout == "True\n"


def test_no_fork_waits_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(late, "_PATIENCE_SECONDS", 0.05)
    inside, may_end = threading.Event(), threading.Event()

    def work() -> None:
        with whole():
            inside.set()
            may_end.wait()

    thread = threading.Thread(target=work)
    thread.start()
    inside.wait()
    assert _in_child(lambda: None) == 0
    may_end.set()
    thread.join()


def test_what_is_imported_may_need_what_the_main_thread_is_importing(tmp_path: Path) -> None:
    """The first imports the second by `imported`, and the second the first."""
    (tmp_path / "first.py").write_text("from kronop.late import imported\nimported('second')\n")
    (tmp_path / "second.py").write_text("import first\n")
    path = os.pathsep.join([str(tmp_path), *sys.path])
    command = [sys.executable, "-c", "import first"]
    subprocess.run(command, env={**os.environ, "PYTHONPATH": path}, timeout=60, check=True)


def test_an_import_inside_a_block_does_not_wait_for_a_fork(module: Callable[..., str]) -> None:
    def fork() -> None:
        child = os.fork()
        if child == 0:
            os._exit(0)
        os.waitpid(child, 0)

    forking = threading.Thread(target=fork)
    with whole():
        forking.start()
        time.sleep(0.1)  # The fork waits for the end of the block.
        begin = time.monotonic()
        imported(module())
        assert time.monotonic() - begin < 30
    forking.join()
