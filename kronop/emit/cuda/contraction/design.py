"""The base of all designs of a contraction: their parameters and launches."""

from __future__ import annotations

import functools
from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from math import prod
from typing import TYPE_CHECKING, ClassVar

from kronop.artifacts import KernelSignature, Launch, Scalar, Status
from kronop.descriptions.datatype import DataType
from kronop.descriptions.epilogue import Epilogue
from kronop.emit.cuda import operands
from kronop.emit.cuda.contraction.work import (
    ORDERS,
    ROW_AXES,
    SECTION_AXES,
    Contraction,
    Order,
    orders,
)
from kronop.emit.cuda.operands import View
from kronop.emit.design import Constant, Design, Instantiation
from kronop.frozen import dataclass
from kronop.target import Target

Extents = Mapping[str, tuple[int, ...]]
# The operand's own index, and the other index that it has besides lanes and sections.
INDICES = {"x": ("contracted", "row"), "w": ("contracted", "produced"), "y": ("produced", "row")}
_OFFSETS_OF_A_ROW = 3 * 8


@dataclass(frozen=True, slots=True, kw_only=True)
class ContractProblem:
    """A contraction with its memory.

    Attributes:
        views: the operands x, w, y, z and bias; z or bias have a pointer of 0 where absent.
        extents: those of row, contracted, produced, lane and section.
        scalars: the epilogue's, in its order.
    """

    views: Mapping[str, View]
    extents: Extents
    scalars: tuple[float, ...]


@dataclass(frozen=True, kw_only=True)
class ContractDesign(Design):
    """A design whose blocks compute `lanes` x `m` x `n` results, `k` contracted indices at a time.

    Attributes:
        work: the contraction.
        lanes, m, n: lanes, rows and produced indices ("outputs") of a block.
        k: contracted indices of a stage.
        stages: stages in shared memory: tiles of the operands, being copied or in use.
        counts_call: whether the modelled time includes the fixed time of a call.
    """

    counts_call: ClassVar[bool] = False
    header: ClassVar[str]
    template: ClassVar[str] = ""  # That of the header's name.
    styles = ("alone", *ORDERS, "lanes")

    work: Contraction
    lanes: int
    k: int
    stages: int

    if TYPE_CHECKING:
        # Fields in some designs: see `Design`.
        @property
        def m(self) -> int: ...

        @property
        def n(self) -> int: ...

    @property
    @abstractmethod
    def vectors(self) -> tuple[int, int, int]:
        """Elements of one access to X, W and Y, if a launch's strides and addresses allow it."""

    @abstractmethod
    def status(self, target: Target) -> Status:
        """Whether the kernel can run with this design; there is no other such check."""

    @abstractmethod
    def seconds(self, size: int, target: Target) -> float:
        """Modelled time for `size` rows, of all sections together."""

    @abstractmethod
    def constants(self, target: Target) -> tuple[tuple[str, Constant], ...]:
        """The constants of the trait struct."""

    def style(self, target: Target) -> Iterator[str]:
        yield from orders(self.work, self.work)
        if self.lanes > 1:
            yield "lanes"

    @property
    def epilogue(self) -> Epilogue | None:
        return self.work.epilogue

    @property
    def takes_packed(self) -> bool:
        """Whether the plan may need a step before this one that packs the weights."""
        return False

    @property
    def signature(self) -> KernelSignature:
        return _signature(operands.scalar_kind(self.work.epilogue))

    def instantiation(self, target: Target) -> Instantiation:
        work, scalar = self.work, operands.scalar_kind(self.work.epilogue)
        return Instantiation(
            header=self.header,
            template=self.template,
            parameters=f"kronop::ContractParameters<{scalar.cxx}>",
            types=operands.element_types(work.math, work.source, work.output, work.epilogue),
            constants=self.constants(target),
        )

    def launches(self, problem: ContractProblem, target: Target) -> tuple[Launch, ...]:
        views, extents = merged_rows(problem.views, problem.extents)
        x, w, y = (
            self.allows_vectors(name, views[name], extents, width)
            for name, width in zip(("x", "w", "y"), self.vectors, strict=True)
        )
        z = views["z"]
        values: dict[str, int | tuple[int, ...] | tuple[float, ...]] = {
            "x_vector": x,
            "w_vector": w,
            "y_vector": y
            and (z.pointer == 0 or self.allows_vectors("y", z, extents, self.vectors[2])),
            "scalars": problem.scalars,
        }
        for name, view in views.items():
            values |= view.field(name)
        values |= {f"{name}_extent": extents[name] for name in ("row", "lane", "section")}
        return (operands.make_launch(self, self.blocks(extents, target), values),)

    def blocks(self, extents: Extents, target: Target) -> int:
        """The number of blocks of a launch."""
        return (
            operands.cover(extents["produced"][0], self.n)
            * operands.cover(prod(extents["row"]), self.m)
            * operands.cover(extents["lane"][0], self.lanes)
            * prod(extents["section"])
        )

    def element(self, name: str) -> DataType:
        """The element type of x, w or y."""
        work = self.work
        return {"x": work.source, "w": work.math.element_b, "y": work.output}[name]

    def order(self, name: str) -> Order:
        """The order of x, w or y."""
        work = self.work
        return {"x": work.x_order, "w": work.w_order, "y": work.y_order}[name]

    def allows_vectors(self, name: str, view: View, extents: Extents, width: int) -> int:
        """1 if strides and address allow accesses of `width` elements to x, w or y, else 0."""
        own, wide = INDICES[name]
        along = {Order.Own: own, Order.Rows: wide, Order.Lanes: "lane"}[self.order(name)]
        return operands.allows_vectors(view, extents, along, width, self.element(name))


