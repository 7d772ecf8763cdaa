"""One problem of points, measured: kronop, its floor, its error, and the peers."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from kronop.bench.arrays import Arrays
from kronop.bench.case import target_of
from kronop.bench.distances.problem import Host, Problem
from kronop.bench.pipes import pipes_of
from kronop.bench.protocol import Call, Clock, keeping, sets_for
from kronop.bench.roofline import Ceilings, own_bandwidth
from kronop.bench.timing import (
    Measured,
    Timing,
    first_line,
    probe,
    rounds_within,
    time_together,
)
from kronop.emit.pipes import PipeFloor, floor_of
from kronop.errors import DeviceError, KronopError
from kronop.target import Target

# All rounds of a variant together take about this long; a peer that takes longer in one round is
# timed only once.
_BUDGET_MS = 2000.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """The settings that all cases of a run share; `repeats` are the most rounds of timing."""

    arrays: Arrays
    clock: Clock
    ceilings: Ceilings
    peers: tuple[str, ...]
    repeats: int


@dataclass(slots=True, kw_only=True)
class Result(Measured[PipeFloor]):
    """The measurements of one problem."""

    problem: Problem

    @property
    def label(self) -> str:
        return f"{self.problem.label} {self.problem.case}"


def run(problem: Problem, setting: Setting, tell: Callable[[str], None]) -> Result:
    """Measures one problem; if something fails, the result has the reason."""
    result = Result(problem=problem, dtype=problem.dtype)
    try:
        _measure(result, setting, tell)
    except (KronopError, MemoryError, RuntimeError) as error:
        # torch raises RuntimeError for most failures, also if memory runs out.
        result.kronop.reason = first_line(error)
    setting.arrays.release()
    return result


def _measure(result: Result, setting: Setting, tell: Callable[[str], None]) -> None:
    arrays, problem = setting.arrays, result.problem
    is_gpu = arrays.device == "cuda"
    tell("inputs")
    work = problem.work(units=is_gpu and problem.sums == "float32")
    sets = [problem.operands(arrays) for _ in range(sets_for(work.bytes))]
    results = [arrays.poisoned(problem.result, problem.dtype) for _ in sets]
    tell("compiling")
    calls = [problem.call(*item) for item in zip(sets, results, strict=True)]
    tell("checking")
    check = _Check(problem, arrays, sets[0])
    calls[0]()
    setting.clock.wait()
    result.kronop.error = check.error(results[0])
    if result.kronop.error == math.inf:
        raise DeviceError.of(
            "result", expected="finite numbers", got="NaN or infinity", hint="report the case"
        )
    variants = {"kronop": calls}
    for name in setting.peers:
        tell(f"warming up {name}")
        timing = result.peers[name] = Timing()
        variants |= _peer(name, timing, problem, setting, sets, check)
    tell(f"timing {', '.join(variants)}")
    _time(result, setting, variants, work.bytes)
    target = Target.parse(target_of(arrays.device))
    bandwidth = own_bandwidth(arrays, setting.clock, setting.ceilings, work.bytes)
    types = problem.dtype, problem.sums
    pipes = pipes_of(arrays.device, target, setting.ceilings, *types, bandwidth)
    result.floor = floor_of(work, pipes)


class _Check:
    """Compares some rows of results with float64."""

    def __init__(self, problem: Problem, arrays: Arrays, operands: Sequence[Any]) -> None:
        self._problem, self._arrays = problem, arrays
        self._operands = [_on_host(item) for item in operands]
        self._expected = problem.expected(self._operands)

    def error(self, found: Any) -> float:
        """The error; infinite if an element was not written or overflowed, or if the shape is
        another."""
        is_numpy = isinstance(found, np.ndarray)
        is_finite = np.isfinite(found).all() if is_numpy else self._arrays.is_finite(found)
        if tuple(found.shape) != self._problem.result or not is_finite:
            return math.inf
        picked = _on_host(self._problem.picked(found))
        return self._problem.error(picked, self._expected, self._operands)


def _on_host(value: Any) -> Host:
    """A tensor of NumPy or torch as a NumPy array in float64."""
    return np.asarray(value.double().cpu() if hasattr(value, "cpu") else value, np.float64)


def _peer(
    name: str,
    timing: Timing,
    problem: Problem,
    setting: Setting,
    sets: Sequence[Sequence[Any]],
    check: _Check,
) -> dict[str, list[Call]]:
    """{name: the peer's calls} after a check of its result; empty, with a reason in `timing`, if
    the peer fails."""
    try:
        calls = [problem.peer(name, setting.arrays, operands) for operands in sets]
        if len(calls) > 1:
            calls = keeping(calls)
        timing.error = check.error(calls[0]())
    except Exception as error:  # A peer may fail in any way; the others are still timed.
        timing.reason = first_line(error)
        setting.arrays.release()
        return {}
    return {name: calls}


def _time(result: Result, setting: Setting, variants: dict[str, list[Call]], moved: int) -> None:
    timings = {"kronop": result.kronop, **result.peers}
    took = {name: probe(calls[-1], setting.clock, _BUDGET_MS) for name, calls in variants.items()}
    for name in [name for name, ms in took.items() if ms > _BUDGET_MS and name != "kronop"]:
        timings[name].ms = took[name]
        del variants[name]
    counts = {name: rounds_within(_BUDGET_MS, took[name], setting.repeats) for name in variants}
    time_together(
        variants,
        timings,
        ("kronop",),
        setting.arrays,
        setting.clock,
        counts,
        moved=moved,
        graph=False,
    )
