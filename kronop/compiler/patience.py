"""How long a process waits for another one that writes to compiled_cache.db."""

from __future__ import annotations

import time

# Writing normally takes milliseconds. A longer wait would cost more than compiling.
_BUSY_SECONDS = 1.0
# Before and after a compilation. Other processes wait for it, and each would compile again what
# can't be stored. The first process of all makes the tables: seconds on a slow disk.
_COMPILING_SECONDS = 10.0
# A process that has blocked us for the full time is likely to go on: waits are short for a while.
_HURRIED_SECONDS, _HURRY_SECONDS = 0.05, 60.0


class Patience:
    """How long a process waits for one file; longer if it would compile what it does not find."""

    def __init__(self) -> None:
        self._hurries_until = {False: 0.0, True: 0.0}  # By whether the caller compiles.

    def seconds(self, compiles: bool) -> float:
        """The longest wait that is worth while now."""
        if time.monotonic() < self._hurries_until[compiles]:
            return _HURRIED_SECONDS
        return _COMPILING_SECONDS if compiles else _BUSY_SECONDS

    def lose(self, compiles: bool) -> None:
        """Records that such a wait was in vain."""
        now = time.monotonic()
        for kind in {False, compiles}:
            if now >= self._hurries_until[kind]:
                self._hurries_until[kind] = now + _HURRY_SECONDS
