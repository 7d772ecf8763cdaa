"""quantized_gemkm as a torch operator: for torch.compile, torch.export and torch.vmap."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NoReturn

import torch
from torch import Tensor

from kronop.args.tensor import check_element
from kronop.descriptions.datatype import DataType
from kronop.errors import ArgumentError, ElementTypeError
from kronop.families.quantized import api
from kronop.families.quantized.arguments import check_clip, result_shapes
from kronop.families.quantized.description import check_element_of_x
from kronop.torch.checks import LISTS, check_tensor, check_tensors, common_shape, element_of
from kronop.torch.declaration import Autocast, Named, Operator
from kronop.torch.registration import register
from kronop.torch.transforms import aligned


def quantized_gemkm(
    x: Tensor, factors: Sequence[Tensor], *, bits: int, clip: float = 1.0
) -> tuple[Tensor, Tensor]:
    """x (F1 x ... x FN), with each row rounded to integers and a scale.

    As `kronop.quantized_gemkm`, and a torch operator: torch.compile without a graph break,
    torch.export, torch.vmap, and cast to autocast's type as matrix products are. It has no
    gradient, since integers have none: with gradients recorded it refuses tensors that require one.

    Args:
        x: (..., M, K) or (K,) of bfloat16, float16 or float32, with K the product of the factors'
            rows.
        factors: a list, tuple or ParameterList of one (..., P, Q) tensor each.
        bits: 4 or 8.
        clip: a number from 1e-6 to 1.

    Returns:
        (q, scales). With N the product of the factors' columns, q is int8 (..., M, N) for 8 bits
        and uint8 (..., M, N / 2) for 4; the scales are float32 (..., M, 1). For an x of (K,) both
        are without M.

    Raises:
        ArgumentError: shapes, devices, bits or a clip that do not fit; a tensor that requires a
            gradient.
        ElementTypeError: what is no torch tensor, or element types that do not fit.

    Example:
        >>> import torch
        >>> generator = torch.manual_seed(0)
        >>> x, factors = torch.randn(3, 16), [torch.randn(4, 4), torch.randn(4, 4)]
        >>> q, scales = kronop.torch.quantized_gemkm(x, factors, bits=8)
        >>> q.shape, q.dtype, scales.shape
        (torch.Size([3, 16]), torch.int8, torch.Size([3, 1]))
        >>> error = q * scales - x @ torch.kron(*factors)
        >>> bool((error.abs() <= 0.501 * scales).all())  # half a step, and rounding in the product
        True
    """
    if not isinstance(factors, LISTS) or not len(factors):
        raise ElementTypeError(
            "factors",
            expected="a list or tuple of at least one tensor",
            got=type(factors).__name__,
            hint="wrap a single factor in a list",
        )
    check_tensor("x", x, 1, "kronop.quantized_gemkm does")
    check_tensors("factors", factors, 2, "kronop.quantized_gemkm does")
    q, scales = _operator(x, list(factors), bits, _number(clip))
    return q, scales


def _number(clip: float) -> float:
    """The clip as the schema takes it.

    torch.compile makes a symbol of a number that changes, which nothing can look into while it
    traces; the operator checks its values when it runs.
    """
    if isinstance(clip, Tensor):
        raise ElementTypeError("clip", expected="a number", got="a tensor", hint="pass clip.item()")
    if torch.compiler.is_compiling() and not isinstance(clip, (bool, str)):
        return float(clip)
    return check_clip(clip)


def _compute(given: Named) -> list[Tensor]:
    return list(api.quantized_gemkm(**vars(given)))


def _fake(given: Named) -> list[Tensor]:
    """Refuses what `_compute` would."""
    x, bits = given.x, given.bits
    element = _element("X", x)
    check_element_of_x(element, ElementTypeError)
    for index, item in enumerate(given.factors):
        check_element(_element(f"factors[{index}]", item), element, f"factors[{index}]")
    if isinstance(given.clip, (int, float)):  # A symbol's value is checked when there is one.
        check_clip(given.clip)
    shapes = result_shapes(
        x.shape, [tuple(item.shape) for item in given.factors], bits, common_shape
    )
    kinds = (torch.uint8 if bits == 4 else torch.int8, torch.float32)
    return [x.new_empty(shape, dtype=kind) for shape, kind in zip(shapes, kinds, strict=True)]


def _element(name: str, item: Tensor) -> DataType:
    hint = "convert all tensors to bfloat16, float16 or float32"
    return element_of(name, item, "one that kronop has", hint)


def _refuse(*_: object) -> NoReturn:
    """Called if gradients or tangents would be needed."""
    raise ArgumentError(
        "gradient of quantized_gemkm",
        expected="tensors that require none",
        got="one that requires a gradient or has a tangent",
        hint="detach the tensors, or record no gradients (torch.no_grad()); to train, compute"
        " kronop.torch.gemkm and round its result with a straight-through estimator",
    )


def _mapped(count: int, given: Named, dims: Named) -> tuple[list[Tensor], list[int]]:
    """One call with the map as the first batch dimension."""
    tensors, axes = [given.x, *given.factors], [dims.x, *dims.factors]
    is_vector = given.x.dim() - (dims.x is not None) == 1
    if is_vector:  # It becomes a row.
        tensors[0] = (given.x if dims.x is None else given.x.movedim(dims.x, 0)).unsqueeze(-2)
        axes[0] = None if dims.x is None else 0
    x, *factors = aligned(tensors, axes)
    whole = _operator.library(x, factors, given.bits, given.clip)
    if is_vector:
        whole = [item.squeeze(-2) for item in whole]
    return whole, [0, 0]


_operator = register(
    Operator(
        schema="quantized_kron(Tensor x, Tensor[] factors, int bits, Scalar clip) -> Tensor[]",
        compute=_compute,
        fake=_fake,
        saved=(),
        backward=_refuse,
        jvp=_refuse,
        record=_refuse,
        autocast=Autocast.Narrow,
        vmap=_mapped,
    )
)
