"""Tensors as the tensor memory accelerator of a GPU sees them, and what its copies move."""

from __future__ import annotations

from collections.abc import Sequence

from kronop.frozen import dataclass

_GRANULE = 16  # What addresses, strides and lines are multiples of, in bytes.
_SWIZZLED = 128
_MOST_AXES, _MOST_EXTENT, _MOST_STRIDE, _MOST_STEP = 5, 1 << 32, (1 << 40) - 1, 8
_MOST_OF_BOX, _MOST_PIXELS = 256, 1024
# Corners of a box of pixels along one, two and three axes: maps have 16, 8 and 5 bits for each.
_CORNERS = (1 << 15, 1 << 7, 1 << 4)


@dataclass(frozen=True, slots=True, kw_only=True)
class Im2col:
    """What a copy for a convolution moves: a column of the matrix that im2col makes of a tensor.

    The axes of the tensor are C, W, H, D and N; there may be no D, or neither H nor D. Where a
    filter may begin is a pixel: these form a box along W, H and D in each of the N images, with
    the element strides of the map (those of the convolution) between neighbours. A copy starts at
    one of them, goes along W, then H, D and N, and moves what lies at an offset within the filter.

    Attributes:
        lower_corner: the first pixel along W, H and D; minus the padding.
        upper_corner: the last one, counted from the last element of the tensor; the padding minus
            the filter's largest offset.
        channels_per_pixel: elements along C, 1 to 256.
        pixels_per_column: pixels of a copy, 1 to 1024.
    """

    lower_corner: tuple[int, ...]
    upper_corner: tuple[int, ...]
    channels_per_pixel: int
    pixels_per_column: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TensorMap:
    """A tensor of one to five axes, the first one contiguous, and what a copy moves of it. The
    driver encodes it in 128 bytes.

    Attributes:
        address: of the first element; a multiple of 16.
        element: name of the type of the elements.
        element_bytes: of an element.
        extents: of the axes, 1 to 2^32.
        strides: of all axes but the first in bytes, multiples of 16 below 2^40.
        box: what a copy moves: a box of these extents, each at most 256, or pixels of a tensor of
            three to five axes. Along the first axis it has whole 16 bytes; lines of 128 bytes are
            swizzled in shared memory.
        element_strides: a copy moves the first of so many elements along each axis, at most 8;
            empty where it moves all. The first axis has none, nor has the last one of pixels.
        rounds: float32 is rounded to TF32 on its way to shared memory.

    Raises:
        ValueError: the accelerator has no such copies.
    """

    address: int
    element: str
    element_bytes: int
    extents: tuple[int, ...]
    strides: tuple[int, ...]
    box: tuple[int, ...] | Im2col
    element_strides: tuple[int, ...] = ()
    rounds: bool = False

    @property
    def steps(self) -> tuple[int, ...]:
        """The element strides of all axes."""
        return self.element_strides or (1,) * len(self.extents)

    @property
    def line_bytes(self) -> int:
        """Bytes of what a copy moves along the first axis."""
        box = self.box
        line = box.channels_per_pixel if isinstance(box, Im2col) else box[0]
        return line * self.element_bytes

    @property
    def swizzled(self) -> bool:
        """Whether lines are swizzled in shared memory."""
        return self.line_bytes == _SWIZZLED

    def __post_init__(self) -> None:
        axes, box = len(self.extents), self.box
        _check("axes", [axes], 1, 3 if isinstance(box, Im2col) else 1, _MOST_AXES)
        _check("address", [self.address], 1, 0, 1 << 64, _GRANULE)
        _check("extents", self.extents, axes, 1, _MOST_EXTENT)
        _check("strides", self.strides, axes - 1, 1, _MOST_STRIDE, _GRANULE)
        _check("element strides", self.steps, axes, 1, _MOST_STEP)
        ends = self.steps[:1]
        if isinstance(box, Im2col):
            self._check_pixels(box, axes - 2)
            ends += self.steps[-1:]
        else:
            _check("extents of the box", box, axes, 1, _MOST_OF_BOX)
        _check("element strides of ends", ends, len(ends), 1, 1)
        _check("bytes of a line", [self.line_bytes], 1, 1, _MOST_OF_BOX * 8, _GRANULE)
        if self.rounds and self.element != "float32":
            raise ValueError(f"tensor map: expected float32 to be rounded, got {self.element}")

    def _check_pixels(self, box: Im2col, axes: int) -> None:
        most = _CORNERS[axes - 1]
        _check("lower corner", box.lower_corner, axes, -most, most - 1)
        _check("upper corner", box.upper_corner, axes, -most, most - 1)
        corners = zip(self.extents[1:-1], box.lower_corner, box.upper_corner, strict=True)
        pixels = [extent + upper - lower for extent, lower, upper in corners]
        _check("extents of the box of pixels", pixels, axes, 1, 2 * _MOST_EXTENT)
        _check("channels per pixel", [box.channels_per_pixel], 1, 1, _MOST_OF_BOX)
        _check("pixels per column", [box.pixels_per_column], 1, 1, _MOST_PIXELS)


def _check(
    name: str, values: Sequence[int], count: int, least: int, most: int, multiple: int = 1
) -> None:
    """Raises ValueError unless there are `count` values from `least` to `most`."""
    if len(values) != count or any(not least <= item <= most or item % multiple for item in values):
        each = f", multiples of {multiple}" if multiple > 1 else ""
        raise ValueError(
            f"tensor map, {name}: expected {count} from {least} to {most}{each},"
            f" got {', '.join(map(str, values)) or 'none'}"
        )
