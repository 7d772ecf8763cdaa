"""Autocast, as torch's `linear` has it: what is given becomes of the type that it is for."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

_DEVICES = ("CPU", "CUDA")
# What autocast casts: floats of 16 and 32 bits.
_CAST = (torch.float32, torch.float16, torch.bfloat16)
_KEYS = torch._C.DispatchKeySet(torch._C.DispatchKey.AutocastCPU) | torch._C.DispatchKeySet(
    torch._C.DispatchKey.AutocastCUDA
)


def is_casting(device: str) -> bool:
    """Whether autocast is on for that type of device; torch knows none for "meta"."""
    known = torch.amp.autocast_mode.is_autocast_available(device)
    return bool(known and torch.is_autocast_enabled(device))


def cast(device: str, *tensors: Any) -> list[Any]:
    """The tensors in autocast's type for that type of device."""
    return cast_to(torch.get_autocast_dtype(device), *tensors)


def cast_to(kind: Any, *tensors: Any) -> list[Any]:
    """Those of floats of 16 and 32 bits in that type, the others as they are."""
    return [item.to(kind) if _is_cast(item) else item for item in tensors]


def cast_together(kind: Any, tensors: Sequence[Any]) -> list[Any]:
    """As `cast_to`, in as few launches as torch can; without gradients."""
    found = list(tensors)
    places = [at for at, item in enumerate(found) if _is_cast(item) and item.dtype is not kind]
    if places:
        given = [found[at] for at in places]
        made = [torch.empty_like(item, dtype=kind) for item in given]
        torch._foreach_copy_(made, given)
        for at, item in zip(places, made, strict=True):
            found[at] = item
    return found


def _is_cast(item: Any) -> bool:
    return item is not None and item.dtype in _CAST


def without_autocast() -> Any:
    """A context in which nothing is cast."""
    return torch._C._ExcludeDispatchKeyGuard(_KEYS)


def register(library: Any, name: str, casting: Callable[..., Any]) -> None:
    """Lets an operator of `library` cast its tensors.

    Args:
        casting: from the type of device and the operator's arguments, the arguments to take.
    """
    operator = getattr(torch.ops.kronop, name).default

    def kernel(device: str) -> Callable[..., Any]:
        def call(*arguments: Any) -> Any:
            arguments = casting(device, *arguments)
            with without_autocast():
                return operator(*arguments)

        return call

    for device in _DEVICES:
        library.impl(name, kernel(device.lower()), f"Autocast{device}")
