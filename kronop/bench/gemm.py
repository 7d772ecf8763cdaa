"""Matrix products against torch's, measured: times, errors against float64, shares of the floor."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass

from kronop.bench.arrays import Arrays, spread_rows
from kronop.bench.protocol import sets_for
from kronop.bench.table import Table, error_text
from kronop.bench.timing import Measured, PeerUnavailableError, Setting, Timing
from kronop.bench.torch_case import (
    COLUMNS,
    TorchCase,
    activated,
    floor_of,
    relative_error,
    time_beside,
)
from kronop.descriptions.datatype import FLOAT8, result_type
from kronop.families.gemm.api import arguments_of, matmul
from kronop.families.gemm.size import GemmSize
from kronop.tensors import Tensor

PEERS = ("torch", "fused")
_CHECKED_ROWS = 64
TABLE = Table((("(batch x) M x N x K", 20), ("type", 13), *COLUMNS)).beside(
    PEERS, "{} ms (gain) error", 24
)


@dataclass(slots=True, kw_only=True)
class Result(TorchCase):
    """The measurements of one case."""

    size: GemmSize

    @property
    def text(self) -> str:
        batch = f"{self.size.batch}x" if self.size.batch != 1 else ""
        return f"{batch}{self.size.m}x{self.size.n}x{self.size.k}"

    @property
    def names(self) -> list[str]:
        return [self.text, self.dtype, self.epilogue]

    @property
    def moved(self) -> int:
        size, output = self.size, result_type(self.element)
        operands = (size.m + size.n) * size.k * self.element.bytes
        return size.batch * (operands + size.m * size.n * output.bytes)

    @property
    def operations(self) -> int:
        size = self.size
        return 2 * size.batch * size.m * size.n * size.k

    def beside(self, peer: Timing) -> str:
        text = Measured.beside(self, peer)
        return text if peer.ms is None else f"{text} {error_text(peer.error)}"

    def as_json(self) -> dict[str, object]:
        size = self.size
        of = {"m": size.m, "n": size.n, "k": size.k, "batch": size.batch}
        return {**of, **TorchCase.as_json(self)}


@dataclass(frozen=True, slots=True)
class _Operands:
    a: Tensor
    b: Tensor
    bias: Tensor


_Way = Callable[[_Operands], Tensor]


def measure(result: Result, setting: Setting) -> None:
    """Fills in what is measured."""
    arrays = setting.arrays
    sets = [_operands(result, arrays) for _ in range(sets_for(result.moved))]
    result.peers = {name: Timing() for name in PEERS}
    rows = spread_rows(result.size.m, _CHECKED_ROWS)
    expected = _expected(result, sets[0], rows)

    def way_of(name: str) -> _Way | None:
        return _own(result) if name == "kronop" else _peer(name, result, arrays.device)

    def error_of(found: Tensor) -> float:
        return relative_error(_picked(found, rows).double(), expected)

    depth, first = result.size.k, sets[0]
    time_beside(result, setting, sets, way_of, error_of, called="matmul", depth=depth, graph=False)
    arguments = arguments_of(first.a, first.b, bias=first.bias, activation=result.activation)
    result.floor = floor_of(arguments)


def _own(result: Result) -> _Way:
    activation = result.activation
    return lambda item: matmul(item.a, item.b, bias=item.bias, activation=activation)


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


def _picked(item: Tensor, rows: list[int]) -> Tensor:
    import torch

    return item.index_select(-2, torch.tensor(rows, device=item.device))


def _expected(result: Result, item: _Operands, rows: list[int]) -> Tensor:
    """Some rows of the result in float64."""

    def product(item: _Operands) -> Tensor:
        found = _picked(item.a, rows).double() @ item.b.double()
        return found if item.bias is None else found + item.bias.double()

    return activated(result, product)(item)


def _peer(name: str, result: Result, device: str) -> _Way | None:
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
    return activated(result, _product(result, device))


def _product(result: Result, device: str) -> _Way:
    """torch's product, plus a bias if there is one."""
    import torch

    kind = result.element
    if kind.bytes != 1:
        if result.epilogue != "none" and result.size.batch == 1:
            return lambda item: torch.addmm(item.bias, item.a, item.b)
        product: _Way = lambda item: torch.matmul(item.a, item.b)  # noqa: E731
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
