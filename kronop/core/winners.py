"""Tuning results: which of the planner's candidates is fastest, by description, size and device.

A winner is stored as its place among the candidates and a digest of its sources. To use it, the
candidate at that place is planned anew and its digest compared. After a change of the planner or of
a header the digests differ, and the planner's own choice runs.
"""

from __future__ import annotations

import dataclasses
import functools
import platform
from pathlib import Path

from kronop import compiler
from kronop.args.device import check, cuda_driver, name_of_device
from kronop.compiler.cutlass_headers import completed
from kronop.compiler.keys import SCHEMA, digest, header_digests
from kronop.compiler.rows import Winner
from kronop.core import remembered
from kronop.emit.emitter import Emitter
from kronop.emit.plan import Plan
from kronop.emit.render import render
from kronop.size import Size
from kronop.target import Target
from kronop.version import __version__

_DRIVER = ", driver "


class _Process:
    """Winners found by this process, for cache folders that can't be written, and their count."""

    def __init__(self) -> None:
        self.found: dict[tuple[Path, str], Winner] = {}
        self.generation = 0


_process = _Process()


def generation() -> int:
    """A number that changes whenever this process stores a winner.

    Callers that keep a recalled plan compare it, and recall again when it has changed.
    """
    return _process.generation


def model(device: str) -> str:
    """The device's name without the version of its driver."""
    return device.partition(_DRIVER)[0]


@functools.cache
def machine(target: Target, index: int) -> str:
    """The name of this machine's device; for a GPU with the driver's version, which affects times.

    Raises:
        DeviceError: the target is a CUDA target and there is no GPU `index`.
    """
    if target.backend == "cuda":
        version = check(cuda_driver().cuDriverGetVersion(), "asking for the driver's version")
        return f"{name_of_device(index)}{_DRIVER}{version}"
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        return next(line.split(":", 1)[1].strip() for line in lines if "model name" in line)
    except (OSError, StopIteration):
        return platform.processor() or platform.machine()


def recall(
    description: object, emitter: Emitter, target: Target, size: Size, index: int | None
) -> Plan:
    """The plan to run: the winner for the size's bucket on GPU `index` (or the CPU), else the
    planner's choice for the bucket. An `index` of None means no device, and so no winner."""
    few = size.bucket()
    if index is None:
        return remembered.plan(description, emitter, target, few)
    key = key_of(repr(description), target.mark, machine(target, index), few.told())
    cache = compiler.default_cache()
    winner = _process.found.get((cache.path, key)) or cache.winner(key)
    if winner is not None and winner.place > 0:
        plan = remembered.candidate(description, emitter, target, few, winner.place)
        if plan is not None and fingerprint(plan) == winner.fingerprint:
            return plan
    return remembered.plan(description, emitter, target, few)


def remember(
    description: object,
    plan: Plan,
    place: int,
    size: Size,
    index: int,
    *,
    milliseconds: float,
    untuned: float,
) -> None:
    """Stores candidate `place` as the winner for the size's bucket on GPU `index` or the CPU.

    Args:
        milliseconds: time of one run of this candidate.
        untuned: milliseconds of one run of the planner's own choice.
    """
    # Descriptions consist of frozen values only, so their repr identifies them completely.
    of = (repr(description), plan.target.mark, machine(plan.target, index))
    few = size.bucket()
    keep(
        Winner(
            key=key_of(*of, few.told()),
            place=place,
            fingerprint=fingerprint(plan),
            description=of[0],
            target=of[1],
            device=of[2],
            size=few.told(),
            serves=few.served(),
            name=", ".join(step.entry for step in plan.steps if step.computes),
            nanoseconds=round(milliseconds * 1e6),
            untuned_nanoseconds=round(untuned * 1e6),
        )
    )


def on_device(winner: Winner, device: str) -> Winner:
    """The same winner for another device, or for the same device with another driver."""
    key = key_of(winner.description, winner.target, device, winner.size)
    return dataclasses.replace(winner, key=key, device=device)


def keep(winner: Winner) -> None:
    """Stores a winner in place of any earlier one with its key."""
    cache = compiler.default_cache()
    cache.crown(winner)
    _process.found[cache.path, winner.key] = winner
    _process.generation += 1


def fingerprint(plan: Plan) -> str:
    """A digest of everything that decides what the plan's kernels and launches do."""
    parts = [
        (source.text, header_digests(source), repr(step.design))
        for source, step in zip(map(completed, render(plan)), plan.steps, strict=True)
    ]
    return digest("kronop plan", repr(plan.pipeline), *parts)


def key_of(description: str, target: str, device: str, size: str) -> str:
    """The key of a winner: a digest of the description's repr, the target's mark, the device's
    name, and the bucket as `Size.told` words it."""
    return digest("kronop winner", SCHEMA, __version__, description, target, device, size)
