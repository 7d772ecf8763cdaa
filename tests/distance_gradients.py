"""Operands of gradients of distances, and how far results may be from the float64 reference."""

from __future__ import annotations

from typing import Any

import numpy as np

from kronop.descriptions.datatype import DataType
from tests import support

LAYOUTS = ("rows", "columns", "backwards", "apart")
# Roundings of a term besides those of its sum: of the difference, the power and the products. A
# logarithm and an exponential of a GPU have errors of 4 units, times the exponents here.
_ROUNDINGS = 64


def array(
    random: np.random.Generator, shape: tuple[int, ...], element: DataType, layout: str = "rows"
) -> Any:
    """Values of few digits, so that many differences are 0, in memory as the layout says."""
    values = np.round(random.standard_normal(shape), 1).astype(support.numpy_type(element))
    if layout == "columns":
        return np.ascontiguousarray(values.swapaxes(-1, -2)).swapaxes(-1, -2)
    if layout == "backwards":
        return np.ascontiguousarray(values[..., ::-1, ::-1])[..., ::-1, ::-1]
    if layout == "apart":
        wide = np.full((*shape[:-2], 2 * shape[-2], 3 * shape[-1]), np.nan, values.dtype)
        wide[..., ::2, ::3] = values
        return wide[..., ::2, ::3]
    return values


def largest_of(b: Any, d: Any) -> Any:
    """The largest differences of all pairs of points."""
    return np.abs(d[..., :, None, :] - b[..., :, :, None]).max(-3)


def check(
    y: Any,
    what: Any,
    a: Any,
    b: Any,
    c: Any,
    d: Any,
    z: Any = None,
    scalars: Any = None,
    p: Any = None,
    largest: Any = None,
) -> None:
    """Compares with the reference. The bound is for the error of every term, and of a sum in any
    order; where the reference is no number, the result is none."""
    wide = [None if item is None else np.float64(item) for item in (a, b, c, d)]
    with np.errstate(invalid="ignore"):
        value = what.reference(*wide, z, scalars, p, largest)
    power = np.asarray(what.power_value if p is None else p, np.float64)[..., None, None, None]
    with np.errstate(all="ignore"):
        t = np.abs(wide[3][..., :, None, :] - wide[1][..., :, :, None])
        if largest is not None:
            t = t / np.where(largest > 0, largest, 1)[..., None, :, :]
        slopes = np.where(t == 0, 0, t ** (power - 1))
    if what.expanded:
        from_first = np.abs(wide[1] - wide[1][..., :1])[..., :, :, None]
        slopes = np.abs(wide[3] - wide[1][..., :1])[..., :, None, :] + from_first
    # Signs of differences may be sums of parts that are 0 or 1.
    slopes = np.where(power == 1, 1, slopes)
    size = slopes * np.abs(wide[0])[..., None, :, :]
    size = size.sum(-2) if c is None else np.einsum("...ok,...nkm->...onm", np.abs(wide[2]), size)
    steps = a.shape[-2] + _ROUNDINGS
    bound = support.error_bound(what, value, size, steps, z, None, scalars)
    undefined = np.isnan(value)
    np.testing.assert_array_equal(np.isnan(np.float64(y)), undefined)
    known = ~undefined
    support.Expected(value[known], bound[known]).check(np.asarray(y)[known])
