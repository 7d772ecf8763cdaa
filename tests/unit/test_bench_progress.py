"""What a benchmark shows while it runs, and what it says before: bars and durations."""

from __future__ import annotations

import io
import re
import subprocess
import sys
import threading
import time
from collections.abc import Callable

import pytest

from kronop.__main__ import main
from kronop.bench import duration, roofline
from kronop.bench.duration import Pace
from kronop.progress import Progress, busy


class _Terminal:
    """What standard error has had so far."""

    def __init__(self, capsys: pytest.CaptureFixture[str]) -> None:
        self._capsys, self._text = capsys, ""

    def getvalue(self) -> str:
        self._text += re.sub(r"\x1b\[[\d;]*m", "", self._capsys.readouterr().err)  # Colours.
        return self._text


@pytest.fixture
def terminal(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Callable[[], _Terminal]:
    """Makes standard error a terminal of 100 columns. pytest replaces the stream after fixtures:
    so a test calls it."""

    def made() -> _Terminal:
        monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
        monkeypatch.setenv("COLUMNS", "100")
        monkeypatch.setenv("TERM", "xterm")
        for name in ("NO_COLOR", "FORCE_COLOR", "TTY_COMPATIBLE", "TTY_INTERACTIVE"):
            monkeypatch.delenv(name, raising=False)
        return _Terminal(capsys)

    return made


def test_a_bar_tells_cases_time_and_what_is_done(terminal: Callable[[], _Terminal]) -> None:
    shown = terminal()
    with Progress(4) as progress:
        for at in range(2):
            progress.begin(f"[case] {at}")
            progress.advance()
        progress.tell("timing")
    text = shown.getvalue()
    assert "2/4" in text
    assert "so far," in text
    assert "[case] 1: timing" in text
    assert text.endswith("\x1b[2K"), "the line is erased at the end"


def test_estimates_are_of_all_steps_however_long_they_take(
    terminal: Callable[[], _Terminal], monkeypatch: pytest.MonkeyPatch
) -> None:
    """rich's own forget what is older than half a minute, which is one case of some."""
    shown = terminal()
    from rich import progress as drawn

    now = [0.0]
    made = drawn.Progress
    monkeypatch.setattr(drawn, "Progress", lambda *a, **k: made(*a, **k, get_time=lambda: now[0]))
    with Progress(10) as progress:
        for _ in range(2):
            now[0] += 60
            progress.advance()
        progress.tell("timing")
    assert "0:02:00 so far, 0:08:00 left" in shown.getvalue()


def test_nobody_draws_while_something_is_timed(terminal: Callable[[], _Terminal]) -> None:
    shown = terminal()
    before = threading.active_count()
    with Progress(2) as progress:
        progress.tell("timing")
        assert threading.active_count() == before
        drawn = shown.getvalue()
        time.sleep(0.15)  # rich's own thread draws ten times a second.
        assert shown.getvalue() == drawn


def test_steps_that_follow_quickly_are_not_all_drawn(terminal: Callable[[], _Terminal]) -> None:
    shown = terminal()
    with Progress(1000) as progress:
        for _ in range(1000):
            progress.advance()
    assert shown.getvalue().count("\r") < 50


def test_lines_go_to_standard_output_and_the_bar_makes_room(
    terminal: Callable[[], _Terminal], monkeypatch: pytest.MonkeyPatch
) -> None:
    shown = terminal()
    both = []

    class Out(io.StringIO):
        def write(self, text: str) -> int:
            both.append((text, shown.getvalue()))
            return len(text)

    monkeypatch.setattr(sys, "stdout", Out())
    with Progress(2, "cases") as progress:
        progress.print("a line")
        print("told", file=sys.stderr)  # As the notice of a long compilation is.
    (line, before), *_ = both
    assert line == "a line"
    assert before.endswith("\x1b[2K"), "the bar is gone when the line is written"
    after = shown.getvalue()[len(before) :]
    assert "0/2" in after, "and comes back"
    assert "told\n" in after
    assert "a line" not in shown.getvalue()


def test_without_a_terminal_lines_alone_are_printed(capsys: pytest.CaptureFixture[str]) -> None:
    with Progress(3, "cases") as progress, busy("working"):
        progress.begin("one")
        progress.tell("timing")
        progress.print("a line")
        progress.advance()
    assert capsys.readouterr() == ("a line\n", "")


def test_a_bar_that_is_not_to_be_shown_is_not(terminal: Callable[[], _Terminal]) -> None:
    shown = terminal()
    with Progress(3, shown=False) as progress:
        progress.tell("timing")
    assert shown.getvalue() == ""


def test_work_of_unknown_length_is_named(terminal: Callable[[], _Terminal]) -> None:
    shown = terminal()
    with busy("planning and compiling"):
        pass
    assert "planning and compiling" in shown.getvalue()


def test_nothing_is_imported_for_bars_that_are_not_drawn() -> None:
    code = (
        "import sys\n"
        "from kronop.__main__ import main\n"
        "from kronop.progress import Progress\n"
        "main(['show', 'kron', '2^2'])\n"
        "with Progress(1) as progress: progress.advance()\n"
        "print('rich' in sys.modules, 'matplotlib' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "False False"


@pytest.mark.parametrize(
    ("seconds", "told"),
    [(61, "a minute"), (150, "2 minutes"), (3600, "60 minutes"), (3 * 3600 + 500, "3 hours")],
)
def test_durations_in_words(seconds: float, told: str) -> None:
    assert duration.text(seconds) == told


def test_a_pace_counts_cases_work_and_rounds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(duration, "cpu_count", lambda: 4)
    pace = Pace(2.0, 1e9)
    assert pace.of([1e9, 3e9], "cuda") == 4 + 4
    assert pace.of([1e9, 3e9], "cpu") == 4 + 1
    assert pace.of([1e9, 3e9], "cuda", rounds=45) == 2 * 8


def test_short_runs_say_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    duration.announce(9, "cases", 60)
    assert capsys.readouterr() == ("", "")
    duration.announce(90, "cases", 600, "take fewer")
    assert capsys.readouterr().err == "90 cases, about 10 minutes; take fewer\n"


class _StoppedError(Exception):
    pass


def _stop(*given: object, **named: object) -> None:
    raise _StoppedError


def _told_first(command: list[str], capsys: pytest.CaptureFixture[str]) -> str:
    """What a command says on standard error before it begins to measure, which it does not."""
    with pytest.raises(_StoppedError):
        main(["bench", *command])
    return capsys.readouterr().err


def test_the_whole_grid_is_announced_and_a_sample_named(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("torch")
    from kronop.bench import warm

    monkeypatch.setattr(duration, "cpu_count", lambda: 2)
    monkeypatch.setattr(warm, "compile_all", _stop)
    (line,) = [
        line for line in _told_first(["ksparse"], capsys).splitlines() if " cases, about " in line
    ]
    assert line.startswith("1688 cases, about ")
    assert " hours; --sample 60 takes about " in line
    assert line.endswith(" minutes")
    assert "240 cases" in _told_first(["ksparse", "--sample", "60"], capsys)
    one = ["ksparse", "--patterns", "6,64,64,1", "--dtype", "float32"]
    assert "cases" not in _told_first(one, capsys)


@pytest.mark.parametrize(
    "command",
    [
        ["kron"],
        ["kron", "--shapes", "1024:128^3", "--dtype", "float32"],
        ["gemm", "--shapes", "16384x16384x4096"],
        ["distance"],
        ["quantized", "--repeats", "60"],
    ],
    ids=" ".join,
)
def test_more_than_a_minute_is_announced(
    command: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("torch")
    from kronop.bench import gemm, quantized

    monkeypatch.setattr(duration, "cpu_count", lambda: 2)
    for module, name in ((roofline, "measure"), (gemm, "measure"), (quantized, "measure")):
        monkeypatch.setattr(module, name, _stop)
    assert " cases, about " in _told_first(command, capsys)
