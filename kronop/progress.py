"""The bar of a run on the terminal."""

from __future__ import annotations

import contextlib
import math
import sys
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING

from kronop.late import imported

if TYPE_CHECKING:
    import rich.progress

# Seconds between drawings of steps that follow each other quickly.
_APART = 0.25


class Progress:
    """A bar on standard error: how many steps of a run are done, how long that took, how long the
    others will take, and what is being done now.

    If standard error is no terminal, nothing is drawn and nothing imported for it. Only calls of
    these methods draw: a thread that did would take time from what is measured.

    Args:
        total: the number of steps.
        subject: what is being done, until `begin` and `tell` say more.
        shown: False draws nothing on a terminal either.
    """

    def __init__(self, total: int, subject: str = "", *, shown: bool = True) -> None:
        self._subject, self._drawn = subject, -math.inf
        self._bar = _bar() if shown and sys.stderr.isatty() else None
        if self._bar is not None:
            self._task = self._bar.add_task(subject, total=total)
            self._bar.advance(self._task, 0)  # The first step counts among those that are timed.

    def __enter__(self) -> Progress:
        if self._bar is not None:
            self._bar.start()
        return self

    def __exit__(self, *error: object) -> None:
        if self._bar is not None:
            self._bar.stop()

    def begin(self, subject: str) -> None:
        """Names the step that begins."""
        self._subject = subject
        self._show(subject)

    def tell(self, what: str) -> None:
        """Says what is being done in this step, and draws it."""
        self._show(f"{self._subject}: {what}" if self._subject else what)
        self._draw()

    def advance(self) -> None:
        """One more step is done. It is drawn unless the last drawing is recent."""
        if self._bar is not None:
            self._bar.advance(self._task)
            if time.monotonic() - self._drawn > _APART:
                self._draw()

    def print(self, line: str) -> None:
        """Prints a line on standard output, for which the bar makes room."""
        if self._bar is None:
            print(line, flush=True)
            return
        self._bar.stop()
        try:
            print(line, flush=True)
        finally:
            self._bar.start()

    def _show(self, text: str) -> None:
        if self._bar is not None:
            self._bar.update(self._task, description=text)

    def _draw(self) -> None:
        if self._bar is not None:
            self._drawn = time.monotonic()
            self._bar.refresh()


def _bar() -> rich.progress.Progress:
    """A bar that is drawn when it is told to, and vanishes when it is stopped."""
    progress = imported("rich.progress")
    what = imported("rich.table").Column(ratio=1, no_wrap=True, overflow="ellipsis")
    bar: rich.progress.Progress = progress.Progress(
        progress.MofNCompleteColumn(),
        progress.BarColumn(bar_width=12),
        progress.TimeElapsedColumn(),
        progress.TextColumn("so far,"),
        progress.TimeRemainingColumn(),
        progress.TextColumn("left"),
        progress.TextColumn("{task.description}", markup=False, table_column=what),
        console=imported("rich.console").Console(stderr=True),
        auto_refresh=False,
        transient=True,
        # Standard output may be a file, into which lines of results must go.
        redirect_stdout=False,
        # The estimate is of all steps, however long they take, and not of the last half minute.
        speed_estimate_period=math.inf,
        expand=True,
    )
    return bar


@contextlib.contextmanager
def busy(doing: str) -> Iterator[None]:
    """During a `with` block, says on a terminal what is being done, and for how long already.

    For work of unknown length of which nothing is timed: a thread draws.
    """
    if not sys.stderr.isatty():
        yield
        return
    progress = imported("rich.progress")
    columns = progress.SpinnerColumn(), progress.TextColumn(doing), progress.TimeElapsedColumn()
    console = imported("rich.console").Console(stderr=True)
    with progress.Progress(*columns, console=console, transient=True, redirect_stdout=False) as bar:
        bar.add_task("", total=None)
        yield
