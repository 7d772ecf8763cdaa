"""Scalars beside tensors, as kronop's operators take them."""

from __future__ import annotations

from torch import Tensor


def scaled(item: Tensor, scalar: float) -> Tensor:
    """The tensor times the scalar, in the tensor's type.

    Integers are scaled by whole numbers only, which may be written as floats: torch would make
    floats of the tensor then.
    """
    if scalar == 1:
        return item
    return item * (scalar if item.is_floating_point() else int(scalar))
