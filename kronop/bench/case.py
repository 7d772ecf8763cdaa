"""One problem, measured: kronop, its floor, a copy of its size, its error, and the peers."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import kronop
from kronop.args.device import target_of_device
from kronop.args.view import CPU, Device
from kronop.bench import peers, report, timing
from kronop.bench.arrays import Arrays, shuffle, spread_rows
from kronop.bench.protocol import Call, sets_for
from kronop.bench.roofline import Ceilings, Floor, floor_of, passes_that_fit
from kronop.bench.shapes import Shape
from kronop.bench.table import Table, error_text, milliseconds
from kronop.bench.timing import Measured, Timing, attempted, compared, time_together
from kronop.descriptions.datatype import TENSOR_TYPES
from kronop.errors import DeviceError
from kronop.tensors import Tensor

DTYPES = ("float64", "float32", "float16", "bfloat16")
PASSES = ("fit", "plan", "1", "2")
# If X has more elements than this, only some of its rows are checked against float64.
_CHECKED = 1 << 25


TABLE = Table(
    (
        *(("M x factors", 18), ("type", 9), ("steps", 6), ("ms", 10), ("graph us", 9)),
        *(("roofline", 9), ("floor ms", 9), ("is of", 11), ("1 pass ms", 10), ("error", 9)),
    )
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting(timing.Setting):
    """The settings that all cases of a run share.

    Attributes:
        passes: one of PASSES, which says how often the floor crosses memory: as often as a row's
            size requires ("fit"), as often as the plan does ("plan"), or the number given.
        graph: whether to time every case inside a CUDA graph too, not only short ones.
    """

    ceilings: Ceilings
    peers: tuple[str, ...]
    passes: str
    graph: bool


@dataclass(slots=True, kw_only=True)
class Result(Measured[Floor]):
    """The measurements of one case.

    Attributes:
        steps: launches of the plan; 0 if there is no plan.
        copy_ms: time of a copy of the same number of bytes, on the same buffers.
    """

    shape: Shape
    bytes: int
    operations: int
    steps: int = 0
    copy_ms: float | None = None

    @property
    def label(self) -> str:
        return self.shape.text

    @property
    def names(self) -> list[str]:
        return [self.shape.text, self.dtype]

    @property
    def figures(self) -> list[str]:
        assert self.floor is not None
        return [
            *(str(self.steps), *self.times, f"{self.share:.2f}", milliseconds(self.floor.ms)),
            self.floor.bound,
            *(milliseconds(self.floor.one_pass_ms), error_text(self.kronop.error)),
        ]

    def as_json(self) -> dict[str, object]:
        """The measurements; times are in milliseconds, `roofline` is floor over time."""
        floor = self.floor
        return {
            "shape": self.shape.text,
            "rows": self.shape.rows,
            "factors": self.shape.factors,
            "dtype": self.dtype,
            "bytes": self.bytes,
            "operations": self.operations,
            "steps": self.steps,
            "kronop": report.timing_json(self.kronop),
            "copy_ms": self.copy_ms,
            "roofline": self.share,
            "floor": floor
            and {
                "ms": floor.ms,
                "bound": floor.bound,
                "passes": floor.passes,
                "one_pass_ms": floor.one_pass_ms,
                "arithmetic_ms": floor.arithmetic_ms,
            },
            "peers": report.peers_json(self),
        }


def run(shape: Shape, dtype: str, setting: Setting, tell: Callable[[str], None]) -> Result:
    """Measures one problem; if something fails, the result has the reason."""
    element = TENSOR_TYPES[dtype].bytes
    result = Result(
        shape=shape, dtype=dtype, bytes=shape.bytes(element), operations=shape.operations
    )
    attempted(result, setting, lambda: _measure(result, setting, tell))
    if result.floor is None:
        result.kronop = Timing(reason=result.kronop.reason)
    return result


def _measure(result: Result, setting: Setting, tell: Callable[[str], None]) -> None:
    arrays, shape, dtype = setting.arrays, result.shape, result.dtype
    tell("inputs")
    count = sets_for(result.bytes)
    xs = [arrays.random((shape.rows, shape.input_columns), dtype) for _ in range(count)]
    ys = [arrays.poisoned((shape.rows, shape.output_columns), dtype) for _ in range(count)]
    factors = [_factor(arrays, factor, dtype) for factor in shape.factors]
    tell("compiling")
    operation = _operation(shape, dtype, arrays.device)
    calls = _kronop_calls(operation, xs, ys, factors)
    result.steps = len(operation.plan_for(shape.rows).steps)
    tell("checking")
    calls[0]()
    setting.clock.wait()
    check = _Check(arrays, xs[0], factors)
    result.kronop.error = check.error(ys[0])
    variants = {"kronop": calls, "copy": _copies(arrays, xs, ys)}
    for name in setting.peers:
        tell(f"warming up {name}")
        calls_of = functools.partial(peers.calls_of, name, arrays, shape, dtype, xs, factors)
        error_of = functools.partial(_error_of_peer, check, name)
        variants |= compared(name, result, setting, calls_of, error_of)
    tell(f"timing {', '.join(variants)}")
    own, moved = ("kronop", "copy"), result.bytes
    times = time_together(variants, result, setting, moved=moved, graph=setting.graph, own=own)
    result.copy_ms = times["copy"]
    elements = math.prod(xs[0].shape) + math.prod(ys[0].shape)
    copied = elements // 2 * 2 * TENSOR_TYPES[dtype].bytes
    _set_floor(result, setting, copied, operation.target)


def _factor(arrays: Arrays, size: tuple[int, int], dtype: str) -> Tensor:
    """Normally distributed values; scaled down in float16 so that long products don't overflow."""
    factor = arrays.random(size, dtype)
    return factor / math.sqrt(size[0]) if dtype == "float16" else factor


