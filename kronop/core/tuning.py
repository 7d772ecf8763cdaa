"""Tuning: the planner's best candidates are measured on this machine; the fastest is kept.

The module is not called `tune`, because that name in the package is the function `kronop.tune`.
"""

from __future__ import annotations

import functools
import statistics
import sys
import time
from collections.abc import Sequence

from kronop import compiler
from kronop.args.base import Arguments
from kronop.args.device import check, cuda_driver, current
from kronop.artifacts import Binary
from kronop.core import winners
from kronop.core.operation import AnyOperation, Operation
from kronop.core.result import Result, result_of
from kronop.core.served import Served
from kronop.core.tuning_report import Outcome, TuningReport, milliseconds_of
from kronop.cpus import spread
from kronop.emit.plan import Plan
from kronop.emit.render import render
from kronop.errors import ArgumentError, ElementTypeError, KronopError
from kronop.machine import GPU_HERTZ
from kronop.progress import Progress

_ROUNDS = 5
# One measurement lasts about this long: the number of runs in it is chosen accordingly.
_MEASURE_SECONDS = 2e-3
_MOST_RUNS = 200
# Upper bounds: host time of one launch, and how long the GPU spins while launches are queued.
_LAUNCH_SECONDS, _MOST_LEAD_SECONDS = 10e-6, 5e-3


def tune(
    operation: AnyOperation,
    arguments: Arguments,
    *,
    candidates: int = 16,
    progress: bool = True,
) -> TuningReport:
    """Measures the planner's best candidates on `arguments` and keeps the fastest.

    The fastest is stored in compiled_cache.db for this description, this device and driver, and the
    bucket of the arguments' size: all rows, or extents, between the same powers of two. Equal
    operations use it for all arguments made later, also in later processes. `arguments` themselves
    are bound to it at once, and Y keeps its values.

    Args:
        operation: what to tune.
        arguments: arguments of that operation, with typical values. A candidate whose result
            differs from that of the planner's choice is skipped.
        candidates: the largest number of candidates to measure; at least 1.
        progress: draw a bar on standard error.

    Returns:
        The candidates with their times in milliseconds, and which of them runs from now on.

    Raises:
        ArgumentError: the arguments have no rows, `candidates` is below 1, or the result is not
            finite.
        ElementTypeError: `operation` is no operation, or `arguments` are not its arguments.
        CompileError, DeviceError: the planner's own choice does not compile or run.

    Example:
        >>> tensor = kronop.TensorDescription(kronop.float32)
        >>> epilogue = kronop.LinearCombination(kronop.float32, 1, kronop.float32, kronop.float32)
        >>> operation = kronop.KronMatmulOperation(
        ...     "x86", None, tensor, tensor, tensor, epilogue, factors=((8, 8), (8, 8))
        ... )
        >>> x, f = np.ones((4, 64), np.float32), np.eye(8, dtype=np.float32)
        >>> arguments = kronop.KronMatmulArguments(operation=operation, X=x, factors=[f, f])
        >>> report = kronop.tune(operation, arguments, candidates=1, progress=False)
        >>> report.rows, report.kept.place, report.kept.milliseconds > 0  # print(report): all
        (4, 0, True)
    """
    _check(operation, arguments, candidates)
    plans = _distinct(operation.candidates(candidates, arguments.size.bucket()))
    binaries = _compile_all(plans, shown=progress)
    result = result_of(arguments)
    try:
        times, reasons = _measure_all(operation, arguments, plans, binaries, result, shown=progress)
    finally:
        result.restore()  # Y gets its old values back.
    outcomes = tuple(
        Outcome(
            place=place,
            name="; ".join(step.note for step in plan.steps),
            milliseconds=_typical(times[place], plan) if place in times else None,
            reason=reasons.get(place, ""),
        )
        for place, plan in plans.items()
    )
    index = max(arguments.device.index, 0)
    report = TuningReport(
        operation=repr(operation),
        device=winners.machine(operation.target, index),
        size=arguments.size,
        bucket=arguments.size.bucket(),
        outcomes=outcomes,
    )
    kept = report.kept.place
    winners.remember(
        operation.description,
        plans[kept],
        kept,
        arguments.size,
        index,
        milliseconds=milliseconds_of(report.kept),
        untuned=milliseconds_of(report.outcomes[0]),
    )
    served = operation.serve(plans[kept])
    arguments.bind(served.kernels, served)
    return report


def _typical(times: Sequence[float], plan: Plan) -> float:
    """The minimum on a CPU, where other processes slow some rounds down; the median on a GPU."""
    return min(times) if plan.target.backend == "x86" else statistics.median(times)


def _check(operation: object, arguments: object, candidates: object) -> None:
    if not isinstance(operation, Operation) or not isinstance(arguments, Arguments):
        raise ElementTypeError(
            "tune",
            expected="an operation and its arguments",
            got=f"{type(operation).__name__} and {type(arguments).__name__}",
            hint="build both as for operation.run",
        )
    if arguments.operation is not operation:
        raise ElementTypeError(
            "arguments",
            expected=f"those of {operation!r}",
            got=f"those of {arguments.operation!r}",
            hint="build them with operation=this operation",
        )
    if not isinstance(candidates, int) or candidates < 1 or not arguments.size:
        raise ArgumentError(
            "tune",
            expected="at least 1 candidate and 1 row",
            got=f"{candidates!r} and {arguments.size}",
            hint="there is nothing to measure",
        )


