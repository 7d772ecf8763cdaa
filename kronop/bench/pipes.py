"""Floors of work that is no matrix product: what the units of a machine do in a second.

A GPU's figures are physical: operations in a cycle, multiprocessors, the highest clock. Those of a
CPU follow from the measured matrix products, whose multiply-adds are vector operations like others.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Self

from kronop.bench.roofline import Ceilings
from kronop.families.distance.work import Work
from kronop.target import Target

# Results of a multiprocessor in a cycle, by target and type of sums; then of its special function
# units; and instructions that its four schedulers issue, for 32 lanes each. NOTE: from the table
# "Throughput of Native Arithmetic Instructions" of the CUDA C++ Programming Guide.
_ARITHMETIC = {
    ("sm_80", "float32"): 64,
    ("sm_80", "float64"): 32,
    ("sm_90a", "float32"): 128,
    ("sm_90a", "float64"): 64,
}
_SPECIAL, _ISSUED = 16, 128
# Arithmetic that replaces an exponential: a polynomial of degree 5 with its rounding, of which the
# scaling by a power of two is an integer addition.
_MOVED = 6
_SHARES = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class Pipes:
    """Operations in a second.

    Attributes:
        arithmetic: additions, multiplications or multiply-adds.
        special: those of special function units; 0 where there are none for this type.
        issued: instructions of both kinds; 0 where they have no common limit.
    """

    arithmetic: float
    special: float = 0.0
    issued: float = 0.0

    @classmethod
    def of_gpu(cls, target: Target, sums: str, processors: int, hertz: float) -> Self:
        """The pipes of a GPU with so many multiprocessors at this clock."""
        cycles = processors * hertz
        arithmetic = _ARITHMETIC[target.arch, sums] * cycles
        if sums != "float32":
            return cls(arithmetic=arithmetic)
        return cls(arithmetic=arithmetic, special=_SPECIAL * cycles, issued=_ISSUED * cycles)

    @classmethod
    def of_cpu(cls, ceilings: Ceilings, sums: str) -> Self:
        """The pipes of a CPU whose matrix products were measured."""
        return cls(arithmetic=ceilings.operations_per_second[sums] / 2)


def pipes_of(device: str, target: Target, ceilings: Ceilings, sums: str) -> Pipes:
    """The pipes of "cpu", or of the current GPU, for sums of this type."""
    if device == "cpu":
        return Pipes.of_cpu(ceilings, sums)
    import torch
    from cuda.core import Device

    found = Device(torch.cuda.current_device()).properties
    return Pipes.of_gpu(target, sums, found.multiprocessor_count, 1e3 * found.clock_rate)


@dataclass(frozen=True, slots=True)
class PipeFloor:
    """The least time that a call can take, by what it keeps busy.

    Attributes:
        parts: milliseconds of each unit: "arithmetic", "special units", "matrix products",
            "memory".
    """

    parts: Mapping[str, float]

    @property
    def ms(self) -> float:
        return max(self.parts.values())

    @property
    def bound(self) -> str:
        """The unit that takes longest."""
        return max(self.parts, key=self.parts.__getitem__)


def floor_of_work(
    work: Work, dtype: str, pipes: Pipes, ceilings: Ceilings, bandwidth: float
) -> PipeFloor:
    """The floor of the work at these rates, where all units work at the same time; `bandwidth` in
    bytes per second. Exponentials move from special units to arithmetic as far as that is faster.
    """
    shares = range(_SHARES + 1) if work.movable else range(1)
    splits = [_split(work, share / _SHARES, pipes) for share in shares]
    parts = min(splits, key=lambda split: max(split.values()))
    parts["matrix products"] = 2e3 * work.products / ceilings.rate(dtype)
    parts["memory"] = 1e3 * work.bytes / bandwidth
    return PipeFloor(parts)


def _split(work: Work, share: float, pipes: Pipes) -> dict[str, float]:
    """Milliseconds of arithmetic and special units if this share of exponentials has moved."""
    moved = share * work.movable
    arithmetic, special = work.arithmetic + _MOVED * moved, work.special - moved
    parts = {"arithmetic": 1e3 * arithmetic / pipes.arithmetic}
    if pipes.issued:
        issued = 1e3 * (arithmetic + special) / pipes.issued
        parts["arithmetic"] = max(parts["arithmetic"], issued)
    if pipes.special:
        parts["special units"] = 1e3 * special / pipes.special
    return parts
