"""CUTLASS's words for kinds, iterators and layouts of convolutions."""

from __future__ import annotations

from kronop.families.conv2d.cutlass.tile import Conv2dTile
from kronop.families.conv2d.vocabulary import IteratorAlgorithm, Operator

_KERNELS = "kronop::cutlass_kernels"
_ITERATORS = {
    IteratorAlgorithm.analytic: "kAnalytic",
    IteratorAlgorithm.optimized: "kOptimized",
    IteratorAlgorithm.fixed_channels: "kFixedChannels",
    IteratorAlgorithm.few_channels: "kFewChannels",
}
_IMAGES, _FILTERS, _LAST = "TensorNCxHWx<32>", "TensorCxRSKx<32>", "TensorNHWC"


def types_of(design: Conv2dTile) -> tuple[tuple[str, str], ...]:
    """The types of a kernel that say which of CUTLASS's it is."""
    name = design.conv_kind.name.capitalize()
    if design.conv_kind is Operator.dgrad:
        name = f"{design.stride_support.name}Dgrad"
    layouts = (_IMAGES, _FILTERS, _IMAGES) if design.panels else (_LAST,) * 3
    word = f"cutlass::conv::IteratorAlgorithm::{_ITERATORS[design.iterator_algorithm]}"
    return (
        ("Kind", f"{_KERNELS}::{name}"),
        ("Iterator", f"{_KERNELS}::IteratorWord<{word}>"),
        *(
            (f"Layout{tensor}", f"cutlass::layout::{layout}")
            for tensor, layout in zip("ABC", layouts, strict=True)
        ),
    )
