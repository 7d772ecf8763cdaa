"""Designs of products of kernel matrices on the host; see product.hpp."""

from __future__ import annotations

import math

from kronop.artifacts import Field, KernelSignature, Launch, Scalar
from kronop.descriptions.strided import MOST_BATCH_DIMENSIONS, padded
from kronop.emit.design import Instantiation, members, package_folder, strided_values
from kronop.emit.x86 import planning
from kronop.families.distance import parts
from kronop.families.distance.description import KernelMatmulProblem
from kronop.families.distance.form import Form
from kronop.families.distance.parts import constants_of
from kronop.families.distance.product_size import KernelMatmulSize
from kronop.families.distance.x86.design import RegisterTiles
from kronop.frozen import dataclass
from kronop.target import Target

_OPERANDS = ("x1", "x2", "v", "y", "z")
# Bytes of the features of a packed row, and columns of a block: a thread's packed data takes 128
# KB. Most rows of a block, and bytes of their totals.
_SLAB_BYTES, _COLUMNS, _ROWS, _TOTAL_BYTES = 1024, 128, 96, 1 << 16
# Multiply-adds that take about as long as the kernel's function of one pair.
_FUNCTION = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class ProductTiles(RegisterTiles):
    """Tiles of the kernel matrix, whose rows are multiplied by V immediately."""

    ends = ("Y along rows", "Y along columns")

    form: Form

    @property
    def signature(self) -> KernelSignature:
        whole, batch = Scalar.INT64, MOST_BATCH_DIMENSIONS
        return KernelSignature(
            "ProductParameters",
            (
                *(Field(name, Scalar.POINTER) for name in (*_OPERANDS, "scratch")),
                *(Field(name, whole) for name in ("m", "n", "k", "c", "rows", "scratch_bytes")),
                Field("batch", whole, batch),
                *(Field(f"{name}_batch", whole, batch) for name in _OPERANDS),
                *(Field(f"{name}_{way}", whole) for name in _OPERANDS for way in ("row", "column")),
                Field("threads", whole),
                *parts.kernel_fields(self.form),
                self._scalars,
            ),
        )

    def instantiation(self, target: Target) -> Instantiation:
        scalars, form, accumulator = self._scalars, self.form, self.math.element_accumulator
        counts = f"{parts.room(form.values)}, {parts.room(form.vectors)}, {scalars.count}"
        return Instantiation(
            header="product.hpp",
            parameters=f"kronop::ProductParameters<{counts}, {scalars.scalar.cxx}>",
            types=(*self.types, self.lanes),
            constants=(
                *constants_of(form),
                ("kWidth", self.width),
                ("kTileVectors", self.vectors),
                ("kRows", self.rows),
                ("kDepth", self._slab),
                ("kBlockColumns", _COLUMNS),
            ),
            folders=(package_folder(__package__),),
            functors=parts.functors_of(form, accumulator, "Numbers"),
        )

    @property
    def _slab(self) -> int:
        """Features that are packed at a time."""
        return _SLAB_BYTES // self.math.element_accumulator.bytes

    def _block_rows(self, c: int) -> int:
        """Rows of a block, in whole tiles."""
        most = _TOTAL_BYTES // (self.vector_bytes * max(1, c))
        return max(1, min(_ROWS, most) // self.rows) * self.rows

    def _scratch_bytes(self, k: int, c: int) -> int:
        """Bytes of the scratch memory of a thread."""
        rows, slabs = self._block_rows(c), -(-k // self._slab)
        totals = c * (_COLUMNS + (rows + self.rows) * self.width)
        sums = len(self.form.terms) * rows * _COLUMNS if slabs > 1 else 0
        return planning.aligned((totals + sums) * self.math.element_accumulator.bytes)

    def workspace(self, size: KernelMatmulSize, target: Target, threads: int) -> int:
        """Each thread packs a tile of its own."""
        return threads * self._scratch_bytes(size.k, size.c)

    def launches(self, problem: KernelMatmulProblem, target: Target) -> tuple[Launch, ...]:
        p, blocks = problem, math.prod(problem.batch) * -(-problem.m // self._block_rows(problem.c))
        each = p.k * self.form.operations + p.c + _FUNCTION
        threads = planning.shares(math.prod(p.batch) * p.m * p.n * each, blocks, p.threads)
        values = {
            **strided_values(p, _OPERANDS),
            **members(p, "m n k c scalars"),
            **parts.kernel_values(p.values, p.vectors),
            "scratch": p.workspace,
            "rows": self._block_rows(p.c),
            "scratch_bytes": self._scratch_bytes(p.k, p.c),
            "batch": padded(p.batch, 1),
            "threads": threads,
        }
        return (Launch(parameters=self.signature.pack(values)),)
