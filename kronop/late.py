"""Imports at first use, and what no fork may cut in two.

Importing kronop is cheap, because planners, compilers and frameworks are imported when they are
first used. A signal handler or a fork may meet such an import half done.

*Signal handlers.* Python runs them in the main thread, between two instructions of what that is
doing. If it imports, a handler that calls kronop finds modules that lack names, and can't wait for
them: the code that would finish them lies below it on its own stack. So the main thread lets
another thread import, and waits. A handler that interrupts the wait can wait for the same import.
(Not if it is inside an import of its own, as where a module that is being imported calls kronop.)
(Signals that the main thread blocks would go to another thread, of a BLAS for instance, and Python
would run their handlers in the main thread all the same.)

*Forks.* A child has only the thread that forked. What another thread had locked stays locked in it:
modules that were being imported, SQLite, NVRTC. So a fork waits for the end of what `whole` marks,
and what would begin meanwhile waits for the fork. Other locks are opened in the child.
"""

from __future__ import annotations

import _thread
import contextlib
import importlib
import importlib.util

# At a fork it takes its lock, which the imports of many packages take too. Hooks run in the reverse
# order of their registration: ours has to wait before that lock is held, so it comes later.
import logging  # noqa: F401
import operator
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from importlib.machinery import ModuleSpec
from types import FrameType, ModuleType
from typing import Any

from kronop.frozen import dataclass

# Longest wait of a fork, if what it waits for waits for the forking thread. Longer than any import
# or compilation.
_PATIENCE_SECONDS = 60.0
_IMPORTING = "<frozen importlib._bootstrap>", "_find_and_load"


def module_lock() -> threading.RLock:
    """A reentrant lock for a module's own state; forked children find it open."""
    lock = threading.RLock()
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(after_in_child=lock._at_fork_reinit)  # type: ignore[attr-defined]
    return lock


# How often each thread is inside a `whole` block. Changed by single dictionary operations, which
# neither another thread nor a signal handler can interrupt.
_inside: dict[int, int] = {}
_gate = threading.RLock()  # Held by a thread that forks, or that enters a block.


def imported(name: str) -> ModuleType:
    """The module `name`, imported if it has not been; inside functions, instead of `import`.

    Raises:
        ImportError: there is no such module, or it can't be imported.
    """
    module = sys.modules.get(name)
    if module is not None and not is_initializing(module):
        return module
    found: ModuleType = _elsewhere(importlib.import_module, name)
    return found


@dataclass(frozen=True, slots=True)
class Later:
    """An object of a module that is imported when the object is first asked for: "function", or a
    member of one, as "Color.red"."""

    module: str
    name: str

    def get(self) -> Any:
        return operator.attrgetter(self.name)(imported(self.module))


def spec_of(name: str) -> ModuleSpec | None:
    """Where the module `name` is, if it is anywhere: `importlib.util.find_spec`, which takes the
    lock of all imports while it looks."""
    spec: ModuleSpec | None = _elsewhere(importlib.util.find_spec, name)
    return spec


def is_initializing(module: object) -> bool:
    """Whether a module is being imported."""
    return bool(getattr(getattr(module, "__spec__", None), "_initializing", False))


def _is_importing() -> bool:
    """Whether this thread is importing a module."""
    frame: FrameType | None = sys._getframe()
    while frame is not None:
        if (frame.f_code.co_filename, frame.f_code.co_name) == _IMPORTING:
            return True
        frame = frame.f_back
    return False


def _elsewhere(find: Callable[[str], Any], name: str) -> Any:
    """`find(name)`, called by a new thread if this is the main one."""
    is_main = threading.get_ident() == threading.main_thread().ident
    # Another thread may wait for what this one is importing, and this one for it; or for a fork
    # that waits for this one's block.
    holds = is_main and (_is_importing() or threading.get_ident() in _inside)
    if not is_main or holds or sys.is_finalizing():
        with whole():
            return find(name)
    ended = _thread.allocate_lock()
    ended.acquire()
    results: list[Any] = []
    errors: list[BaseException] = []

    def work() -> None:
        with whole():
            try:
                results.append(find(name))
            except BaseException as error:
                errors.append(error)
            finally:  # Inside the block, so that a child of a fork that waited finds it released.
                ended.release()

    try:  # The start of a `threading.Thread` takes a lock, which interrupted code may hold.
        _thread.start_new_thread(work, ())
    except RuntimeError:  # The system allows no more threads.
        return find(name)
    try:
        ended.acquire()
    except BaseException:  # Of a handler (Ctrl-C). A process that ends amid an import may crash.
        if not (results or errors):
            ended.acquire()
        raise
    if errors:
        raise errors.pop()  # Kept, it would refer to this frame, and that to it: no frame would go.
    return results[0]


@contextlib.contextmanager
def whole() -> Iterator[None]:
    """Forks of other threads wait for the end of the block, or the block for the end of a fork.

    It does not wait inside another block, nor while this thread imports: it holds locks then that
    other threads may wait for inside theirs.
    """
    thread = threading.get_ident()
    depth = _inside.get(thread, 0)
    try:  # The entry is made inside, so that an exception of a signal handler undoes it.
        if depth or _is_importing():
            _inside[thread] = depth + 1
        else:
            with _gate:
                _inside[thread] = 1
        yield
    finally:
        if depth:
            _inside[thread] = depth
        else:
            _inside.pop(thread, None)


def _before_fork() -> None:
    _gate.acquire()
    this, deadline = {threading.get_ident()}, time.monotonic() + _PATIENCE_SECONDS
    while _inside.keys() - this and time.monotonic() < deadline:
        time.sleep(0.001)


def _after_fork() -> None:
    with contextlib.suppress(RuntimeError):  # An exception of a handler kept it from being held.
        _gate.release()


def _after_fork_in_child() -> None:
    _after_fork()
    depth = _inside.pop(threading.get_ident(), 0)
    _inside.clear()
    if depth:
        _inside[threading.get_ident()] = depth


if hasattr(os, "register_at_fork"):
    os.register_at_fork(
        before=_before_fork,
        after_in_parent=_after_fork,
        after_in_child=_after_fork_in_child,
    )
