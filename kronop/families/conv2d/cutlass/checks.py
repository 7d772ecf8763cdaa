"""Which convolutions CUTLASS 2.x has, and which problems its kernels take."""

from __future__ import annotations

from collections.abc import Callable

from kronop import doors
from kronop.artifacts import Status
from kronop.descriptions.datatype import int8
from kronop.emit.cuda.cutlass import checks
from kronop.emit.cuda.cutlass.launching import MOST_WRAPPED
from kronop.families.conv2d.cutlass.tile import Conv2dTile
from kronop.families.conv2d.size import Conv2dSize
from kronop.families.conv2d.vocabulary import (
    DgradSwizzle,
    IteratorAlgorithm,
    Operator,
    StrideSupport,
)
from kronop.target import Target

# Pixels of a filter along an axis, since optimized iterators have a bit for each; the largest
# coordinate or offset.
_MOST_PIXELS, _MOST_EXTENT = 32, 2**31 - 1


def status(design: Conv2dTile, target: Target) -> Status:
    """Whether CUTLASS has the design's kernel, it fits the target, and headers are installed."""
    contiguous = _contiguous(design)
    tensor_cores: tuple[Callable[[Conv2dTile], str], ...] = (
        checks.depth,
        lambda item: checks.turned(item, contiguous),
        checks.stages,
        lambda item: checks.doubles(item, contiguous),
        checks.stored_at_once,
    )
    rules: tuple[Callable[[Conv2dTile], str], ...] = (
        lambda _: checks.served(target),
        checks.types,
        _kernel,
        checks.divisions,
        *((checks.simt,) if design.is_simt else tensor_cores),
        checks.interleaved,
        checks.copies,
        checks.alignments,
        lambda item: checks.shared(item, target),
        lambda _: doors.cutlass_missing[0](),
    )
    return Status.first_of(rule(design) for rule in rules)


def _contiguous(design: Conv2dTile) -> tuple[tuple[str, int], ...]:
    """The index and the extent of a tile of each operand that is not contiguous along K."""
    m, n, _ = design.tile
    turned = {Operator.fprop: 0, Operator.dgrad: 1, Operator.wgrad: 2}[design.conv_kind]
    return (("N", n), ("M", m))[:turned]


def _kernel(design: Conv2dTile) -> str:
    kind, iterator = design.conv_kind, design.iterator_algorithm
    is_fprop = kind is Operator.fprop
    if design.source is int8 and not is_fprop:
        return f"CUTLASS 2.x has no {kind.name} of int8"
    if design.is_for_few and not is_fprop:
        return f"iterators for few channels are those of fprop, not of {kind.name}"
    if design.is_for_few and (design.is_simt or design.panels):
        return f"{iterator.name} takes tensor cores and channels last"
    if iterator is IteratorAlgorithm.fixed_channels and design.tile_k % design.alignment_a:
        return f"tile K of {design.tile_k} is no multiple of the {design.alignment_a} channels"
    if isinstance(design.swizzle, DgradSwizzle) and not design.strided_rows:
        return f"{design.swizzle!r} is the order of tiles of strided dgrad"
    return ""


def status_of(design: Conv2dTile, size: Conv2dSize) -> Status:
    """Whether the kernel takes convolutions of that size."""
    rules = (_extents, _alignments, _iterator, _strides)
    return Status.first_of(rule(design, size) for rule in rules)


def _extents(design: Conv2dTile, size: Conv2dSize) -> str:
    m, n, k = design.conv_kind.extents(size)
    most_k = MOST_WRAPPED if design.source is int8 else _MOST_EXTENT
    tensors = (size.n * size.h * size.w * size.c, size.n * size.p * size.q * size.k)
    wanted = {"M": (m, _MOST_EXTENT), "N": (n, _MOST_EXTENT), "K": (k, most_k)}
    # NOTE: iterators for few channels have 32-bit offsets, in bytes after a multiplication.
    bytes_each = design.source.bytes if design.is_for_few else 1
    wanted["elements"] = (bytes_each * max(tensors), _MOST_EXTENT)
    for name, (extent, most) in wanted.items():
        if extent > most:
            return f"{name} of {extent}, at most {most} of a kernel of CUTLASS"
    if design.panels and size.groups > 1:
        return f"{size.groups} groups of tensors in panels"
    return ""


def _alignments(design: Conv2dTile, size: Conv2dSize) -> str:
    """Why contiguous extents are no multiples of the vectors that the kernel accesses."""
    channels, filters = ("C", size.channels), ("K", size.filters)
    extents = {
        Operator.fprop: (channels, channels, filters),
        Operator.dgrad: (filters, channels, channels),
        Operator.wgrad: (filters, channels, channels),
    }[design.conv_kind]
    widths = (design.alignment_a, design.alignment_b, design.alignment_c)
    for tensor, (name, extent), width in zip(("A", "B", "C"), extents, widths, strict=True):
        multiple = max(width, design.panel)
        if extent % multiple:
            of_group = " of a group" if size.groups > 1 else ""
            return (
                f"{name}{of_group} of {extent}, no multiple of {multiple}, as the alignment of"
                f" {tensor} says"
            )
    return ""


def _iterator(design: Conv2dTile, size: Conv2dSize) -> str:
    iterator = design.iterator_algorithm
    if iterator is IteratorAlgorithm.optimized and max(size.r, size.s) > _MOST_PIXELS:
        return f"filters of {size.r} x {size.s} pixels; optimized takes at most {_MOST_PIXELS}"
    is_fixed = iterator is IteratorAlgorithm.fixed_channels
    if is_fixed and size.channels != design.alignment_a:
        return f"{size.channels} channels; fixed_channels takes {design.alignment_a}, the alignment"
    return ""


def _strides(design: Conv2dTile, size: Conv2dSize) -> str:
    if design.conv_kind is not Operator.dgrad:
        return ""
    strides = f"{size.stride_h} x {size.stride_w}"
    if design.stride_support is StrideSupport.Unity:
        return "" if strides == "1 x 1" else f"strides of {strides}; unity dgrad takes 1 x 1"
    if (size.dilation_h, size.dilation_w) != (1, 1):
        return f"a dilation of {size.dilation_h} x {size.dilation_w}; strided dgrad takes 1 x 1"
    # NOTE: CUTLASS takes the absolute value of a negative remainder then.
    if size.flipped and (size.stride_h > size.r or size.stride_w > size.s):
        return f"strides of {strides} beyond flipped filters of {size.r} x {size.s}"
    return ""
