"""What steps can't avoid to do: from this `floors.py` computes their floors, for reports."""

from __future__ import annotations

from typing import Any

from kronop.emit.floor import Floor, LeastWork
from kronop.families.distance.form import Form, TermKind
from kronop.frozen import dataclass
from kronop.late import imported
from kronop.target import Target


class Least(LeastWork):
    """What a step of this family does. Floors are imported only where one is asked for, because a
    process that reads its plans from the cache reports none."""

    __slots__ = ()

    def floor(self, target: Target, size: Any = None) -> Floor:
        imported("kronop.families.distance.floors")
        from kronop.families.distance import floors

        return floors.floor(self, target, size)


@dataclass(frozen=True, slots=True, kw_only=True)
class LeastOfPairs(Least):
    """What a step for pairs of points does.

    Attributes:
        element: bytes of an element of the operands and of the result.
        sums: the type of sums, float32 or float64.
        multiplied: bytes of the elements that tensor cores multiply; 0 if none take part.
        products: of them, in place of one product of elements.
        expanded: squared distances are computed from products, or differences multiplied out.
    """

    element: int
    sums: str
    multiplied: int = 0
    products: int = 1
    expanded: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class LeastOfMatrix(LeastOfPairs):
    """A kernel matrix; each pair is computed once if it is symmetric."""

    form: Form
    symmetric: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class LeastOfMatmul(LeastOfPairs):
    """A kernel matrix times columns."""

    form: Form


@dataclass(frozen=True, slots=True, kw_only=True)
class LeastOfGradient(LeastOfPairs):
    """Sums of coefficients times derivatives of powers."""

    power: TermKind


@dataclass(frozen=True, slots=True, kw_only=True)
class LeastOfPack(Least):
    """Points that are written as products read them.

    Attributes:
        moved: bytes read and written for each element.
        symmetric: there is one set of points.
    """

    moved: int
    symmetric: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class LeastAroundMatmul(Least):
    """What comes before and after a kernel matrix times columns: nothing is computed.

    Attributes:
        points, columns, results: bytes read and written for each element of X1 and X2, of V, of Y.
    """

    points: int = 0
    columns: int = 0
    results: int = 0
