"""Masks of positions: read, checked against an operator's factors, and as an index."""

from __future__ import annotations

import itertools
from operator import mul

import numpy as np

from kronop.errors import ArgumentError, ElementTypeError
from kronop.operators.frameworks import framework_of, is_torch
from kronop.operators.operator import Operator
from kronop.tensors import Tensor


def read_mask(operator: object, mask: Tensor) -> Tensor:
    """The mask as an array (N,) of NumPy."""
    if not isinstance(operator, Operator):
        raise ElementTypeError(
            "the operator",
            expected="one of kronop's operators",
            got=type(operator).__name__,
            hint="kronop.KroneckerOperator(factors) is one",
        )
    operator.check_square("a mask")
    if hasattr(mask, "__cuda_array_interface__") or hasattr(mask, "cpu"):
        mask = mask.cpu() if hasattr(mask, "cpu") else mask.get()  # Of torch, and of CuPy.
    found = np.asarray(mask)
    if found.dtype != bool:
        raise ElementTypeError(
            "the mask", expected="booleans", got=found.dtype, hint="as numpy.isfinite(y)"
        )
    if found.size != operator.shape[-1] or not found.any():
        raise ArgumentError(
            "the mask",
            expected=f"{operator.shape[-1]} elements, at least one of them true",
            got=f"{int(found.sum())} that are true, of shape {found.shape}",
            hint="it says of each row of the operator whether it stays",
        )
    _check_axes(operator, found.shape)
    return found.reshape(-1).copy()


def _check_axes(operator: Operator, shape: tuple[int, ...]) -> None:
    """Refuses a mask whose axes cut the positions otherwise than the factors do, such as a
    transposed one. An axis may be of several factors, and a factor have several axes."""
    term = getattr(operator, "terms", (operator,))[0]
    grid = [factor.shape[-1] for factor in getattr(term, "factors", ())]
    axes, factors = (set(itertools.accumulate(sizes, mul, initial=1)) for sizes in (shape, grid))
    if grid and not (axes <= factors or factors <= axes):
        raise ArgumentError(
            "the mask",
            expected=f"the grid's shape, {' x '.join(map(str, grid))}, or one axis",
            got=f"shape {shape}",
            hint="its axes are in the order of the factors; transpose it",
        )


def positions(mask: Tensor, beside: Tensor) -> Tensor:
    """Where the mask is true, beside a tensor."""
    found, framework = np.flatnonzero(mask), framework_of(beside, "the operator")
    if is_torch(framework):
        return framework.as_tensor(found, device=beside.device)
    return framework.asarray(found)