def _distinct(plans: Sequence[Plan]) -> dict[int, Plan]:
    """The plans by their place, without plans that are equal to an earlier one."""
    found: dict[str, int] = {}
    for place, plan in enumerate(plans):
        found.setdefault(winners.fingerprint(plan), place)
    return {place: plans[place] for place in found.values()}


def _compile_all(
    plans: dict[int, Plan], *, shown: bool
) -> dict[int, tuple[Binary, ...] | KronopError]:
    """The binaries of each plan, or why there are none.

    Threads suffice for parallel compilation: g++ is a process of its own, and NVRTC runs without
    the interpreter's lock.
    """

    def compile_one(plan: Plan) -> tuple[Binary, ...] | KronopError:
        try:
            return compiler.compile_sources(render(plan), plan.target)
        except KronopError as error:
            return error
        finally:
            bar.advance()

    with Progress(len(plans), "compiling candidates", shown=shown) as bar:
        return dict(zip(plans, spread(compile_one, tuple(plans.values())), strict=True))


def _measure_all(
    operation: AnyOperation,
    arguments: Arguments,
    plans: dict[int, Plan],
    binaries: dict[int, tuple[Binary, ...] | KronopError],
    result: Result,
    *,
    shown: bool,
) -> tuple[dict[int, list[float]], dict[int, str]]:
    """By place: the milliseconds of each round, and for skipped candidates the reason."""
    runs: dict[int, int] = {}
    reasons: dict[int, str] = {}
    with Progress(len(plans), "checking candidates", shown=shown) as bar:
        for place, plan in plans.items():
            reason = _refused(binaries[place]) if place else ""
            try:
                if not reason:
                    twin, served = _ready(operation, arguments, plan)
                    reason = result.judge(functools.partial(_run, twin, served))
                    runs[place] = _count(_seconds(twin, served, 1))
            except KronopError as error:
                if place == 0:
                    raise
                reason = str(error).splitlines()[0]
            if reason:
                reasons[place] = reason
                runs.pop(place, None)
            bar.advance()
    times: dict[int, list[float]] = {place: [] for place in runs}
    with Progress(_ROUNDS * len(runs), "measuring candidates", shown=shown) as bar:
        for _ in range(_ROUNDS):
            for place, count in runs.items():
                # Bound anew in every round: the scratch memory of all candidates may not fit at
                # once.
                twin, served = _ready(operation, arguments, plans[place])
                times[place].append(_seconds(twin, served, count) * 1e3)
                bar.advance()
    return times, reasons


def _refused(found: tuple[Binary, ...] | KronopError) -> str:
    return (
        f"does not compile: {str(found).splitlines()[0]}" if isinstance(found, KronopError) else ""
    )


def _ready(operation: AnyOperation, arguments: Arguments, plan: Plan) -> tuple[Arguments, Served]:
    return arguments.unbound(), operation.serve(plan)


def _run(twin: Arguments, served: Served) -> None:
    twin.run(served.kernels, None, served)
    twin.sync()


def _count(seconds: float) -> int:
    return max(1, min(_MOST_RUNS, round(_MEASURE_SECONDS / max(seconds, 1e-7))))


def _seconds(twin: Arguments, served: Served, count: int) -> float:
    """Mean seconds of `count` runs after one warm-up run; measured by CUDA events on a GPU."""
    twin.run(served.kernels, None, served)
    if twin.device.is_host:
        begin = time.perf_counter()
        for _ in range(count):
            twin.run(served.kernels)
        return (time.perf_counter() - begin) / count
    driver, stream = cuda_driver(), twin.stream
    with current(twin.device.index):
        begun, ended = (check(driver.cuEventCreate(0), "timing a candidate") for _ in range(2))
        try:
            _lead(twin.device.index, count * len(served.plan.steps) * _LAUNCH_SECONDS)
            check(driver.cuEventRecord(begun, stream), "timing a candidate")
            for _ in range(count):
                twin.run(served.kernels)
            check(driver.cuEventRecord(ended, stream), "timing a candidate")
            check(driver.cuEventSynchronize(ended), "timing a candidate")
            took = float(check(driver.cuEventElapsedTime(begun, ended), "timing a candidate"))
        finally:
            for event in (begun, ended):
                check(driver.cuEventDestroy(event), "timing a candidate")
    return took / 1e3 / count


def _lead(index: int, seconds: float) -> None:
    """If torch is imported, keeps the GPU busy while launches are queued, so that the events time
    the kernels and not the host's launches."""
    torch = sys.modules.get("torch")
    if torch is not None and torch.cuda.is_available():
        with torch.cuda.device(index):
            torch.cuda._sleep(int(min(seconds, _MOST_LEAD_SECONDS) * GPU_HERTZ))