def offsets_bytes(rows: int) -> int:
    """Bytes of a block's row offsets in shared memory."""
    return operands.round_up(_OFFSETS_OF_A_ROW * rows, operands.VECTOR_BYTES)


@functools.cache
def _signature(scalar: Scalar) -> KernelSignature:
    return operands.signature(
        "ContractParameters",
        scalar,
        [(name, 1) for name in ("x", "w", "y", "z", "bias")],
        [
            ("x_vector", 1),
            ("w_vector", 1),
            ("y_vector", 1),
            *((f"row_{name}", ROW_AXES) for name in ("extent", "x", "y", "z")),
            ("contracted_x", 1),
            ("contracted_w", 1),
            *((f"produced_{name}", 1) for name in ("w", "y", "z", "bias")),
            *((f"lane_{name}", 1) for name in ("extent", "x", "w", "y", "z", "bias")),
            *((f"section_{name}", SECTION_AXES) for name in ("extent", "x", "w", "y", "z", "bias")),
        ],
    )


def merged_rows(
    views: Mapping[str, View], extents: Extents
) -> tuple[dict[str, View], dict[str, tuple[int, ...]]]:
    """Merges neighbouring row axes if in all operands the outer one continues the inner one."""
    names = [name for name in ("x", "y", "z") if name != "z" or views[name].pointer]
    merged: list[tuple[int, dict[str, int]]] = []
    for axis, size in enumerate(extents["row"]):
        strides = {name: views[name].strides["row"][axis] for name in names}
        if size == 1:
            continue
        if merged and all(merged[-1][1][name] == size * strides[name] for name in names):
            size *= merged.pop()[0]
        merged.append((size, strides))
    merged += [(1, dict.fromkeys(names, 0))] * (ROW_AXES - len(merged))
    changed = {
        name: replace(
            views[name],
            strides={**views[name].strides, "row": tuple(strides[name] for _, strides in merged)},
        )
        for name in names
    }
    absent = {"z": replace(views["z"], strides={**views["z"].strides, "row": (0,) * ROW_AXES})}
    return {**views, **absent, **changed}, {**extents, "row": tuple(size for size, _ in merged)}


def allows_runs(
    view: View,
    extents: Mapping[str, Sequence[int]],
    order: Order,
    indices: tuple[str, str],
    width: int,
    element: DataType,
    joins: bool,
) -> int:
    """1 if strides and address allow accesses of `width` elements along runs, else 0.

    Args:
        order: the operand's order.
        indices: its own index, and the other one: rows, or the produced index of weights.
        joins: whether a block takes all lanes, so that runs continue along the own index.
    """
    own, wide = indices
    along = {Order.Own: own, Order.Rows: wide, Order.Lanes: "lane"}[order]
    if order is Order.Rows and width > 1:
        # The kernel reads vectors along the last axis of rows, so no other axis may be the
        # contiguous one.
        axes = [
            (stride, size)
            for stride, size in zip(view.strides[wide], extents[wide], strict=True)
            if size > 1
        ]
        if axes and axes[-1][0] != 1:
            return 0
        # A vector may not cross the end of a run along the last axis.
        if len(axes) > 1 and axes[-1][1] % width:
            return 0
    if order is Order.Lanes and joins and width > 1:
        # A run of all lanes continues along the own index, so their strides have to fit.
        if extents[own][0] > 1 and view.strides[own] != extents["lane"]:
            return 0
        rest = {name: row for name, row in view.strides.items() if name != own}
        view = View(pointer=view.pointer, strides=rest)
    return operands.allows_vectors(view, extents, along, width, element)
