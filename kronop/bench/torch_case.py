"""Operations with epilogues beside torch's, measured: times, errors against float64, floors of
plans."""

from __future__ import annotations

import argparse
import functools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from kronop.args.host import thread_count
from kronop.bench import report
from kronop.bench.protocol import Call, keeping
from kronop.bench.table import error_text, milliseconds
from kronop.bench.timing import (
    Measured,
    PeerUnavailableError,
    Setting,
    first_line,
    time_together,
)
from kronop.descriptions.activation import ACTIVATION_NAMES
from kronop.descriptions.datatype import TENSOR_TYPES, DataType, result_type
from kronop.errors import DeviceError
from kronop.tensors import Tensor

# What is done to a result: nothing, a bias is added, or an activation is applied after that.
EPILOGUES = ("none", "bias", *ACTIVATION_NAMES)
# Columns of tables behind those that say which case it is.
COLUMNS = (
    *(("epilogue", 10), ("ms", 10), ("graph us", 9), ("Tflop/s", 9), ("floor", 6)),
    *(("floor ms", 9), ("error", 8)),
)
# Relative errors of one rounding to a type.
_UNIT = {"float64": 2.0**-53, "float32": 2.0**-24, "float16": 2.0**-11, "bfloat16": 2.0**-8}

Operands = TypeVar("Operands")


def configure(
    parser: argparse.ArgumentParser, dtypes: Sequence[str], shapes: str, activation: str
) -> None:
    """The options that these benchmarks have alike.

    Args:
        dtypes: the choices of --dtype.
        shapes, activation: the help of --shapes and of --activation.
    """
    add = parser.add_argument
    add("--device", choices=("cpu", "cuda"), default="cpu")
    add("--dtype", nargs="+", choices=dtypes, help="one or several (default: the usual ones)")
    add("--shapes", nargs="+", metavar="SHAPE", help=shapes)
    add("--activation", nargs="+", choices=EPILOGUES, default=["none"], help=activation)
    add("--repeats", type=int, default=15, help="rounds of timing (default 15)")
    add("--json", metavar="FILE", help="write a line of JSON for each case")


@dataclass(frozen=True, slots=True, kw_only=True)
class UnitFloor:
    """The milliseconds for which a unit of the machine is busy at least."""

    ms: float
    bound: str


@dataclass(slots=True, kw_only=True)
class TorchCase(Measured[UnitFloor]):
    """The measurements of one case."""

    epilogue: str

    @property
    def label(self) -> str:
        return " ".join(self.names)

    @property
    def element(self) -> DataType:
        return TENSOR_TYPES[self.dtype]

    @property
    def activation(self) -> Any:
        """A name of an activation, or None."""
        return self.epilogue if self.epilogue in ACTIVATION_NAMES else None

    @property
    def moved(self) -> int:
        """Bytes that are read and written at least."""
        raise NotImplementedError

    @property
    def operations(self) -> int:
        raise NotImplementedError

    @property
    def spent(self) -> float | None:
        """The milliseconds of a call that rates and shares are of."""
        return self.kronop.ms

    @property
    def share(self) -> float | None:
        return self.floor.ms / self.spent if self.floor and self.spent else None

    @property
    def figures(self) -> list[str]:
        assert self.floor is not None
        assert self.spent
        shares = f"{self.operations / self.spent / 1e9:.4g}", f"{self.share:.2f}"
        return [*self.times, *shares, milliseconds(self.floor.ms), error_text(self.kronop.error)]

    def as_json(self) -> dict[str, object]:
        """Everything that was measured; times are in milliseconds, `share` is floor over time."""
        return {
            "dtype": self.dtype,
            "epilogue": self.epilogue,
            "operations": self.operations,
            "bytes": self.moved,
            "kronop": report.timing_json(self.kronop),
            "share": self.share,
            "floor": self.floor and {"ms": self.floor.ms, "bound": self.floor.bound},
            "peers": report.peers_json(self),
        }


def time_beside(
    result: TorchCase,
    setting: Setting,
    sets: Sequence[Operands],
    way_of: Callable[[str], Callable[[Operands], Tensor] | None],
    error_of: Callable[[Tensor], float],
    *,
    called: str,
    depth: int,
    graph: bool,
) -> None:
    """Fills in the times and errors of kronop and of the result's peers.

    Args:
        sets: operands, which calls take in turn.
        way_of: what computes the result, by a library's name; None where that has no such. It may
            raise PeerUnavailableError.
        error_of: the error of what was computed from the first set.
        called: kronop's function.
        depth: how many products a sum has.
        graph: as of `time_together`.

    Raises:
        DeviceError: kronop's error is more than roundings of sums and of the result are.
    """
    variants: dict[str, list[Call]] = {}
    for name, timing in (("kronop", result.kronop), *result.peers.items()):
        try:
            way = way_of(name)
            if way is None:
                continue
            timing.error = error_of(way(sets[0]))
        except (PeerUnavailableError, RuntimeError) as error:
            if name == "kronop":
                raise
            timing.reason = first_line(error)
            continue
        variants[name] = keeping([functools.partial(way, item) for item in sets])
    _check_error(result.kronop.error, result.element, depth, called)
    time_together(variants, result, setting, moved=result.moved, graph=graph)


def _check_error(error: float | None, element: DataType, depth: int, called: str) -> None:
    output = result_type(element)
    sums = _UNIT["float64" if output.name == "float64" else "float32"]
    most = 0.0 if output.kind == "int" else 2 * _UNIT[output.name] + depth * sums
    if error is None or not error <= most:
        raise DeviceError(
            f"error of {called}", expected=f"at most {most:.1e}", got=error, hint="report the case"
        )


def relative_error(found: Tensor, expected: Tensor) -> float:
    """The norm of the error over that of the result, both float64; infinite if that is not
    finite."""
    if not found.isfinite().all():
        return math.inf
    norm = float(expected.norm())
    return float((found - expected).norm()) / norm if norm else 0.0


def activated(result: TorchCase, way: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """A computation by torch, and its activation behind it, if the case has one."""
    import torch

    if result.activation is None:
        return way
    finish = getattr(torch.nn.functional, result.activation)
    return lambda *given: finish(way(*given))


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
