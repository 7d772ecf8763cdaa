"""The roofline of a call: its bytes over copy bandwidth, its operations over the machine's rate.

Both ceilings are measured in the same run as the calls that are compared with them.
"""

from __future__ import annotations

import contextlib
import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from kronop.bench.arrays import Arrays
from kronop.bench.protocol import Call, Clock, needs_flush, rounds, sets_for
from kronop.bench.shapes import Shape
from kronop.descriptions.datatype import TENSOR_TYPES
from kronop.machine import Feature
from kronop.progress import Progress
from kronop.target import Target

# Bytes of the copied array, and the size of the multiplied square matrices: large enough to exceed
# the caches, small enough to be quick.
_COPIED = {"cuda": 1 << 30, "cpu": 64 << 20}
_MULTIPLIED = {"cuda": 8192, "cpu": 1024}
_REPEATS = 9
# Thread blocks in the largest portable cluster, whose shared memory together may hold one row.
_CLUSTER = 8
# A float32 product as accurate as SIMT's takes three TF32 products.
_TF32_PRODUCTS = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Ceilings:
    """The rates that this machine reaches now.

    Attributes:
        copy_bytes_per_second: bytes read plus written by a large copy.
        operations_per_second: rates of a square matrix product by element type; also "tf32".
        size: rows of these matrices.
    """

    copy_bytes_per_second: float
    operations_per_second: dict[str, float]
    size: int

    def rate(self, dtype: str) -> float:
        """The best rate that has at least the accuracy of `dtype`: its own, float32's for narrower
        types, or a third of TF32's for types up to float32."""
        rates = self.operations_per_second
        wide = rates["float32"] if dtype != "float64" else 0.0
        return max(rates[dtype], wide, rates.get("tf32", 0.0) / _TF32_PRODUCTS * (wide > 0))


@dataclass(frozen=True, slots=True, kw_only=True)
class Floor:
    """The least time that a call can take.

    Attributes:
        one_pass_ms: milliseconds of the useful bytes at copy speed.
        arithmetic_ms: milliseconds of the useful operations at the measured rate.
        passes: how often this floor reads and writes the useful bytes.
    """

    one_pass_ms: float
    arithmetic_ms: float
    passes: int

    @property
    def ms(self) -> float:
        return max(self.passes * self.one_pass_ms, self.arithmetic_ms)

    @property
    def bound(self) -> str:
        """The larger part of the floor: "1 pass", "2 passes" or "arithmetic"."""
        if self.arithmetic_ms > self.passes * self.one_pass_ms:
            return "arithmetic"
        return "1 pass" if self.passes == 1 else f"{self.passes} passes"


class Work(Protocol):
    """What the roofline needs to know of a problem."""

    def bytes(self, element_bytes: int) -> int:
        """Useful bytes: every input read once, every output written once."""
        ...

    @property
    def operations(self) -> int:
        """Useful multiplications and additions."""
        ...


def floor_of(
    work: Work, dtype: str, element_bytes: int, ceilings: Ceilings, bandwidth: float, passes: int
) -> Floor:
    """The floor of a problem; `bandwidth` in bytes per second."""
    return Floor(
        one_pass_ms=work.bytes(element_bytes) / bandwidth * 1e3,
        arithmetic_ms=work.operations / ceilings.rate(dtype) * 1e3,
        passes=passes,
    )


def passes_that_fit(shape: Shape, element_bytes: int, target: Target) -> int:
    """1 if the shared memory of a cluster, or of a block where there are none, holds a row, else 2,
    which suffice for every shape.

    On a CPU it is 1, because further passes over a row find it in a cache.
    """
    if target.backend != "cuda":
        return 1
    row = element_bytes * max(shape.input_columns, shape.output_columns)
    blocks = _CLUSTER if target.has(Feature.clusters) else 1
    return 1 if row <= blocks * target.shared_bytes else 2


