"""Checks that the functions of kronop.torch make of their arguments."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from kronop.args.frameworks import NESTED, SPREAD
from kronop.args.strides import broadcast_shapes
from kronop.descriptions.datatype import TENSOR_TYPES, DataType
from kronop.errors import ArgumentError, ElementTypeError, converting

# What tensors of a chain or product may be listed in.
LISTS = (list, tuple, torch.nn.ParameterList)


def are_symbols(tensors: Sequence[object]) -> bool:
    """Whether some are not tensors, but stand for tensors while something records what is called
    with them, as torch.fx's proxies do. They get the whole call by
    torch.overrides.handle_torch_function."""
    others = [item for item in tensors if not (item is None or isinstance(item, Tensor))]
    return bool(others) and torch.overrides.has_torch_function(others)


def check_tensor(name: str, item: object, dimensions: int, elsewhere: str) -> None:
    """Refuses an argument that is not a torch tensor of real numbers and so many dimensions.

    Args:
        elsewhere: names, for the message, the functions that take tensors of other frameworks.
    """
    if not isinstance(item, Tensor):
        raise ElementTypeError(
            name,
            expected="a torch tensor",
            got=type(item).__name__,
            hint=f"{elsewhere} take tensors of other frameworks",
        )
    if hasattr(item, "to_local"):
        raise ArgumentError(
            name, expected="a tensor of this rank alone", got="a DTensor", hint=SPREAD
        )
    if item.is_nested:
        raise ArgumentError(name, expected="a strided tensor", got="a nested tensor", hint=NESTED)
    if item.is_complex():
        raise ElementTypeError(
            f"element type of {name}",
            expected="one that kronop has",
            got=str(item.dtype),
            hint=converting(item.dtype, ""),
        )
    if item.dim() < dimensions:
        raise ArgumentError(
            f"shape of {name}",
            expected=f"at least {dimensions} dimensions",
            got=tuple(item.shape),
            hint="reshape it",
        )


def check_tensors(name: str, items: Sequence[object], dimensions: int, elsewhere: str) -> None:
    """As `check_tensor`, of each tensor in a list."""
    for at, item in enumerate(items):
        check_tensor(f"{name}[{at}]", item, dimensions, elsewhere)


def check_device(name: str, item: Tensor, device: torch.device) -> None:
    """Raises ArgumentError unless a tensor is on this device."""
    if item.device != device:
        raise ArgumentError(
            f"device of {name}",
            expected=str(device),
            got=str(item.device),
            hint="move all tensors to one device",
        )


def check_kind(name: str, item: Tensor, kind: torch.dtype, hint: str) -> None:
    """Raises ElementTypeError unless a tensor is of this element type."""
    if item.dtype != kind:
        raise ElementTypeError(
            f"element type of {name}", expected=str(kind), got=str(item.dtype), hint=hint
        )


def element_of(
    subject: str,
    item: Tensor,
    expected: str,
    hint: str,
    known: Mapping[str, DataType] = TENSOR_TYPES,
) -> DataType:
    """The element type of a tensor; raises ElementTypeError if it is none of these."""
    element = known.get(str(item.dtype).removeprefix("torch."))
    if element is None:
        what = f"element type of {subject}"
        raise ElementTypeError(what, expected=expected, got=str(item.dtype), hint=hint)
    return element


def torch_type(element: DataType) -> torch.dtype:
    """torch's name for an element type."""
    return getattr(torch, element.name)


def number(name: str, value: Any) -> float:
    """The scalar, which must not be a tensor."""
    if isinstance(value, Tensor):
        raise ElementTypeError(
            name,
            expected="a number",
            got="a tensor",
            hint="multiply the tensors by it: scalars of kronop have no gradient",
        )
    if isinstance(value, int):
        return value
    try:
        return float(value)
    except (TypeError, ValueError) as error:
        raise ElementTypeError(
            name, expected="a real number", got=repr(value), hint="pass an int or a float"
        ) from error


def check_source(beta: float, z: object, called: str = "z") -> None:
    """Refuses a beta without z, `called` so by the user: it would scale nothing."""
    if z is None and beta:
        expected = f"0 without {called}"
        raise ArgumentError("beta", expected=expected, got=beta, hint=f"pass {called}")


def common_shape(named: Sequence[tuple[str, tuple[int, ...]]]) -> tuple[int, ...]:
    """As `broadcast_shapes`, also of extents that are not known while a program is traced."""
    try:
        return (*torch.broadcast_shapes(*(shape for _, shape in named)),)
    except RuntimeError:
        return broadcast_shapes(named)  # Which names the tensor.
