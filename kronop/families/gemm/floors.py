"""The floors of matrix products: from what they do at least, and what the units of a machine do.

On a CPU they are those of one core. What machines do is imported only where a floor is asked for,
because a process that reads its plans from the cache reports none.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from kronop.descriptions.datatype import DataType, float32, float64
from kronop.emit.design import Design
from kronop.emit.floor import Floor, LeastWork
from kronop.emit.plan import Step
from kronop.emit.x86 import amx
from kronop.families.gemm.size import USUAL, GemmSize
from kronop.frozen import dataclass
from kronop.late import imported
from kronop.size import Size
from kronop.target import Target

if TYPE_CHECKING:
    from kronop.emit.pipes import Pipes


@dataclass(frozen=True, slots=True, kw_only=True)
class LeastOfGemm(LeastWork):
    """A step that computes products, of both targets.

    Attributes:
        element: type of A and B in memory.
        output: type of C and D.
        sums: type of sums.
        multiplied: type that tensor cores or AMX tiles multiply; None where ordinary cores or
            vectors multiply.
        products: how many of these make one product of elements, as 3 for 3xTF32.
    """

    element: DataType
    output: DataType
    sums: DataType
    multiplied: DataType | None = None
    products: int = 1

    def floor(self, target: Target, size: Any = None) -> Floor:
        """The floor on a target; `size` is a GemmSize, or None for the usual one."""
        return _floor_of_products(self, target, size)


@dataclass(frozen=True, slots=True, kw_only=True)
class LeastOfReduction(LeastWork):
    """A step that adds up the sums of slices, each a matrix of `sums`, to a result.

    Attributes:
        slices: how many there are.
    """

    output: DataType
    sums: DataType
    slices: int

    def floor(self, target: Target, size: Any = None) -> Floor:
        return _floor_of_reduction(self, target, size)


def product_step(
    entry: str,
    what: Any,
    design: Design,
    *,
    multiplied: DataType | None,
    products: int = 1,
    sums: DataType | None = None,
    note: str = "a matrix product by",
    least: Callable[..., LeastOfGemm] = LeastOfGemm,
) -> Step:
    """The step of a design.

    Args:
        entry: the kernel's name.
        what: the description of an operation that multiplies A and B.
        multiplied, products, sums: as in `LeastOfGemm`; sums of None are those of the description.
        note: what stands before the design in the step's note.
        least: makes what the step does at least.
    """
    found = least(
        element=what.A.element,
        output=what.Y.element,
        sums=sums or what.math.element_accumulator,
        multiplied=multiplied,
        products=products,
    )
    return Step(entry=entry, design=design, note=f"{note} {design}", least=found)


def _floor_of_products(least: LeastOfGemm, target: Target, size: GemmSize | None) -> Floor:
    """The floor of products of a size; None for the one that plans are made for if told none."""
    size = size or USUAL[target.backend]
    count = size.batch * size.m * size.n * size.k * least.products
    operands = (size.m + size.n) * size.k * least.element.bytes
    moved = size.batch * (operands + size.m * size.n * least.output.bytes)
    return floor_of(least, target, count, moved, size)


def floor_of(least: LeastOfGemm, target: Target, count: int, moved: int, size: Size) -> Floor:
    """The floor of `count` multiply-adds, of operands and results of `moved` bytes."""
    unit, rate = _unit(least, target)
    busy, memory = count / rate, moved / _memory(target)
    if memory > busy:
        return _of_memory(moved, memory, size)
    each = "" if least.products == 1 else f", {least.products} for one of elements"
    load = f"{_told(count)} multiply-adds{each}"
    return Floor(seconds=busy, unit=unit, load=load, size=size.told())


def _floor_of_reduction(least: LeastOfReduction, target: Target, size: GemmSize | None) -> Floor:
    """The floor of a reduction of slices: it only reads and writes."""
    size = size or USUAL[target.backend]
    each = least.slices * least.sums.bytes + least.output.bytes
    moved = size.batch * size.m * size.n * each
    return _of_memory(moved, moved / _memory(target), size)


def _unit(least: LeastOfGemm, target: Target) -> tuple[str, float]:
    """(what multiplies, its multiply-adds in a second)."""
    if (core := target.cpu) is not None:
        if least.multiplied is not None:
            products = amx.TILE**2 * amx.LINE_BYTES // least.multiplied.bytes
            return "AMX tiles of a core", products / core.tile_cycles * core.hertz
        # NOTE: integers as floats of their size, though some CPUs multiply them more slowly.
        return "vector arithmetic of a core", _pipes(target, least.sums).arithmetic
    assert target.gpu is not None
    if least.multiplied is float64 and target.gpu.double_products:
        return "tensor cores", target.gpu.double_products
    # Where tensor cores are no faster, products of float64 are the ordinary cores'.
    if least.multiplied is not None and least.multiplied is not float64:
        return "tensor cores", _pipes(target, float32, least.multiplied.bytes).products
    rate = _pipes(target, least.sums).arithmetic
    if least.sums.kind == "int":
        # One of 64 bits takes about four of 32 bits.
        share = target.gpu.int32 / target.gpu.float32 * (1 if least.sums.bytes == 4 else 1 / 4)
        return "integer cores", share * rate
    return f"FP{least.sums.bits} cores", rate


def _pipes(target: Target, sums: DataType, multiplied: int = 2) -> Pipes:
    """Those of floats; integers are counted in terms of the floats of their bytes."""
    imported("kronop.emit.pipes")
    from kronop.emit.pipes import Pipes

    by_bytes = sums.bytes == 8 and (sums is float64 or target.backend == "x86")
    return Pipes.of_target(target, "float64" if by_bytes else "float32", multiplied)


def _memory(target: Target) -> float:
    return _pipes(target, float32).memory


def _of_memory(moved: float, seconds: float, size: Size) -> Floor:
    load = f"{moved / 1e9:.3g} GB" if moved >= 1e9 else f"{moved / 1e6:.3g} MB"
    return Floor(seconds=seconds, unit="memory", load=load, size=size.told())


def _told(count: float) -> str:
    """`1.07 billion`, `134 million`."""
    return f"{count / 1e9:.4g} billion" if count >= 1e9 else f"{count / 1e6:.4g} million"
