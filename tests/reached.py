"""Which designs, styles and layouts the tests ran on some target, emulated or real.

A design says what its styles are, and along what X and Y are contiguous where it reads and writes
them in place. Plans' launches tell what a step is; it counts when its kernel runs: on the host,
or in the emulation. After a run of the whole suite the counts are printed, and the suite fails
where something that a design declares did not run.
"""

from __future__ import annotations

import functools
import importlib
import inspect
import itertools
import pkgutil
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest

from kronop import emit, families
from kronop.artifacts import Launch
from kronop.descriptions.summed import Summed
from kronop.emit.design import Design
from kronop.emit.plan import Plan
from tests.emulation import batches
from tests.fuzz import plans

count: Counter[str] = Counter()
_launched: dict[str, frozenset[str]] = {}


def wanted() -> set[str]:
    """Every "design: word" that has to run: what kronop's designs declare."""
    return {f"{item.__name__}: {word}" for item in designs() for word in (*item.styles, *item.ends)}


def designs() -> Iterator[type[Design]]:
    """All designs in kronop's folders, without those that tests define."""
    for folder in (emit, families):
        for module in pkgutil.walk_packages(folder.__path__, f"{folder.__name__}."):
            if not {"torch", "jax"} & {*module.name.split(".")}:
                importlib.import_module(module.name)
    left = [Design]
    while left:
        item = left.pop()
        left += item.__subclasses__()
        if item.__module__.startswith("kronop.") and not inspect.isabstract(item):
            yield item


def watch(patch: pytest.MonkeyPatch) -> None:
    """Has plans tell what they launch, and kernels of the host that they run."""
    from kronop.compiler.host_kernel import HostKernel
    from kronop.core import loose

    patch.setattr(Plan, "launches", _telling(Plan.launches))
    serve = loose._Loose.serve
    patch.setattr(loose._Loose, "serve", lambda self, plan: (_note(plan), serve(self, plan))[1])
    bind_words = HostKernel.bind_words

    @functools.wraps(bind_words)
    def counting(self: HostKernel, *args: Any, **named: Any) -> Any:
        ran(self.entry)
        return bind_words(self, *args, **named)

    patch.setattr(HostKernel, "bind_words", counting)


def ran(entry: str) -> None:
    """The kernel of that name was launched."""
    count.update(_launched.get(entry, ()))


def _telling(launches: Any) -> Any:
    @functools.wraps(launches)
    def told(self: Plan, problem: Any) -> tuple[Launch, ...]:
        of_family = problem.problem if isinstance(problem, Summed) else problem
        _note(self, frozenset(_ends(of_family)))
        return launches(self, problem)

    return told


def _note(plan: Plan, ends: frozenset[str] = frozenset()) -> None:
    """Notes what the kernels of a plan are."""
    for step in plan.steps:
        told = plans.words(step.design, plan.target).items()
        _launched[step.entry] = frozenset(
            f"{design}: {word}" for design, words in told for word in words | ends
        )


def _ends(problem: Any) -> Iterator[str]:
    for name in "XY":
        strides = getattr(problem, name.lower(), None)
        for along, other in (("rows", "column"), ("columns", "row")):
            if getattr(strides, other, 0) == 1:
                yield f"{name} along {along}"


class Plugin:
    """Counts in every process of pytest-xdist, and sums up in the one that starts the others."""

    def __init__(self) -> None:
        self.patch = pytest.MonkeyPatch()

    def pytest_sessionstart(self) -> None:
        watch(self.patch)

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any) -> None:
        count.update(getattr(node, "workeroutput", {}).get("reached", {}))

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        self.patch.undo()
        if hasattr(session.config, "workeroutput"):
            session.config.workeroutput["reached"] = dict(count)
        elif _is_whole(session.config) and wanted() - set(count) and not session.exitstatus:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def pytest_terminal_summary(self, terminalreporter: Any, config: pytest.Config) -> None:
        if not (_is_whole(config) or config.getoption("--reached")):
            return
        terminalreporter.section("designs, styles and layouts that ran")
        for design, words in itertools.groupby(sorted(count), lambda name: name.split(": ")[0]):
            told = (f"{name.split(': ')[1]} {count[name]}" for name in words)
            terminalreporter.write_line(f"{design}: {', '.join(told)}")
        for name in sorted(wanted() - set(count)):
            terminalreporter.write_line(f"no test ran {name!r} on any target", red=True)


def _is_whole(config: pytest.Config) -> bool:
    """Whether all tests were asked for, and kernels can be built."""
    some = ("keyword", "markexpr", "deselect", "collectonly", "maxfail", "skipped")
    asked = config.args_source is pytest.Config.ArgsSource.TESTPATHS
    asked = asked and not any(getattr(config.option, name, None) for name in some)
    return asked and batches.host_compiler() is not None
