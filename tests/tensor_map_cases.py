"""Copies by tensor maps of every number of axes, for the emulation and for GPUs: a kernel that
moves one of them to memory, and NumPy's own way to the same numbers."""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from kronop import bfloat16, float16, float32, float64, int8
from kronop.artifacts import Block, Field, KernelSignature, Language, Launch, Scalar, Source
from kronop.descriptions.datatype import DataType
from kronop.emit import render
from kronop.tensor_map import Im2col, TensorMap

_ENTRY = "copy_by_tensor_map"
_SIGNATURE = KernelSignature(
    "Parameters",
    (
        Block("map", 128, 64),
        Field("y", Scalar.POINTER),
        *(Field(name, Scalar.INT64, count) for name, count in (("place", 5), ("offset", 3))),
        *(Field(name, Scalar.INT64) for name in ("axes", "pixels", "bytes")),
    ),
)
# The box lies in front, then the barrier. What no copy writes there is 165.
_TEXT = """\
#include "kronop/tensor_map.cuh"

struct Parameters {
  kronop::TensorMap map;
  unsigned char* y;
  long long place[5], offset[3], axes, pixels, bytes;
};
template <int kAxes>
KRONOP_INLINE void load(void* to, const Parameters& p, kronop::Barrier& filled) {
  if (p.axes != kAxes) return;
  kronop::BoxPlace<kAxes> place;
  for (int axis = 0; axis < kAxes; ++axis) place.at[axis] = int(p.place[axis]);
  if constexpr (kAxes > 2) {
    kronop::BoxPlace<kAxes - 2> offset;
    for (int axis = 0; axis < kAxes - 2; ++axis) offset.at[axis] = int(p.offset[axis]);
    if (p.pixels) return kronop::load_pixels(to, p.map, filled, place, offset);
  }
  kronop::load_box(to, p.map, filled, place);
}
extern "C" __global__ void __launch_bounds__(32)
copy_by_tensor_map(const __grid_constant__ Parameters p) {
  unsigned char* const to = kronop::shared_memory();
  auto& filled = *reinterpret_cast<kronop::Barrier*>(to + p.bytes);
  for (int i = threadIdx.x; i < p.bytes; i += 32) to[i] = 165;
#if !defined(KRONOP_EMULATION)
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
#endif
  if (threadIdx.x == 0) {
    filled.begin(1);
    kronop::publish_barriers();
  }
  __syncthreads();
  if (threadIdx.x == 0) {
    kronop::expect_bytes(filled, int(p.bytes));
    load<1>(to, p, filled), load<2>(to, p, filled), load<3>(to, p, filled);
    load<4>(to, p, filled), load<5>(to, p, filled);
  }
  filled.wait(0);
  for (int i = threadIdx.x; i < p.bytes; i += 32) p.y[i] = to[i];
}
"""
SOURCE = Source(
    entry=_ENTRY,
    text=_TEXT,
    language=Language.CUDA,
    include_directories=(str(Path(render.__file__).parent / "cuda" / "include"),),
)
Ints = tuple[int, ...]


