"""Gathered operands of blocks and warps: how kernels find their elements; gemm_gather.cuh."""

from __future__ import annotations

import enum
import struct

from kronop.artifacts import Block, KernelSignature
from kronop.descriptions.gathered import Digits, Gathered
from kronop.descriptions.strided import MOST_BATCH_DIMENSIONS, padded
from kronop.errors import ArgumentError

# Bytes of `gemm::Gather`: its digits, then its other members.
_DIGITS = struct.Struct("=3q3i3i3I3I")
_REST = struct.Struct(f"=3q2i2I3I3I{2 * MOST_BATCH_DIMENSIONS}i")
_DIVISOR = struct.Struct("=3I")
_BYTES = 2 * _DIGITS.size + _REST.size
# Indices, and coordinates, that kernels reckon with in 32 bits; some are behind the last slab.
_MOST_INDICES, _MOST_COORDINATES = 2**31 - 2**16, 2**29


class Access(enum.IntEnum):
    """Which elements an operand has: those of a strided matrix; gathered ones that all exist; with
    zeros out of bounds; with zeros between multiples of `Gathered.every` besides."""

    Strided = 0
    Inside = 1
    Bounded = 2
    Spaced = 3

    @property
    def place_bytes(self) -> int:
        """What a kernel keeps of an index: `gemm::GatherPlace`."""
        return {Access.Strided: 0, Access.Inside: 8, Access.Bounded: 16, Access.Spaced: 32}[self]


def signature(product: KernelSignature) -> KernelSignature:
    """The struct of a product with gathered operands, from that with strided ones."""
    return KernelSignature(
        "GemmGatherParameters",
        (
            Block("product", product.size, product.alignment, product.pointers),
            Block("gather_a", _BYTES),
            Block("gather_b", _BYTES),
        ),
    )


def packed(
    of: Gathered, batch: tuple[int, ...], outer: Digits, inner: Digits, access: Access
) -> bytes:
    """`gemm::Gather` of an operand.

    Args:
        batch: the extents of the batch.
        outer, inner: its rows of A, or columns of B, and its contracted index.
        access: what its kernel makes of it.

    Raises:
        ArgumentError: there are too many elements for numbers of 32 bits.
    """
    _check(of, batch)
    spaced = access is Access.Spaced
    strides = (0, 0) if spaced else of.strides
    first = of.first[0] * strides[0] + of.first[1] * strides[1]
    return (
        _digits(outer, strides)
        + _digits(inner, strides)
        + _REST.pack(
            first,
            *(of.strides if spaced else (0, 0)),
            *of.first,
            *of.extents,
            *_divisor(of.every[0]),
            *_divisor(of.every[1]),
            *padded(of.batch_u, 0),
            *padded(of.batch_v, 0),
        )
    )


def batch_of(of: Gathered) -> tuple[int, ...]:
    """The strides of the batch, with those of the coordinates that change along it."""
    if not of.batch_u:
        return of.batch
    assert of.every == (1, 1), "coordinates of lines and sums have to keep their signs"
    return tuple(
        step + u * of.strides[0] + v * of.strides[1]
        for step, u, v in zip(of.batch, of.batch_u, of.batch_v, strict=True)
    )


def _digits(digits: Digits, strides: tuple[int, int]) -> bytes:
    """`gemm::GatherDigits`, whose steps contain those of coordinates with these strides."""
    steps = (
        step + u * strides[0] + v * strides[1]
        for step, u, v in zip(digits.steps, digits.u, digits.v, strict=True)
    )
    middle, last = (_divisor(extent) for extent in digits.extents[1:])
    return _DIGITS.pack(*steps, *digits.u, *digits.v, *middle, *last)


def packed_divisors(*numbers: int) -> bytes:
    """`gemm::Divisor` of each number."""
    return b"".join(_DIVISOR.pack(*_divisor(number)) for number in numbers)


def _divisor(number: int) -> tuple[int, int, int]:
    """`gemm::Divisor`: a dividend n below 2^31 divided by it is n factor / 2^(31 + shift)."""
    shift = (number - 1).bit_length()
    return number, -(-(1 << 31 + shift) // number), shift


def _check(of: Gathered, batch: tuple[int, ...]) -> None:
    most = max(of.rows.extent, of.columns.extent)
    if most > _MOST_INDICES:
        raise ArgumentError(
            "rows, columns or sums of a launch",
            expected=f"at most {_MOST_INDICES}",
            got=most,
            hint="split the images into several calls",
        )
    rows, columns = of.rows, of.columns
    axes = (
        (of.first[0], of.extents[0], (*rows.u, *columns.u, *of.batch_u)),
        (of.first[1], of.extents[1], (*rows.v, *columns.v, *of.batch_v)),
    )
    extents = (*rows.extents, *columns.extents, *(batch if of.batch_u else ()))
    for first, pixels, steps in axes:
        pairs = zip(extents, steps, strict=True)
        reach = abs(first) + sum((extent - 1) * abs(step) for extent, step in pairs)
        reach = max(reach, pixels)
        if reach > _MOST_COORDINATES:
            raise ArgumentError(
                "pixels with their padding, strides and dilation",
                expected=f"at most {_MOST_COORDINATES} along an axis",
                got=reach,
                hint="split the images into several calls",
            )
