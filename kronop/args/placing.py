"""Operands as kernels walk them: their own strides, and those of their leading dimensions."""

from __future__ import annotations

from collections.abc import Mapping

from kronop.args.staging import Form, form_for
from kronop.args.strides import broadcast_strides, flat_stride, merged
from kronop.args.view import Device, TensorView
from kronop.descriptions.strided import MOST_BATCH_DIMENSIONS
from kronop.descriptions.tensor import TensorDescription
from kronop.frozen import dataclass

Ints = tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Laid:
    """An operand as kernels walk it.

    Attributes:
        view: the tensor.
        described: its type and layout.
        inner: how many of its dimensions are its own; those in front of them are leading ones.
        form: of the copy that kernels walk; None if they walk the tensor, or a copy of its bytes.
    """

    view: TensorView
    described: TensorDescription
    inner: int
    form: Form | None

    @classmethod
    def of(cls, view: TensorView, described: TensorDescription, device: Device, inner: int) -> Laid:
        """A tensor for kernels on a device."""
        form = form_for(view, described, device)
        return cls(view=view, described=described, inner=inner, form=form)

    def joined(self, lead: Ints, device: Device) -> Laid:
        """The same, in a copy of all leading dimensions unless these have a common stride."""
        if flat_stride(lead, self.steps(lead)) is not None:
            return self
        shape = self.view.shape
        full = (*lead, *shape[len(shape) - self.inner :])
        form = form_for(self.view, self.described, device, full)
        return Laid(view=self.view, described=self.described, inner=self.inner, form=form)

    @property
    def own(self) -> Ints:
        """The strides of its own dimensions."""
        _, strides = self._walked
        return strides[len(strides) - self.inner :]

    @property
    def moving(self) -> Ints:
        """The same, with 0 for extents of 1."""
        shape, strides = self._walked
        pairs = zip(shape, strides, strict=True)
        return tuple(stride if extent > 1 else 0 for extent, stride in pairs)[
            len(shape) - self.inner :
        ]

    def steps(self, lead: Ints) -> Ints:
        """The strides of leading dimensions to which its own broadcast; 0 for what repeats."""
        shape, strides = self._walked
        at = len(shape) - self.inner
        return broadcast_strides(shape[:at], strides[:at], lead)

    @property
    def _walked(self) -> tuple[Ints, Ints]:
        of = self.view if self.form is None else self.form
        return of.shape, of.strides


def matrix_of(item: Laid, kind: str) -> tuple[int, int]:
    """The strides of rows and columns of a "tensor", or of a "row" or "column" that repeats."""
    if kind == "tensor":
        down, across = item.moving
        return down, across
    (along,) = item.moving
    return (along, 0) if kind == "column" else (0, along)


def walkable(lead: Ints, operands: Mapping[str, Laid], device: Device) -> Mapping[str, Laid]:
    """The operands; copies of some of them where kernels walk fewer batch dimensions than there are
    without a common stride."""
    if len(_axes(lead, operands)) <= MOST_BATCH_DIMENSIONS:
        return operands
    return {name: item.joined(lead, device) for name, item in operands.items()}


def collapsed(lead: Ints, operands: Mapping[str, Laid]) -> tuple[Ints, dict[str, Ints]]:
    """(extents of as few batch dimensions as possible, strides of every operand over them)."""
    axes = _axes(lead, operands)
    strides = {name: tuple(step[index] for _, step in axes) for index, name in enumerate(operands)}
    return tuple(extent for extent, _ in axes), strides


def _axes(lead: Ints, operands: Mapping[str, Laid]) -> list[tuple[int, Ints]]:
    """The loops over a batch: extents, with the strides of all operands."""
    steps = [item.steps(lead) for item in operands.values()]
    every = zip(lead, zip(*steps, strict=True), strict=True)
    return merged([(extent, strides) for extent, strides in every if extent != 1])
