"""Plans of one GPU that another runs in its place: a Hopper card has what all of them have but
Hopper's own successors' instructions, so that each target's kernels can be tested on it."""

from __future__ import annotations

import dataclasses

from kronop import target as targets
from kronop.args import device
from kronop.target import Target


def stand_in(name: str) -> None:
    """From now on this process takes its GPU for one of target `name`, with that target's limits
    and features; only the instructions are compiled for the card that is there."""
    here = device.card_of(device.default_device().index)
    found = Target.parse(name)
    arch = here.compiled_for.rstrip("a")
    placed = dataclasses.replace(found, flags=(f"-arch={arch}", *found.flags[1:]))
    targets._TARGETS[found.name] = placed
    device._served = lambda index: placed.name  # type: ignore[assignment]
