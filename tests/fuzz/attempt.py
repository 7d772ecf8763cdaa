"""Runs a case: each call several times with new values, each result compared with the reference."""

from __future__ import annotations

import contextlib
import traceback
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any
from unittest import mock

from kronop.core.operation import Operation
from tests.fuzz import invoke, plans
from tests.fuzz.case import Call, Case, Problem
from tests.fuzz.draw import Draw
from tests.fuzz.gradients import Gradients
from tests.fuzz.tensors import Tensors

# kronop skips its checks from the third call with a signature on: four calls test both ways.
_REPEATS = 4
_REPLAYS = 2
# A stream is kept busy for so many cycles, so that work that fails to wait for it gives wrong
# results.
_CYCLES = 2_000_000


@dataclass(slots=True)
class Outcome:
    """The outcome of a case.

    Attributes:
        calls: the number of calls that were made and compared.
        troubles: descriptions of what was wrong; empty if nothing was.
    """

    calls: int = 0
    troubles: list[str] = field(default_factory=list)


def run(case: Case) -> Outcome:
    """Runs all calls, then the one-line calls once more, when the others have been remembered."""
    outcome = Outcome()
    seeds = Draw(f"values of {case.name}")
    with invoke.on_target(case.problem.target):
        for again in (False, True):
            for at, call in enumerate(case.calls):
                if again and (call.how != "line" or case.problem.backward):
                    continue
                steps = _again if again else _STEPS[call.how]
                if case.problem.backward:
                    steps = _backward
                _attempt(outcome, at, steps, case.problem, call, seeds.seed())
    return outcome


def _attempt(
    outcome: Outcome, at: int, steps: Any, problem: Problem, call: Call, seed: int
) -> None:
    try:
        for trouble in steps(problem, call, seed):
            outcome.calls += 1
            if trouble:
                outcome.troubles.append(f"call {at}.{outcome.calls}: {trouble} [{call}]")
                return
    except Exception as error:
        where = "".join(traceback.format_exception(error)[-3:])
        outcome.troubles.append(f"call {at}: {type(error).__name__}: {error} [{call}]\n{where}")


Steps = Iterator[str]


def _line(problem: Problem, call: Call, seed: int) -> Steps:
    """The one-line function on new tensors each time, then on the last ones with new values."""
    kept = []
    for repeat in range(_REPEATS):
        if repeat < _REPEATS - 1:
            kept.append(Tensors(problem, call, seed + 1000 * repeat))
        else:
            kept[-1].fill()
        kept[-1].expect()
        result = invoke.line(kept[-1])
        yield kept[-1].trouble(result)


def _again(problem: Problem, call: Call, seed: int) -> Steps:
    tensors = Tensors(problem, call, seed)
    tensors.expect()
    yield tensors.trouble(invoke.line(tensors))


def _built(build: Callable[[Tensors], Any]) -> Callable[[Problem, Call, int], Steps]:
    def steps(problem: Problem, call: Call, seed: int) -> Steps:
        tensors = Tensors(problem, call, seed)
        arguments = build(tensors)
        for repeat in range(_REPEATS):
            if repeat:
                tensors.fill()
            tensors.expect()
            yield tensors.trouble(invoke.run(arguments))

    return steps


def _stream(problem: Problem, call: Call, seed: int) -> Steps:
    """The one-line function on a stream that is still busy with preparing its operands."""
    import torch

    tensors = Tensors(problem, call, seed)
    for _ in range(_REPEATS):
        with _busy_stream():
            tensors.fill()
            tensors.expect()
            torch.cuda._sleep(_CYCLES)
            result = invoke.line(tensors)
            trouble = tensors.trouble(result)
        yield trouble


def _graph(problem: Problem, call: Call, seed: int) -> Steps:
    """A call captured in a CUDA graph, replayed with new values in the same tensors."""
    import torch

    tensors = Tensors(problem, call, seed)
    for _ in range(_REPEATS - 1):
        tensors.fill()
        tensors.expect()
        yield tensors.trouble(invoke.line(tensors))
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        result = invoke.line(tensors)
    for _ in range(_REPLAYS):
        tensors.fill()
        if call.out is None:
            result.fill_(float("nan") if result.is_floating_point() else -77)
        tensors.expect()
        graph.replay()
        torch.cuda.synchronize()
        yield tensors.trouble(result)


_STEPS = {
    "line": _line,
    "bound": _built(invoke.bound),
    "described": _built(invoke.described),
    "stream": _stream,
    "graph": _graph,
}


def _backward(problem: Problem, call: Call, seed: int) -> Steps:
    """The result and all gradients, several times; on GPUs also on another stream or in a graph."""
    tensors = Tensors(problem, call, seed)
    for repeat in range(_REPEATS):
        with _busy_stream() if call.how == "stream" else contextlib.nullcontext():
            if repeat:
                tensors.fill()
            tensors.expect()
            y, found, names = invoke.backward(tensors)
        yield tensors.trouble(y) or Gradients(tensors, names).trouble(found)
    if call.how == "graph":
        yield from _captured(tensors)


@contextlib.contextmanager
def _busy_stream() -> Iterator[None]:
    """Makes another stream current that is busy with a delay first."""
    import torch

    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        torch.cuda._sleep(_CYCLES)
        yield
    torch.cuda.current_stream().wait_stream(side)


def _captured(tensors: Tensors) -> Steps:
    import torch

    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(_REPEATS - 1):
            invoke.backward(tensors)
    torch.cuda.current_stream().wait_stream(side)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        y, found, names = invoke.backward(tensors)
    for _ in range(_REPLAYS):
        tensors.fill()
        tensors.expect()
        graph.replay()
        torch.cuda.synchronize()
        yield tensors.trouble(y) or Gradients(tensors, names).trouble(found)


@contextlib.contextmanager
def watching(seen: Counter[str]) -> Iterator[None]:
    """Counts in `seen` the styles of all plans whose kernels are used."""
    serve = Operation.serve

    def counting(self: Any, plan: Any) -> Any:
        seen.update(plans.styles(plan))
        return serve(self, plan)

    with mock.patch.object(Operation, "serve", counting):
        yield
