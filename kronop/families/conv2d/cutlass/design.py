"""Convolutions by CUTLASS 2.x: cutlass_conv2d.cuh."""

from __future__ import annotations

from kronop.artifacts import Launch, Status
from kronop.emit.cuda import operands
from kronop.emit.cuda.cutlass.design import OPTIONS, SECONDS_OF_LAUNCH
from kronop.emit.design import Instantiation, package_folder
from kronop.families.conv2d.cutlass import checks, launching, words
from kronop.families.conv2d.cutlass.tile import Conv2dTile
from kronop.families.conv2d.description import Conv2dProblem
from kronop.families.conv2d.size import Conv2dSize
from kronop.families.gemm.cutlass.design import seconds_of_tiles
from kronop.frozen import dataclass
from kronop.target import Target

# The fraction of the rate that analytic iterators leave. NOTE: not measured.
_OF_ANALYTIC = 0.8


@dataclass(frozen=True, slots=True, kw_only=True)
class Conv2dCutlass(Conv2dTile):
    """A convolution by a kernel of CUTLASS 2.x."""

    kind = "conv2d"

    def status(self, target: Target) -> Status:
        """Whether CUTLASS has this kernel, it fits, and the headers are installed."""
        return checks.status(self, target)

    def status_of(self, size: Conv2dSize) -> Status:
        """Whether the kernel takes convolutions of that size."""
        return checks.status_of(self, size)

    def seconds(self, size: Conv2dSize, target: Target) -> float:
        """Modelled time of a problem of that size: that of its matrix products. Strided dgrad skips
        the products of pixels between strides."""
        m, n, k = self.conv_kind.extents(size)
        skipped = size.stride_h * size.stride_w if self.strided_rows else 1
        product = size.product((m, n, operands.cover(k, skipped)))
        rate = self.rate * (_OF_ANALYTIC if self.is_analytic else 1)
        return seconds_of_tiles(self, product, target, rate) + SECONDS_OF_LAUNCH

    def instantiation(self, target: Target) -> Instantiation:
        scalar = operands.scalar_kind(self.epilogue).cxx
        return Instantiation(
            header="cutlass_conv2d.cuh",
            parameters=f"kronop::CutlassConv2dParameters<{scalar}>",
            types=(*self.element_types, *words.types_of(self)),
            constants=(
                *self.tile_constants,
                ("kInterleave", self.panel),
                ("kSwizzle", self.swizzle.width),
            ),
            folders=(package_folder(__package__),),
            options=OPTIONS,
            cuda_headers=True,
            cutlass_headers=True,
        )

    def workspace(self, size: Conv2dSize, target: Target, threads: int) -> int:
        """Bytes for the sums of split-K slices."""
        return launching.workspace_bytes(self, size)

    def launches(self, problem: Conv2dProblem, target: Target) -> tuple[Launch, ...]:
        """One launch, or two for split-K: the slices, and adding up their sums.

        Raises:
            ArgumentError: the size or a stride is not supported by the kernel.
        """
        return launching.launches(self, problem, target)
