"""A contraction on the ordinary cores (`contract_tiles`)."""

from __future__ import annotations

from typing import ClassVar

from kronop.artifacts import Status
from kronop.emit.cuda import operands
from kronop.emit.cuda.contraction.design import ContractDesign, offsets_bytes
from kronop.emit.cuda.contraction.work import Order
from kronop.emit.cuda.machine import bytes_of_multiply_adds, memory_rate
from kronop.emit.design import Constant, named
from kronop.frozen import dataclass, derived
from kronop.machine import BLOCK_THREADS, REGISTERS, THREAD_REGISTERS, WARP
from kronop.target import Target

# The ratio of measured to modelled time of the SIMT kernels, for 8^5 to 128^2 on one H200.
SIMT_OVERHEAD = 1.65


@dataclass(frozen=True, kw_only=True)
class SimtContract(ContractDesign):
    """A tile of threads_m x threads_n threads, each of which has thread_m x thread_n results."""

    header: ClassVar[str] = "kronop/contract.cuh"
    template: ClassVar[str] = "kronop::contract_tiles"

    threads_m: int
    threads_n: int
    thread_m: int
    thread_n: int

    @property
    def m(self) -> int:
        return self.threads_m * self.thread_m

    @property
    def n(self) -> int:
        return self.threads_n * self.thread_n

    @property
    def threads(self) -> int:
        return self.lanes * self.threads_m * self.threads_n

    def __str__(self) -> str:
        block = f"{self.lanes} lanes x {self.m} x {self.n} x {self.k}"
        return f"{block}, {self.thread_m} x {self.thread_n} a thread"

    @derived
    def vectors(self) -> tuple[int, int, int]:
        """The widest accesses that the promised alignments allow and that divide the tile."""
        work = self.work

        def widest(promise: int, order: Order, own: int, across: int) -> int:
            size = {Order.Own: own, Order.Rows: across, Order.Lanes: self.lanes}[order]
            return operands.widest_divisor(promise, [size])

        return (
            widest(work.x_alignment, work.x_order, self.k, self.m),
            widest(work.w_alignment, work.w_order, self.k, self.n),
            widest(work.y_alignment, work.y_order, self.n, self.m),
        )

    @derived
    def shared_bytes(self) -> int:
        """Row offsets, plus the larger of the stages of both operands and the results."""
        accumulator = self.work.accumulator
        pad = operands.vector_of(accumulator)
        stage = sum(self.lanes * (self.k * (width + pad) + pad) for width in (self.m, self.n))
        # The results are padded along the contiguous side of Y: assume the order that needs more.
        results = self.lanes * (self.m * self.n + pad * max(self.m, self.n) + pad)
        return offsets_bytes(self.m) + max(self.stages * stage, results) * accumulator.bytes

    @derived
    def registers(self) -> int:
        """An upper estimate of the registers of a thread."""
        words = self.work.accumulator.bytes // 4
        x_vector, w_vector, _ = self.vectors
        x_staged, w_staged = (
            self.lanes * self.k * size / self.threads for size in (self.m, self.n)
        )
        # Until it is complete, an access occupies registers for its value, its 64-bit address and
        # its predicate.
        accesses = x_staged / x_vector + w_staged / w_vector
        sums = self.thread_m * self.thread_n + self.thread_m + self.thread_n
        return round((sums + x_staged + w_staged + 8) * words + 6 * accesses) + 64

    def status(self, target: Target) -> Status:
        if self.threads_m % 4 or self.n % 4:
            return Status.reject(
                f"a tile of {self} does not divide among threads; use multiples of 4"
            )
        if self.stages > 2:
            return Status.reject(f"{self.stages} stages, the kernel has 1 or 2; use stages 2")
        if not WARP <= self.threads <= BLOCK_THREADS or self.threads % WARP:
            return Status.reject(
                f"{self.threads} threads for {self}, expected a multiple of {WARP} of at most"
                f" {BLOCK_THREADS}; change warp_count"
            )
        if self.shared_bytes > target.shared_bytes:
            return Status.reject(
                f"a tile of {self} wants {self.shared_bytes} bytes of shared memory in"
                f" {self.stages} stages, {target.shared_bytes} are there; use a smaller"
                " threadblock_shape"
            )
        most = min(THREAD_REGISTERS, REGISTERS // self.threads)
        if self.registers > most:
            return Status.reject(
                f"{self} wants about {self.registers} registers of {most};"
                " use more warps or a smaller threadblock_shape"
            )
        return Status.accept()

    def seconds(self, size: int, target: Target) -> float:
        elements = size * self.work.contracted * self.work.lanes
        return elements * self.bytes_of_element(target) / memory_rate(target)

    def bytes_of_element(self, target: Target) -> float:
        """Memory traffic of an element of X, with arithmetic converted to bytes moved in its time:
        the two hardly overlap."""
        work = self.work
        contracted, produced = work.contracted, work.produced
        x, y = work.source.bytes, work.output.bytes * produced / contracted
        padded = operands.cover(produced, self.n) * self.n
        again = operands.cover(produced, self.n) - 1
        shared = 1 + (1 / self.thread_m + 1 / self.thread_n) * 2
        arithmetic = padded * operands.round_up(contracted, self.k) / contracted * shared
        multiply_adds = arithmetic * bytes_of_multiply_adds(target, work.accumulator)
        return (x * (1 + 0.3 * again) + y + multiply_adds) * SIMT_OVERHEAD

    def constants(self, target: Target) -> tuple[tuple[str, Constant], ...]:
        work = self.work
        blocks = operands.blocks_of(self.threads, self.registers, self.shared_bytes, target)
        return (
            ("kThreads", self.threads),
            ("kBlocks", blocks),
            *named(self, "stages lanes"),
            *named(self, "m n k", "kTile"),
            *named(self, "thread_m thread_n"),
            *named(work, "contracted produced x_order w_order y_order"),
            *zip(("kXVector", "kWVector", "kYVector"), self.vectors, strict=True),
            ("kPad", operands.vector_of(work.accumulator)),
            ("kTileBytesAt", offsets_bytes(self.m)),
        )
