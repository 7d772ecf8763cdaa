"""The second half of arguments whose operation ends with a pass of a visitor tree over sums."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Container, Mapping
from typing import Any

from kronop.args import visited
from kronop.args.placing import Placed, along, batched, placed, pointer_of
from kronop.args.protocols import OperationLike, Places, Planned
from kronop.args.staging import Form
from kronop.args.strides import matrix_strides
from kronop.args.view import Device, TensorView
from kronop.args.visited import Visited
from kronop.artifacts import Launch
from kronop.descriptions.scalars import EpilogueArguments
from kronop.descriptions.summed import (
    UNCHANGED,
    Summed,
    VisitProblem,
    bytes_beside,
    sums_alignment,
    sums_bytes,
)
from kronop.descriptions.tensor import TensorDescription
from kronop.descriptions.visitor import VisitorEpilogue
from kronop.descriptions.visitor_arguments import VisitorArguments
from kronop.frozen import dataclass
from kronop.tensors import Tensor

_D, _SUMS = "D", "sums"
Ints = tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Treed:
    """What a tree reads and writes, and where the sums lie that it is computed from.

    Attributes:
        epilogue: the tree with its types.
        output_op: scalars and tensors by name.
        y: D, (..., M, N).
        described: its type and layout.
        items: the operands, then the auxiliary results, for this shape.
        sums: a view without memory: the sums, (..., M, N), in the layout of D.
        device: where kernels run.
        reads_result: whether D, or an auxiliary result, is an operand too.
    """

    epilogue: VisitorEpilogue
    output_op: VisitorArguments
    y: TensorView
    described: TensorDescription
    items: tuple[Visited, ...]
    sums: TensorView
    device: Device
    reads_result: bool

    @classmethod
    def of(
        cls,
        epilogue: VisitorEpilogue,
        output_op: VisitorArguments,
        y: TensorView,
        described: TensorDescription,
        inputs: Mapping[str, TensorView],
        device: Device,
        strides: Ints | None = None,
        rows: int = 1,
    ) -> Treed:
        """Checks the tensors of a tree.

        Args:
            inputs: what the family's kernels read.
            strides: those of the sums; None for matrices one after the other.
            rows: how many axes of D are its rows: three of a convolution's (N, P, Q, K). The tree
                then has the matrix (NPQ, K).

        Raises:
            ElementTypeError, ArgumentError: see `visited`, `fitted` and `check_overlaps`.
        """
        found = visited.visited(epilogue, output_op, described.layout)
        items = visited.fitted(found, y.shape, output_op.problem_size, rows)
        y = visited.joined(_D, "tensor", y, rows)
        element = epilogue.element_accumulator
        if strides is None:
            strides = matrix_strides(y.shape, described.layout, sums_alignment(element))
        sums = dataclasses.replace(
            y,
            strides=strides,
            pointer=0,
            element=element,
            device=device,
            writable=True,
            in_place=True,
            owner=None,
            storage=None,
        )
        return cls(
            epilogue=epilogue,
            output_op=output_op,
            y=y,
            described=described,
            items=items,
            sums=sums,
            device=device,
            reads_result=visited.check_overlaps(items, y, inputs),
        )

    @property
    def results(self) -> tuple[Tensor, ...]:
        """The tensors of the auxiliary results."""
        return tuple(item.owner for item in self.items if item.result)

    @property
    def own_bytes(self) -> int:
        """What sums, then parts of reductions take of the workspace."""
        return bytes_beside(self.epilogue, self.described.layout, self.y.shape)

    def launches(
        self, of: Any, planned: Planned, places: Places, needed: int
    ) -> tuple[Launch, ...]:
        """The kernel calls of the family, then those of the pass.

        Args:
            of: the family's arguments, whose result are the sums.
            needed: bytes of workspace that the family's kernels need.
        """
        workspace = places.workspace(self.own_bytes + needed)
        problem = of._problem(SumsIn(places, workspace), workspace + self.own_bytes)
        return planned.launches(
            Summed(
                problem=dataclasses.replace(problem, scalars=UNCHANGED),
                visit=self.problem(places, workspace, of._threads),
            )
        )

    def problem(self, places: Places, workspace: int, threads: int) -> VisitProblem:
        """The pass, with operands at the places that kernels can reach."""
        written = {_D: self.y} | {item.key: item.view for item in self.items if item.result}
        same = visited.read_again(self.items, written)
        lead, again = self.y.shape[:-2], set(same.values())
        of_places = functools.partial(pointer_of, places, {key: key in again for key in written})

        def pointer(key: str, item: Placed) -> int:
            return workspace if key == _SUMS else of_places(key, item)

        of_sums = sums_bytes(self.sums.element, self.described.layout, self.y.shape)
        items, axes = batched(lead, self._items(same), self.device)
        matrices = placed(items, axes, pointer, self._strides)
        matrices |= {key: matrices[result] for key, result in same.items()}
        return VisitProblem(
            m=self.y.shape[-2],
            n=self.y.shape[-1],
            batch=tuple(extent for extent, _ in axes),
            sums=matrices[_SUMS],
            operands=tuple(matrices[item.key] for item in self.items if item.result is None),
            results=tuple(matrices[key] for key in written),
            scalars=self.output_op.scalars,
            workspace=workspace + of_sums,
            threads=threads,
        )

    def _items(self, without: Container[str]) -> dict[str, Placed]:
        """The sums, D, and those operands and results that are not named."""
        found = {
            _SUMS: Placed(view=self.sums, described=self.described, inner=2, form=None),
            _D: Placed.of(self.y, self.described, self.device, 2),
        }
        return found | {
            item.key: Placed.of(item.view, item.described, self.device, len(item.axes))
            for item in self.items
            if item.key not in without
        }

    def _strides(self, key: str, item: Placed) -> Ints:
        axes = next((item.axes for item in self.items if item.key == key), visited.OVER)
        return along(item.moving, axes, visited.OVER)


class TakesTrees:
    """The part of arguments that hands over to a visitor tree."""

    operation: OperationLike
    output_op: EpilogueArguments
    _device: Device
    Y: Tensor
    _tree: Treed | None = None

    @property
    def D(self) -> Tensor:
        """The tensor of the result, by the name that it has for PyCUTLASS and in visitor trees."""
        return self.Y

    def _summed(
        self,
        y: TensorView,
        described: TensorDescription,
        inputs: Mapping[str, TensorView],
        strides: Ints | None = None,
    ) -> TensorView:
        """What the family's kernels write in place of D: the sums of a visitor tree, or D itself
        where the epilogue is no tree.

        Args:
            y: D, (..., M, N).
            described: its type and layout.
            inputs: what the family's kernels read.
            strides: those of the sums; None for matrices one after the other.
        """
        if not isinstance(self.output_op, VisitorArguments):
            return y
        epilogue = self.operation.description.epilogue
        self._tree = Treed.of(epilogue, self.output_op, y, described, inputs, self._device, strides)
        self.output_op.attach(self)
        return self._tree.sums


class SumsIn:
    """Places of a family's operands, whose result are the sums at an address."""

    def __init__(self, places: Places, address: int) -> None:
        self._places, self._address = places, address

    def input(self, name: str, item: TensorView, form: Form | None) -> TensorView:
        return self._places.input(name, item, form)

    def output(self, name: str, item: TensorView, form: Form | None, *, read: bool) -> TensorView:
        return dataclasses.replace(item, pointer=self._address)

    def workspace(self, nbytes: int) -> int:
        return self._places.workspace(nbytes)
