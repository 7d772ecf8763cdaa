"""Scaled tensors, and sums of tensors that may be None, as derivatives are made of."""

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


def added(first: Tensor | None, second: Tensor | None) -> Tensor | None:
    """The sum of two gradients or tangents; None is a zero."""
    if first is None or second is None:
        return second if first is None else first
    return first + second
