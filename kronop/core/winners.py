"""What tuning found: which of the planner's candidates is fastest, by description, size and device.

A winner is kept as its place among the candidates and a digest of its sources. It is planned anew
when it is wanted, and believed only if the digest is the same: after an upgrade of the planner or
of a header it is a miss, and the planner's own choice runs.
"""

from __future__ import annotations

import dataclasses
import functools
import platform
from pathlib import Path
from typing import Any

from kronop import compiler
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
    """Winners that this process found, for folders that keep none; how often it found any."""

    def __init__(self) -> None:
        self.found: dict[tuple[Path, str], Winner] = {}
        self.generation = 0


_process = _Process()


def generation() -> int:
    """A number that changes when this process finds a winner: what was recalled before is old."""
    return _process.generation


def model(device: str) -> str:
    """What of a device's text stays when its driver changes."""
    return device.partition(_DRIVER)[0]


@functools.cache
def machine(target: Target, index: int) -> str:
    """Name of the device in hand, and what else of it decides times: the driver's version.

    Raises:
        DeviceError: a CUDA target, and there is no GPU `index`.
    """
    if target.backend == "cuda":
        from kronop.args.device import check, cuda_driver

        driver = cuda_driver()
        handle = check(driver.cuDeviceGet(index), f"opening GPU {index}")
        name = check(driver.cuDeviceGetName(256, handle), f"asking GPU {index} for its name")
        version = check(driver.cuDriverGetVersion(), "asking for the driver's version")
        return f"{name.decode().split(chr(0))[0]}{_DRIVER}{version}"
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        return next(line.split(":", 1)[1].strip() for line in lines if "model name" in line)
    except (OSError, StopIteration):
        return platform.processor() or platform.machine()


def recall(
    description: Any, emitter: Emitter[Any, Any], target: Target, size: Size, index: int | None
) -> Plan:
    """The plan to run: the winner of the size's bucket on GPU `index` (or the CPU), else the
    planner's for the bucket; without a machine (None) no winner."""
    few = size.bucket()
    if index is None:
        return remembered.plan(description, emitter, target, few)
    key = key_of(repr(description), target.name, machine(target, index), few.told())
    cache = compiler.default_cache()
    winner = _process.found.get((cache.path, key)) or cache.winner(key)
    if winner is not None and winner.place > 0:
        plan = remembered.candidate(description, emitter, target, few, winner.place)
        if plan is not None and fingerprint(plan) == winner.fingerprint:
            return plan
    return remembered.plan(description, emitter, target, few)


def remember(
    description: Any,
    plan: Plan,
    place: int,
    size: Size,
    index: int,
    *,
    milliseconds: float,
    untuned: float,
) -> None:
    """Keep candidate `place` as the winner of the size's bucket on that device.

    Args:
        milliseconds: what a run of it took.
        untuned: what one of the planner's own choice took.
    """
    # Descriptions are frozen values all the way down: their text is all there is to them.
    of = (repr(description), plan.target.name, machine(plan.target, index))
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
            name=", ".join(step.entry for step in plan.steps if step.operations_per_row),
            nanoseconds=round(milliseconds * 1e6),
            untuned_nanoseconds=round(untuned * 1e6),
        )
    )


def on_device(winner: Winner, device: str) -> Winner:
    """The same winner for another device, or another driver of it."""
    key = key_of(winner.description, winner.target, device, winner.size)
    return dataclasses.replace(winner, key=key, device=device)


def keep(winner: Winner) -> None:
    """Put it in place of what was found before for its key."""
    cache = compiler.default_cache()
    cache.crown(winner)
    _process.found[cache.path, winner.key] = winner
    _process.generation += 1


def fingerprint(plan: Plan) -> str:
    """Digest of all that decides what the plan's kernels and launches do."""
    parts = [
        (source.text, header_digests(source), repr(step.design))
        for source, step in zip(render(plan), plan.steps, strict=True)
    ]
    return digest("kronop plan", *parts)


def key_of(description: str, target: str, device: str, size: str) -> str:
    """The key of a description's text, a target's name, a device, and a bucket of sizes in
    words."""
    return digest("kronop winner", SCHEMA, __version__, description, target, device, size)
