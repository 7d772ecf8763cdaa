"""Kronecker-sparse products on CUDA: one contraction, l as lane, i as group, the batch as rows."""

from __future__ import annotations

import functools
from dataclasses import dataclass, replace

from kronop.artifacts import Launch, Status
from kronop.descriptions.datatype import FLOAT8, DataType, RowMajor
from kronop.descriptions.math_instruction import MathInstruction
from kronop.descriptions.strided import StridedMatrix
from kronop.descriptions.tensor import TensorDescription
from kronop.emit.cuda import contract_group, operands
from kronop.emit.cuda.contract import Contraction, Order
from kronop.emit.cuda.contract_group import GroupTile
from kronop.emit.cuda.contract_group_step import (
    is_direct,
    pack_launch,
    pack_step,
    packed_bytes,
    packs,
)
from kronop.emit.cuda.contract_step import (
    MOST_REFUSED,
    EvenTile,
    contract_launch,
    contract_step,
    cycles,
    even_candidates,
    even_cost,
    splits,
)
from kronop.emit.cuda.operands import GAIN_OF_FEW_ROWS
from kronop.emit.plan import Plan, Step
from kronop.errors import DescriptionError
from kronop.families.ksparse.cuda import contract_parted
from kronop.families.ksparse.cuda.contract_parted import PartedTile
from kronop.families.ksparse.description import KSparseDescription, KSparseProblem
from kronop.target import Target

_MOST_SLOWER = 8
# The best, what is told of others, and one that may be put in front.
_FEWEST = 2 + _MOST_SLOWER
# A plan knows no batch: one that training has.
_TYPICAL_ROWS = 16384

Candidate = EvenTile | PartedTile


@dataclass(frozen=True, slots=True)
class CudaKSparseEmitter:
    """Plans Kronecker-sparse products for sm_80 and sm_90a."""

    def instruction(self, element: DataType, target: Target) -> MathInstruction:
        """The tensor cores for floats, as accurate as SIMT; integers have none that wrap."""
        if element.kind == "int":
            return MathInstruction.simt(element)
        return MathInstruction.tensor_op(element)

    def supports(self, description: KSparseDescription, target: Target) -> Status:
        """Whether `plan` will succeed, and the reason where not."""
        status = _accept_element(description.math.element_a, target)
        if not status:
            return status
        if splits(description.math) is None:
            status = operands.accept_math(description.math)
            if not status:
                return status
        accepted, rejected = _candidates(description, target, None, _FEWEST)
        return Status.accept() if accepted else Status.reject(rejected[0][1])

    def plan(
        self, description: KSparseDescription, target: Target, rows: int | None = None
    ) -> Plan:
        """One step: the cheapest tile that fits.

        Raises:
            DescriptionError: `supports` says no.
        """
        return self.candidates(description, target, 1, rows)[0]

    def candidates(
        self,
        description: KSparseDescription,
        target: Target,
        count: int,
        rows: int | None = None,
    ) -> tuple[Plan, ...]:
        """The `count` cheapest tiles that fit, the cheapest first, with what it beat.

        Raises:
            DescriptionError: `supports` says no.
        """
        status = self.supports(description, target)
        if not status:
            raise DescriptionError(status.reason)
        accepted, rejected = _ranked(description, target, rows, max(count, _FEWEST))
        slower = [
            (str(tile), f"cost {cost:.2f}, the best {accepted[0][0]:.2f}")
            for cost, tile in accepted[1:]
        ]
        beaten = (*slower[:_MOST_SLOWER], *rejected[:MOST_REFUSED])
        return tuple(
            Plan(
                target=target,
                steps=_steps(description, item, target),
                rejected=() if place else beaten,
            )
            for place, (_, item) in enumerate(accepted[:count])
        )

    def workspace_bytes(self, plan: Plan, rows: int, threads: int) -> int:
        """Room for packed weights, where a plan has a step for them, and for lanes apart."""
        a, _, _, d = operands.integers(plan.steps[_product(plan)], "pattern")
        packed = packed_bytes(plan.steps[0], d, a) if _packs(plan) else 0
        return packed + contract_parted.workspace_bytes(plan, rows, a)

    def launches(self, plan: Plan, problem: KSparseProblem) -> tuple[Launch, ...]:
        """Products, and what packs weights and moves lanes for them; none for an empty batch."""
        if problem.rows == 0:
            return ()
        return _launches(plan, problem)


def _accept_element(element: DataType, target: Target) -> Status:
    """8-bit floats become 16-bit ones by an instruction that GPUs before sm_89 do not have."""
    if element in FLOAT8 and target.generation < 9:
        return Status.reject(
            f"no kernel for {element.name}, which {target} cannot convert; use sm_90a, or convert"
            " the tensors to float16, which holds all their values"
        )
    return Status.accept()


def _order(tensor: TensorDescription, batch_last: bool, lanes: int) -> Order:
    """What is contiguous in X or Y."""
    if batch_last == (tensor.layout is RowMajor):
        return Order.Rows
    return Order.Own if lanes == 1 else Order.Lanes


def contraction(description: KSparseDescription, rows: int | None) -> Contraction:
    """The product, of so many rows or of a typical batch."""
    a, b, c, d = description.pattern
    return Contraction(
        contracted=c,
        produced=b,
        lanes=d,
        rows=(rows or _TYPICAL_ROWS) * a,
        groups=a,
        source=description.X.element,
        output=description.Y.element,
        x_alignment=description.X.alignment,
        w_alignment=description.W.alignment,
        y_alignment=description.Y.alignment,
        x_order=_order(description.X, description.batch_last, d),
        w_order=Order.Own if d == 1 else Order.Lanes,
        y_order=_order(description.Y, description.batch_last, d),
    )


