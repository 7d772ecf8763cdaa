"""Handles whose closing tells others that this process ended: a forked child lets go of them."""

from __future__ import annotations

import contextlib
import os

_held: set[int] = set()


def hold(handle: int) -> None:
    """Have `handle` closed in every child that is forked from now on."""
    _held.add(handle)


def close(handle: int) -> None:
    """Close `handle`, which was held."""
    _held.discard(handle)
    os.close(handle)


def _drop_inherited() -> None:
    for handle in _held:
        with contextlib.suppress(OSError):
            os.close(handle)
    _held.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_drop_inherited)
