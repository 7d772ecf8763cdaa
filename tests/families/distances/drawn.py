"""What random cases of distances are made of: points, kernels, layouts, and results with guards."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import kronop
from kronop import kernels
from kronop.families.distance.form import Bound
from tests import support

# Units of rounding of the types of tensors, and of the types that sums have.
UNITS = {"float64": 2.0**-53, "float32": 2.0**-24, "float16": 2.0**-11, "bfloat16": 2.0**-8}
ELEMENTS = ("float64", "float32", "float32", "float16", "bfloat16")
POWERS = (0, 0.5, 1, 1.3, 1.5, 2, 2.5, 3, 3.7, 4, float("inf"))
EXTENTS = (0, 1, 2, 3, 5, 16, 31, 33, 64, 65, 127, 128, 129, 200, 257)
FEATURES = (0, 1, 2, 3, 4, 7, 8, 9, 16, 17, 31, 32, 33, 64, 100)
LEADS: tuple[tuple[int, ...], ...] = ((), (), (2,), (3, 2))
LAYOUTS = 5
GUARD = 77.0


def unit_of_sums(element: str) -> float:
    return UNITS["float64" if element == "float64" else "float32"]


def points(
    random: np.random.Generator, shape: tuple[int, ...], element: str, away: float = 0.0
) -> Any:
    """Normal values around `away`, rounded to the type, in float64."""
    return rounded(random.standard_normal(shape) + away, element)


def rounded(array: Any, element: str) -> Any:
    """The array as tensors of that type hold it, in float64."""
    return array.astype(support.numpy_type(getattr(kronop, element))).astype(np.float64)


def kernel(random: np.random.Generator, lead: tuple[int, ...], k: int) -> Any:
    """One of all kernels, or a sum or product of two; its values are numbers or broadcast over the
    leading dimensions."""

    def value() -> Any:
        number = float(np.float32(random.uniform(0.5, 3)))
        if random.random() < 0.6:
            return number
        shape = [lead, (), lead[-1:]][random.integers(3)]
        return np.asarray(random.uniform(0.5, 3, shape).astype(np.float32))

    def width() -> Any:
        if random.random() < 0.75:
            return value()
        return random.uniform(0.5, 3, (*lead, k)).astype(np.float32)

    def one() -> Any:
        p = float(random.choice(POWERS)) if random.random() < 0.8 else value()
        return [
            lambda: kernels.PowerNorm(p, root=bool(random.integers(2))),
            lambda: kernels.PowerNorm([p, 16.0, 60.0][random.integers(3)]),
            lambda: kernels.Gaussian(width()),
            lambda: kernels.Laplace(width(), int(random.integers(1, 3))),
            lambda: kernels.Matern(float(random.choice([0.5, 1.5, 2.5])), width()),
            lambda: kernels.RationalQuadratic(value(), width()),
            lambda: kernels.Linear(),
            lambda: kernels.Polynomial(int(random.integers(1, 4)), value()),
            lambda: kernels.Cosine(),
        ][random.integers(9)]()

    found = one()
    if random.random() < 0.25:
        found = found + value() * one()
    elif random.random() < 0.15:
        found = found * one()
    return found


def laid_out(array: Any, way: int) -> Any:
    """The same values in memory of other strides; `way` counts layouts."""
    if way == 1:
        return array.swapaxes(-1, -2).copy().swapaxes(-1, -2)
    if way == 2 and array.ndim > 2:  # Batches last.
        return np.moveaxis(np.moveaxis(array, 0, -1).copy(), -1, 0)
    if way == 3:
        wide = np.full((*array.shape[:-1], array.shape[-1] * 2 + 3), np.nan, array.dtype)
        wide[..., 1:-2:2] = array
        return wide[..., 1:-2:2]
    return array


def tensor(array: Any, element: str, device: str) -> Any:
    """A torch tensor of that type with the array's strides."""
    import torch

    held = torch.from_numpy(array)
    made = torch.empty_strided(
        held.shape, held.stride(), dtype=getattr(torch, element), device=device
    )
    return made.copy_(held)


def room(
    shape: tuple[int, ...], element: str, device: str, columns: bool, aligned: bool, step: int = 1
) -> tuple[Any, Any]:
    """Memory full of `GUARD`, and a tensor of this shape inside of it.

    Its rows, or its columns, have neighbours that are `step` elements apart. They begin anywhere
    or, `aligned`, at multiples of 16 elements, and end anywhere.
    """
    turned = (*shape[:-2], *shape[:-3:-1]) if columns else shape
    before, pitch = 2, turned[-1] * step + 5
    if aligned:
        before, pitch = 16, -(-turned[-1] * step // 16) * 16 + 32
    rows = [size + 2 for size in turned[-2:-1]]
    memory = tensor(np.full((*turned[:-2], *rows, pitch), GUARD), element, device)
    inner = memory[..., 1:-1, :] if rows else memory
    out = inner[..., before : before + turned[-1] * step : step]
    return memory, out.swapaxes(-1, -2) if columns else out


def value_on(item: Any, element: str, device: str) -> Any:
    """A value of a kernel where and as kronop takes it: arrays as tensors."""
    if not isinstance(item, np.ndarray):
        return item
    import torch

    kept = item.astype("float64" if element == "float64" else "float32")
    return torch.from_numpy(kept).to(device)


def bound_on(bound: Bound, element: str, device: str) -> Bound:
    return Bound(
        form=bound.form,
        values=tuple(value_on(item, element, device) for item in bound.values),
        vectors=tuple(value_on(item, element, device) for item in bound.vectors),
    )


def trouble(
    call: Callable[[Any], object],
    wanted: Any,
    bound: Any,
    element: str,
    device: str,
    way: int,
) -> str:
    """What is wrong with the results of `call(out)`; empty if nothing is.

    It is called three times, because later calls are repeated ones. `out` lies inside of memory
    that has to stay as it is, as `way` says: see `room`.
    """
    memory, out = room(wanted.shape, element, device, way in (1, 3), way in (2, 3))
    for times in range(3):
        out[...] = float("nan")
        call(out)
        found = out.double().cpu().numpy()
        with np.errstate(invalid="ignore"):
            wrong = ~(np.abs(found - wanted) <= bound)
        both = (np.isnan(found) & np.isnan(wanted)) | (found == wanted)
        wrong &= ~both & ~((np.abs(wanted) > 6e4) & (element == "float16"))
        if wrong.any():
            at = tuple(np.argwhere(wrong)[0])
            much = f"{wrong.sum()} of {wrong.size} wrong"
            return f"call {times}: {much}, at {at} {found[at]} for {wanted[at]} +- {bound[at]}"
        out[...] = GUARD
        if (memory.double().cpu().numpy() != GUARD).any():
            return "elements beside the result were written"
    return ""
