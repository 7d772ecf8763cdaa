"""The torch operator of sums of signed powers: kronop::signed_powers.

    out[m, k] = sum over n of W[m, n] sgn(d) |d|^(p - 1), d = x1[m, k] - x2[n, k]

If `largest` is given, |d| is divided by largest[m, n] first. It is `kronop.cdist_grad` with the
points of both sides as rows.
"""

from __future__ import annotations

from typing import NoReturn

from torch import Tensor

from kronop.errors import ArgumentError, mismatch
from kronop.families.distance.shape_arguments import gradient_shape
from kronop.late import imported
from kronop.torch.checks import common_shape
from kronop.torch.declaration import Named, Operator
from kronop.torch.registration import register
from kronop.torch.transforms import in_front


def signed_powers(
    weights: Tensor, x1: Tensor, x2: Tensor, p: Tensor | float, largest: Tensor | None = None
) -> Tensor:
    """The sums for a number p, or a tensor of the leading dimensions' shape."""
    is_tensor = isinstance(p, Tensor)
    power = (p, 0.0) if is_tensor else (None, float(p))
    return _operator(weights, x1, x2, largest, *power)


def _compute(
    weights: Tensor,
    x1: Tensor,
    x2: Tensor,
    largest: Tensor | None,
    powers: Tensor | None,
    power: float,
) -> Tensor:
    imported("kronop.families.distance.gradient_api")
    from kronop.families.distance.gradient_api import sums_of_slopes

    a, b, d = (item.transpose(-2, -1) for item in (weights, x2, x1))
    largest = None if largest is None else largest.transpose(-2, -1)
    p = power if powers is None else powers
    result = sums_of_slopes([a, b, None, d], p, largest)
    return result.transpose(-2, -1).contiguous()


def _fake(
    weights: Tensor,
    x1: Tensor,
    x2: Tensor,
    largest: Tensor | None,
    powers: Tensor | None,
    power: float,
) -> Tensor:
    given = {"A": weights, "B": x2, "D": x1, "L": largest}
    turned = {name: tuple(item.mT.shape) for name, item in given.items() if item is not None}
    power_shape = {} if powers is None else {"p": tuple(powers.shape)}
    *lead, columns, rows = gradient_shape(turned | power_shape, common_shape)
    return x1.new_empty((*lead, rows, columns))


def _refuse(*_: object) -> NoReturn:
    """Called for derivatives. Not when a call is recorded: torch.func records all calls."""
    raise ArgumentError(
        mismatch(
            "gradients of gradients",
            expected="p = 2, or a kernel of squared distances and inner products",
            got="another power",
            hint="other powers have first derivatives only",
        )
    )


def _mapped(size: int, given: Named, dims: Named) -> tuple[Tensor, int]:
    """The mapped dimension becomes the first of the leading ones."""
    own = {"weights": 2, "x1": 2, "x2": 2, "largest": 2, "powers": 0}
    every = [(getattr(given, name), getattr(dims, name), rank) for name, rank in own.items()]
    given_ones = [of_one for of_one in every if of_one[0] is not None]
    lead = max(item.dim() - rank - (dim is not None) for item, dim, rank in given_ones)
    tensors = [
        None if item is None else in_front(item, dim, lead + rank) for item, dim, rank in every
    ]
    result = _operator.library(*tensors, given.power)
    return result.expand(size, *result.shape[1:]), 0


_operator = register(
    Operator(
        schema="signed_powers(Tensor weights, Tensor x1, Tensor x2, Tensor? largest,"
        " Tensor? powers, float power) -> Tensor",
        compute=_compute,
        fake=_fake,
        saved=(),
        backward=_refuse,
        jvp=_refuse,
        vmap=_mapped,
    )
)
