"""Whether all ranks call for the same product: asked once for each signature."""

from __future__ import annotations

import hashlib
import weakref
from collections.abc import Sequence

import torch
import torch.distributed as dist

from kronop.distributed.exchange import telling
from kronop.errors import ArgumentError

# Signatures that the ranks of a group have agreed on.
_AGREED: weakref.WeakKeyDictionary[dist.ProcessGroup, set[str]] = weakref.WeakKeyDictionary()


def check(
    groups: Sequence[dist.ProcessGroup],
    signature: str,
    scalars: str,
    factors: Sequence[torch.Tensor],
) -> None:
    """Asks the other ranks, at the first call of this signature, whether they have the same one,
    and the same scalars and factors. Later calls are not compared.

    Args:
        groups: of the ranks that are asked: those of the first one, then with each of these those
            of its second one, and so on.
        signature, scalars: in words.
        factors: local tensors.

    Raises:
        ArgumentError: on every rank, if one differs; the message tells what each of them has.
        DeviceError: a rank did not answer.
    """
    agreed = _AGREED.setdefault(groups[0], set())
    if signature in agreed:
        return
    own = (dist.get_rank(), f"{signature}, {scalars}", [_digest(item) for item in factors])
    known: list[tuple[int, str, list[str]]] = [own]
    for group in groups:
        every: list[list[tuple[int, str, list[str]]]] = [[]] * dist.get_world_size(group)
        with telling("the first call of a product over many ranks"):
            dist.all_gather_object(every, known, group=group)
        known = [one for some in every for one in some]
    _compare("arguments of a product over many ranks", [(rank, text) for rank, text, _ in known])
    for at in range(len(factors)):
        digests = [(rank, every[at]) for rank, _, every in known]
        _compare(f"values of factors[{at}]", digests)
    agreed.add(signature)


def _digest(factor: torch.Tensor) -> str:
    """Tells other values apart."""
    # A copy: memory that NumPy has seen can't be resized, as FSDP does with its parameters'.
    held = factor.detach().cpu().clone(memory_format=torch.contiguous_format).view(torch.uint8)
    return hashlib.sha256(held.numpy().tobytes()).hexdigest()[:12]


def _compare(what: str, every: Sequence[tuple[int, str]]) -> None:
    groups: dict[str, list[int]] = {}
    for rank, told in every:
        groups.setdefault(told, []).append(rank)
    if len(groups) == 1:
        return
    told = "; ".join(
        f"rank{'s' * (len(at) > 1)} {', '.join(map(str, at))}: {item}"
        for item, at in groups.items()
    )
    raise ArgumentError(
        what,
        expected="the same on every rank of the group",
        got=told,
        hint="call it on all of them with equal shapes, types, scalars and factors, of an x"
        " whose columns are split evenly",
    )
