"""Operands as kernels address them: the strides of their own axes, and of leading dimensions."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from kronop.args.protocols import Places
from kronop.args.staging import Form, form_for
from kronop.args.strides import broadcast_strides, flat_stride, merged
from kronop.args.view import Device, TensorView
from kronop.descriptions.strided import MOST_BATCH_DIMENSIONS, Strided
from kronop.descriptions.tensor import TensorDescription
from kronop.frozen import dataclass

Ints = tuple[int, ...]
Axes = Sequence[tuple[int, Ints]]
"""The axes of a batch: the extent of each, and the strides of all operands."""
Results = Mapping[str, bool]
"""The operands that kernels write, and whether they read them too."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Placed:
    """An operand as kernels address it.

    Attributes:
        view: the tensor.
        described: its type and layout.
        inner: how many of its dimensions are its own; those in front of them are leading ones.
        form: of the copy that kernels read or write; None if they use the tensor, or a copy of its
            bytes.
    """

    view: TensorView
    described: TensorDescription
    inner: int
    form: Form | None

    @classmethod
    def of(
        cls, view: TensorView, described: TensorDescription, device: Device, inner: int
    ) -> Placed:
        """A tensor for kernels on a device."""
        form = form_for(view, described, device)
        return cls(view=view, described=described, inner=inner, form=form)

    def joined(self, lead: Ints, device: Device) -> Placed:
        """The same, in a copy of all leading dimensions unless these have a common stride."""
        if flat_stride(lead, self.steps(lead)) is not None:
            return self
        shape = self.view.shape
        full = (*lead, *shape[len(shape) - self.inner :])
        return replace(self, form=form_for(self.view, self.described, device, full))

    @property
    def own(self) -> Ints:
        """The strides of its own dimensions."""
        strides = self.strides
        return strides[len(strides) - self.inner :]

    @property
    def moving(self) -> Ints:
        """The same, with 0 for extents of 1."""
        pairs = zip(self.shape[len(self.shape) - self.inner :], self.own, strict=True)
        return tuple(stride if extent > 1 else 0 for extent, stride in pairs)

    def steps(self, lead: Ints) -> Ints:
        """The strides of leading dimensions to which its own broadcast; 0 for what repeats."""
        at = len(self.shape) - self.inner
        return broadcast_strides(self.shape[:at], self.strides[:at], lead)

    @property
    def shape(self) -> Ints:
        """The extents in the memory that kernels use."""
        return self.view.shape if self.form is None else self.form.shape

    @property
    def strides(self) -> Ints:
        """The strides in the memory that kernels use."""
        return self.view.strides if self.form is None else self.form.strides


def batched(
    lead: Ints, operands: Mapping[str, Placed], device: Device
) -> tuple[Mapping[str, Placed], Axes]:
    """(the operands, the axes of the batch, as few as possible).

    Operands without a common stride of the batch are copied if kernels have fewer batch dimensions
    than these strides need.
    """
    axes = _axes(lead, operands)
    if len(axes) <= MOST_BATCH_DIMENSIONS:
        return operands, axes
    operands = {name: item.joined(lead, device) for name, item in operands.items()}
    return operands, _axes(lead, operands)


def placed(
    operands: Mapping[str, Placed],
    axes: Axes,
    pointer: Callable[[str, Placed], int],
    strides: Callable[[str, Placed], Ints],
) -> dict[str, Strided]:
    """The operands at their places.

    Args:
        axes: of the batch.
        pointer: the address of an operand for kernels.
        strides: those of its own axes, as kernels take them.
    """
    return {
        name: Strided(
            pointer=pointer(name, item),
            strides=strides(name, item),
            batch=tuple(steps[index] for _, steps in axes),
        )
        for index, (name, item) in enumerate(operands.items())
    }


def pointer_of(places: Places, written: Results, name: str, item: Placed, number: str = "") -> int:
    """The address at which kernels read or write an operand; `number` follows its name."""
    if name in written:
        return places.output(name + number, item.view, item.form, read=written[name]).pointer
    return places.input(name + number, item.view, item.form).pointer


def along(strides: Ints, axes: str, over: str) -> Ints:
    """Strides along the axes `over` from those of an operand's own axes, which repeats along the
    others."""
    own = dict(zip(axes, strides, strict=True))
    return tuple(own.get(letter, 0) for letter in over)


def _axes(lead: Ints, operands: Mapping[str, Placed]) -> Axes:
    steps = [item.steps(lead) for item in operands.values()]
    every = zip(lead, zip(*steps, strict=True), strict=True)
    return merged([(extent, strides) for extent, strides in every if extent != 1])
