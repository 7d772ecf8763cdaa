"""A line on standard error about compilation that takes a while: no pause goes unexplained."""

from __future__ import annotations

import contextlib
import sys
import threading
import time
from collections.abc import Iterator

from kronop import knobs
from kronop.compiler.cache import Cache
from kronop.target import Target

# A pause of so many seconds is reported, unless the last report is more recent than this.
_PATIENCE, _APART = 1.0, 10.0


class Notice:
    """Tells of the compilation of some kernels if it takes long.

    Args:
        target: what they are for.
        cache: which keeps them, if it can.
    """

    _last = -_APART

    def __init__(self, target: Target, cache: Cache) -> None:
        self._target, self._cache, self._count = target, cache, 0
        self._is_compiling = self._is_waiting = False

    def found(self) -> None:
        """Records that one of the kernels was in the cache."""
        self._count -= 1

    def missing(self) -> None:
        """Records that one of the kernels was not; another process may be compiling it."""
        self._is_waiting = True

    def compiling(self) -> None:
        """Records that this process compiles one of the kernels."""
        self._is_compiling = True

    @contextlib.contextmanager
    def waiting(self, count: int) -> Iterator[None]:
        """Reports it, once, if the `with` block takes more than a second and compiles.

        Args:
            count: how many kernels are to be looked up or compiled.
        """
        self._count = count
        if knobs.current().quiet:
            yield
            return
        done = threading.Event()

        def watch() -> None:
            while not done.wait(_PATIENCE) and not self._tell():
                pass

        with contextlib.suppress(RuntimeError):  # The system allows no more threads: not a word.
            threading.Thread(target=watch, name="kronop-notice", daemon=True).start()
        try:
            yield
        finally:
            done.set()

    def _tell(self) -> bool:
        """Prints the report if it is due, and returns whether it did."""
        now = time.monotonic()
        if not (self._is_compiling or self._is_waiting) or now - Notice._last < _APART:
            return False
        Notice._last = now
        doing = "compiling" if self._is_compiling else "waiting for a process that compiles"
        one = self._count == 1
        what, next_time = (
            ("a kernel", "it loads") if one else (f"{self._count} kernels", "they load")
        )
        kept = (
            f"kept in {self._cache.folder}, next time {next_time}"
            if self._cache.keeps
            else f"kept in memory only, since {self._cache.folder} can't be written"
        )
        with contextlib.suppress(OSError, ValueError, AttributeError):  # It may be closed, or None.
            print(
                f"kronop: {doing} {what} for {self._target}; {kept} (KRONOP_QUIET=1 says nothing)",
                file=sys.stderr,
                flush=True,
            )
        return True
