"""The torch operator of sums of signed powers: kronop::signed_powers.

    out[m, k] = sum over n of W[m, n] sgn(d) |d|^(p - 1), d = x1[m, k] - x2[n, k]

It is `kronop.cdist_grad` with the points of both sides as rows.
"""

from __future__ import annotations

from typing import Any

import torch

from kronop.errors import ArgumentError, mismatch
from kronop.late import imported
from kronop.torch.declaration import Named, Operator
from kronop.torch.registration import register


def signed_powers(weights: Any, x1: Any, x2: Any, p: Any) -> Any:
    """The sums for a number p, or a tensor of the leading dimensions' shape."""
    is_tensor = isinstance(p, torch.Tensor)
    return _operator(weights, x1, x2, p if is_tensor else None, 0.0 if is_tensor else float(p))


def _compute(weights: Any, x1: Any, x2: Any, powers: Any, power: float) -> Any:
    imported("kronop.families.distance.gradient_api")
    from kronop.families.distance.gradient_api import cdist_grad

    turned = [item.transpose(-2, -1) for item in (weights, x2, x1)]
    p = power if powers is None else powers
    result = cdist_grad(turned[0], turned[1], None, turned[2], p)
    return result.transpose(-2, -1).contiguous()


def _fake(weights: Any, x1: Any, x2: Any, powers: Any, power: float) -> Any:
    lead = torch.broadcast_shapes(
        weights.shape[:-2],
        x1.shape[:-2],
        x2.shape[:-2],
        *([] if powers is None else [powers.shape]),
    )
    return x1.new_empty((*lead, *x1.shape[-2:]))


def _record(given: Named) -> None:
    raise ArgumentError(
        mismatch(
            "gradients of gradients",
            expected="p = 2, or a kernel of squared distances and inner products",
            got="another power",
            hint="other powers have first derivatives only",
        )
    )


def _backward(given: Named, needs: Named, grad: Any) -> dict[str, Any]:
    return {}  # Refused by `_record`.


_operator = register(
    Operator(
        schema="signed_powers(Tensor weights, Tensor x1, Tensor x2, Tensor? powers, float power)"
        " -> Tensor",
        compute=_compute,
        fake=_fake,
        saved=(),
        backward=_backward,
        record=_record,
    )
)
