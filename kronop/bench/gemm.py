"""Matrix products against torch's, measured: times, errors against float64, shares of the floor."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from kronop.args.host import thread_count
from kronop.bench import report
from kronop.bench.arrays import Arrays, spread_rows
from kronop.bench.protocol import Call, keeping, sets_for
from kronop.bench.table import Table, error_text, milliseconds
from kronop.bench.timing import (
    Measured,
    PeerUnavailableError,
    Setting,
    Timing,
    attempted,
    first_line,
    time_together,
)
from kronop.descriptions.activation import ACTIVATION_NAMES
from kronop.descriptions.datatype import FLOAT8, TENSOR_TYPES, DataType, result_type
from kronop.errors import DeviceError
from kronop.families.gemm.api import arguments_of, matmul
from kronop.families.gemm.size import GemmSize
from kronop.tensors import Tensor

# What is done to a product A B: nothing, a bias is added, or an activation is applied after that.
EPILOGUES = ("none", "bias", *ACTIVATION_NAMES)
PEERS = ("torch", "fused")
_CHECKED_ROWS = 64
# Relative errors of one rounding to a type.
_UNIT = {"float64": 2.0**-53, "float32": 2.0**-24, "float16": 2.0**-11, "bfloat16": 2.0**-8}
TABLE = Table(
    (
        *(("(batch x) M x N x K", 20), ("type", 13), ("epilogue", 10), ("ms", 10)),
        *(("graph us", 9), ("Tflop/s", 9), ("floor", 6), ("floor ms", 9), ("error", 8)),
    )
).beside(PEERS, "{} ms (gain) error", 24)


@dataclass(frozen=True, slots=True, kw_only=True)
class UnitFloor:
    """The milliseconds for which a unit of the machine is busy at least."""

    ms: float
    bound: str


@dataclass(slots=True, kw_only=True)
class Result(Measured[UnitFloor]):
    """The measurements of one case."""

    size: GemmSize
    epilogue: str

    @property
    def text(self) -> str:
        batch = f"{self.size.batch}x" if self.size.batch != 1 else ""
        return f"{batch}{self.size.m}x{self.size.n}x{self.size.k}"

    @property
    def label(self) -> str:
        return f"{self.text} {self.dtype} {self.epilogue}"

    @property
    def element(self) -> DataType:
        return TENSOR_TYPES[self.dtype]

    @property
    def moved(self) -> int:
        """Bytes that are read and written at least."""
        size, output = self.size, result_type(self.element)
        operands = (size.m + size.n) * size.k * self.element.bytes
        return size.batch * (operands + size.m * size.n * output.bytes)

    @property
    def operations(self) -> int:
        size = self.size
        return 2 * size.batch * size.m * size.n * size.k

    @property
    def rate(self) -> float | None:
        """Operations in a second, in 10^12."""
        return self.operations / self.kronop.ms / 1e9 if self.kronop.ms else None

    @property
    def names(self) -> list[str]:
        return [self.text, self.dtype, self.epilogue]

    @property
    def figures(self) -> list[str]:
        assert self.floor is not None
        shares = f"{self.rate:.4g}", f"{self.share:.2f}"
        return [*self.times, *shares, milliseconds(self.floor.ms), error_text(self.kronop.error)]

    def beside(self, peer: Timing) -> str:
        text = Measured.beside(self, peer)
        return text if peer.ms is None else f"{text} {error_text(peer.error)}"

    def as_json(self) -> dict[str, object]:
        """Everything that was measured; times are in milliseconds, `share` is floor over time."""
        size, floor = self.size, self.floor
        return {
            "m": size.m,
            "n": size.n,
            "k": size.k,
            "batch": size.batch,
            "dtype": self.dtype,
            "epilogue": self.epilogue,
            "operations": self.operations,
            "bytes": self.moved,
            "kronop": report.timing_json(self.kronop),
            "share": self.share,
            "floor": floor and {"ms": floor.ms, "bound": floor.bound},
            "peers": report.peers_json(self),
        }


@dataclass(frozen=True, slots=True)
class _Operands:
    a: Tensor
    b: Tensor
    bias: Tensor


def run(
    size: GemmSize, dtype: str, epilogue: str, setting: Setting, tell: Callable[[str], None]
) -> Result:
    """Measures one case; if something fails, the result has the reason."""
    tell("compiling and timing")
    result = Result(size=size, dtype=dtype, epilogue=epilogue)
    return attempted(result, setting, lambda: _measure(result, setting))


def _measure(result: Result, setting: Setting) -> None:
    arrays = setting.arrays
    sets = [_operands(result, arrays) for _ in range(sets_for(result.moved))]
    activation = result.epilogue if result.epilogue in ACTIVATION_NAMES else None

    def own(item: _Operands) -> Tensor:
        # A name of an epilogue, or none.
        return matmul(item.a, item.b, bias=item.bias, activation=activation)  # type: ignore[arg-type]

    result.peers = {name: Timing() for name in PEERS}
    variants: dict[str, list[Call]] = {}
    checked = _Checked(result, sets[0])
    for name, timing in (("kronop", result.kronop), *result.peers.items()):
        try:
            way = own if name == "kronop" else _peer(name, result, arrays.device)
            if way is None:
                continue
            timing.error = checked.error(way(sets[0]))
        except (PeerUnavailableError, RuntimeError) as error:
            if name == "kronop":
                raise
            timing.reason = first_line(error)
            continue
        variants[name] = keeping([functools.partial(way, item) for item in sets])
    check_error(result.kronop.error, result.element, result.size.k, "matmul")
    arguments = arguments_of(sets[0].a, sets[0].b, bias=sets[0].bias, activation=activation)
    time_together(variants, result, setting, moved=result.moved, graph=False)
    result.floor = floor_of(arguments)


def _operands(result: Result, arrays: Arrays) -> _Operands:
    size, dtype = result.size, result.dtype
    lead = (size.batch,) if size.batch != 1 else ()
    a = arrays.random((*lead, size.m, size.k), dtype)
    # Tensor cores read 8-bit operands along K, so that B is laid out as weights of layers are.
    turned = result.element.bytes == 1
    shape = (size.n, size.k) if turned else (size.k, size.n)
    b = arrays.random((*lead, *shape), dtype)
    bias = None
    if result.epilogue != "none":
        # int8's is of int32, of which there are no normally distributed ones.
        kind = result.dtype if result.element.kind == "int" else result_type(result.element).name
        bias = arrays.random((size.n,), kind)
        bias = bias.int() if result.dtype == "int8" else bias
    return _Operands(a, b.swapaxes(-1, -2) if turned else b, bias)


def floor_of(arguments: Any) -> UnitFloor:
    """The sum of the floors of the plan's steps; those of CPUs are of one core. Steps that only
    prepare operands, which another plan would not have, have none."""
    operation = arguments.operation
    found = [
        step.least.floor(operation.target, arguments.size)
        for step in operation.plan_for(arguments.size).steps
        if step.least is not None
    ]
    cores = thread_count() if operation.target.backend == "x86" else 1
    seconds = sum(item.seconds for item in found) / cores
    return UnitFloor(ms=seconds * 1e3, bound=max(found, key=lambda item: item.seconds).unit)


class _Checked:
    """Some rows of a case's result in float64, against which results are compared."""

    def __init__(self, result: Result, operands: _Operands) -> None:
        import torch

        self._torch = torch
        self._rows = torch.tensor(
            spread_rows(result.size.m, _CHECKED_ROWS), device=operands.a.device
        )
        expected = self._picked(operands.a).double() @ operands.b.double()
        if operands.bias is not None:
            expected = expected + operands.bias.double()
        if result.epilogue in ACTIVATION_NAMES:
            expected = activation_of(result.epilogue)(expected)
        self._expected = expected

    def error(self, found: Tensor) -> float:
        """The norm of the error over that of the result; infinite if that is not finite."""
        rows = self._picked(found).double()
        if not self._torch.isfinite(rows).all():
            return math.inf
        norm = float(self._expected.norm())
        return float((rows - self._expected).norm()) / norm if norm else 0.0

    def _picked(self, item: Tensor) -> Tensor:
        return item.index_select(-2, self._rows)


