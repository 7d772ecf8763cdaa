"""Floors: the least time that a step takes on its target, and the unit that it then keeps busy."""

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
        unit: what is busy all the while, as "FP32 issue".
        load: what it does there, as "2 instructions a feature and pair".
        size: of the problem, in words.
    """

    seconds: float
    unit: str
    load: str
    size: str

    def __str__(self) -> str:
        return f"{self.unit}: {self.load}, floor {_told(self.seconds)} for {self.size}"


class LeastWork(Decision, ABC):
    """What a step can't avoid to do, however it runs; a frozen dataclass, since plans have it."""

    __slots__ = ()
    computes = True
    """Whether the step computes results, and does not only arrange what other steps read."""

    @abstractmethod
    def floor(self, target: Target, size: Any = None) -> Floor:
        """The floor on a target.

        Args:
            size: of the family's class; None for that which plans are made for if they are told
                none.
        """


def _told(seconds: float) -> str:
    if seconds >= 1:
        return f"{seconds:.3g} s"
    return f"{seconds * 1e3:.3g} ms" if seconds >= 1e-3 else f"{seconds * 1e6:.3g} us"