def measure(arrays: Arrays, clock: Clock, dtypes: Sequence[str]) -> Ceilings:
    """The ceilings for these element types; float32 is always among them."""
    size, rates = _MULTIPLIED[arrays.device], {}
    kinds = [*dict.fromkeys(["float32", *dtypes]), *["tf32"] * (arrays.device == "cuda")]
    with Progress(len(kinds) + 1, "ceilings") as progress:
        for kind in kinds:
            progress.tell(f"matrix products in {kind}")
            with tf32() if kind == "tf32" else contextlib.nullcontext():
                element = "float32" if kind == "tf32" else kind
                rates[kind] = _product_rate(arrays, clock, element, size)
            progress.advance()
        progress.tell("a copy")
        bandwidth = copy_bandwidth(arrays, clock)
    return Ceilings(
        copy_bytes_per_second=bandwidth,
        operations_per_second=rates,
        size=size,
    )


def copy_bandwidth(arrays: Arrays, clock: Clock, moved: int | None = None) -> float:
    """Bytes per second, read plus written, of a copy that moves `moved` bytes; None means a large
    copy."""
    shape = (max(1, (moved or 2 * _COPIED[arrays.device]) // 8),)
    moved = 8 * shape[0]
    sets = range(sets_for(moved))
    pairs = [(arrays.random(shape, "float32"), arrays.poisoned(shape, "float32")) for _ in sets]
    calls = [lambda a=a, b=b: arrays.copy(b, a) for a, b in pairs]
    seconds = _seconds(calls, arrays, clock, arrays.flush if needs_flush(moved) else None)
    pairs.clear()
    arrays.release()
    return moved / seconds


def own_bandwidth(arrays: Arrays, clock: Clock, ceilings: Ceilings, moved: int) -> float:
    """The bandwidth for a case that moves so many bytes: that of a large copy; on a CPU at least
    that of a copy of the case's own size, which the caches may hold in part."""
    ceiling = ceilings.copy_bytes_per_second
    if arrays.device != "cpu":
        return ceiling
    return max(ceiling, copy_bandwidth(arrays, clock, moved))


def _product_rate(arrays: Arrays, clock: Clock, dtype: str, size: int) -> float:
    if TENSOR_TYPES[dtype].bytes == 1:
        return _byte_product_rate(arrays, clock, dtype, size)
    a, b = (arrays.random((size, size), dtype) for _ in range(2))
    seconds = [_seconds([lambda: a @ b], arrays, clock)]
    if arrays.device == "cpu" and dtype in ("float32", "float64"):
        # NumPy and torch have different BLAS libraries, and which is faster depends on the CPU.
        c, d = np.asarray(a), np.asarray(b)
        seconds.append(_seconds([lambda: c @ d], arrays, clock))
    return 2 * size**3 / min(seconds)


def _byte_product_rate(arrays: Arrays, clock: Clock, dtype: str, size: int) -> float:
    """The rate of torch's products of bytes with wider sums; if it has none here, float16's rate.

    Both kinds of 8-bit floats use float8_e4m3fn: the instructions are the same, and torch has no
    product of two matrices in float8_e5m2.
    """
    import torch

    element = dtype if dtype == "int8" else "float8_e4m3fn"
    a, b = (arrays.random((size, size), element) for _ in range(2))
    one, columns = torch.ones((), device=a.device), b.T.contiguous().T

    def multiply() -> object:
        if element == "int8":
            return torch._int_mm(a, b)
        return torch._scaled_mm(a, columns, one, one, out_dtype=torch.bfloat16)

    try:
        multiply()
    except RuntimeError:
        return _product_rate(arrays, clock, "float16", size)
    return 2 * size**3 / _seconds([multiply], arrays, clock)


def _seconds(
    calls: Sequence[Call], arrays: Arrays, clock: Clock, flush: Call | None = None
) -> float:
    """Median seconds on a GPU; the minimum on a CPU, since other processes only slow calls down."""
    pick = min if arrays.device == "cpu" else statistics.median
    return pick(rounds({"ceiling": calls}, clock, _REPEATS, flush)["ceiling"]) / 1e3


@contextlib.contextmanager
def tf32() -> Iterator[None]:
    """Allows torch to multiply float32 matrices in TF32 during a `with` block."""
    import torch

    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("high")
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before)
