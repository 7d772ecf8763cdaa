"""Handles that forked children close at once.

Closing such a handle (a lock or a pipe) tells others that this process has ended. A forked child
with a copy would keep it open and hide that.
"""

from __future__ import annotations

import contextlib
import os

_held: set[int] = set()


def hold(handle: int) -> None:
    """Lets every child that is forked from now on close `handle`."""
    _held.add(handle)


def close(handle: int) -> None:
    """Closes `handle`, which was given to `hold`."""
    _held.discard(handle)
    os.close(handle)


def _drop_inherited() -> None:
    for handle in _held:
        with contextlib.suppress(OSError):
            os.close(handle)
    _held.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_drop_inherited)
