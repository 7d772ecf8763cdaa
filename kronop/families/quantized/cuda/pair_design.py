"""Product, scale and rounding of whole rows in one kernel: quantized_pair.cuh."""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator
from typing import ClassVar

from kronop.artifacts import Field, KernelSignature, Launch, Scalar, Status
from kronop.descriptions.datatype import DataType, bfloat16, float16
from kronop.descriptions.strided import MOST_BATCH_DIMENSIONS, Strided
from kronop.emit.cuda import operands
from kronop.emit.cuda.machine import memory_bytes_per_cycle, warp_products
from kronop.emit.cuda.operands import View
from kronop.emit.design import Design, Instantiation, named, package_folder
from kronop.families.quantized.description import QuantizedKronProblem
from kronop.frozen import dataclass
from kronop.machine import KEPT_BYTES, REGISTERS
from kronop.target import Target

_TILE, _VECTOR, _WARPS = 16, 8, 4
_MOST_THREADS = 512
# Factors stay in registers if a thread then has no more than this: three blocks of four warps are
# then resident on a multiprocessor.
_KEPT_REGISTERS = 168
_OWN_REGISTERS = 64  # Addresses and the like.
_LEAST_REGISTERS = 96
# Above so many columns of the second digit, a warp has two tiles of them, so that fewer warps read
# the same rows, if a thread then needs no more than so many registers.
_NARROW, _ROOMY = 64, 152


