"""The operators kronop::kron and kronop::kron_backward of torch.library, and their gradients.

The backward of each is made of the two, so that gradients have gradients, to any order.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from kronop.errors import ArgumentError, mismatch
from kronop.families.kron.api import gekmm, gemkm
from kronop.torch import batching, formulas, transforms
from kronop.torch.gradient import gradients

_LIBRARY = torch.library.Library("kronop", "DEF")
_LIBRARY.define(
    "kron(Tensor x, Tensor[] factors, Tensor? z, Scalar alpha, Scalar beta, bool left) -> Tensor"
)
_LIBRARY.define(
    "kron_backward(Tensor grad, Tensor x, Tensor[] factors, Scalar alpha, bool left, bool[] needs)"
    " -> Tensor[]"
)
kron = torch.ops.kronop.kron.default
kron_backward = torch.ops.kronop.kron_backward.default


def forms() -> tuple[Any, Any]:
    """(kronop::kron, kronop::kron_backward) as they have to be called now."""
    if transforms.are_needed():
        return transforms.kron, transforms.kron_backward
    return kron, kron_backward


def _compute(x: Any, factors: Any, z: Any, alpha: Any, beta: Any, left: bool) -> Any:
    # Row-major whatever Z is, as torch.compile was told.
    out = None if z is None else _fake(x, factors, z, alpha, beta, left)
    scalars = {"alpha": alpha, "beta": beta, "z": z, "out": out}
    with torch.no_grad():
        return gekmm(factors, x, **scalars) if left else gemkm(x, factors, **scalars)


def _compute_backward(
    grad: Any, x: Any, factors: Any, alpha: Any, left: bool, needs: Sequence[bool]
) -> Any:
    with torch.no_grad():
        return gradients(grad, x, factors, alpha, left, needs)


def _result_shape(x: Any, factors: Any, z: Any, left: bool) -> tuple[Any, ...]:
    contracted = result = 1
    for factor in factors:
        rows, columns = factor.shape[-2:]
        contracted, result = (
            (contracted * columns, result * rows) if left else (contracted * rows, result * columns)
        )
    if x.shape[-2 if left else -1] != contracted:
        expected = f"(..., {contracted}, M)" if left else f"(..., M, {contracted})"
        raise ArgumentError(
            mismatch(
                "shape of X",
                expected=f"{expected}, for the factors",
                got=tuple(x.shape),
                hint="check X against the factors",
            )
        )
    batches = [item.shape[:-2] for item in (x, *factors, *(() if z is None else (z,)))]
    try:
        batch = torch.broadcast_shapes(*batches)
    except RuntimeError as error:
        raise ArgumentError(
            mismatch(
                "leading dimensions",
                expected="some that broadcast",
                got=", ".join(str(tuple(item)) for item in batches),
                hint="they are batches, as in matmul",
            )
        ) from error
    return (*batch, result, x.shape[-1]) if left else (*batch, x.shape[-2], result)


def _fake(x: Any, factors: Any, z: Any, alpha: Any, beta: Any, left: bool) -> Any:
    element = torch.int32 if x.dtype is torch.int8 else x.dtype
    return x.new_empty(_result_shape(x, factors, z, left), dtype=element)


def _fake_backward(
    grad: Any, x: Any, factors: Any, alpha: Any, left: bool, needs: Sequence[bool]
) -> Any:
    tensors = zip((x, *factors), needs, strict=True)
    return [item.new_empty(item.shape) for item, need in tensors if need]


def _keep(ctx: Any, inputs: Any, output: Any) -> None:
    x, factors, z, ctx.alpha, ctx.beta, ctx.left = inputs
    ctx.z_shape = None if z is None else z.shape
    ctx.set_materialize_grads(False)
    ctx.save_for_backward(x, *factors)


def _differentiate(ctx: Any, grad: Any) -> Any:
    return formulas.of_product(ctx, forms()[1], grad, *ctx.needs_input_grad[:3])


def _keep_backward(ctx: Any, inputs: Any, output: Any) -> None:
    grad, x, factors, ctx.alpha, ctx.left, ctx.needs = inputs
    ctx.set_materialize_grads(False)
    ctx.save_for_backward(grad, x, *factors)


def _differentiate_backward(ctx: Any, directions: Any) -> Any:
    needs = ctx.needs_input_grad[:3]
    return formulas.of_gradients(ctx, *forms(), directions, *needs)


for _device in ("CPU", "CUDA"):
    _LIBRARY.impl("kron", _compute, _device)
    _LIBRARY.impl("kron_backward", _compute_backward, _device)
torch.library.register_fake("kronop::kron", _fake, lib=_LIBRARY)
torch.library.register_fake("kronop::kron_backward", _fake_backward, lib=_LIBRARY)
torch.library.register_autograd("kronop::kron", _differentiate, setup_context=_keep, lib=_LIBRARY)
torch.library.register_autograd(
    "kronop::kron_backward", _differentiate_backward, setup_context=_keep_backward, lib=_LIBRARY
)
torch.library.register_vmap("kronop::kron", batching.kron, lib=_LIBRARY)
torch.library.register_vmap("kronop::kron_backward", batching.kron_backward, lib=_LIBRARY)
