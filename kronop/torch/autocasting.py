"""Autocast for operators: tensors are cast as for torch's `linear`, or as for its `cdist`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from kronop.torch.arguments import Layout
from kronop.torch.declaration import Autocast

# The types of tensors that autocast casts.
_CAST = (torch.float32, torch.float16, torch.bfloat16)
_KEYS = torch._C.DispatchKeySet(torch._C.DispatchKey.AutocastCPU) | torch._C.DispatchKeySet(
    torch._C.DispatchKey.AutocastCUDA
)


def is_casting(device: str) -> bool:
    """Whether autocast is on for this type of device; torch has no autocast for "meta"."""
    known = torch.amp.autocast_mode.is_autocast_available(device)
    return bool(known and torch.is_autocast_enabled(device))


def kind_for(how: Autocast, device: str) -> torch.dtype:
    """The type that autocast, which is on, casts to on this type of device."""
    return torch.float32 if how is Autocast.Wide else torch.get_autocast_dtype(device)


def cast_to(
    kind: torch.dtype, tensors: Sequence[Tensor], places: Sequence[int] | None = None
) -> list[Tensor]:
    """The tensors, with those of 16-bit and 32-bit floats cast to the type `kind`; only those at
    these places, if these are given."""
    return [
        item.to(kind) if _is_cast(item) and (places is None or at in places) else item
        for at, item in enumerate(tensors)
    ]


def cast_together(
    kind: torch.dtype, tensors: Sequence[Tensor], places: Sequence[int]
) -> list[Tensor]:
    """As `cast_to`, but in as few launches as torch can make, and without gradients."""
    found = list(tensors)
    places = [at for at in places if _is_cast(found[at]) and found[at].dtype is not kind]
    if places:
        given = [found[at] for at in places]
        made = [torch.empty_like(item, dtype=kind) for item in given]
        torch._foreach_copy_(made, given)
        for at, item in zip(places, made, strict=True):
            found[at] = item
    return found


def _is_cast(item: Tensor | None) -> bool:
    return item is not None and item.dtype in _CAST


def without_autocast() -> Any:
    """A context in which autocast casts nothing."""
    return torch._C._ExcludeDispatchKeyGuard(_KEYS)


def casting(
    call: Callable[..., Any], layout: Layout, how: Autocast, device: str | None = None
) -> Callable[..., Any]:
    """`call` with its tensors cast before, as on this type of device; None: as on that of the first
    tensor, if autocast is on for it."""

    def cast(*arguments: object) -> Any:
        here = device or layout.split(arguments)[1][0].device.type
        if device is None and not is_casting(here):
            return call(*arguments)
        kind = kind_for(how, here)
        narrow = layout.mapped(lambda item: item.to(kind) if _is_cast(item) else item, arguments)
        with without_autocast():
            return call(*narrow)

    return cast
