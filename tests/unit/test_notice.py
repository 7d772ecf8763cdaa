"""The line about compilation that takes a while."""

from __future__ import annotations

import threading
import time
from pathlib import Path

import pytest

from kronop import knobs
from kronop.compiler import Cache, notice
from kronop.compiler.notice import Notice
from kronop.target import Target


@pytest.fixture
def at_once(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    """Nobody waits long, and each test begins as a process does."""
    monkeypatch.setattr(notice, "_PATIENCE", 0.01)
    monkeypatch.setattr(Notice, "_last", -notice._APART)
    with knobs.using(quiet=False, cache_dir=tmp_path):
        yield


def _pause(count: int, found: int = 0, *, begins: int = 0) -> None:
    """A pause in which `count` kernels were asked for, and compilation begins after so many looks;
    it lasts until it is told, or has been looked at four times."""
    told, may_look, looks = Notice(Target.parse("x86-avx2"), Cache()), threading.Event(), []
    tell = told._tell

    def counted() -> bool:
        may_look.wait(5)
        if len(looks) == begins:
            told.compiling()
        looks.append(tell())
        return looks[-1]

    told._tell = counted  # type: ignore[method-assign]
    with told.waiting(count):
        for _ in range(found):
            told.found()
        may_look.set()
        end = time.monotonic() + 5
        while len(looks) < 4 and True not in looks:
            assert time.monotonic() < end
            time.sleep(0.001)


@pytest.mark.usefixtures("at_once")
def test_a_long_pause_is_told(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    _pause(5, found=2)
    text = f"kronop: compiling 3 kernels for x86-avx2; kept in {tmp_path}, next time they load"
    (line,) = capsys.readouterr().err.splitlines()
    assert line == f"{text} (KRONOP_QUIET=1 says nothing)"


@pytest.mark.usefixtures("at_once")
def test_what_can_not_be_kept_is_not_said_to_be(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(Cache, "keeps", False)
    _pause(1)
    text = f"kept in memory only, since {tmp_path} can't be written (KRONOP_QUIET=1 says nothing)"
    assert capsys.readouterr().err == f"kronop: compiling a kernel for x86-avx2; {text}\n"


@pytest.mark.usefixtures("at_once")
def test_a_line_is_about_what_compiles_and_not_repeated_soon(
    capsys: pytest.CaptureFixture[str],
) -> None:
    _pause(1, begins=4)
    assert not capsys.readouterr().err
    _pause(1)
    assert "compiling a kernel for x86-avx2; kept in" in capsys.readouterr().err
    _pause(1)
    assert not capsys.readouterr().err


@pytest.mark.usefixtures("at_once")
def test_compilation_that_begins_late_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    _pause(1, begins=2)
    assert "compiling a kernel" in capsys.readouterr().err


@pytest.mark.usefixtures("at_once")
def test_a_long_pause_soon_after_another_is_told_later(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(notice, "_APART", 0.02)  # Two looks.
    for _ in range(2):
        _pause(1)
    assert len(capsys.readouterr().err.splitlines()) == 2


@pytest.mark.usefixtures("at_once")
@pytest.mark.parametrize(("is_quiet", "seconds"), [(True, 0.1), (False, 0.0)])
def test_a_setting_silences_it_and_a_short_pause_is_silent(
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    is_quiet: bool,
    seconds: float,
) -> None:
    monkeypatch.setattr(notice, "_PATIENCE", 0.05)
    told = Notice(Target.parse("x86"), Cache())
    told.compiling()
    with knobs.using(quiet=is_quiet), told.waiting(1):
        time.sleep(seconds)
    time.sleep(0.15)  # Whoever looks after the pause finds it compiling still.
    assert not capsys.readouterr().err
    assert knobs.read({"KRONOP_QUIET": "1"}).quiet
