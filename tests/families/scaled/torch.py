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
    """alpha x * w + beta z, of (..., M, N) tensors that broadcast; differentiable in x, w and z."""
    beta = beta_beside(z, beta)
    for name, item in {"x": x, "w": w, **({} if z is None else {"z": z})}.items():
        check_tensor(name, item, 2, "kronop.scaled does")
    check_source(beta, z)
    return _operator(x, w, z, number("alpha", alpha), number("beta", beta))


def _compute(given: Named) -> Any:
    found = torch.broadcast_tensors(*_tensors(given))
    x, w, *z = (item.flatten(0, -2).contiguous() for item in found)
    source = {"beta": given.beta, "z": z[0]} if z else {}
    return api.scaled(x, w, alpha=given.alpha, **source).view(found[0].shape)


def _fake(given: Named) -> Any:
    shape = torch.broadcast_shapes(*(item.shape for item in _tensors(given)))
    kind = torch.int32 if given.x.dtype is torch.int8 else given.x.dtype
    return given.x.new_empty(shape, dtype=kind)


def _tensors(given: Named) -> list[Any]:
    return [item for item in (given.x, given.w, given.z) if item is not None]


def _backward(given: Named, needs: Named, grad: Any) -> dict[str, Any]:
    """Of x: alpha g * w, of w: alpha g * x, of z: beta g."""
    found = {"z": grad * given.beta} if needs.z else {}
    for name, other in (("x", given.w), ("w", given.x)):
        if getattr(needs, name):
            found[name] = _operator(grad, other, None, given.alpha, 0)
    return found


def _tangent(given: Named, tangents: Named) -> Any:
    terms = [] if tangents.z is None else [tangents.z * given.beta]
    for direction, other in ((tangents.x, given.w), (tangents.w, given.x)):
        if direction is not None:
            terms.append(_operator(direction, other, None, given.alpha, 0))
    return sum(terms[1:], terms[0])


_operator = register(
    Operator(
        schema="scaled(Tensor x, Tensor w, Tensor? z, Scalar alpha, Scalar beta) -> Tensor",
        compute=_compute,
        fake=_fake,
        saved=("x", "w"),
        backward=_backward,
        jvp=_tangent,
        vmap={"x": 2, "w": 2, "z": 2},
    )
)
