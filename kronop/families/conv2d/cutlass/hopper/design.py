"""Convolutions by CUTLASS 3.x: hopper_conv2d.cuh."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from kronop.artifacts import Launch, Status
from kronop.descriptions.datatype import float32
from kronop.descriptions.strided import NOTHING, Strided
from kronop.emit.cuda import operands
from kronop.emit.cuda.cutlass.hopper import PREPARED, SECONDS_OF_LAUNCHES, only_source
from kronop.emit.cuda.cutlass.hopper_checks import LINE_BYTES
from kronop.emit.design import Instantiation, members, package_folder
from kronop.errors import ArgumentError
from kronop.families.conv2d.cuda.maps import map_of, map_of_pixels
from kronop.families.conv2d.cuda.patches import patches
from kronop.families.conv2d.cutlass.hopper import checks
from kronop.families.conv2d.cutlass.hopper.tile import LINES, HopperConv2dTile
from kronop.families.conv2d.description import Conv2dProblem
from kronop.families.conv2d.size import Conv2dSize
from kronop.families.conv2d.vocabulary import Operator
from kronop.families.gemm.cutlass.design import seconds_of_tiles
from kronop.frozen import dataclass
from kronop.machine import MEASURED
from kronop.target import Target
from kronop.tensor_map import TensorMap

_HINT = "describe the operation without a tile, whose kernels take any convolution"
# The fraction of the wgmma rate that they reach. NOTE: not measured.
_SHARE = 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class Conv2dHopper(HopperConv2dTile):
    """A convolution by a kernel of CUTLASS 3.x."""

    kind = "hopper_conv2d"

    def status(self, target: Target) -> Status:
        """Whether CUTLASS has this kernel, it fits, and the headers are installed."""
        return checks.status(self, target)

    def status_of(self, size: Conv2dSize) -> Status:
        """Whether the kernel takes convolutions of that size."""
        return checks.status_of(self, size)

    def seconds(self, size: Conv2dSize, target: Target) -> float:
        """Modelled time of a problem of that size: that of its matrix product."""
        rate = _SHARE * MEASURED.warp_group_products[self.source.bytes]
        product = size.product(self.conv_kind.extents(size))
        return seconds_of_tiles(self, product, target, rate) + SECONDS_OF_LAUNCHES

    def instantiation(self, target: Target) -> Instantiation:
        word = f"cutlass::conv::Operator::k{self.conv_kind.name.capitalize()}"
        kind = ("Kind", f"kronop::cutlass_kernels::Kind<{word}>")
        return self._instantiation("hopper_conv2d.cuh", package_folder(__package__), (kind,))

    def workspace(self, size: Conv2dSize, target: Target, threads: int) -> int:
        """Bytes for what the first launch prepares."""
        return PREPARED

    def launches(self, problem: Conv2dProblem, target: Target) -> tuple[Launch, ...]:
        """Two launches: the first one prepares the parameters of the second one.

        Raises:
            ArgumentError: the size or a stride is not supported by the kernel, or there is a bias
                beside C.
        """
        status = self.status_of(problem.size)
        if not status:
            raise ArgumentError(
                "convolution",
                expected="one that the described kernel of CUTLASS takes",
                got=status.reason,
                hint=_HINT,
            )
        values = self._values(problem)
        first = operands.make_launch(self, 1, {**values, "prepares": 1})
        second = operands.make_launch(self, 1, {**values, "prepares": 0})
        return (
            replace(first, grid=(self.cluster, self.cluster_n, 1)),
            replace(second, grid=(*self.tiles_of(problem.size), 1)),
        )

    def _values(self, problem: Conv2dProblem) -> dict[str, Any]:
        size, result = problem.size, problem.result
        source, scalars = only_source(problem.z, problem.bias, problem.scalars)
        source = source or NOTHING
        steps = "h w c k r s p q pad_h pad_w stride_h stride_w dilation_h dilation_w"
        return {
            **self._maps(problem),
            "prepared": problem.workspace,
            "images": size.n,
            **members(size, steps),
            "result": result.pointer,
            "result_row": result.row,
            "result_column": result.column,
            "source": source.pointer,
            "source_row": source.row,
            "source_column": source.column,
            "scalars": scalars,
        }

    def _maps(self, problem: Conv2dProblem) -> dict[str, TensorMap]:
        """The maps of A and B, of which blocks of a cluster copy a share each."""
        size, ((h, w),) = problem.size, patches(self.conv_kind, problem.size)
        element, rounds = self.source, self.source is float32
        line, (along_m, along_n, _) = LINE_BYTES // element.bytes, self.cluster_shape
        if self.conv_kind is Operator.wgrad:
            rows, extents = _as_matrix(problem.a, size), (size.k, size.n * size.p * size.q)
            shares = [(LINES, self.tile_k // blocks) for blocks in (along_n, along_m)]
            pixels = map_of_pixels(problem.b, (size.c, size.n), (h, w), shares[1], element, rounds)
            return {"a_map": map_of(rows, extents, shares[0], element, rounds), "b_map": pixels}
        is_fprop = self.conv_kind is Operator.fprop
        depth, lines = (size.c, self.tile_n) if is_fprop else (size.k, self.tile_k)
        share = (line, self.tile_m // along_n)
        # CuTe's order of axes: what a tile has comes first.
        (k, r, s, c), order = problem.b.strides, (size.c, size.k, size.s, size.r)
        filters = replace(problem.b, strides=(r, s, k, c))
        box = (line, lines // along_m, 1, 1)
        return {
            "a_map": map_of_pixels(problem.a, (depth, size.n), (h, w), share, element, rounds),
            "b_map": map_of(filters, order, box, element, rounds),
        }


def _as_matrix(item: Strided, size: Conv2dSize) -> Strided:
    """Results as a matrix of all pixels and their channels.

    Raises:
        ArgumentError: pixels are not evenly apart.
    """
    *outer, row, column = item.strides
    if any(
        extent > 1 and step != even
        for extent, step, even in zip(
            (size.n, size.p), outer, (size.p * size.q * row, size.q * row), strict=True
        )
    ):
        raise ArgumentError(
            "memory of A",
            expected="pixels that are evenly apart, of a kernel of CUTLASS 3.x",
            got=f"strides {item.strides}",
            hint="copy the tensor, or describe the operation without a tile",
        )
    return replace(item, strides=(row, column))
