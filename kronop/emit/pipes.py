"""Throughputs of a machine's units, and the least time of given work on them (roofline).

The figures of a GPU are physical: operations in a cycle, multiprocessors, the highest clock.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Self

from kronop.frozen import dataclass
from kronop.machine import ISSUED, SPECIAL
from kronop.target import Target

# Arithmetic that replaces an exponential: a polynomial of degree 5 with rounding; the scaling by a
# power of two is an integer addition.
_MOVED = 6
_SHARES = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class Pipes:
    """Operations in a second.

    Attributes:
        arithmetic: additions, multiplications or multiply-adds.
        special: those of special function units (SFU); 0 where this type has none.
        issued: instructions of both kinds together; 0 where there is no common limit.
        products: multiply-adds of matrix products.
        memory: bytes.
    """

    arithmetic: float
    special: float = 0.0
    issued: float = 0.0
    products: float = math.inf
    memory: float = math.inf

    @classmethod
    def of_gpu(cls, target: Target, sums: str, processors: int, hertz: float) -> Self:
        """The ordinary cores of a GPU with so many multiprocessors at this clock rate."""
        cycles = processors * hertz
        assert target.gpu is not None
        arithmetic = getattr(target.gpu, sums) * cycles
        if sums != "float32":
            return cls(arithmetic=arithmetic)
        return cls(arithmetic=arithmetic, special=SPECIAL * cycles, issued=ISSUED * cycles)

    @classmethod
    def of_target(cls, target: Target, sums: str, multiplied: int = 2) -> Self:
        """The GPU that plans are made for, or one core of the CPU.

        Args:
            sums: the type of sums, float32 or float64.
            multiplied: bytes of the elements that tensor cores multiply.
        """
        if (core := target.cpu) is not None:
            lanes = core.vector_bytes // (8 if sums == "float64" else 4)
            return cls(arithmetic=core.arithmetic * lanes * core.hertz, memory=core.bandwidth)
        assert target.gpu is not None
        cores = cls.of_gpu(target, sums, target.cores, target.gpu.hertz)
        # Without tensor cores no matrix products are counted; they then take no time.
        products = target.gpu.products * 2 / multiplied or math.inf
        return cls(
            arithmetic=cores.arithmetic,
            special=cores.special,
            issued=cores.issued,
            products=products,
            memory=target.gpu.bandwidth,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """Operations of a problem.

    Attributes:
        arithmetic: additions, multiplications and multiply-adds, apart from matrix products.
        special: roots, logarithms and exponentials of a GPU's special function units.
        movable: how many of the special ones are exponentials, which arithmetic can replace.
        products: multiply-adds of matrix products.
        bytes: every input read once, every result written once.
    """

    arithmetic: float = 0
    special: float = 0
    movable: float = 0
    products: float = 0
    bytes: int = 0


@dataclass(frozen=True, slots=True)
class PipeFloor:
    """The least time of a call, by unit.

    Attributes:
        loads: operations on each unit, and its throughput: of "arithmetic", "special units",
            "matrix products", "memory".
    """

    loads: Mapping[str, tuple[float, float]]

    @property
    def parts(self) -> dict[str, float]:
        """Milliseconds of each unit."""
        return {name: 1e3 * count / rate for name, (count, rate) in self.loads.items()}

    @property
    def ms(self) -> float:
        return max(self.parts.values())

    @property
    def bound(self) -> str:
        """The unit that takes longest."""
        return max(self.parts, key=self.parts.__getitem__)


def floor_of(work: Work, pipes: Pipes) -> PipeFloor:
    """The floor of the work at these rates, where all units work at the same time. Exponentials
    move from special units to arithmetic as far as that is faster."""
    shares = range(_SHARES + 1) if work.movable else range(1)
    splits = [PipeFloor(_split(work, share / _SHARES, pipes)) for share in shares]
    least = min(splits, key=lambda split: split.ms)
    others = {
        "matrix products": (work.products, pipes.products),
        "memory": (work.bytes, pipes.memory),
    }
    return PipeFloor({**least.loads, **others})


def _split(work: Work, share: float, pipes: Pipes) -> dict[str, tuple[float, float]]:
    """The loads of arithmetic and special units with this share of exponentials moved."""
    moved = share * work.movable
    arithmetic, special = work.arithmetic + _MOVED * moved, work.special - moved
    loads = {"arithmetic": (arithmetic, pipes.arithmetic)}
    # Instructions of both kinds are issued by the same schedulers.
    if (arithmetic + special) * pipes.arithmetic > arithmetic * pipes.issued > 0:
        loads["arithmetic"] = (arithmetic + special, pipes.issued)
    if pipes.special:
        loads["special units"] = (special, pipes.special)
    return loads
