"""Operands where kernels find them: their own strides, and those of their leading dimensions."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Protocol

from kronop.args.staging import Form, form_for
from kronop.args.strides import broadcast_strides, merged
from kronop.args.view import Device, TensorView
from kronop.descriptions.strided import MOST_BATCH_DIMENSIONS
from kronop.descriptions.tensor import TensorDescription
from kronop.errors import ArgumentError, mismatch
from kronop.frozen import dataclass

Ints = tuple[int, ...]
# Puts an operand where kernels reach it, in this form, or as it is.
Take = Callable[[TensorView, Form | None], TensorView]


@dataclass(frozen=True, slots=True, kw_only=True)
class Placed:
    """An operand where kernels find it: leading dimensions with their strides, and the strides of
    rows and columns."""

    pointer: int
    lead: Ints
    strides: Ints
    own: tuple[int, int]


def strided(
    item: TensorView, described: TensorDescription, device: Device, take: Take, kind: str
) -> Placed:
    """An operand of any strides.

    Args:
        kind: "tensor", or "row" or "column" of a vector that repeats.
    """
    form = form_for(item, described, device)
    strides = item.strides if form is None else form.strides
    where = take(item, form)
    inner = 2 if kind == "tensor" else 1
    own = [
        stride if extent > 1 else 0
        for extent, stride in zip(item.shape[-inner:], strides[-inner:], strict=True)
    ]
    down, across = own if inner == 2 else (0, own[0])
    if kind == "column":
        down, across = across, 0
    lead = len(item.shape) - inner
    return Placed(
        pointer=where.pointer,
        lead=item.shape[:lead],
        strides=tuple(strides[:lead]),
        own=(down, across),
    )


class Leading(Protocol):
    """An operand with leading dimensions."""

    @property
    def lead(self) -> Ints: ...
    @property
    def strides(self) -> Ints: ...


def collapsed(lead: Ints, placed: Mapping[str, Leading]) -> tuple[Ints, dict[str, Ints]]:
    """(extents of as few batch dimensions as possible, strides of every operand over them).

    Raises:
        ArgumentError: more are left than kernels walk.
    """
    steps = [broadcast_strides(item.lead, item.strides, lead) for item in placed.values()]
    every = zip(lead, zip(*steps, strict=True), strict=True)
    axes = merged([(extent, strides) for extent, strides in every if extent != 1])
    if len(axes) > MOST_BATCH_DIMENSIONS:
        raise ArgumentError(
            mismatch(
                "batch",
                expected=f"at most {MOST_BATCH_DIMENSIONS} leading dimensions without a common"
                " stride",
                got=f"{len(axes)} of shape {lead}",
                hint="copy what is broadcast or transposed there",
            )
        )
    strides = {name: tuple(step[index] for _, step in axes) for index, name in enumerate(placed)}
    return tuple(extent for extent, _ in axes), strides
