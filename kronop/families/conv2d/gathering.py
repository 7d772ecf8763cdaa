"""The operands of the matrix products as which convolutions are computed, gathered from tensors."""

from __future__ import annotations

import dataclasses
from typing import NamedTuple

from kronop.descriptions.gathered import Digits, Gathered
from kronop.descriptions.strided import Strided
from kronop.families.conv2d.size import Conv2dSize
from kronop.families.conv2d.vocabulary import Operator


class Gathering(NamedTuple):
    """What is gathered from: the members of a `Conv2dProblem` of these names."""

    size: Conv2dSize
    a: Strided
    b: Strided
    by_taps: bool

    def operands(self, kind: Operator) -> tuple[Gathered, Gathered]:
        """A and B of the product of a group; of products by taps, those of all taps."""
        of_kind = {
            Operator.fprop: self._fprop,
            Operator.dgrad: self._dgrad,
            Operator.wgrad: self._wgrad,
        }
        return of_kind[kind]()

    def _fprop(self) -> tuple[Gathered, Gathered]:
        s, channels = self.size, self.a.strides[3]
        places, taps = self._patches(self.a)
        return (
            self._of_images(self.a, rows=places, columns=taps, batch=s.channels * channels),
            self._filters(s.channels, s.filters, deep=3, wide=0),
        )

    def _dgrad(self) -> tuple[Gathered, Gathered]:
        s, of = self.size, self.a.strides
        gradients = Gathered(
            pointer=self.a.pointer,
            rows=Digits(
                extents=_digits(s.n, s.h, s.w), steps=(of[0], 0, 0), u=(0, 1, 0), v=(0, 0, 1)
            ),
            columns=Digits(
                extents=_digits(s.r, s.s, s.filters),
                steps=(0, 0, of[3]),
                u=(-s.dilation_h, 0, 0),
                v=(0, -s.dilation_w, 0),
            ),
            first=(s.pad_h, s.pad_w),
            extents=(s.p, s.q),
            strides=(of[1], of[2]),
            every=(s.stride_h, s.stride_w),
            batch=(s.filters * of[3],),
        )
        return gradients, self._filters(s.filters, s.channels, deep=0, wide=3)

    def _wgrad(self) -> tuple[Gathered, Gathered]:
        s, of = self.size, self.a.strides
        gradients = Gathered(
            pointer=self.a.pointer,
            rows=Digits(extents=_digits(1, 1, s.filters), steps=(0, 0, of[3])),
            columns=Digits(extents=_digits(s.n, s.p, s.q), steps=(of[0], of[1], of[2])),
            batch=(s.filters * of[3],),
        )
        places, taps = self._patches(self.b)
        first = (-s.pad_h, -s.pad_w)
        if s.flipped:
            taps = dataclasses.replace(taps, u=(-s.dilation_h, 0, 0), v=(0, -s.dilation_w, 0))
            first = (first[0] + (s.r - 1) * s.dilation_h, first[1] + (s.s - 1) * s.dilation_w)
        batch = s.channels * self.b.strides[3]
        images = self._of_images(self.b, rows=places, columns=taps, batch=batch, first=first)
        if not self.by_taps:
            return gradients, images
        return (
            dataclasses.replace(gradients, batch=(*gradients.batch, 0, 0)),
            dataclasses.replace(
                images,
                columns=Digits(extents=_digits(1, 1, s.channels), steps=taps.steps),
                batch=(batch, 0, 0),
                batch_u=(0, *taps.u[:2]),
                batch_v=(0, *taps.v[:2]),
            ),
        )

    def _patches(self, images: Strided) -> tuple[Digits, Digits]:
        """Where patches of images begin, and the elements of a patch."""
        s, of = self.size, images.strides
        return (
            Digits(
                extents=_digits(s.n, s.p, s.q),
                steps=(of[0], 0, 0),
                u=(0, s.stride_h, 0),
                v=(0, 0, s.stride_w),
            ),
            Digits(
                extents=_digits(s.r, s.s, s.channels),
                steps=(0, 0, of[3]),
                u=(s.dilation_h, 0, 0),
                v=(0, s.dilation_w, 0),
            ),
        )

    def _of_images(
        self,
        images: Strided,
        *,
        rows: Digits,
        columns: Digits,
        batch: int,
        first: tuple[int, int] | None = None,
    ) -> Gathered:
        s, of = self.size, images.strides
        return Gathered(
            pointer=images.pointer,
            rows=rows,
            columns=columns,
            first=first or (-s.pad_h, -s.pad_w),
            extents=(s.h, s.w),
            strides=(of[1], of[2]),
            batch=(batch,),
        )

    def _filters(self, depth: int, width: int, *, deep: int, wide: int) -> Gathered:
        """The filters as a matrix: rows are pixels and `depth` indices of axis `deep`, columns are
        `width` indices of axis `wide`. A group has as many further filters."""
        s, of = self.size, self.b.strides
        whole = Gathered(
            pointer=self.b.pointer,
            rows=Digits(extents=_digits(s.r, s.s, depth), steps=(of[1], of[2], of[deep])),
            columns=Digits(extents=_digits(1, 1, width), steps=(0, 0, of[wide])),
            batch=(s.filters * of[0],),
        )
        if not s.flipped:
            return whole
        # From the last pixel to the first.
        steps, back = (0, 0, of[deep]), {"u": (-1, 0, 0), "v": (0, -1, 0)}
        return dataclasses.replace(
            whole,
            rows=dataclasses.replace(whole.rows, steps=steps, **back),
            first=(s.r - 1, s.s - 1),
            extents=(s.r, s.s),
            strides=(of[1], of[2]),
        )


def _digits(*extents: int) -> tuple[int, int, int]:
    """The extents of digits, by which kernels divide also if an index has no values."""
    first, second, third = (max(1, extent) for extent in extents)
    return first, second, third
