"""The same as a torch operator, kronop::scaled: imported with `kronop.torch` alone."""

from __future__ import annotations

from typing import Any

import torch

from kronop.descriptions.shared import beta_beside
from kronop.torch.checks import check_source, check_tensor, number
from kronop.torch.declaration import Named, Operator
from kronop.torch.registration import register
from tests.families.scaled import api


def scaled(x: Any, w: Any, *, alpha: float = 1.0, beta: float | None = None, z: Any = None) -> Any:
    """alpha x * w + beta z, of (M, N) tensors; differentiable in x, w and z."""
    beta = beta_beside(z, beta)
    for name, item in {"x": x, "w": w, **({} if z is None else {"z": z})}.items():
        check_tensor(name, item, 2, "kronop.scaled does")
    check_source(beta, z)
    return _operator(x, w, z, number("alpha", alpha), number("beta", beta))


def _compute(given: Named) -> Any:
    x, w, z = (None if item is None else item.contiguous() for item in (given.x, given.w, given.z))
    return api.scaled(x, w, alpha=given.alpha, beta=None if z is None else given.beta, z=z)


def _fake(given: Named) -> Any:
    x = given.x
    return x.new_empty(x.shape, dtype=torch.int32 if x.dtype is torch.int8 else x.dtype)


def _backward(given: Named, needs: Named, grad: Any) -> dict[str, Any]:
    """Of x: alpha g * w, of w: alpha g * x, of z: beta g."""
    found = {"z": grad * given.beta} if needs.z else {}
    for name, other in (("x", given.w), ("w", given.x)):
        if getattr(needs, name):
            found[name] = _operator(grad, other, None, given.alpha, 0)
    return found


def _tangent(given: Named, tangents: Named) -> Any:
    found, beta = tangents.z, given.beta
    for direction, other in ((tangents.x, given.w), (tangents.w, given.x)):
        if direction is not None:
            found = _operator(direction, other, found, given.alpha, 0 if found is None else beta)
            beta = 1
    return found * beta if found is not None and found is tangents.z else found


def _mapped(count: int, given: Named, dims: Named) -> tuple[Any, int]:
    """Products of the rows of all maps at once."""
    rows = [
        None if item is None else _rows(count, item, dim)
        for item, dim in ((given.x, dims.x), (given.w, dims.w), (given.z, dims.z))
    ]
    result = _operator.library(*rows, given.alpha, given.beta)
    return result.view(count, -1, result.shape[-1]), 0


def _rows(count: int, item: Any, dim: int | None) -> Any:
    whole = item.expand(count, *item.shape) if dim is None else item.movedim(dim, 0)
    return whole.reshape(-1, whole.shape[-1])


_operator = register(
    Operator(
        schema="scaled(Tensor x, Tensor w, Tensor? z, Scalar alpha, Scalar beta) -> Tensor",
        compute=_compute,
        fake=_fake,
        saved=("x", "w"),
        backward=_backward,
        jvp=_tangent,
        vmap=_mapped,
    )
)
