"""First calls of public names that a signal handler meets amid their imports, and a fork there.

Run as `python tests/first_calls.py PACKAGES NAMES...` (with commas between them): imports the
packages and kronop, but none of its modules, and forks a child for each list of names. The child
runs the examples of the names' docstrings. The first module of kronop's that they import sends a
signal while it is imported; the handler forks, and both it and its child run the examples too.
"""

from __future__ import annotations

import doctest
import importlib
import importlib.machinery
import inspect
import os
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable, Sequence
from operator import attrgetter
from typing import Any

import numpy as np

import kronop

_FLAGS = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
_SECONDS = 120
_COMPILER = "kronop.compiler.host_backend"


class _Watch:
    """Sends the signal, and refuses imports of kronop in the main thread."""

    def __init__(self) -> None:
        self.sent = False
        self.early: list[str] = []

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        if not name.startswith("kronop."):
            return None
        if threading.get_ident() == threading.main_thread().ident:
            self.early.append(name)
        if not self.sent:
            self.sent = True
            os.kill(os.getpid(), signal.SIGUSR1)
            time.sleep(0.01)
        return _unoptimised(name, path) if name == _COMPILER else None


def _unoptimised(name: str, path: Any) -> Any:
    """The compiler's module, which makes the kernels that other tests have made already."""
    spec = importlib.machinery.PathFinder.find_spec(name, path)
    assert spec is not None
    loader: Any = spec.loader
    execute = loader.exec_module

    def exec_module(module: Any) -> None:
        execute(module)
        module._FLAGS = tuple("-O0" if flag == "-O3" else flag for flag in module._FLAGS)

    loader.exec_module = exec_module
    return spec


def _examples(names: Sequence[str]) -> None:
    for name in names:
        _example(name)


def _example(name: str) -> None:
    value: Any = attrgetter(name)(kronop)
    text = inspect.getdoc(value) or ""
    known = {"np": np, "kronop": kronop}
    test = doctest.DocTestParser().get_doctest(text, known, name, None, None)
    said: list[str] = []
    doctest.DocTestRunner(optionflags=_FLAGS).run(test, out=said.append)
    assert not said, "".join(said)


def _fails(work: Callable[[], None]) -> bool:
    try:
        work()
    except BaseException:
        traceback.print_exc()
        return True
    return False


def _in_child(work: Callable[[], None]) -> bool:
    """Whether the work fails, or hangs, in a forked child."""
    child = os.fork()
    if child:
        return os.waitpid(child, 0)[1] != 0
    signal.alarm(_SECONDS)
    os._exit(_fails(work))


def _first_calls(names: Sequence[str]) -> None:
    failed: list[str] = []

    def handle(*_: object) -> None:
        if _in_child(lambda: _examples(names)):
            failed.append("the handler's child")
        if _fails(lambda: _examples(names)):
            failed.append("the handler")

    watch = _Watch()
    signal.signal(signal.SIGUSR1, handle)
    sys.meta_path.insert(0, watch)  # type: ignore[arg-type]
    _examples(names)
    assert not failed, failed
    assert not watch.early, watch.early


def main(packages: str, *groups: str) -> None:
    for package in packages.split(","):
        importlib.import_module(package)
    assert "kronop.core.operation" not in sys.modules
    for names in groups:
        if _in_child(lambda names=names: _first_calls(names.split(","))):  # type: ignore[misc]
            print(names)


if __name__ == "__main__":
    main(*sys.argv[1:])
