"""Gradients of squared distances as products on tensor cores."""

from __future__ import annotations

from kronop.artifacts import Status
from kronop.descriptions.datatype import float32
from kronop.emit.cuda import operands
from kronop.emit.design import Instantiation, named, package_folder
from kronop.families.distance import parts
from kronop.families.distance.cuda.gradient_design import GradientKernel
from kronop.families.distance.form import TermKind
from kronop.families.distance.gradient_description import DistanceGradientDescription
from kronop.families.distance.gradient_size import GradientSize
from kronop.frozen import dataclass
from kronop.machine import Feature
from kronop.target import Target

# Constants of the header's ProductStep.
_THREADS, _TILE_N, _TILE_M, _ITEMS = 256, 128, 64, 32
_PADDING = 8
# Rows of coefficients whose sums fit into the registers of a thread.
MOST_OUTPUTS = 4
# Slabs whose products are accumulated by tensor cores.
_TOGETHER = 8


@dataclass(frozen=True, kw_only=True)
class GradientProducts(GradientKernel):
    """Expanded squares: three TF32 products for one of float32.

    Attributes:
        depth: indices k of a stage in shared memory.
    """

    tile = _TILE_N, _TILE_M
    threads = _THREADS

    depth: int = 16

    @property
    def shared_bytes(self) -> int:
        of_b = _TILE_N * (self.depth + _PADDING)
        slab = 2 * self.depth * _TILE_M + of_b + self.outputs * self.depth
        sums = self.outputs * (_ITEMS * _THREADS + _TILE_M) + _TILE_N
        return (2 * slab + sums) * float32.bytes

    def instantiation(self, target: Target) -> Instantiation:
        return Instantiation(
            header="gradient_products.cuh",
            parameters=parts.gradient_parameters_of(operands.scalar_fields(self.epilogue)),
            types=operands.element_types(
                self.math, float32, self.epilogue.element_output, self.epilogue
            ),
            constants=(
                ("kThreads", _THREADS),
                ("kBlocks", 1),
                *named(self, "outputs depth"),
                ("kTogether", _TOGETHER),
            ),
            folders=(package_folder(__package__),),
        )


def status(what: DistanceGradientDescription, target: Target, size: GradientSize) -> Status:
    """Whether squares may be expanded, and there are enough of them to gain by it."""
    if not what.expanded or what.power is not TermKind.Two:
        return Status.reject("only squares are multiplied out, where that is allowed")
    if what.A.element is not float32 or not target.has(Feature.warp_groups):
        return Status.reject("products of warp groups are of float32, on sm_90a")
    if size.n < _TILE_N or size.m < _TILE_M or size.k < _TILE_N:
        return Status.reject(f"{size.told()} leave tiles empty")
    return Status.accept()
