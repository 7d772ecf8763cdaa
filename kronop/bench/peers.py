"""Other libraries that compute Kronecker products, timed if they are installed."""

from __future__ import annotations

import importlib
import subprocess
import sys
from collections.abc import Callable, Sequence

from kronop.bench.arrays import Arrays, shuffle
from kronop.bench.protocol import Call
from kronop.bench.shapes import Shape
from kronop.bench.timing import PeerUnavailableError, need
from kronop.tensors import Tensor

NAMES = ("shuffle", "fastkron", "linear_operator")
# The compute capabilities of FastKron's kernels; on later GPUs its wheel ends the process.
_FASTKRON_CAPABILITIES = (6, 0), (8, 9)
_PROBE_SECONDS = 120
_PROBE = """
import numpy
from pyfastkron import fastkronnumpy
x = numpy.ones(({rows}, {columns}), numpy.{dtype})
fastkronnumpy.gemkm(x, [numpy.ones(shape, numpy.{dtype}) for shape in {factors}])
"""


Peer = Callable[[Arrays, Shape, str, Sequence[Tensor], Sequence[Tensor]], list[Call]]


def calls_of(
    name: str,
    arrays: Arrays,
    shape: Shape,
    dtype: str,
    xs: Sequence[Tensor],
    factors: Sequence[Tensor],
) -> list[Call]:
    """One call for each X; `result_of` turns what it returns into Y.

    Raises:
        PeerUnavailableError: the peer is not installed, or can't compute this problem.
    """
    return _PEERS[name](arrays, shape, dtype, xs, factors)


def result_of(name: str, value: Tensor) -> Tensor:
    """Y as (M, columns), from what a call of the peer returned."""
    return value.swapaxes(0, 1) if name == "linear_operator" else value


def _shuffle(
    arrays: Arrays, shape: Shape, dtype: str, xs: Sequence[Tensor], factors: Sequence[Tensor]
) -> list[Call]:
    return [lambda x=x: shuffle(x, factors) for x in xs]  # type: ignore[misc]


def _fastkron(
    arrays: Arrays, shape: Shape, dtype: str, xs: Sequence[Tensor], factors: Sequence[Tensor]
) -> list[Call]:
    need("pyfastkron")
    if dtype not in ("float32", "float64"):
        raise PeerUnavailableError(f"it has no {dtype} kernels")
    if arrays.device == "cuda":
        _check_capability()
    else:
        _probe_fastkron(shape, dtype)
    gemkm = importlib.import_module(f"pyfastkron.fastkron{arrays.framework}").gemkm
    return [lambda x=x: gemkm(x, list(factors)) for x in xs]  # type: ignore[misc]


def _linear_operator(
    arrays: Arrays, shape: Shape, dtype: str, xs: Sequence[Tensor], factors: Sequence[Tensor]
) -> list[Call]:
    need("linear_operator")
    if arrays.framework != "torch":
        raise PeerUnavailableError("it needs torch")
    product = importlib.import_module("linear_operator.operators").KroneckerProductLinearOperator
    # This library multiplies columns from the left: Y' = (F1 x ... x FN)' X'. It gets X' and the
    # transposed factors contiguous, as its users would have them.
    operator = product(*[factor.T.contiguous() for factor in factors])
    columns = [x.T.contiguous() for x in xs]
    return [lambda x=x: operator @ x for x in columns]  # type: ignore[misc]


def _check_capability() -> None:
    import torch

    capability = torch.cuda.get_device_capability()
    least, most = _FASTKRON_CAPABILITIES
    if not least <= capability <= most:
        known = " to ".join(f"{major}.{minor}" for major, minor in (least, most))
        raise PeerUnavailableError(f"it knows compute capabilities {known}, not {capability}")


def _probe_fastkron(shape: Shape, dtype: str) -> None:
    """Tries the problem in another process first, because some sizes make FastKron crash."""
    code = _PROBE.format(
        rows=shape.rows, columns=shape.input_columns, dtype=dtype, factors=shape.factors
    )
    try:
        done = subprocess.run(
            [sys.executable, "-c", code], capture_output=True, check=False, timeout=_PROBE_SECONDS
        )
    except subprocess.TimeoutExpired:
        raise PeerUnavailableError(f"no result in {_PROBE_SECONDS} s") from None
    if done.returncode:
        lines = done.stderr.decode(errors="replace").strip().splitlines()
        raise PeerUnavailableError(
            f"its process ended with {done.returncode}: {(lines or ['no word'])[-1]}"
        )


_PEERS: dict[str, Peer] = {
    "shuffle": _shuffle,
    "fastkron": _fastkron,
    "linear_operator": _linear_operator,
}
