"""Measures one Kronecker-sparse product with every algorithm of the layer."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from kronop.bench import layers
from kronop.bench.layers import Check, Inputs
from kronop.bench.patterns import Case
from kronop.bench.protocol import Call, medians, needs_flush, settle_seconds
from kronop.bench.roofline import Ceilings, Floor, floor_of, own_bandwidth
from kronop.bench.rows import Row
from kronop.bench.timing import (
    LEAST_ROUNDS,
    OUT_OF_MEMORY,
    Timing,
    fill,
    first_line,
    probe,
    rounds_within,
)
from kronop.bench.timing import Setting as Shared
from kronop.descriptions.datatype import TENSOR_TYPES
from kronop.errors import DeviceError

# All rounds of a variant together take about this long; a variant that takes longer in one round is
# timed only once.
_BUDGET_MS = 100.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting(Shared):
    """The settings that all cases of a run share.

    Attributes:
        device: name of the GPU or CPU.
        versions: versions of kronop and torch.
    """

    ceilings: Ceilings
    device: str
    versions: str


def measure(
    case: Case, algorithms: Sequence[str], setting: Setting, tell: Callable[[str], None]
) -> list[Row]:
    """A row for each algorithm, with its times or the reason of its failure.

    If the GPU stops answering, only for the algorithms up to the one during which it stopped.
    """
    timings = {name: Timing() for name in algorithms}
    floor = _floor(case, setting, setting.ceilings.copy_bytes_per_second)
    try:
        tell("inputs")
        inputs = Inputs(case, setting.arrays)
        check = Check(inputs)
        moved = case.bytes(TENSOR_TYPES[case.dtype].bytes)
        floor = _floor(
            case, setting, own_bandwidth(setting.arrays, setting.clock, setting.ceilings, moved)
        )
        for group in _groups(inputs, timings, setting):
            _measure_group(inputs, check, group, setting, tell)
            for name, timing in group.items() if len(group) > 1 else ():
                if timing.ms is None and timing.reason == OUT_OF_MEMORY:
                    timing.reason = ""
                    _measure_group(inputs, check, {name: timing}, setting, tell)
    except _LostError:
        pass
    except Exception as error:  # torch may raise anything; times measured before are kept.
        for timing in timings.values():
            if timing.ms is None:
                timing.reason = timing.reason or first_line(error)
    known = {name: item for name, item in timings.items() if item.ms is not None or item.reason}
    return [_row(case, name, timing, floor, setting) for name, timing in known.items()]


class _LostError(Exception):
    """The GPU no longer answers, for example after an illegal memory access."""


def settle(setting: Setting) -> None:
    """Waits for the device and returns unused memory to it.

    Raises:
        DeviceError: the GPU does not answer; nothing more can be measured in this process.
    """
    try:
        setting.clock.wait()
    except RuntimeError as error:
        raise DeviceError(
            "GPU",
            expected="an answer",
            got=first_line(error),
            hint="start again: with --csv the run goes on behind this",
        ) from error
    setting.arrays.release()


def _floor(case: Case, setting: Setting, bandwidth: float) -> Floor:
    element = TENSOR_TYPES[case.dtype].bytes
    return floor_of(case, case.dtype, element, setting.ceilings, bandwidth, 1)


def _groups(
    inputs: Inputs, timings: Mapping[str, Timing], setting: Setting
) -> Iterator[dict[str, Timing]]:
    """Groups of algorithms that fit in memory together; one that does not fit alone is left out,
    with a reason in its timing."""
    free = layers.free_bytes(setting.arrays.device)
    group: dict[str, Timing] = {}
    used = 0
    for name, timing in timings.items():
        needed = layers.needed_bytes(inputs.case, name, inputs.sets)
        if needed > free:
            timing.reason = f"needs {needed / 1e9:.1f} GB of memory, {free / 1e9:.1f} GB are free"
            continue
        if used + needed > free:
            yield group
            group, used = {}, 0
        group[name] = timing
        used += needed
    if group:
        yield group


def _measure_group(
    inputs: Inputs,
    check: Check,
    group: Mapping[str, Timing],
    setting: Setting,
    tell: Callable[[str], None],
) -> None:
    """Fills in the times, errors and reasons of a group of algorithms."""
    variants: dict[str, list[Call]] = {}
    probes: dict[str, float] = {}
    for name, timing in group.items():
        tell(f"warming up {name}")
        try:
            calls = inputs.calls(inputs.layer(name))
            inputs.poison(setting.arrays)
            results = calls[0]()
            timing.reason = check.complaint(results)
            if not timing.reason:
                timing.error = check.error(results)
                probes[name] = probe(calls[-1], setting.clock, _BUDGET_MS)
                variants[name] = calls
        except Exception as error:  # An algorithm may fail in any way; the others are timed.
            timing.reason = first_line(error)
        if timing.reason:
            _recover(setting)
    tell(f"timing {', '.join(variants)}")
    for name in [name for name, ms in probes.items() if ms > _BUDGET_MS]:
        group[name].ms = probes[name]
        del variants[name]
    try:
        _time(inputs, variants, group, probes, setting)
    except Exception as error:  # All algorithms together may need more memory than there is.
        for name in variants:
            group[name].reason = first_line(error)
    if any(group[name].ms is None for name in variants):
        _recover(setting)


def _recover(setting: Setting) -> None:
    """After a failure: waits for the device, and returns unused memory to it."""
    try:
        settle(setting)
    except DeviceError as error:
        raise _LostError from error


def _time(
    inputs: Inputs,
    variants: Mapping[str, list[Call]],
    group: Mapping[str, Timing],
    probes: Mapping[str, float],
    setting: Setting,
) -> None:
    element = TENSOR_TYPES[inputs.case.dtype].bytes
    flush = setting.arrays.flush if needs_flush(inputs.case.bytes(element)) else None
    counts = {name: rounds_within(_BUDGET_MS, probes[name], setting.repeats) for name in variants}
    settled = settle_seconds(setting.arrays.device, flush)
    for name, ms in medians(variants, setting.clock, counts, flush, settled).items():
        fill(group[name], ms, variants[name], setting, LEAST_ROUNDS, graph=False)


def _row(case: Case, algorithm: str, timing: Timing, floor: Floor, setting: Setting) -> Row:
    infinite = timing.error == math.inf
    a, b, c, d = case.pattern.sizes
    return Row(
        device=setting.device,
        versions=setting.versions,
        a=a,
        b=b,
        c=c,
        d=d,
        batch=case.batch,
        dtype=case.dtype,
        layout=case.layout,
        backward=case.backward,
        algorithm=algorithm,
        ms=None if infinite else timing.ms,
        graph_ms=None if infinite else timing.graph_ms,
        floor_ms=floor.ms,
        bound=floor.bound,
        error=timing.error,
        reason="the result is not finite" if infinite else timing.reason,
    )
