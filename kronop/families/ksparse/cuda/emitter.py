"""Kronecker-sparse products on CUDA: each is one contraction, whose lanes are the index l, whose
groups are the index i, and whose rows are the batch."""

from __future__ import annotations

from dataclasses import replace

from kronop.artifacts import Launch
from kronop.descriptions.datatype import DataType
from kronop.descriptions.math_instruction import MathInstruction
from kronop.descriptions.strided import StridedMatrix
from kronop.emit.cuda import operands
from kronop.emit.cuda.contraction.design import ContractDesign
from kronop.emit.cuda.contraction.pack import Pack
from kronop.emit.cuda.contraction.work import Order
from kronop.emit.emitter import Searching
from kronop.emit.plan import Plan
from kronop.families.ksparse.cuda import contract_parted
from kronop.families.ksparse.description import KSparseProblem
from kronop.frozen import dataclass
from kronop.target import Target


@dataclass(frozen=True, slots=True)
class CudaKSparseEmitter(Searching):
    """Plans Kronecker-sparse products for GPUs."""

    search = "kronop.families.ksparse.cuda.choice"

    def instruction(self, element: DataType, target: Target) -> MathInstruction:
        """Tensor cores for floats, with the accuracy of SIMT; SIMT for integers, because their sums
        wrap around."""
        if element.kind == "int":
            return MathInstruction.simt(element)
        return operands.fastest(element, target, halves=True)

    def workspace_bytes(self, plan: Plan, rows: int, threads: int) -> int:
        """Room for packed weights and for separated lanes, if the plan has steps for them."""
        groups = _product(plan)[1].work.groups
        pack = plan.steps[0].design
        packed = pack.packed_bytes(groups) if isinstance(pack, Pack) else 0
        return packed + contract_parted.workspace_bytes(plan, rows, groups)

    def launches(self, plan: Plan, problem: KSparseProblem) -> tuple[Launch, ...]:
        """The products, with the launches that pack weights and move lanes for them; none for an
        empty batch."""
        if problem.rows == 0:
            return ()
        return _launches(plan, problem)


def _product(plan: Plan) -> tuple[int, ContractDesign]:
    """The index of the step that multiplies, and its design."""
    return next(
        (at, step.design)
        for at, step in enumerate(plan.steps)
        if isinstance(step.design, ContractDesign)
    )


def _shares_lines(design: ContractDesign) -> bool:
    """Whether neighbouring blocks read parts of the same lines of memory.

    Such blocks have to start together, so that a line is still cached when the other block reads
    it. Measured: (1, 48, 192, 128) in float16, batch first, takes 0.84 ms, and 0.96 to 1.2 ms if
    blocks start as multiprocessors become free.
    """
    return design.work.x_order is Order.Lanes and design.lanes < design.work.lanes


def view(matrix: StridedMatrix, own: str, size: int, d: int) -> operands.View:
    """X or Y as the contraction walks it: a row's columns are (i, own, l)."""
    column = matrix.column
    return operands.View(
        pointer=matrix.pointer,
        strides={
            "row": (matrix.row, 0, 0),
            own: (d * column,),
            "lane": (column,),
            "group": (size * d * column, 0, 0, 0),
        },
    )


def _launches(plan: Plan, problem: KSparseProblem) -> tuple[Launch, ...]:
    index, design = _product(plan)
    work = design.work
    a, b, c, d = work.groups, work.produced, work.contracted, work.lanes
    w_a, w_b, w_c, w_d = problem.weight_strides
    nothing = StridedMatrix(pointer=0, row=0, column=0)
    bias = problem.bias_stride
    views = {
        "x": view(problem.x, "contracted", c, d),
        "w": operands.View(
            pointer=problem.weights,
            strides={
                "contracted": (w_c,),
                "produced": (w_b,),
                "lane": (w_d,),
                "group": (w_a, 0, 0, 0),
            },
        ),
        "y": view(problem.y, "produced", b, d),
        "z": view(problem.z or nothing, "produced", b, d),
        "bias": operands.View(
            pointer=problem.bias,
            strides={"produced": (d * bias,), "lane": (bias,), "group": (b * d * bias, 0, 0, 0)},
        ),
    }
    extents = {
        "row": (problem.rows, 1, 1),
        "contracted": (c,),
        "produced": (b,),
        "lane": (d,),
        "group": (a, 1, 1, 1),
    }
    packs: tuple[Launch, ...] = ()
    workspace, pack = problem.workspace, plan.steps[0].design
    if isinstance(pack, Pack):
        workspace += pack.packed_bytes(a)
        if pack.is_needed(views["w"], extents):
            launch, views["w"] = pack.launch(0, views["w"], extents, problem.workspace)
            packs = (launch,)
    if not contract_parted.is_parted(plan):
        product = design.launch(index, plan.target, views, extents, problem.scalars)
        return *packs, replace(product, overlaps=bool(packs) and not _shares_lines(design))
    matrices = {"x": problem.x, "z": problem.z, "y": problem.y}
    moved = contract_parted.launches(
        plan, matrices, problem.rows, views, extents, problem.scalars, workspace
    )
    return *packs, *moved