@dataclass(frozen=True, kw_only=True)
class Case:
    """A copy, from a tensor whose rows, and what follows the rows, have gaps between them.

    Attributes:
        name: of the test.
        extents: of the tensor, the contiguous axis first.
        box, steps: those of the map.
        place, offset: where the copy begins, and the element of the filter.
        lines: where each line of the copy lies along all axes but the first.
    """

    name: str
    element: DataType
    extents: Ints
    box: Ints | Im2col
    steps: Ints
    place: Ints
    lines: tuple[Ints, ...]
    offset: Ints = ()

    def tensor(self) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
        """(memory, the part of it that is the tensor), as unsigned numbers of the same width; no
        byte of the memory is 0."""
        pitch = (self.extents[0] * self.element.bytes + 15) // 16 * 16 + 16
        gapped = [item + (axis == 0) for axis, item in enumerate(self.extents[1:])]
        chance = np.random.default_rng(math.prod(self.extents))
        room = chance.integers(1, 256, (*gapped[::-1], pitch), np.uint8)
        numbers = room.view(f"u{self.element.bytes}")
        return numbers, numbers[tuple(slice(0, item) for item in self.extents[::-1])]

    def expected(self) -> np.ndarray[Any, Any]:
        """The lines of the copy; 0 beyond the tensor."""
        _, tensor = self.tensor()
        along = self.place[0] + np.arange(self.map(0).line_bytes // self.element.bytes)
        inside = (along >= 0) & (along < self.extents[0])
        found = np.zeros((len(self.lines), along.size), tensor.dtype)
        for line, place in zip(found, self.lines, strict=True):
            if all(0 <= at < extent for at, extent in zip(place, self.extents[1:], strict=True)):
                line[inside] = tensor[place[::-1]][along[inside]]
        return found

    def map(self, address: int) -> TensorMap:
        room, _ = self.tensor()
        return TensorMap(
            address=address,
            element=self.element.name,
            element_bytes=self.element.bytes,
            extents=self.extents,
            strides=room.strides[-2::-1] if room.ndim > 1 else (),
            box=self.box,
            element_strides=self.steps,
        )

    def launch(self, x: int, y: int) -> Launch:
        """The copy from the memory at x to that at y."""
        values: dict[str, Any] = {
            "map": self.map(x),
            "y": y,
            "place": self.place,
            "offset": self.offset,
            "axes": len(self.extents),
            "pixels": int(isinstance(self.box, Im2col)),
            "bytes": self.expected().nbytes,
        }
        return Launch(
            parameters=_SIGNATURE.pack(values),
            blocks=_SIGNATURE.blocks(values),
            block=(32, 1, 1),
            shared_bytes=values["bytes"] + 16,
        )

    def check(self, copied: np.ndarray[Any, Any]) -> None:
        """Compares the bytes that the kernel has copied."""
        expected = self.expected()
        lines = copied.reshape(len(expected), -1, 16)
        if self.map(0).swizzled:
            at = np.arange(len(lines))[:, None]
            lines = lines[at, np.arange(8) ^ at % 8]
        assert expected.any(), "else this tests nothing"
        assert not expected.all(), "nothing of it lies beyond the tensor"
        np.testing.assert_array_equal(lines.reshape(len(expected), -1), expected.view(np.uint8))


def _box(element: DataType, extents: Ints, box: Ints, place: Ints, steps: Ints = ()) -> Case:
    ranges = [
        range(at, at + extent, step)
        for at, extent, step in zip(place, box, steps or (1,) * len(box), strict=True)
    ][1:]
    return Case(
        name=f"box-{len(extents)}-{element.short}",
        element=element,
        extents=extents,
        box=box,
        steps=steps,
        place=place,
        lines=tuple(item[::-1] for item in itertools.product(*ranges[::-1])),
    )


def _pixels(
    element: DataType,
    extents: Ints,
    channels: tuple[int, int],
    pixels: tuple[int, int],
    filter: Ints,
    tap: Ints,
    padding: tuple[Ints, Ints],
    stride: Ints,
    dilation: Ints,
) -> Case:
    """Pixels of a convolution. Each of the last five has its values along W, H and D.

    Args:
        channels, pixels: the first one of the copy and how many it has. Pixels are counted over all
            images.
        filter, tap: the filter's extents, and the place of an element in it.
        padding: before the tensor, and behind it.
    """
    *space, images = extents[1:]
    before, behind = padding
    most = [step * (size - 1) for step, size in zip(dilation, filter, strict=True)]
    outputs = [
        (extent + before[at] + behind[at] - most[at] - 1) // stride[at] + 1
        for at, extent in enumerate(space)
    ]
    # As a convolution counts them, and some images more than there are.
    ranges = [range(images + 9), *map(range, outputs[::-1])]
    begins = [
        (*(item * stride[at] - before[at] for at, item in enumerate(place[:0:-1])), place[0])
        for place in itertools.product(*ranges)
    ][pixels[0] : sum(pixels)]
    offset = tuple(step * at for step, at in zip(dilation, tap, strict=True))
    return Case(
        name=f"pixels-{len(extents)}-{element.short}-stride-{stride[0]}",
        element=element,
        extents=extents,
        box=Im2col(
            lower_corner=tuple(-item for item in before),
            upper_corner=tuple(item - last for item, last in zip(behind, most, strict=True)),
            channels_per_pixel=channels[1],
            pixels_per_column=pixels[1],
        ),
        steps=(1, *stride, 1),
        place=(channels[0], *begins[0]),
        offset=offset,
        lines=tuple(
            (*(at + more for at, more in zip(begin, offset, strict=False)), begin[-1])
            for begin in begins
        ),
    )


CASES = (
    _box(float32, (100,), (32,), (80,)),
    _box(int8, (100,), (48,), (-16,)),
    _box(float16, (72, 9), (64, 5), (16, 6)),
    _box(float64, (20, 6, 5), (16, 3, 2), (8, -1, 4), (1, 2, 1)),
    _box(bfloat16, (40, 5, 4, 3), (32, 2, 4, 2), (8, 4, 0, 2), (1, 1, 3, 1)),
    _box(float32, (8, 4, 3, 3, 2), (4, 3, 2, 2, 2), (4, 2, -1, 1, 1), (1, 1, 1, 2, 1)),
    _pixels(float16, (72, 11, 3), (16, 64), (5, 24), (3,), (0,), ((1,), (1,)), (1,), (1,)),
    _pixels(int8, (32, 13, 2), (0, 32), (5, 11), (3,), (2,), ((2,), (2,)), (2,), (2,)),
    _pixels(
        *(float16, (64, 7, 6, 2), (0, 64), (9, 64), (3, 3), (2, 1)),
        *(((1, 1), (1, 1)), (1, 1), (1, 1)),
    ),
    _pixels(
        *(float32, (40, 11, 8, 2), (32, 32), (6, 20), (3, 2), (2, 1)),
        *(((2, 0), (1, 1)), (2, 3), (1, 2)),
    ),
    _pixels(
        *(float64, (4, 9, 5, 3), (0, 4), (1, 16), (1, 1), (0, 0)),
        *(((0, 1), (0, 1)), (3, 2), (1, 1)),
    ),
    _pixels(
        *(bfloat16, (64, 5, 4, 3, 2), (0, 64), (7, 50), (3, 2, 2), (1, 1, 0)),
        *(((1, 0, 1), (1, 0, 1)), (1, 1, 1), (1, 2, 1)),
    ),
    _pixels(
        *(float16, (24, 9, 4, 3, 2), (8, 16), (3, 40), (3, 2, 1), (2, 0, 0)),
        *(((2, 1, 0), (1, 0, 0)), (2, 1, 2), (1, 1, 1)),
    ),
)
