"""The operation in one line, on plain tensors: results of the same kind, on the same device."""

from __future__ import annotations

import functools
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, overload

from kronop.args.device import target_of
from kronop.args.tensor import check_element, describe, empty, view
from kronop.core import prepared
from kronop.core.calls import finish, operation_of, plain
from kronop.descriptions.datatype import float32, int8
from kronop.descriptions.shared import Array
from kronop.errors import ArgumentError, ElementTypeError
from kronop.families.kron.api import factors_of
from kronop.families.kron.description import Side
from kronop.families.quantized.arguments import QuantizedKronArguments, check_clip, result_shapes
from kronop.families.quantized.description import EPILOGUE, Y, check_bits, check_element_of_x
from kronop.families.quantized.operation import QuantizedKronOperation

if TYPE_CHECKING:
    from numpy.typing import NDArray


@overload
def quantized_gemkm(
    x: NDArray[Any],
    factors: Sequence[Any],
    *,
    bits: int,
    clip: float = ...,
    out: tuple[Any, Any] | None = ...,
) -> tuple[NDArray[Any], NDArray[Any]]: ...
@overload
def quantized_gemkm(
    x: Array,
    factors: Sequence[Any],
    *,
    bits: int,
    clip: float = ...,
    out: tuple[Any, Any] | None = ...,
) -> tuple[Array, Array]: ...
def quantized_gemkm(
    x: Any,
    factors: Sequence[Any],
    *,
    bits: int,
    clip: float = 1.0,
    out: tuple[Any, Any] | None = None,
) -> tuple[Any, Any]:
    """A Kronecker product x (F1 x ... x FN), with each row rounded to integers and a scale.

    With z a row of the product, rounded to x's type, and top = 2^(bits - 1) - 1::

        scale = clip max |z| / top
        q = z / scale, rounded to nearest even, at least -top - 1 and at most top

    in float32, so that q scale is about z. Between two factors, sums are rounded to x's type or not
    at all, as in `gemkm`. A row of zeros (or whose scale would be below 2^-100) has a scale of 1,
    a row with infinities or NaN one of NaN; their q is 0.

    On a GPU this is one kernel if a row and two matrices fit in a block's shared memory, as for 64
    x 64 and (64, 128). Otherwise, and on CPUs, the product is in memory in between.

    Args:
        x: (..., M, K) or (K,) of bfloat16, float16 or float32, with K the product of the factors'
            rows.
        factors: a list, tuple or ParameterList of one (..., P, Q) tensor each; leading dimensions
            broadcast as in `matmul`.
        bits: 4 or 8.
        clip: FlatQuant's clipping ratio, from 1e-6 to 1.
        out: where to write q and the scales: contiguous tensors of the result's shapes and types.

    Returns:
        (q, scales), both of x's kind and on its device. With N the product of the factors' columns,
        q is int8 (..., M, N) for 8 bits. For 4 bits it is uint8 (..., M, N / 2): two integers in
        two's complement in each byte, that of the even column in the low half. The scales are
        float32 (..., M, 1). For an x of (K,) both are without M.

    Raises:
        ArgumentError: shapes, devices, bits or a clip that do not fit, or an odd N for 4 bits.
        ElementTypeError: types that do not.
        DescriptionError: this device has no kernel for these types.
        CompileError, DeviceError: no compiler, or a kernel that does not load or run here.
        OutOfMemoryError: no room for the results.

    Example:
        >>> x, one = np.array([[1.0, -3.0, 0.5, 4.0]], np.float32), np.eye(2, dtype=np.float32)
        >>> q, scales = kronop.quantized_gemkm(x, [one, one], bits=8)
        >>> q.tolist(), round(float(scales[0, 0]), 5)  # 4 / 127
        ([[32, -95, 16, 127]], 0.0315)
    """
    check_bits(bits, 2, ArgumentError)
    factors = factors_of(factors, Side.Right)
    clip = check_clip(clip)
    q, scales = _new(x, factors, bits) if out is None else _given(out, bits)
    tensors = [x, *factors, None, None, q, scales]
    result, lesson = prepared.repeat(("quantized_gemkm", bits), clip, 0.0, tensors, results=2)
    if result is None:
        finish(
            quantized_arguments(x, factors, bits, clip, q, scales),
            lesson,
            {"scales": 4 + len(factors)},
        )
    if out is not None:
        return out
    return (_as(q, "uint8") if bits == 4 else q), scales


def quantized_arguments(
    x: Any, factors: Sequence[Any], bits: int, clip: float = 1.0, q: Any = None, scales: Any = None
) -> QuantizedKronArguments:
    """The arguments that `quantized_gemkm` runs for these tensors, with their operation; `q` holds
    bytes, of type int8 whatever `bits` are."""
    factors = factors_of(factors, Side.Right)
    x_view = view(x, "X")
    check_element_of_x(x_view.element, ElementTypeError)
    shapes = tuple(view(item, f"factors[{at}]").shape for at, item in enumerate(factors))
    result_shapes(x_view.shape, shapes, bits)
    matrices = tuple(shape[-2:] for shape in shapes)
    described = (describe(x_view, "X"), plain(x_view.element), Y, EPILOGUE, matrices)
    operation = operation_of(QuantizedKronOperation, target_of(x_view), *described, bits=bits)
    return QuantizedKronArguments(
        operation=operation, X=x, factors=factors, clip=clip, Y=q, scales=scales
    )


def _new(x: Any, factors: Sequence[Any], bits: int) -> tuple[Any, Any]:
    """New tensors for the bytes and the scales."""
    torch = sys.modules.get("torch")
    every = (x, *factors)
    if torch is not None and all(type(it) is torch.Tensor and not it.is_nested for it in every):
        q, scales = _result_shapes(x.shape, tuple(item.shape for item in factors), bits)
        return x.new_empty(q, dtype=torch.int8), x.new_empty(scales, dtype=torch.float32)
    x_view = view(x, "X")
    shapes = tuple(view(item, f"factors[{at}]").shape for at, item in enumerate(factors))
    q, scales = _result_shapes(x_view.shape, shapes, bits)
    return empty(x_view, q, int8), empty(x_view, scales, float32)


def _given(out: Any, bits: int) -> tuple[Any, Any]:
    """The caller's tensors, the first one as int8.

    Raises:
        ElementTypeError: they are no pair, or not of the types of the results.
    """
    if not isinstance(out, (tuple, list)) or len(out) != 2 or any(item is None for item in out):
        raise ElementTypeError(
            "out", expected="(q, scales)", got=_told(out), hint="give two tensors, or none"
        )
    q, scales = out
    if bits == 4:
        if str(getattr(q, "dtype", None)).rpartition(".")[2] != "uint8":
            raise ElementTypeError(
                "element type of q",
                expected="uint8, which holds two integers of 4 bits",
                got=str(getattr(q, "dtype", type(q).__name__)),
                hint="leave out for new tensors",
            )
        return _as(q, "int8"), scales
    check_element(view(q, "q").element, int8, "q")
    return q, scales


def _told(out: Any) -> str:
    """What an `out` is, in words."""
    name = type(out).__name__
    if not isinstance(out, (tuple, list)):
        return name
    return f"a {name} of {', '.join(type(item).__name__ for item in out) or 'nothing'}"


def _as(tensor: Any, name: str) -> Any:
    """The same bytes as another type of one byte."""
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(tensor, torch.Tensor):
        return tensor.view(getattr(torch, name))
    return tensor.view(name)


_result_shapes = functools.lru_cache(maxsize=256)(result_shapes)
