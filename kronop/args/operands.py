"""Operands as families declare them; from that follow views, checks, results and places of all."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, ClassVar

from kronop.args.checks import check_overlap, check_source, check_writable, common_device
from kronop.args.frameworks import DIFFERENTIABLE, view
from kronop.args.host import host_threads, thread_count
from kronop.args.overlap import same_elements
from kronop.args.placing import Axes, Placed, Results, along, batched, placed, pointer_of
from kronop.args.protocols import Places
from kronop.args.tensor import check_promise, empty, listed
from kronop.args.treed import TakesTrees
from kronop.args.view import TensorView
from kronop.args.visited import taken
from kronop.descriptions.datatype import Layout
from kronop.descriptions.strided import Strided
from kronop.descriptions.summed import summed
from kronop.descriptions.tensor import TensorDescription
from kronop.descriptions.visitor_arguments import VisitorArguments
from kronop.errors import ArgumentError, ElementTypeError
from kronop.frozen import dataclass
from kronop.tensors import Tensor

Ints = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Operand:
    """A tensor, or a list of tensors, among the arguments of a kind of operation.

    Attributes:
        name: of the argument, and in messages; "Z" and "Y" are the source and the result.
        axes: a letter for each of its own axes, behind leading dimensions: "mk".
        like: the field of descriptions that says its type and layout; empty if that has the name of
            the operand. Or the type and layout themselves.
        optional: may be None.
        typed: of that field only the type counts; the tensor may have any strides.
        each: it is a list, with a tensor for each item of this field of descriptions.
        over: the axes along which kernels read it, if it repeats along some of them.
        of_tree: a visitor tree reads it in place of the family's kernels.
    """

    name: str
    axes: str
    like: str | TensorDescription = ""
    optional: bool = False
    typed: bool = False
    each: str = ""
    over: str = ""
    of_tree: bool = False

    def described(self, description: Any) -> TensorDescription:
        """Its type and layout in an operation of this description."""
        if isinstance(self.like, TensorDescription):
            return self.like
        found: TensorDescription = getattr(description, self.like or self.name)
        return TensorDescription(found.element) if self.typed else found


def results(axes: str) -> tuple[Operand, Operand]:
    """Z and Y, of these axes."""
    source = Operand("Z", axes, like="Y", optional=True, of_tree=True)
    return source, Operand("Y", axes, optional=True)


class TakesOperands(TakesTrees):
    """The part of arguments that takes tensors, from their views to the places kernels read.

    Attributes:
        operands: what a family declares, Z and Y last. The first one leads: new results are of its
            framework and on its device.
        differentiable: the function with gradients that messages name.
        called: the names of operands for the caller, where these are others.
    """

    operands: ClassVar[tuple[Operand, ...]] = ()
    differentiable: ClassVar[str] = DIFFERENTIABLE
    called: ClassVar[Mapping[str, str]] = MappingProxyType({})
    _named: tuple[str, ...]
    _is_host: bool
    _threads: int
    _framework: str
    _description: Any
    _shape: Ints
    _lead: Ints
    _views: dict[str, TensorView]
    _placed: Mapping[str, Placed]
    _batch: Axes
    _same: Mapping[str, str] = MappingProxyType({})
    _number: str = ""  # The end of the operands' names if this is one of several products: "[3]".
    _table: dict[str, Operand]

    def _accept(self, **given: Tensor) -> None:
        """Checks the tensors of a call, makes Y if it is not given, and finds how kernels read
        them.

        Args:
            given: a tensor or None for each of `operands`, by name.
        """
        given = self._without_those_of_tree(given)
        views = self._views_of(given)
        check_source(self.output_op, views.get("Z"), self._called("Z"))
        self._shape = shape = self._fit(views)
        self._lead = self._lead_of(shape)
        self._settle(views)
        for name, item in views.items():
            self._check(name, item)
        if "Y" in views:
            self._take_result(given["Y"], views)
        else:
            views["Y"] = self._new_result(next(iter(views.values())))
        self._end(views)
        self._views, self._same = views, self._read_again(views)
        self._source_is_result = bool(self._same)
        self._lay_out()

    @property
    def slots(self) -> dict[str, int]:
        """The position of each tensor among those of a repeated call (`core.prepared`): the order
        of `operands`, with what `_fit` added in front of Z and Y."""
        inner = dict.fromkeys(
            name for name in (*self._named, *self._views) if name not in ("Z", "Y")
        )
        return {name: slot for slot, name in enumerate((*inner, "Z", "Y"))}

    def _without_those_of_tree(self, given: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """The tensors without those that a visitor tree reads itself, and with its D as Y."""
        if not isinstance(self.output_op, VisitorArguments):
            return dict(given)
        names = [item.name for item in self.operands if item.of_tree]
        others = {self._called(name): given.get(name) for name in names}
        Y = taken(self.output_op, given.get("Y"), others)
        return {**given, **dict.fromkeys(names), "Y": Y}

    def _views_of(self, given: Mapping[str, Tensor]) -> dict[str, TensorView]:
        """Views by name of the tensors that are given; those of a list are called name[0] and so
        on."""
        table: dict[str, Operand] = {}
        views = {}
        for item in self.operands:
            value = given.get(item.name)
            for name, tensor in self._listed(item, value) if item.each else ((item.name, value),):
                table[name] = item
                if tensor is not None or not item.optional:
                    views[name] = view(tensor, self._called(name), self.differentiable)
        self._table, self._named = table, tuple(table)
        return views

    def _listed(self, operand: Operand, value: object) -> list[tuple[str, Tensor]]:
        """The tensors of a list, with their names."""
        name, each = operand.name, getattr(self._description, operand.each)
        found = listed(value)
        if found is None:
            raise ElementTypeError(
                name,
                expected="a list or tuple of tensors",
                got=type(value).__name__,
                hint=f"pass one tensor for each of its {operand.each}, in their order",
            )
        if len(found) != len(each):
            raise ArgumentError(
                name,
                expected=f"{len(each)} tensors, for {list(each)}",
                got=len(found),
                hint=f"pass one tensor for each of its {operand.each}, in their order",
            )
        return [(f"{name}[{index}]", item) for index, item in enumerate(found)]

    def _fit(self, views: dict[str, TensorView]) -> Ints:
        """The shape of Y, by the family's rule, which checks all shapes.

        It may reshape views, and add views of further tensors, with an entry in `_table` for each.
        """
        raise NotImplementedError

    def _settle(self, views: Mapping[str, TensorView]) -> None:
        """Sets the device from all operands, and framework and threads from the first one."""
        self._device = common_device(self.operation.target, views)
        leader = next(iter(views.values()))
        self._framework = leader.framework
        self._threads = host_threads(leader.framework) if self._is_host else thread_count()

    def _check(self, name: str, item: TensorView) -> None:
        """Refuses a tensor that is not as described."""
        check_promise(item, self._described(name), self._called(name))

    def _called(self, name: str) -> str:
        return self.called.get(name, name)

    def _described(self, name: str) -> TensorDescription:
        """The type and layout of an operand."""
        return self._table[name].described(self._description)

    def _take_result(self, Y: Tensor, views: Mapping[str, TensorView]) -> None:
        """Accepts the caller's Y after checking that it can be written and overlaps no input.

        Y may be Z itself.
        """
        self.Y = Y
        check_writable(views["Y"], self._called("Y"))
        ends = ("Z", *self._outputs)
        inputs = {name: item for name, item in views.items() if name not in ends}
        source = views.get("Z") if self.output_op.beta else None
        check_overlap(views["Y"], inputs, source, self._called("Y"), self._called("Z"))

    def _new_result(self, like: TensorView) -> TensorView:
        """Makes Y; returns its view."""
        return self._made(like, self._shape)

    def _made(self, like: TensorView, shape: Ints) -> TensorView:
        """Makes a Y of this shape, without gaps and in the layout that is described: if that is
        column-major, the last but one of the axes is contiguous."""
        described = self._described("Y")
        own = len(shape) - len(self._lead)
        turned = described.layout is Layout.ColumnMajor and own > 1
        memory = (*shape[:-2], shape[-1], shape[-2]) if turned else shape
        made = empty(like, memory, described.element)
        self.Y = made.swapaxes(-1, -2) if turned else made
        return view(self.Y, self._called("Y"))

    def _end(self, views: dict[str, TensorView]) -> None:
        """Has kernels write sums in place of Y if a visitor tree follows them."""
        inputs = {name: item for name, item in views.items() if name != "Y"}
        views["Y"] = self._summed(views["Y"], self._description.Y, inputs)
        if self._tree is not None:
            self._description = summed(self._description)

    def _read_again(self, views: Mapping[str, TensorView]) -> Mapping[str, str]:
        """The operands that are results, with the names of these."""
        same = self.output_op.beta and same_elements(views["Z"], views["Y"])
        return {"Z": "Y"} if same else {}

    def _lay_out(self) -> None:
        """Finds how kernels read and write the operands."""
        self._placed, self._batch = batched(self._lead, self._every(), self._device)

    def _every(self) -> dict[str, Placed]:
        """The operands that kernels read or write; one that is read where it is written counts
        once."""
        return {
            name: self._placed_of(name, item)
            for name, item in self._views.items()
            if name not in self._same and (name != "Z" or self.output_op.beta)
        }

    def _placed_of(self, name: str, item: TensorView) -> Placed:
        inner = len(self._table[name].axes)
        return Placed.of(item, self._described(name), self._device, inner)

    def _lead_of(self, shape: Ints) -> Ints:
        """The leading dimensions of a result, over which kernels run as a batch."""
        return shape[: len(shape) - len(self._table["Y"].axes)]

    @property
    def _outputs(self) -> Results:
        """The operands that kernels write, and whether they read them too."""
        return {"Y": "Y" in self._same.values()}

    def _place(self, places: Places) -> tuple[Ints, dict[str, Strided]]:
        """(extents of the batch, operands by name at the places that kernels can reach)."""
        pointer = functools.partial(pointer_of, places, self._outputs, number=self._number)
        found = placed(self._placed, self._batch, pointer, self._strides)
        found |= {name: found[of] for name, of in self._same.items()}
        return tuple(extent for extent, _ in self._batch), found

    def _strides(self, name: str, item: Placed) -> Ints:
        """The strides of an operand along the axes that kernels read it along."""
        own = self._table[name]
        return along(item.moving, own.axes, own.over or own.axes)
