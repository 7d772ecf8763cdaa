"""The operators kronop::matmul and kronop::matmul_activated, and their derivatives.

With T = alpha A B + beta C + bias and G its gradient,

    dA = alpha G B'    dB = alpha A' G    dC = beta G    dbias = the sum of G's rows

where the products are calls of kronop::matmul, to which transposed operands are strides only. So
there are derivatives of any order, in both modes.
"""

from __future__ import annotations

import functools
from collections.abc import Callable

import torch
from torch import Tensor

from kronop.core.calls import check_activation
from kronop.descriptions.datatype import TENSOR_TYPES, DataType, result_type
from kronop.descriptions.math_instruction import SIMT_ELEMENTS
from kronop.errors import ArgumentError
from kronop.families.gemm import api
from kronop.families.gemm.shape_arguments import check_others, product_of
from kronop.torch.activated import register_activated
from kronop.torch.activations import RULES
from kronop.torch.checks import check_kind, common_shape, element_of, torch_type
from kronop.torch.declaration import Autocast, Direct, Gradients, Named, Operator, Prepared
from kronop.torch.registration import register
from kronop.torch.scaling import added, scaled
from kronop.torch.transforms import in_front

_MULTIPLIED = {name: item for name, item in TENSOR_TYPES.items() if item in SIMT_ELEMENTS}
_HINT = "a and b have one type, c and bias that of the result"


def result_of(a: Tensor, b: Tensor, c: Tensor | None, bias: Tensor | None) -> Tensor:
    """A tensor of the result's shape and type.

    Raises:
        ArgumentError: shapes that do not fit.
        ElementTypeError: element types that do not.
    """
    shape, kind = result_shape(a, b), result_kind(a)
    for name, item in (("c", c), ("bias", bias)):
        if item is not None:
            check_kind(name, item, kind, _HINT)
    others = {
        name: tuple(item.shape) for name, item in (("bias", bias), ("Z", c)) if item is not None
    }
    check_others(others, shape, shape[-1])
    return a.new_empty(shape, dtype=kind)


def result_shape(a: Tensor, b: Tensor) -> tuple[int, ...]:
    """(..., M, N) of a product.

    Raises:
        ArgumentError, ElementTypeError: as of `result_of`.
    """
    shapes = tuple(a.shape), tuple(b.shape)
    (m, n, _), lead = product_of(*shapes, broadcast=common_shape)
    multiplied(a)
    check_kind("b", b, a.dtype, _HINT)
    return (*lead, m, n)


def result_kind(a: Tensor, name: str = "a") -> torch.dtype:
    """The type of products of tensors like a, which errors call by this name."""
    return torch_type(result_type(multiplied(a, name)))


def multiplied(a: Tensor, name: str = "a") -> DataType:
    """The element type of operands like a.

    Raises:
        ElementTypeError: no kernel multiplies it.
    """
    expected = f"one of {', '.join(item.name for item in SIMT_ELEMENTS)}"
    return element_of(name, a, expected, "convert all tensors to one of these", _MULTIPLIED)


def refuse_gradient(given: Named) -> None:
    """Raises ArgumentError for 8-bit floats, which can't hold their gradients."""
    if given.a.dtype is not result_kind(given.a):
        raise ArgumentError(
            "gradient of matmul",
            expected="operands of 16 bits or more",
            got=str(given.a.dtype),
            hint="multiply wider tensors, or record no gradients (torch.no_grad())",
        )


def _compute(given: Named) -> Tensor:
    activation = getattr(given, "activation", None)
    return _multiply(given.a, given.b, given.c, given.bias, given.alpha, given.beta, activation)


def _multiply(
    a: Tensor,
    b: Tensor,
    c: Tensor | None,
    bias: Tensor | None,
    alpha: float,
    beta: float,
    activation: str | None = None,
) -> Tensor:
    # Operators of torch take strings.
    return api.matmul(a, b, c, alpha, beta, bias, activation)  # type: ignore[arg-type]


