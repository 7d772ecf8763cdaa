"""Results of a strided dgrad by warp groups."""

from __future__ import annotations

from typing import Any

from kronop.descriptions.datatype import DataType
from kronop.families.conv2d.cuda.patches import Taps
from kronop.families.conv2d.size import Conv2dSize
from kronop.families.gemm.cuda.warp_group_problem import GRANULE, LINE_BYTES, step_of
from kronop.families.gemm.description import GemmProblem
from kronop.tensor_map import Im2col, TensorMap


def strided_results(
    part: GemmProblem, output: DataType, size: Conv2dSize, pair: tuple[Taps, Taps]
) -> dict[str, Any]:
    """The map of results that are some of the pixels of images."""
    y, each, (h, w) = part.y, output.bytes, pair
    row, line = y.row * each, part.n * each
    multiples = (y.pointer, row, line)
    # A line of results has those of one group.
    apart = part.problems == 1 or (step_of(y) == part.n and line % LINE_BYTES == 0)
    follows = row > 0 and y.column == 1 and apart
    if not follows or each == 8 or any(item % GRANULE for item in multiples):
        return {"y_map": b"", "maps_y": 0}
    box = Im2col(
        lower_corner=(0, 0),
        upper_corner=(0, 0),
        channels_per_pixel=LINE_BYTES // each,
        pixels_per_column=64,
    )
    steps = (w.every, h.every * size.w, size.h * size.w)
    found = TensorMap(
        address=y.pointer + (h.remainder * size.w + w.remainder) * row,
        element=output.name,
        element_bytes=each,
        extents=(part.n * part.problems, w.pixels, h.pixels, size.n),
        strides=tuple(row * step for step in steps),
        box=box,
    )
    return {"y_map": found, "maps_y": 1}
