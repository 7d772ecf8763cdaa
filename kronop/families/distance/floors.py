"""What steps can't avoid to do, and their floors: from that, and what the units of a target do.

On a CPU they are those of one core. What machines do is imported only where a floor is asked for,
because a process that reads its plans from the cache reports none.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

from kronop.emit.floor import Floor, LeastWork
from kronop.families.distance import gradient_size, product_size
from kronop.families.distance import size as matrix_size
from kronop.families.distance.form import Form, TermKind
from kronop.frozen import dataclass
from kronop.late import imported
from kronop.target import Target

if TYPE_CHECKING:
    from kronop.emit.pipes import Work


# The powers that derivatives of powers are: p - 1 for p, without its sign.
_SLOPES = {
    TermKind.Half: TermKind.Half,
    TermKind.One: TermKind.Zero,
    TermKind.ThreeHalves: TermKind.Half,
    TermKind.Two: TermKind.One,
    TermKind.FiveHalves: TermKind.ThreeHalves,
    TermKind.Three: TermKind.Two,
    TermKind.Four: TermKind.Three,
    TermKind.General: TermKind.General,
    TermKind.Relative: TermKind.Relative,
}
_UNITS = {
    "cuda": {
        "arithmetic": ("FP32 issue", "instructions"),
        "special units": ("special function units", "operations"),
        "matrix products": ("tensor cores", "products"),
    },
    "x86": {"arithmetic": ("vector arithmetic of a core", "operations")},
}


class Least(LeastWork):
    """What a step of this family does."""

    __slots__ = ()

    def floor(self, target: Target, size: Any = None) -> Floor:
        return _floor(self, target, size)


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

    computes = False
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


def _floor(least: Least, target: Target, size: Any) -> Floor:
    """The floor of a step for a size; None for the one that plans are made for if told none."""
    if size is None:
        size = _usual(least, target)
    if isinstance(least, LeastOfPairs):
        return _of_pairs(least, target, size)
    imported("kronop.emit.pipes")
    from kronop.emit.pipes import Pipes

    moved = size.batch * _moved(least, size)
    seconds = moved / Pipes.of_target(target, "float32").memory
    return Floor(seconds=seconds, unit="memory", load=_bytes(moved), size=size.told())


def _usual(least: Least, target: Target) -> Any:
    if isinstance(least, LeastOfGradient):
        return gradient_size.USUAL
    if isinstance(least, (LeastOfMatmul, LeastAroundMatmul)):
        return product_size.USUAL
    return matrix_size.USUAL[target.backend]


def _of_pairs(least: LeastOfPairs, target: Target, size: Any) -> Floor:
    imported("kronop.emit.pipes")
    from kronop.emit.pipes import Pipes, floor_of

    units = target.backend == "cuda" and least.sums == "float32"
    work = _work(least, size, units)
    if least.multiplied:
        work = dataclasses.replace(work, products=least.products * work.products)
    else:  # The ordinary cores multiply as fast as they add.
        arithmetic = work.arithmetic + work.products
        work = dataclasses.replace(work, arithmetic=arithmetic, products=0)
    found = floor_of(work, Pipes.of_target(target, least.sums, least.multiplied or 2))
    count, _ = found.loads[found.bound]
    if found.bound == "memory":
        unit, load = "memory", _bytes(count)
    else:
        unit, operations = _UNITS[target.backend][found.bound]
        load = _each(count, operations, *_counted(least, size))
    if least.sums == "float64":
        unit = unit.replace("FP32", "FP64")
    return Floor(seconds=found.ms / 1e3, unit=unit, load=load, size=size.told())


def _work(least: LeastOfPairs, size: Any, units: bool) -> Work:
    """The work, where special function units take part or not."""
    imported("kronop.families.distance.work")
    from kronop.families.distance.work import work_of_gradient, work_of_matmul, work_of_matrix

    given: dict[str, Any] = {
        "element": least.element,
        "sums": least.sums,
        "units": units,
        "expanded": least.expanded,
    }
    if isinstance(least, LeastOfGradient):
        return work_of_gradient(_SLOPES[least.power], size, **given)
    if isinstance(least, LeastOfMatmul):
        return work_of_matmul(least.form, size, **given)
    assert isinstance(least, LeastOfMatrix)
    return work_of_matrix(least.form, size, symmetric=least.symmetric, **given)


def _counted(least: LeastOfPairs, size: Any) -> tuple[int, str]:
    """For how many things a load is told, and what these are."""
    if isinstance(least, LeastOfMatmul):
        return size.batch * size.m * size.n, "a pair"
    pairs = size.m * size.n
    if isinstance(least, LeastOfMatrix) and least.symmetric:
        pairs = size.m * (size.m + 1) // 2
    return size.batch * pairs * max(1, size.k), "a feature and pair" if size.k else "a pair"


def _moved(least: Least, size: Any) -> int:
    """Bytes that a step of one problem reads and writes which does nothing else."""
    if isinstance(least, LeastOfPack):
        moved = (size.m + (0 if least.symmetric else size.n)) * size.k * least.moved
    else:
        assert isinstance(least, LeastAroundMatmul)
        moved = (size.m + size.n) * size.k * least.points
        moved += size.c * (size.n * least.columns + size.m * least.results)
    return int(moved)


def _each(count: float, operations: str, things: int, what: str) -> str:
    """`1 product a pair`, `2 instructions a feature and pair`."""
    each = f"{count / max(1, things):.3g}"
    return f"{each} {operations[:-1] if each == '1' else operations} {what}"


def _bytes(count: float) -> str:
    return f"{count / 1e9:.3g} GB" if count >= 1e9 else f"{count / 1e6:.3g} MB"
