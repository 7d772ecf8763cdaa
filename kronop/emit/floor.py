"""Floors: the least time of a step on its target (roofline), and the unit that limits it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

from kronop.artifacts import Decision
from kronop.frozen import dataclass
from kronop.target import Target


@dataclass(frozen=True, slots=True, kw_only=True)
class Floor:
    """The least time of a step for a problem of some size.

    Attributes:
        seconds: that time.
        unit: the unit that limits it, as "FP32 issue".
        load: its operations, as "2 instructions a feature and pair".
        size: the problem's size, in words.
    """

    seconds: float
    unit: str
    load: str
    size: str

    def __str__(self) -> str:
        return f"{self.unit}: {self.load}, floor {_told(self.seconds)} for {self.size}"


class LeastWork(Decision, ABC):
    """Work that a step can't avoid, however it runs; a frozen dataclass, since plans store it."""

    __slots__ = ()
    computes = True
    """Whether the step computes results, and does not only arrange what other steps read."""

    @abstractmethod
    def floor(self, target: Target, size: Any = None) -> Floor:
        """The floor on a target.

        Args:
            size: of the family's class; None for the size that plans assume if none is given.
        """


def _told(seconds: float) -> str:
    if seconds >= 1:
        return f"{seconds:.3g} s"
    return f"{seconds * 1e3:.3g} ms" if seconds >= 1e-3 else f"{seconds * 1e6:.3g} us"
