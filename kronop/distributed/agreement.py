"""Whether all ranks of a group call for the same product: asked once for each signature."""

from __future__ import annotations

import hashlib
import weakref
from collections.abc import Sequence
from typing import Any

import torch
import torch.distributed as dist

from kronop.distributed.exchange import telling
from kronop.errors import ArgumentError, mismatch

# Signatures that the ranks of a group have agreed on.
_AGREED: weakref.WeakKeyDictionary[Any, set[str]] = weakref.WeakKeyDictionary()


def check(group: Any, signature: str, factors: Sequence[Any]) -> None:
    """Asks the other ranks, at the first call of this signature, whether they have the same one,
    and the same factors.

    Raises:
        ArgumentError: on every rank, if one differs; the message tells what each of them has.
        DeviceError: a rank did not answer.
    """
    agreed = _AGREED.setdefault(group, set())
    if signature in agreed:
        return
    told = [signature, *(_digest(item) for item in factors)]
    every: list[Any] = [None] * dist.get_world_size(group)
    with telling("the first call of a product over many ranks"):
        dist.all_gather_object(every, told, group=group)
    if any(item[0] != signature for item in every):
        raise _refused("arguments of a product over many ranks", [item[0] for item in every])
    for at in range(len(factors)):
        digests = [item[1 + at] for item in every]
        if any(item != digests[0] for item in digests):
            raise _refused(f"values of factors[{at}]", digests)
    agreed.add(signature)


def _digest(factor: Any) -> str:
    """Tells other values apart."""
    # A copy: memory that NumPy has seen can't be resized, as FSDP does with its parameters'.
    held = factor.detach().cpu().clone(memory_format=torch.contiguous_format).view(torch.uint8)
    return hashlib.sha256(held.numpy().tobytes()).hexdigest()[:12]


def _refused(what: str, every: Sequence[str]) -> ArgumentError:
    groups: dict[str, list[int]] = {}
    for rank, told in enumerate(every):
        groups.setdefault(told, []).append(rank)
    told = "; ".join(f"ranks {', '.join(map(str, at))}: {item}" for item, at in groups.items())
    return ArgumentError(
        mismatch(
            what,
            expected="the same on every rank of the group",
            got=told,
            hint="call it on all of them with equal shapes, types, scalars and factors",
        )
    )
