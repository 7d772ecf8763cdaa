"""One problem of points, measured: kronop, its floor, its error, and the peers."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from kronop.bench import report, timing
from kronop.bench.arrays import Arrays
from kronop.bench.case import target_of
from kronop.bench.distances.problem import Host, Problem
from kronop.bench.pipes import pipes_of
from kronop.bench.protocol import Call, sets_for
from kronop.bench.roofline import Ceilings, own_bandwidth
from kronop.bench.table import Table, error_text, milliseconds
from kronop.bench.timing import (
    Measured,
    attempted,
    compared,
    probe,
    rounds_within,
    time_together,
)
from kronop.emit.pipes import PipeFloor, floor_of
from kronop.errors import DeviceError
from kronop.target import Target
from kronop.tensors import Tensor

TABLE = Table(
    (
        *(("size", 19), ("case", 20), ("type", 9), ("ms", 10), ("graph us", 9)),
        *(("roofline", 9), ("floor ms", 9), ("is of", 16), ("error", 9)),
    )
)
# All rounds of a variant together take about this long; a peer that takes longer in one round is
# timed only once.
_BUDGET_MS = 2000.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting(timing.Setting):
    """The settings that all cases of a run share."""

    ceilings: Ceilings
    peers: tuple[str, ...]


@dataclass(slots=True, kw_only=True)
class Result(Measured[PipeFloor]):
    """The measurements of one problem."""

    problem: Problem

    @property
    def label(self) -> str:
        return f"{self.problem.label} {self.problem.case}"

    @property
    def names(self) -> list[str]:
        return [self.problem.label, self.problem.case, self.dtype]

    @property
    def figures(self) -> list[str]:
        assert self.floor is not None
        floor = milliseconds(self.floor.ms), self.floor.bound
        return [*self.times, f"{self.share:.2f}", *floor, error_text(self.kronop.error)]

    def as_json(self) -> dict[str, object]:
        """The measurements; times are in milliseconds, `roofline` is floor over time."""
        floor = self.floor
        return {
            **self.problem.as_json(),
            "kronop": report.timing_json(self.kronop),
            "roofline": self.share,
            "floor": floor and {"ms": floor.ms, "bound": floor.bound, "parts": dict(floor.parts)},
            "peers": report.peers_json(self),
        }


def run(problem: Problem, setting: Setting, tell: Callable[[str], None]) -> Result:
    """Measures one problem; if something fails, the result has the reason."""
    result = Result(problem=problem, dtype=problem.dtype)
    return attempted(result, setting, lambda: _measure(result, setting, tell))


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
        raise DeviceError(
            "result", expected="finite numbers", got="NaN or infinity", hint="report the case"
        )
    variants = {"kronop": calls}
    for name in setting.peers:
        tell(f"warming up {name}")
        calls_of = functools.partial(_calls_of_peer, name, problem, arrays, sets)
        variants |= compared(name, result, setting, calls_of, check.error)
    tell(f"timing {', '.join(variants)}")
    _time(result, setting, variants, work.bytes)
    target = Target.parse(target_of(arrays.device))
    bandwidth = own_bandwidth(arrays, setting.clock, setting.ceilings, work.bytes)
    types = problem.dtype, problem.sums
    pipes = pipes_of(arrays.device, target, setting.ceilings, *types, bandwidth)
    result.floor = floor_of(work, pipes)


class _Check:
    """Compares some rows of results with float64."""

    def __init__(self, problem: Problem, arrays: Arrays, operands: Sequence[Tensor]) -> None:
        self._problem, self._arrays = problem, arrays
        self._operands = [_on_host(item) for item in operands]
        self._expected = problem.expected(self._operands)

    def error(self, found: Tensor) -> float:
        """The error; infinite if an element was not written or overflowed, or if the shape is
        another."""
        is_numpy = isinstance(found, np.ndarray)
        is_finite = np.isfinite(found).all() if is_numpy else self._arrays.is_finite(found)
        if tuple(found.shape) != self._problem.result or not is_finite:
            return math.inf
        picked = _on_host(self._problem.picked(found))
        return self._problem.error(picked, self._expected, self._operands)


def _on_host(value: Tensor) -> Host:
    """A tensor of NumPy or torch as a NumPy array in float64."""
    return np.asarray(value.double().cpu() if hasattr(value, "cpu") else value, np.float64)


def _calls_of_peer(
    name: str, problem: Problem, arrays: Arrays, sets: Sequence[Sequence[Tensor]]
) -> list[Call]:
    return [problem.peer(name, arrays, operands) for operands in sets]


def _time(result: Result, setting: Setting, variants: dict[str, list[Call]], moved: int) -> None:
    took = {name: probe(calls[-1], setting.clock, _BUDGET_MS) for name, calls in variants.items()}
    for name in [name for name, ms in took.items() if ms > _BUDGET_MS and name != "kronop"]:
        result.peers[name].ms = took[name]
        del variants[name]
    counts = {name: rounds_within(_BUDGET_MS, took[name], setting.repeats) for name in variants}
    time_together(variants, result, setting, moved=moved, graph=False, counts=counts)