def _fake(given: Named) -> Tensor:
    check_activation(getattr(given, "activation", None))
    return result_of(given.a, given.b, given.c, given.bias)


def _gradients(
    given: Named, needs: Named, grad: Tensor, multiply: Callable[..., Tensor] | None = None
) -> Gradients:
    """The gradients of kronop::matmul, from that of its result; products are its own, or those of
    `multiply`."""
    found, multiply = {}, multiply or product
    if needs.a:
        found["a"] = multiply(grad, given.b.mT, None, None, given.alpha, 0)
    if needs.b:
        found["b"] = multiply(given.a.mT, grad, None, None, given.alpha, 0)
    if needs.c:
        found["c"] = scaled(grad, given.beta)
    if needs.bias:
        found["bias"] = grad
    return found


def _tangent(given: Named, tangents: Named) -> Tensor | None:
    """The tangent of kronop::matmul's result; None if it has none."""
    found = tangents.bias
    if tangents.c is not None:
        found = added(scaled(tangents.c, given.beta), found)
    for a, b in ((tangents.a, given.b), (given.a, tangents.b)):
        if a is not None and b is not None:
            found = product(a, b, found, None, given.alpha, 0 if found is None else 1)
    return found


def _mapped(size: int, given: Named, dims: Named) -> tuple[Tensor, int]:
    """torch.vmap: the mapped dimension becomes the first of the leading dimensions."""
    a, b, rank = pair_in_front(size, given, dims)
    c, bias, beta = given.c, given.bias, given.beta
    if dims.c is not None:
        c = in_front(c, dims.c, rank)
    if dims.bias is not None:
        # Each product has a bias of its own, which is what a source of one row is.
        rows = in_front(bias, dims.bias, rank)
        c, bias, beta = rows if c is None or not beta else scaled(c, beta) + rows, None, 1
    name = getattr(given, "activation", None)
    if name is None:
        return product.library(a, b, c, bias, given.alpha, beta), 0
    return activated.library(a, b, c, bias, given.alpha, beta, name), 0


def pair_in_front(size: int, given: Named, dims: Named) -> tuple[Tensor, Tensor, int]:
    """(a, b, the number of dimensions of the larger one), of which at least one is mapped."""
    a, b, dim = given.a, given.b, dims.a
    if dim is None and dims.b is None:
        a, dim = a.expand(size, *a.shape), 0
    rank = max(a.dim() - (dim is not None), b.dim() - (dims.b is not None))
    return in_front(a, dim, rank), in_front(b, dims.b, rank), rank


def _decomposed(given: Named) -> Tensor:
    """The result by torch's own operations."""
    kind, activation = result_kind(given.a), getattr(given, "activation", None)
    found = scaled(given.a.to(kind) @ given.b.to(kind), given.alpha)
    if given.c is not None and given.beta:
        found = found + scaled(given.c, given.beta)
    if given.bias is not None:
        found = found + given.bias
    return (found if activation is None else RULES[activation].of(found)).contiguous()


def _prepare(given: Named) -> Prepared | None:
    """The repeatable call of a product like an earlier one, if there was one."""
    operands = (given.a, given.b, given.bias, given.c)
    how = (given.alpha, given.beta, getattr(given, "activation", None))
    return Prepared.of_call(api.known_call(*operands, *how), [*operands, None])


_OPERATOR = Operator(
    schema="matmul(Tensor a, Tensor b, Tensor? c, Tensor? bias, Scalar alpha, Scalar beta)"
    " -> Tensor",
    compute=_compute,
    fake=_fake,
    saved=("a", "b"),
    backward=_gradients,
    jvp=_tangent,
    vmap=_mapped,
    record=refuse_gradient,
    autocast=Autocast.Narrow,
    prepare=_prepare,
    decomposed=_decomposed,
    direct=Direct(backward=functools.partial(_gradients, multiply=_multiply)),
)
product = register(_OPERATOR)
activated = register_activated(product, _OPERATOR)