@dataclass(frozen=True, slots=True, kw_only=True)
class PairDesign(Design):
    """Blocks with both digits' matrices in shared memory, which process some rows at a time.

    Attributes:
        element: of X and the factors.
        factors: their shapes; the first digit has those before `split`, the second one the others.
        bits: of an integer.
        stages: tiles of rows in shared memory: 2 if the next ones are copied during the product.
    """

    epilogue = None
    styles: ClassVar[tuple[str, ...]] = (
        "one stage",
        "two stages",
        "two tiles",
        "kept",
        "from shared memory",
        "odd columns",
        "even columns",
        "whole columns",
        "merged factors",
    )
    ends: ClassVar[tuple[str, ...]] = ("X along rows", "X along columns", "Y along rows")

    element: DataType
    factors: tuple[tuple[int, int], ...]
    split: int
    bits: int
    stages: int

    @property
    def contracted(self) -> tuple[int, int]:
        """Rows of the two digits' matrices."""
        return self._digits(0)

    @property
    def produced(self) -> tuple[int, int]:
        """Columns of the two digits' matrices."""
        return self._digits(1)

    def _digits(self, axis: int) -> tuple[int, int]:
        first, second = self.factors[: self.split], self.factors[self.split :]
        return math.prod(item[axis] for item in first), math.prod(item[axis] for item in second)

    @property
    def _padded_sizes(self) -> tuple[tuple[int, int], tuple[int, int]]:
        """Rows, then columns, of both matrices in shared memory."""
        (in0, in1), (out0, out1) = self.contracted, self.produced
        return (_padded(in0), _padded(in1)), (_padded(out0), _padded(out1))

    @property
    def tiles(self) -> int:
        """Tiles of 16 columns of the second digit of a warp."""
        columns = _padded(self.produced[1])
        may_be_two = columns > _NARROW and columns % (2 * _TILE) == 0
        return 2 if may_be_two and self._registers_with(2) <= _ROOMY else 1

    @property
    def _row_warps(self) -> int:
        return _padded(self.produced[1]) // (_TILE * self.tiles)

    @property
    def rows(self) -> int:
        """Rows that a block processes at a time."""
        return max(1, _WARPS // self._row_warps)

    @property
    def threads(self) -> int:
        return 32 * self._row_warps * self.rows

    @property
    def row_bytes(self) -> int:
        return math.prod(self.produced) * self.bits // 8

    @property
    def shared_bytes(self) -> int:
        """Tiles of X, both matrices, a byte for each integer, and a number for each warp."""
        (in0, in1), (out0, out1) = self._padded_sizes
        x = self.stages * self.rows * in0 * (in1 + _VECTOR)
        factors = out0 * (in0 + _VECTOR) + out1 * (in1 + _VECTOR)
        columns = self.produced[1]
        stride = columns + (_TILE if columns % (2 * _TILE) == 0 else 0)
        integers = self.rows * _padded(self.produced[0] * stride)
        return 2 * (x + factors) + integers + 4 * _padded(self.rows * self._row_warps)

    @property
    def kept(self) -> tuple[bool, bool]:
        """Whether threads keep the matrix of the first, and of the second digit in registers."""
        first, second = self._of_matrices
        room = min(_KEPT_REGISTERS, self._most_registers) - self._registers
        keeps_first = first <= room
        return keeps_first, second <= room - (first if keeps_first else 0)

    @property
    def _most_registers(self) -> int:
        """Registers of a thread if one block has all of a multiprocessor's, in whole warps for each
        scheduler."""
        return REGISTERS // operands.round_up(self.threads, 128)

    @property
    def _of_matrices(self) -> tuple[int, int]:
        """Registers of a thread for each digit's matrix."""
        first, second = (_padded(extent) // _TILE for extent in self.contracted)
        return 4 * first * _padded(self.produced[0]) // _TILE, 4 * second * self.tiles

    @property
    def _registers(self) -> int:
        """Registers of a thread, without matrices."""
        return self._registers_with(self.tiles)

    def _registers_with(self, tiles: int) -> int:
        """Registers for the sums of the first product or, packed in pairs, for both results."""
        between, results = (_padded(item[0]) // _TILE for item in (self.contracted, self.produced))
        return _OWN_REGISTERS + tiles * max(8 * between, 4 * between + 4 * results + 8)

    def blocks(self, target: Target) -> int:
        """Blocks that a multiprocessor holds at once (occupancy)."""
        pairs = zip(self._of_matrices, self.kept, strict=True)
        kept = sum(registers for registers, is_kept in pairs if is_kept)
        registers = max(self._registers + kept, _LEAST_REGISTERS)
        by_registers = REGISTERS // (self.threads * operands.round_up(registers, 8))
        return max(1, min(by_registers, target.shared_bytes // (self.shared_bytes + KEPT_BYTES)))

    @property
    def multiply_adds(self) -> int:
        """Multiply-adds for a row, padding included."""
        (in0, in1), (out0, out1) = self._padded_sizes
        return in0 * in1 * out1 + in0 * out0 * out1

    def status(self, target: Target) -> Status:
        """Whether the kernel can run these factors."""
        if self.element not in (bfloat16, float16):
            return Status.reject(f"tensor cores do not multiply {self.element.name}")
        if self.element is float16 and len(self.factors) > 2:
            # As for Kronecker products: see `_may_be_half` there.
            return Status.reject(
                "products of factors may overflow float16, the result being finite"
            )
        if self.threads > _MOST_THREADS or self._registers > self._most_registers:
            return Status.reject(
                f"digits of {self.contracted} by {self.produced} take {self.threads} threads of"
                f" {self._registers} registers; at most {_MOST_THREADS} threads, and"
                f" {self._most_registers} registers for each of so many"
            )
        if self.shared_bytes > target.shared_bytes:
            return Status.reject(
                f"takes {self.shared_bytes} bytes of shared memory, at most {target.shared_bytes}"
            )
        rate = warp_products(target, self.element.bytes)
        if self.multiply_adds / rate > self._two_steps(target):
            return Status.reject(
                f"{self.multiply_adds} multiply-adds of padded tiles for a row take longer than to"
                " write the product and read it again"
            )
        return Status.accept()

    def _two_steps(self, target: Target) -> float:
        """The least cycles for a row if the product is written, and read again."""
        x, y = (math.prod(sizes) * self.element.bytes for sizes in (self.contracted, self.produced))
        return (x + 2 * y + self.row_bytes) / memory_bytes_per_cycle(target)

    def style(self, target: Target) -> Iterator[str]:
        yield "one stage" if self.stages == 1 else "two stages"
        if self.tiles == 2:
            yield "two tiles"
        yield "kept" if any(self.kept) else "from shared memory"
        columns = self.produced[1]
        yield "whole columns" if columns % _TILE == 0 else f"{('even', 'odd')[columns % 2]} columns"
        if len(self.factors) > 2:
            yield "merged factors"

    @property
    def signature(self) -> KernelSignature:
        return _signature(len(self.factors))

    def instantiation(self, target: Target) -> Instantiation:
        keeps_a, keeps_b = self.kept
        return Instantiation(
            header="quantized_pair.cuh",
            parameters=f"kronop::QuantizedPairParameters<{len(self.factors)}>",
            types=(("Input", self.element.cxx),),
            constants=(
                ("kThreads", self.threads),
                ("kBlocks", self.blocks(target)),
                ("kFactors", len(self.factors)),
                ("kSplit", self.split),
                ("kFactorRows", tuple(rows for rows, _ in self.factors)),
                ("kFactorColumns", tuple(columns for _, columns in self.factors)),
                *named(self, "contracted produced bits rows tiles stages shared_bytes"),
                ("kKeepsA", keeps_a),
                ("kKeepsB", keeps_b),
            ),
            folders=(package_folder(__package__),),
        )

    def launches(self, problem: QuantizedKronProblem, target: Target) -> tuple[Launch, ...]:
        product = problem.product
        x, y, factors = problem.x, problem.y, product.factors
        batch = math.prod(product.batch)
        resident = operands.cover(self.blocks(target) * target.cores, batch)
        blocks = min(operands.cover(product.rows, self.rows), resident)
        columns = math.prod(self.contracted)
        values: dict[str, int | float | tuple[int, ...]] = {
            "x": x.pointer,
            "q": y.pointer,
            "scales": problem.scales,
            "rows": product.rows,
            "blocks": blocks,
            "vectors_x": self._vectors(x, (product.rows, columns), product.batch),
            "vectors_q": int((y.pointer | self.row_bytes) % operands.VECTOR_BYTES == 0),
            "x_row": x.row,
            "x_column": x.column,
            "q_row": y.row,
            "batch_extent": _lead(product.batch, 1),
            "batch_x": _lead(x.batch, 0),
            "batch_q": _lead(y.batch, 0),
            "factor": tuple(item.pointer for item in factors),
            "factor_row": tuple(item.row for item in factors),
            "factor_column": tuple(item.column for item in factors),
            "batch_factor": tuple(step for item in factors for step in _lead(item.batch, 0)),
            "vectors_factor": tuple(
                self._vectors(item, shape, product.batch)
                for item, shape in zip(factors, self.factors, strict=True)
            ),
            "clip": problem.clip,
        }
        operands.check_blocks(blocks * batch)
        launch = Launch(
            parameters=self.signature.pack(values),
            grid=(blocks * batch, 1, 1),
            block=(self.threads, 1, 1),
            shared_bytes=self.shared_bytes,
        )
        return (launch,)

    def _vectors(self, item: Strided, shape: tuple[int, int], batch: tuple[int, ...]) -> int:
        """Whether vectorised accesses along the rows of an operand are aligned."""
        strides = {"row": (item.row,), "column": (item.column,), "batch": item.batch}
        extents = {"row": shape[:1], "column": shape[1:], "batch": batch}
        view = View(pointer=item.pointer, strides=strides)
        return operands.allows_vectors(view, extents, "column", _VECTOR, self.element)


@functools.cache
def _signature(factors: int) -> KernelSignature:
    pointers = ("x", "q", "scales")
    integers = ("rows", "blocks", "vectors_x", "vectors_q", "x_row", "x_column", "q_row")
    batch = MOST_BATCH_DIMENSIONS
    return KernelSignature(
        "QuantizedPairParameters",
        (
            *(Field(name, Scalar.POINTER) for name in pointers),
            *(Field(name, Scalar.INT64) for name in integers),
            *(Field(name, Scalar.INT64, batch) for name in ("batch_extent", "batch_x", "batch_q")),
            Field("factor", Scalar.POINTER, factors),
            Field("factor_row", Scalar.INT64, factors),
            Field("factor_column", Scalar.INT64, factors),
            Field("batch_factor", Scalar.INT64, batch * factors),
            Field("vectors_factor", Scalar.INT64, factors),
            Field("clip", Scalar.FLOAT64),
        ),
    )


def _padded(extent: int) -> int:
    return operands.round_up(extent, _TILE)


def _lead(values: tuple[int, ...], first: int) -> tuple[int, ...]:
    """One value for each axis of the kernel, with `first` for missing leading axes."""
    return (first,) * (MOST_BATCH_DIMENSIONS - len(values)) + values
