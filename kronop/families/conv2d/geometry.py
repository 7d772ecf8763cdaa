"""torch's words for the geometry of a convolution -> Conv2dSize."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, NamedTuple

from kronop.descriptions.tile import whole
from kronop.errors import ArgumentError
from kronop.families.conv2d.size import MOST_STEP, Conv2dSize, check_groups

Shape = Sequence[int]
Extents = int | Sequence[int]
Padding = Extents | Literal["same", "valid"]
_AXES = ("H", "W")


class Geometry(NamedTuple):  # Which torch.compile traces.
    """Strides, padding, dilation and groups, as torch's conv2d takes them.

    Attributes:
        stride, dilation: (along H, along W).
        padding: likewise, on both sides; or "same".
        groups: the channels and filters are divided in so many groups.
    """

    stride: tuple[int, int]
    padding: tuple[int, int] | Literal["same"]
    dilation: tuple[int, int]
    groups: int

    @classmethod
    def of(cls, stride: Extents, padding: Padding, dilation: Extents, groups: int) -> Geometry:
        """From what a caller gives.

        Raises:
            ArgumentError: a number is no integer, or too small; or the padding is "same" and a
                stride is not 1.
        """
        steps, apart = _pair("stride", stride, 1), _pair("dilation", dilation, 1)
        count = whole(groups)
        if type(count) is not int or count < 1:
            raise ArgumentError(
                "groups",
                expected="an integer of at least 1",
                got=repr(groups),
                hint="1, or a divisor of the channels of x and of the filters",
            )
        if isinstance(padding, str) and padding == "same" and steps != (1, 1):
            raise ArgumentError(
                "stride",
                expected="1, since padding is 'same'",
                got=steps,
                hint="give the padding as numbers",
            )
        if isinstance(padding, str):
            if padding not in ("same", "valid"):
                raise ArgumentError(
                    "padding",
                    expected="numbers, 'same' or 'valid'",
                    got=repr(padding),
                    hint="'same' gives results as many pixels as images have",
                )
            return cls(steps, (0, 0) if padding == "valid" else "same", apart, count)
        return cls(steps, _pair("padding", padding, 0), apart, count)

    def size(self, x: Shape, w: Shape) -> Conv2dSize:
        """The size for images (N, C, H, W) and filters (K, C / groups, R, S).

        Raises:
            ArgumentError: shapes that do not fit, or a filter that is larger than the padded image.
        """
        self.check(x, w)
        (n, c, *image), (k, _, *taps) = x, w
        pads, counts = self.pixels(image, taps)
        extents: Any = (n, *image, c, k, *taps, *counts)
        how: Any = (*pads, *self.stride, *self.dilation, self.groups)
        return Conv2dSize(*extents, *how)

    def check(
        self, x: Shape, w: Shape, axes: str = "x is (N, C, H, W), w (K, C / groups, R, S)"
    ) -> None:
        """Refuses shapes of images and filters that don't fit, but for their pixels; `axes` is how
        the caller's tensors lie.

        Raises:
            ArgumentError: as of `size`.
        """
        for name, shape, extents, hint in (
            ("x", x, "(N, C, H, W)", "an image alone: x[None]"),
            ("w", w, "(K, C / groups, R, S)", "a filter alone: w[None]"),
        ):
            if len(shape) != len("NCHW"):
                raise ArgumentError(
                    f"shape of {name}", expected=extents, got=tuple(shape), hint=hint
                )
        (_, c, *_), (k, channels, *_) = x, w
        check_groups(self.groups, c, k)
        if c // self.groups != channels:
            count = c // channels if channels and c % channels == 0 else 0
            fits = count and k % count == 0
            raise ArgumentError(
                "channels of x and w",
                expected="those of x to be groups times those of w",
                got=f"{c} of x, {channels} of w, groups {self.groups}",
                hint=f"{axes}{f'; or pass groups={count}' if fits else ''}",
            )

    def pixels(self, image: Shape, taps: Shape) -> tuple[tuple[int, int], tuple[int, int]]:
        """(zeros above and left of an image, pixels of a result), for the pixels of both and of a
        filter.

        Raises:
            ArgumentError: a filter that is larger than the padded image.
        """
        every = [self._along(axis, image[axis], taps[axis]) for axis in range(len(_AXES))]
        (top, p), (left, q) = every
        return (top, left), (p, q)

    def _along(self, axis: int, image: int, taps: int) -> tuple[int, int]:
        reach = self.dilation[axis] * (taps - 1)
        if self.padding == "same":
            # As in torch, the smaller half of the zeros is above and left of an image.
            return reach // 2, image
        pad = self.padding[axis]
        left = image + 2 * pad - reach - 1
        if left < 0 or not taps:
            raise ArgumentError(
                f"filter's extent along {_AXES[axis]}",
                expected=f"1 to {image + 2 * pad} pixels, the extent of x with its padding",
                got=f"{max(0, reach + 1)} ({taps} pixels, dilation {self.dilation[axis]})",
                hint="pad more, or take smaller filters",
            )
        return pad, left // self.stride[axis] + 1


def _pair(name: str, value: Any, least: int) -> tuple[int, int]:
    """A number for both axes, or one for each."""
    items = value if isinstance(value, (tuple, list)) else (value,)
    items = items * 2 if len(items) == 1 else items  # As torch takes them.
    found: tuple[Any, ...] = tuple(map(whole, items))
    fit = (type(item) is int and least <= item <= MOST_STEP for item in found)
    if len(found) != len(_AXES) or not all(fit):
        raise ArgumentError(
            name,
            expected=f"an integer of at least {least} and below 2^31, or a pair of them",
            got=repr(value),
            hint="along H and W",
        )
    return found[0], found[1]
