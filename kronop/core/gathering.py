"""Kernels that calls need, noted without a run, so that they are compiled together.

One after another, the kernels of a training step would each wait for the one before: the backward's
kernels are asked for only after the forward has run. Here the calls are made once with nothing
launched, which tells all of their kernels, and then as many compilers run as there are CPUs.
"""

from __future__ import annotations

import contextlib
import functools
import signal
import sys
import threading
from collections.abc import Callable, Iterable, Iterator
from types import FrameType
from typing import Any, Protocol

from kronop import compiler
from kronop.artifacts import Origin
from kronop.emit.plan import Plan
from kronop.emit.render import render


class Serving(Protocol):
    """The part of an operation that is needed here."""

    def serve(self, plan: Plan) -> object: ...


# What calls of one thread need: the kernels of other threads' calls are run as always, and so are
# those of signal handlers, which interrupt the thread that gathers.
class _Thread(threading.local):
    noted: list[tuple[Serving, Plan]] | None = None
    foresee: Callable[[], object] | None = None
    handlers: int = 0  # How many were under way when it began.


_thread = _Thread()


def is_gathering() -> bool:
    """Whether this thread's calls are noted instead of run."""
    return _thread.noted is not None and _handlers() <= _thread.handlers


def _handlers() -> int:
    """How many calls of signal handlers are under way in this thread."""
    every = (signal.getsignal(number) for number in signal.valid_signals())
    codes = {_code(handler) for handler in every if callable(handler)} - {None}
    frame: FrameType | None = sys._getframe()
    count = 0
    while frame is not None:
        count += frame.f_code in codes
        frame = frame.f_back
    return count


def _code(handler: Any) -> Any:
    """The code that runs when a function, a method or an object with `__call__` is called."""
    while isinstance(handler, functools.partial):
        handler = handler.func
    called = handler if hasattr(handler, "__code__") else type(handler).__call__
    return getattr(called, "__code__", None)


def note(operation: Serving, plan: Plan) -> bool:
    """Notes a run that is about to be made; False if it has to be made, because nobody gathers."""
    if _thread.noted is None or not is_gathering():
        return False
    _thread.noted.append((operation, plan))
    return True


@contextlib.contextmanager
def gathering() -> Iterator[list[tuple[Serving, Plan]]]:
    """Notes the operations and plans that this thread would run during a `with` block, in the list
    that it yields. Nothing is launched: results have the values that were in memory."""
    before = _thread.noted, _thread.handlers
    _thread.noted, _thread.handlers = [], _handlers()
    try:
        yield _thread.noted
    finally:
        _thread.noted, _thread.handlers = before


def compile_all(plans: Iterable[Plan]) -> int:
    """Compiles the kernels of all plans together; returns how many were not in the cache.

    Raises:
        CompileError: a compiler is missing or refused a source.
    """
    each = {id(plan): plan for plan in plans}.values()
    groups = compiler.compile_groups([(plan.target, render(plan)) for plan in each])
    return len({item.key for own in groups for item in own if item.origin is Origin.COMPILED})


@contextlib.contextmanager
def foreseeing(calls: Callable[[], object]) -> Iterator[None]:
    """During a `with` block, the first kernel of this thread that is not loaded yet is compiled
    together with all others that `calls` needs.

    Args:
        calls: makes the calls of the block, and those that will follow it. It is called with
            nothing launched.
    """
    before, _thread.foresee = _thread.foresee, calls
    try:
        yield
    finally:
        _thread.foresee = before


def before_loading() -> None:
    """Tells that this thread needs a kernel that is not loaded: see `foreseeing`."""
    calls, _thread.foresee = _thread.foresee, None
    if calls is None:
        return
    # What fails here fails again, and is told, when it is asked for.
    with gathering() as noted, contextlib.suppress(Exception):
        calls()
    with contextlib.suppress(Exception):
        compile_all(plan for _, plan in noted)