def _operation(shape: Shape, dtype: str, device: str) -> kronop.KronMatmulOperation:
    """The operation for new row-major tensors, with the largest alignment that these have."""
    element = TENSOR_TYPES[dtype]
    width = 16 // element.bytes
    accumulator = kronop.MathInstruction.simt(element).element_accumulator
    X, Y = (
        kronop.TensorDescription(element, kronop.RowMajor, math.gcd(columns, width))
        for columns in (shape.input_columns, shape.output_columns)
    )
    epilogue = kronop.LinearCombination(element, Y.alignment, accumulator, accumulator)
    F = kronop.TensorDescription(element)
    return kronop.KronMatmulOperation(target_of(device), None, X, F, Y, epilogue, shape.factors)


def target_of(device: str) -> str | kronop.Target:
    if device == "cpu":
        return target_of_device(CPU)
    import torch

    return target_of_device(Device("cuda", torch.cuda.current_device()))


def _kronop_calls(
    operation: kronop.KronMatmulOperation,
    xs: Sequence[Tensor],
    ys: Sequence[Tensor],
    factors: Sequence[Tensor],
) -> list[Call]:
    return [
        functools.partial(
            operation.run,
            kronop.KronMatmulArguments(operation=operation, X=x, factors=factors, Y=y),
        )
        for x, y in zip(xs, ys, strict=True)
    ]


def _copies(arrays: Arrays, xs: Sequence[Tensor], ys: Sequence[Tensor]) -> list[Call]:
    """Copies that read and write together as many elements as X and Y have.

    They copy X to Y as far as both reach, and one half of the larger tensor's rest to its other
    half. This may change X, so results must be checked before.
    """

    def copy(x: Tensor, y: Tensor) -> Call:
        common = min(len(x), len(y))
        rest = (x if len(x) > common else y)[common:]
        half = len(rest) // 2
        pairs = [(y[:common], x[:common]), (rest[:half], rest[half : 2 * half])]
        calls = [functools.partial(arrays.copy, *pair) for pair in pairs if len(pair[0])]
        return calls[0] if len(calls) == 1 else lambda: [call() for call in calls]

    return [copy(x.reshape(-1), y.reshape(-1)) for x, y in zip(xs, ys, strict=True)]


class _Check:
    """Compares results with float64; only some rows if X is large."""

    def __init__(self, arrays: Arrays, x: Tensor, factors: Sequence[Tensor]) -> None:
        rows, columns = x.shape
        self._rows = spread_rows(rows, _CHECKED // columns)
        self._arrays = arrays
        x = arrays.double(arrays.rows(x, self._rows))
        self._expected = shuffle(x, [arrays.double(factor) for factor in factors])

    def error(self, y: Tensor) -> float:
        """The relative error; infinite if an element of Y was not written or overflowed."""
        if not self._arrays.is_finite(y):
            return math.inf
        return self._arrays.error(self._arrays.rows(y, self._rows), self._expected)


def _error_of_peer(check: _Check, name: str, found: Tensor) -> float:
    return check.error(peers.result_of(name, found))


def _set_floor(result: Result, setting: Setting, copied: int, target: kronop.Target) -> None:
    if result.kronop.error == math.inf:
        raise DeviceError(
            "result", expected="finite numbers", got="NaN or infinity", hint="report the shape"
        )
    assert result.copy_ms is not None
    bandwidth = setting.ceilings.copy_bytes_per_second
    if setting.arrays.device == "cpu":
        # Arrays that stay in the last-level cache are copied faster than large ones.
        bandwidth = max(bandwidth, copied / result.copy_ms * 1e3)
    element = TENSOR_TYPES[result.dtype].bytes
    passes = {
        "fit": passes_that_fit(result.shape, element, target),
        "plan": result.steps,
        "1": 1,
        "2": 2,
    }[setting.passes]
    result.floor = floor_of(
        result.shape, result.dtype, element, setting.ceilings, bandwidth, passes
    )
