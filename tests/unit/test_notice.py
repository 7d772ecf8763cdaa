"""The line about compilation that takes a while."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from kronop import knobs
from kronop.compiler import notice
from kronop.compiler.notice import Notice
from kronop.target import Target


@pytest.fixture
def at_once(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    """Nobody waits, and each test begins as a process does."""
    monkeypatch.setattr(notice, "_PATIENCE", 0.0)
    monkeypatch.setattr(Notice, "_last", -notice._APART)
    with knobs.using(quiet=False, cache_dir=tmp_path):
        yield


def _pause(count: int, found: int = 0, *, compiles: bool = True) -> None:
    """A pause in which `count` kernels were asked for."""
    told, done = Notice(Target.parse("x86-avx2")), threading.Event()
    tell = told._tell
    told._tell = lambda: (done.wait(5), tell())  # type: ignore[method-assign]
    with told.waiting(count):
        if compiles:
            told.compiling()
        for _ in range(found):
            told.found()
        done.set()
        for thread in threading.enumerate():
            if isinstance(thread, threading.Timer):
                thread.join()


@pytest.mark.usefixtures("at_once")
def test_a_long_pause_is_told(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    _pause(5, found=2)
    text = f"kronop: compiling 3 kernels for x86-avx2; kept in {tmp_path}, next time they load"
    (line,) = capsys.readouterr().err.splitlines()
    assert line == f"{text} (KRONOP_QUIET=1 says nothing)"


@pytest.mark.usefixtures("at_once")
def test_a_line_is_about_what_compiles_and_not_repeated_soon(
    capsys: pytest.CaptureFixture[str],
) -> None:
    _pause(1, compiles=False)
    assert not capsys.readouterr().err
    _pause(1)
    assert "compiling a kernel for x86-avx2; kept in" in capsys.readouterr().err
    _pause(1)
    assert not capsys.readouterr().err


@pytest.mark.usefixtures("at_once")
def test_a_setting_silences_it(capsys: pytest.CaptureFixture[str]) -> None:
    with knobs.using(quiet=True):
        _pause(3)
    assert not capsys.readouterr().err
    assert knobs.read({"KRONOP_QUIET": "1"}).quiet


def test_a_short_pause_is_silent(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Notice, "_last", -notice._APART)
    told = Notice(Target.parse("x86"))
    with knobs.using(quiet=False), told.waiting(1):
        told.compiling()
    assert not capsys.readouterr().err
