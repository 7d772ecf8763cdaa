"""A quantized Kronecker product against the product and torch's quantization, measured.

torch's quantization is what one writes in eager mode: the largest magnitude of each row, division,
rounding, clamping and, for 4 bits, two integers into a byte.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import kronop
from kronop.bench.arrays import spread_rows
from kronop.bench.protocol import Call, keeping, sets_for
from kronop.bench.roofline import copy_bandwidth
from kronop.bench.shapes import Shape
from kronop.bench.table import Table, microseconds, milliseconds
from kronop.bench.timing import Measured, Setting, Timing, time_together
from kronop.errors import DeviceError
from kronop.tensors import Tensor

DTYPES = ("bfloat16", "float16")
PEERS = ("gemkm", "torch")
_CHECKED_ROWS = 16
_UNIT = {"bfloat16": 2.0**-9, "float16": 2.0**-12}
TABLE = Table(
    (
        *(("M x factors", 16), ("type", 9), ("bits", 4), ("ms", 10), ("graph us", 9)),
        *(("roofline", 9), ("floor ms", 10), ("error", 7)),
    )
).beside(("gemkm + torch", "torch"), "{}, ms and graph us (gains)", 34)


@dataclass(frozen=True, slots=True, kw_only=True)
class CopyFloor:
    """The milliseconds of a copy of the bytes that have to be read and written."""

    ms: float
    bound: str = "1 pass"


@dataclass(slots=True, kw_only=True)
class Result(Measured[CopyFloor]):
    """The measurements of one case; errors are in quanta, that is in scales of the row."""

    shape: Shape
    bits: int

    @property
    def label(self) -> str:
        return f"{self.shape.text} {self.dtype} in {self.bits} bits"

    @property
    def moved(self) -> int:
        """Bytes that are read and written at least."""
        columns = 2 * self.shape.input_columns + self.shape.output_columns * self.bits // 8
        return self.shape.rows * (columns + 4)

    @property
    def names(self) -> list[str]:
        return [self.shape.text, self.dtype, str(self.bits)]

    @property
    def figures(self) -> list[str]:
        assert self.floor is not None
        share = self.floor.ms / (self.kronop.graph_ms or self.kronop.ms or 0.0)
        told = f"{share:.2f}", milliseconds(self.floor.ms), f"{self.kronop.error:.2f}"
        return [*self.times, *told]

    def beside(self, peer: Timing) -> str:
        own = self.kronop
        if peer.ms is None or not own.ms:
            return f"- {peer.reason}"
        text = f"{milliseconds(peer.ms)} ({peer.ms / own.ms:.2f}x)"
        if peer.graph_ms is None or not own.graph_ms:
            return text
        gain = peer.graph_ms / own.graph_ms
        return f"{text} {microseconds(peer.graph_ms)} ({gain:.2f}x)"


def measure(result: Result, setting: Setting) -> None:
    """Fills in what is measured."""
    arrays, shape, bits = setting.arrays, result.shape, result.bits
    factors = [arrays.random(item, result.dtype) / item[0] ** 0.5 for item in shape.factors]
    sets = [
        arrays.random((shape.rows, shape.input_columns), result.dtype)
        for _ in range(sets_for(result.moved))
    ]
    ways: dict[str, Callable[[Tensor], Tensor]] = {
        "kronop": lambda x: kronop.quantized_gemkm(x, factors, bits=bits),
        "gemkm": lambda x: quantized_by_torch(kronop.gemkm(x, factors), bits),
        "torch": lambda x: quantized_by_torch(product_by_torch(x, factors), bits),
    }
    result.peers = {name: Timing() for name in PEERS}
    timings = {"kronop": result.kronop, **result.peers}
    variants: dict[str, list[Call]] = {}
    for name, way in ways.items():
        timings[name].error = _error(result, way(sets[0]), sets[0], factors)
        variants[name] = keeping([functools.partial(way, x) for x in sets])
    most = 0.5 + 2**bits * _UNIT[result.dtype]
    error = timings["kronop"].error
    if error is None or not error <= most:
        raise DeviceError(
            "error of quantized_gemkm",
            expected=f"at most {most:.2g} quanta",
            got=error,
            hint="report the case",
        )
    time_together(variants, result, setting, moved=result.moved, graph=True)
    bandwidth = copy_bandwidth(arrays, setting.clock)
    result.floor = CopyFloor(ms=result.moved / bandwidth * 1e3)


def product_by_torch(x: Tensor, factors: Sequence[Tensor]) -> Tensor:
    """x (A x B) of two factors by two matrix products."""
    first, second = factors
    rows, columns = x.shape[0], first.shape[1] * second.shape[1]
    inner = x.view(rows, first.shape[0], second.shape[0]) @ second
    return (first.T @ inner).reshape(rows, columns)


def quantized_by_torch(y: Tensor, bits: int) -> tuple[Tensor, Tensor]:
    """The rows of y as integers, packed for 4 bits, and their scales."""
    return rounded_by_torch(y, y.abs().amax(-1, keepdim=True).float() / (2 ** (bits - 1) - 1), bits)


def rounded_by_torch(y: Tensor, scales: Tensor, bits: int) -> tuple[Tensor, Tensor]:
    """As `quantized_by_torch`, for scales that are known."""
    import torch

    top = 2 ** (bits - 1) - 1
    q = (y / scales).round().clamp(-top - 1, top).to(torch.int8)
    if bits == 4:
        q = ((q[..., ::2] & 15) | (q[..., 1::2] << 4)).view(torch.uint8)
    return q, scales


def _error(
    result: Result, found: tuple[Tensor, Tensor], x: Tensor, factors: Sequence[Tensor]
) -> float:
    """The largest distance of q scale from the product in float64, in scales, of some rows."""
    import torch

    picked = torch.tensor(spread_rows(result.shape.rows, _CHECKED_ROWS), device=x.device)
    q, scales = (item[picked] for item in found)
    if result.bits == 4:
        low, high = (q << 4).view(torch.int8) >> 4, q.view(torch.int8) >> 4
        q = torch.stack([low, high], -1).flatten(-2)
    expected = product_by_torch(x[picked].double(), [item.double() for item in factors])
    return float(((q.double() * scales.double() - expected) / scales.double()).abs().max())