def check_error(error: float | None, element: DataType, depth: int, called: str) -> None:
    """Raises DeviceError if an error is more than roundings of sums and of the result are.

    Args:
        element: the type of the operands.
        depth: how many products a sum has.
        called: the function.
    """
    output = result_type(element)
    sums = _UNIT["float64" if output.name == "float64" else "float32"]
    most = 0.0 if output.kind == "int" else 2 * _UNIT[output.name] + depth * sums
    if error is None or not error <= most:
        raise DeviceError(
            f"error of {called}", expected=f"at most {most:.1e}", got=error, hint="report the case"
        )


def activation_of(name: str) -> Callable[[Tensor], Tensor]:
    """torch's function of this name."""
    import torch

    found: Callable[[Tensor], Tensor] = getattr(torch.nn.functional, name)
    return found


def _peer(name: str, result: Result, device: str) -> Callable[[_Operands], Tensor] | None:
    """A product by torch: with its activation in eager mode, or ("fused") by its one function for
    relu and gelu, whose gelu on a GPU is the approximation by tanh; None where there is no such.

    Raises:
        PeerUnavailableError: torch has no function for it.
    """
    import torch

    kind, epilogue = result.element, result.epilogue
    if name == "fused":
        if epilogue not in ("relu", "gelu") or kind.bytes == 1 or result.size.batch != 1:
            return None
        return lambda item: torch._addmm_activation(
            item.bias, item.a, item.b, use_gelu=epilogue == "gelu"
        )
    product = _product(result, device)
    if epilogue not in ACTIVATION_NAMES:
        return product
    finish = activation_of(epilogue)
    return lambda item: finish(product(item))


def _product(result: Result, device: str) -> Callable[[_Operands], Tensor]:
    """torch's product, plus a bias if there is one."""
    import torch

    kind = result.element
    if kind.bytes != 1:
        if result.epilogue != "none" and result.size.batch == 1:
            return lambda item: torch.addmm(item.bias, item.a, item.b)
        product: Callable[[_Operands], Tensor] = lambda item: torch.matmul(item.a, item.b)  # noqa: E731
    elif result.size.batch != 1:
        raise PeerUnavailableError("no batches of 8-bit types")
    elif kind in FLOAT8:
        if device != "cuda":
            raise PeerUnavailableError("8-bit floats on GPUs alone")
        one = torch.ones((), device=device)
        product = functools.partial(_scaled, one)
    else:
        product = lambda item: torch._int_mm(item.a, item.b)  # noqa: E731
    if result.epilogue == "none":
        return product
    return lambda item: product(item) + item.bias


def _scaled(one: Tensor, item: _Operands) -> Tensor:
    import torch

    return torch._scaled_mm(item.a, item.b, one, one, out_dtype=torch.bfloat16)
