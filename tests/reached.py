"""Which designs, styles and layouts the tests ran on some target, emulated or real.

A design is a kernel template, its styles are the words of tests/fuzz/plans.py, and its layouts tell
along what X and Y are contiguous where it reads and writes them. Emitters' launches tell what a
step is; it counts when its kernel runs: on the host, or in the emulation. After a run of the whole
suite the counts are printed, and the suite fails where something `wanted` is missing.
"""

from __future__ import annotations

import functools
import itertools
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest

from kronop.artifacts import Launch
from kronop.emit.plan import Plan
from kronop.families import FAMILIES
from tests.emulation import batches
from tests.fuzz import plans
from tests.fuzz.styles import STYLES

_ENDS = ("X along rows", "X along columns", "Y along rows", "Y along columns")
# Beside what the random test reaches on a GPU: the ends of kernels whose styles do not tell them,
# and the kernels of x86.
_MORE = {
    "kron_tile": _ENDS,
    "kron_mma": _ENDS,
    "ksparse_gradient": _ENDS[:2],
    "gradient_group": _ENDS[:2],
    "kron_matmul": ("RowsAndLead", "Trail", "Rows", "Whole", *_ENDS),
    "kron_amx_matmul": ("plain",),
    "ksparse_along_batch": ("plain",),
    "ksparse_along_outputs": ("plain",),
    "ksparse_tiles_along_batch": _ENDS,
    "ksparse_tiles_along_outputs": ("plain",),
    "ksparse_chain": ("plain",),
}
# Words of plans, not of kernels.
_PLANS = {"few rows"}

count: Counter[str] = Counter()
_launched: dict[str, frozenset[str]] = {}


def wanted() -> set[str]:
    """Every "design: word" that has to run."""
    every = [*STYLES.items(), *_MORE.items()]
    return {f"{design}: {word}" for design, words in every for word in words if word not in _PLANS}


def watch(patch: pytest.MonkeyPatch) -> None:
    """Has emitters tell what they launch, and kernels of the host that they run."""
    from kronop.compiler.host_kernel import HostKernel

    for kind in (kind for family in FAMILIES for kind in family.kinds):
        for emitter in {later.get() for later in kind.emitters.values()}:
            patch.setattr(emitter, "launches", _telling(emitter.launches))
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
    def told(self: Any, plan: Plan, problem: Any) -> tuple[Launch, ...]:
        ends = frozenset(_ends(problem))
        for step, style in zip(plan.steps, plans.styles(plan), strict=True):
            design, _, words = style.partition(": ")
            _launched[step.entry] = frozenset(
                f"{design}: {word}" for word in {*words.split(", "), *ends}
            )
        return launches(self, plan, problem)

    return told


def _ends(problem: Any) -> Iterator[str]:
    for name in "XY":
        strides = getattr(problem, name.lower())
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
