"""Random layouts of tensors."""

from __future__ import annotations

import math
from collections.abc import Sequence

from tests.fuzz.case import Operand
from tests.fuzz.draw import Draw

# Guard elements before and behind every tensor: for all types a multiple of 16 bytes.
GUARD = 32
_KINDS = {"row": 40, "column": 30, "padded": 14, "permuted": 6, "stepped": 10}
_TIDY_KINDS = {"row": 60, "column": 40}
_PADS = (1, 2, 3, 4, 8, 8, 16, 16, 24)
_OFFSETS = (0, 0, 0, 0, 0, 0, 0, 16, 8, 1, 2, 4, 3)


def kind_of_layout(draw: Draw, tidy: bool) -> str:
    """A kind of layout: which dimension is contiguous, and what gaps there are; tidy layouts have
    none."""
    return draw.weighed(_TIDY_KINDS if tidy else _KINDS)


def lay(
    draw: Draw,
    shape: Sequence[int],
    *,
    kind: str = "",
    tidy: bool = False,
    reversible: bool = False,
    repeatable: Sequence[int] = (),
) -> Operand:
    """A layout for a tensor of this shape.

    Args:
        kind: a result of `kind_of_layout`; "" draws one.
        tidy: whether the memory is without gaps and aligned, as the fastest kernels need it.
        reversible: whether strides may be negative.
        repeatable: dimensions that may have stride 0.
    """
    axes = list(range(len(shape)))
    kind = kind or kind_of_layout(draw, tidy)
    if kind == "column" or (kind == "padded" and draw.chance(0.4)):
        axes[-2:] = axes[:-3:-1]
    elif kind in ("permuted", "stepped"):
        axes = draw.shuffled(axes) if draw.chance(0.5) else axes
    pads = [0] * len(shape)
    steps = [1] * len(shape)
    if kind == "padded" and axes:
        pads[axes[-1]] = draw.pick(_PADS)
    if kind == "stepped":
        steps = [draw.pick((1, 1, 2, 3)) for _ in shape]
    if reversible and not tidy and draw.chance(0.15):
        steps = [draw.pick((1, -1)) * step for step in steps]
    if repeatable and not tidy and draw.chance(0.15):
        for axis in repeatable:
            steps[axis] = steps[axis] * draw.whole(0, 1)
    return _placed(shape, axes, steps, pads, draw.pick((0, 0, 16) if tidy else _OFFSETS))


def _placed(
    shape: Sequence[int],
    axes: Sequence[int],
    steps: Sequence[int],
    pads: Sequence[int],
    lead: int,
) -> Operand:
    """The layout with these axes from the outermost to the innermost.

    `steps` are the strides in units of contiguous ones, `pads` the unused elements after each axis,
    and `lead` the elements before the tensor besides the guard.
    """
    strides, stride, first = [0] * len(shape), 1, 0
    for axis in reversed(axes):
        step = steps[axis]
        strides[axis] = stride * step
        if step < 0:
            first += stride * -step * max(0, shape[axis] - 1)
        if step:
            stride = stride * abs(step) * max(1, shape[axis]) + pads[axis]
    room = sum(max(0, n - 1) * abs(s) for n, s in zip(shape, strides, strict=True)) + 1
    if not math.prod(shape):
        room = 0
    return Operand(
        shape=tuple(shape),
        strides=tuple(strides),
        offset=GUARD + lead + first,
        size=2 * GUARD + lead + room,
    )
