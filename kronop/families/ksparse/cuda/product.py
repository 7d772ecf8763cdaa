"""Kronecker-sparse products on CUDA: each is one contraction, whose lanes are the index l, whose
groups are the index i, and whose rows are the batch."""

from __future__ import annotations

from dataclasses import replace

from kronop.artifacts import Launch
from kronop.descriptions.strided import NOTHING, Strided
from kronop.emit.cuda.contraction.design import ContractDesign, ContractProblem, Extents
from kronop.emit.cuda.contraction.group import GroupContract
from kronop.emit.cuda.contraction.pack import Pack, PackProblem, pack_step, packing
from kronop.emit.cuda.contraction.work import Contraction, Order
from kronop.emit.cuda.operands import View
from kronop.emit.design import Pipeline, Runnable
from kronop.emit.plan import Step
from kronop.families.ksparse.description import KSparseProblem
from kronop.frozen import dataclass, derived
from kronop.late import imported
from kronop.target import Target


@dataclass(frozen=True, kw_only=True)
class KSparseProduct(Pipeline):
    """A contraction; its weights are packed first if its design reads them packed.

    Attributes:
        product: the design that multiplies.
    """

    product: ContractDesign

    def __str__(self) -> str:
        return str(self.product)

    @derived
    def pack(self) -> Pack | None:
        """What packs the weights, if anything does."""
        product = self.product
        if isinstance(product, GroupContract) and product.takes_packed:
            return packing(product)
        return None

    @property
    def parts(self) -> tuple[Runnable, ...]:
        return (self.product,) if self.pack is None else (self.pack, self.product)

    def steps(self, step: Step) -> tuple[Step, ...]:
        """All steps, given that of the product."""
        return (step,) if self.pack is None else (pack_step(self.pack.product, step.entry), step)

    @property
    def packed_bytes(self) -> int:
        """Bytes of the packed weights."""
        return 0 if self.pack is None else self.pack.packed_bytes(self.product.work.groups)

    def seconds(self, size: int, target: Target) -> float:
        imported("kronop.emit.cuda.contraction.choice")
        from kronop.emit.cuda.contraction import choice

        return choice.even_seconds(self.product, size * self.product.work.groups, target)

    def workspace(self, size: int, target: Target, threads: int) -> int:
        return self.packed_bytes

    def launches(self, problem: KSparseProblem, target: Target) -> tuple[Launch, ...]:
        packs, contraction = self.packed(problem, target)
        (product,) = self.launches_of(-1, contraction, target)
        begins_early = bool(packs) and not _shares_lines(self.product)
        return *packs, replace(product, overlaps=begins_early)

    def packed(
        self, problem: KSparseProblem, target: Target
    ) -> tuple[tuple[Launch, ...], ContractProblem]:
        """The launches that pack the weights, if these can't be read in place, and the contraction
        that follows."""
        found = _contraction(problem, self.product.work)
        weights, extents = found.views["w"], found.extents
        if self.pack is None or not self.pack.is_needed(weights, extents):
            return (), found
        to_pack = PackProblem(weights=weights, extents=extents, address=problem.workspace)
        views = {**found.views, "w": self.pack.packed_view(to_pack)}
        return self.launches_of(0, to_pack, target), replace(found, views=views)


def _shares_lines(design: ContractDesign) -> bool:
    """Whether neighbouring blocks read parts of the same lines of memory.

    Such blocks have to start together, so that a line is still cached when the other block reads
    it. Measured: (1, 48, 192, 128) in float16, batch first, takes 0.84 ms, and 0.96 to 1.2 ms if
    blocks start as multiprocessors become free.
    """
    return design.work.x_order is Order.Lanes and design.lanes < design.work.lanes


def matrix_view(matrix: Strided | None, own: str, size: int, d: int) -> View:
    """X or Y as the contraction walks it: a row's columns are (i, own, l)."""
    matrix = matrix or NOTHING
    column = matrix.column
    return View(
        pointer=matrix.pointer,
        strides={
            "row": (matrix.row, 0, 0),
            own: (d * column,),
            "lane": (column,),
            "group": (size * d * column, 0, 0, 0),
        },
    )


def weights_view(weights: Strided) -> View:
    """Weights as the contraction walks them."""
    a, b, c, d = weights.strides
    return View(
        pointer=weights.pointer,
        strides={"contracted": (c,), "produced": (b,), "lane": (d,), "group": (a, 0, 0, 0)},
    )


def extents_of(work: Contraction, rows: int) -> Extents:
    return {
        "row": (rows, 1, 1),
        "contracted": (work.contracted,),
        "produced": (work.produced,),
        "lane": (work.lanes,),
        "group": (work.groups, 1, 1, 1),
    }


def _contraction(problem: KSparseProblem, work: Contraction) -> ContractProblem:
    b, c, d, bias = work.produced, work.contracted, work.lanes, problem.bias.column
    views = {
        "x": matrix_view(problem.x, "contracted", c, d),
        "w": weights_view(problem.weights),
        "y": matrix_view(problem.y, "produced", b, d),
        "z": matrix_view(problem.z, "produced", b, d),
        "bias": View(
            pointer=problem.bias.pointer,
            strides={"produced": (d * bias,), "lane": (bias,), "group": (b * d * bias, 0, 0, 0)},
        ),
    }
    return ContractProblem(
        views=views, extents=extents_of(work, problem.rows), scalars=problem.scalars
    )
