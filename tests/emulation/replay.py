"""Plans of a test's first run, given again in its second: see conftest.py.

Planners are asked for hundreds of candidates, of which a test wants one.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Iterator
from typing import Any

import pytest

from kronop.emit.emitter import Emitter

# What planners answered in the first run of each test, in the order they were asked.
_answers: dict[str, list[tuple[Any, Any]]] = {}


@contextlib.contextmanager
def replaying(test: str, *, first: bool) -> Iterator[None]:
    """Notes what planners answer in the first run of a test, and has them say it in the second."""
    replay = _Replay(_answers.pop(test, []))
    with pytest.MonkeyPatch.context() as patch:
        for name in ("plan", "candidates"):
            patch.setattr(Emitter, name, replay.of(getattr(Emitter, name)))
        yield
    if first:
        _answers[test] = replay.noted


class _Replay:
    def __init__(self, known: list[tuple[Any, Any]]) -> None:
        self.noted: list[tuple[Any, Any]] = []
        self._known = known
        self._is_asked = False  # `plan` asks `candidates`.

    def of(self, planner: Any) -> Any:
        @functools.wraps(planner)
        def answer(emitter: Emitter, *given: Any, **named: Any) -> Any:
            if self._is_asked:
                return planner(emitter, *given, **named)
            question = (emitter, planner.__name__, given, named)
            for place, (before, result) in enumerate(self._known):
                if before == question:
                    del self._known[place]
                    return result
            self._is_asked = True
            try:
                result = planner(emitter, *given, **named)
            finally:
                self._is_asked = False
            self.noted.append((question, result))
            return result

        return answer