@functools.lru_cache(maxsize=256)
def _candidates(
    description: KSparseDescription, target: Target, rows: int | None, most: int
) -> tuple[list[tuple[float, Candidate]], list[tuple[str, str]]]:
    work, split = contraction(description, rows), splits(description.math)
    accepted, rejected = even_candidates(work, description.math, target, description.tile, most)
    every: list[tuple[float, Candidate]] = [*accepted]
    if split is not None:
        every += contract_parted.candidates(work, split, target, description.tile)
    return sorted(every, key=lambda item: item[0])[:most], rejected


def _cost(description: KSparseDescription, tile: Candidate, target: Target, rows: int) -> float:
    work = contraction(description, rows)
    if isinstance(tile, PartedTile):
        return contract_parted.cost(work, tile, bool(splits(description.math)), target)
    return even_cost(work, description.math, tile, target)


def _ranked(
    description: KSparseDescription, target: Target, rows: int | None, most: int = _FEWEST
) -> tuple[list[tuple[float, Candidate]], list[tuple[str, str]]]:
    """Candidates for so many rows; that for many rows is first, unless others gain much."""
    accepted, rejected = _candidates(description, target, rows, most)
    if rows is None:
        return accepted, rejected
    usual = _candidates(description, target, None, _FEWEST)[0][0][1]
    took = _cost(description, usual, target, rows)
    if took > GAIN_OF_FEW_ROWS * accepted[0][0]:
        return accepted, rejected
    return [(took, usual), *(item for item in accepted if item[1] != usual)], rejected


def modelled(
    description: KSparseDescription, target: Target, rows: int | None
) -> tuple[float, Candidate]:
    """The plan's tile for so many rows, and the cycles that it is expected to take."""
    cost, tile = _ranked(description, target, rows)[0][0]
    return cycles(contraction(description, rows), cost, target), tile


def _product(plan: Plan) -> int:
    """Which step multiplies."""
    return next(at for at, step in enumerate(plan.steps) if "pattern" in dict(step.launch))


def _packs(plan: Plan) -> bool:
    """Whether the first step packs weights."""
    return packs(plan.steps[0])


def _steps(description: KSparseDescription, tile: Candidate, target: Target) -> tuple[Step, ...]:
    a, b, c, d = description.pattern
    x, y = description.X.element, description.Y.element
    first = "batch_last" if description.batch_last else "batch_first"
    work, split = contraction(description, None), bool(splits(description.math))
    entry = (
        f"ksparse_{x.short}_{a}_{b}_{c}_{d}_{first}_{y.short}_{description.epilogue.name}"
        f"_{target.arch}"
    )
    note = f"I_{a} x dense({b}, {c}) x I_{d}, {first}, tiles of {tile}"
    launch = (("pattern", (a, b, c, d)),)
    traffic = (
        description.input_columns * x.bytes + description.output_columns * y.bytes,
        2 * a * b * c * d,
    )
    if isinstance(tile, PartedTile):
        return contract_parted.steps(
            description.math,
            work,
            tile,
            split,
            description.epilogue,
            target,
            entry=entry,
            note=note,
            launch=launch,
            traffic=traffic,
            groups=a,
        )
    step = contract_step(
        description.math,
        work,
        tile,
        description.epilogue,
        target,
        entry=entry,
        note=note,
        launch=launch,
        traffic=traffic,
    )
    if not isinstance(tile, GroupTile) or contract_group.packs(work, tile):
        return (step,)
    return pack_step(description.math, work, tile, split, target, entry), step


def _shares_lines(step: Step, lanes: int) -> bool:
    """Whether neighbouring blocks read parts of the same lines of memory.

    Those have to start together. Measured: (1, 48, 192, 128) in float16, batch first, takes 0.84
    ms, and 0.96 to 1.2 where blocks begin as multiprocessors become free.
    """
    of_lanes = Order(operands.integer(step, "kXOrder")) is Order.Lanes
    return of_lanes and operands.integer(step, "kLanes") < lanes


def view(matrix: StridedMatrix, own: str, size: int, d: int) -> operands.View:
    """X or Y: column (i, own, l) of a row."""
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
    index = _product(plan)
    step = plan.steps[index]
    a, b, c, d = operands.integers(step, "pattern")
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
    packed = views["w"]
    element = operands.element_of(step, "Factor")
    images = bool(dict(step.constants).get("kImages", False))
    if _packs(plan) and (images or not is_direct(views["w"], extents, element)):
        pack, packed = pack_launch(0, plan.steps[0], views["w"], extents, problem.workspace)
        packs = (pack,)
    views["w"] = packed
    if not contract_parted.is_parted(plan):
        product = contract_launch(index, step, views, extents, problem.scalars)
        return *packs, replace(product, overlaps=bool(packs) and not _shares_lines(step, d))
    matrices = {"x": problem.x, "z": problem.z, "y": problem.y}
    room = problem.workspace + (packed_bytes(plan.steps[0], d, a) if _packs(plan) else 0)
    moved = contract_parted.launches(
        plan, matrices, problem.rows, views, extents, problem.scalars, room
    )
    return *packs, *moved
