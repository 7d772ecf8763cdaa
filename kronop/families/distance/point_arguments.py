"""Views of points, and of what is multiplied with their kernels, in the types that these have."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from kronop.args.tensor import view
from kronop.args.view import TensorView
from kronop.errors import ElementTypeError, converting

TYPES = ("float64", "float32", "float16", "bfloat16")
# What results are linear in, so that real and imaginary parts may be passed apart.
_LINEAR = ("V", "A", "C")
DIFFERENTIABLE = "kronop.torch.cdist, kernel_matrix and kernel_matmul"


def view_of(tensor: Any, name: str) -> TensorView:
    """A view of a tensor of one of `TYPES`.

    Raises:
        ElementTypeError, ArgumentError: as `kronop.args.tensor.view`; or another element type.
    """
    # Before the view, whose message would name all types that a product can have.
    check_kind(tensor, name)
    found = view(tensor, name, DIFFERENTIABLE)
    _check(tensor, name, found.element.name)
    return found


def check_kind(tensor: Any, name: str) -> None:
    """Raises ElementTypeError if a tensor of NumPy, CuPy or torch is of none of `TYPES`."""
    given = getattr(tensor, "dtype", None)
    if isinstance(given, np.dtype) or str(given).startswith("torch."):
        _check(tensor, name, str(getattr(given, "name", given)).removeprefix("torch."))


def _check(tensor: Any, name: str, element: str) -> None:
    if element not in TYPES:
        hint = converting(element, f"convert it: {_conversion(tensor, name, 'float32')}")
        if "complex" in element and name.upper() not in _LINEAR:
            at = name.lower()
            hint = (
                f"complex points are not supported; for p = 2 join {at}.real and {at}.imag along"
                " the last dimension, which leaves distances as they are"
            )
        raise ElementTypeError(
            f"element type of {name}", expected=f"one of {', '.join(TYPES)}", got=element, hint=hint
        )


def alike(operands: Mapping[str, Any]) -> list[TensorView]:
    """Views of operands of one element type, that of the first.

    Raises:
        ElementTypeError, ArgumentError: as `view_of`; or another element type.
    """
    views = {name: view_of(item, name) for name, item in operands.items()}
    (first, one), *others = views.items()
    for name, item in others:
        if item.element != one.element:
            raise ElementTypeError(
                f"element type of {name}",
                expected=f"{one.element.name}, as {first} has",
                got=item.element.name,
                hint=f"convert one: {_conversion(operands[name], name, one.element.name)}",
            )
    return [*views.values()]


def _conversion(tensor: Any, name: str, element: str) -> str:
    call = f"astype('{element}')" if hasattr(tensor, "astype") else f"to(torch.{element})"
    return f"{name.lower()}.{call}"
