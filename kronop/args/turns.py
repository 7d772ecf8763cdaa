"""Runs of the same arguments take turns, and no run begins in the middle of another one."""

from __future__ import annotations

import contextlib
import os
import threading
import weakref
from collections.abc import Iterator
from typing import Any

from kronop.errors import DeviceError


class TakesTurns:
    """What holds scratch memory that one run at a time may use.

    A run holds the lock while it uses the memory. The lock is reentrant, so a signal handler that
    interrupts a run in its own thread gets it too. It finds the thread that is in the middle of a
    run (0 if none is), and has to refuse: a second run would overwrite the memory of the first.
    """

    operation: Any

    def _begin_anew(self) -> None:
        self._lock, self._runner = threading.RLock(), 0
        _every.add(self)

    @contextlib.contextmanager
    def _use(self) -> Iterator[None]:
        """Marks the scratch memory as in use; the caller holds the lock.

        Raises:
            DeviceError: this thread is using it already, so a signal handler interrupted a run.
        """
        if self._runner:
            raise self._reentered()
        self._runner = threading.get_ident()
        try:
            yield
        finally:
            self._runner = 0

    def _reentered(self) -> DeviceError:
        return DeviceError(
            f"arguments of {self.operation!r}",
            expected="no run in the middle of another one by the same thread",
            got="one, as by a signal's handler",
            hint="let the handler build arguments of its own, or set a flag and run later",
        )


_every: weakref.WeakSet[TakesTurns] = weakref.WeakSet()


def _after_fork_in_child() -> None:
    # Runs of the parent's other threads will never end here.
    this = threading.get_ident()
    for item in _every:
        if item._runner != this:
            item._lock, item._runner = threading.RLock(), 0


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork_in_child)
