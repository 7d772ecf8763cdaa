"""Arguments of several products that run together: groups, and arrays of matrices."""

from __future__ import annotations

import functools
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, ClassVar

from kronop.args.base import Arguments
from kronop.args.operands import Operand, results
from kronop.args.overlap import overlaps, span
from kronop.args.protocols import Planned
from kronop.errors import ArgumentError, ElementTypeError, KronopError
from kronop.families.gemm.shape_arguments import CALLED
from kronop.families.gemm.size import GemmSize


class Members(Arguments):
    """Arguments that may stand for those of several products, which share scratch memory.

    Attributes:
        members: the arguments of each product; empty if these are the arguments of one.
    """

    operands: ClassVar[tuple[Operand, ...]] = (
        Operand("A", "mk"),
        Operand("B", "kn"),
        Operand("bias", "n", like="Y", optional=True, typed=True, over="mn", of_tree=True),
        *results("mn"),
    )
    differentiable = "kronop.torch.matmul"
    called: ClassVar[Mapping[str, str]] = CALLED
    members: tuple[Any, ...] = ()

    def _take_members(
        self, make: Callable[..., Any], lists: Mapping[str, Sequence[Any]], told: str
    ) -> None:
        """Makes the arguments of products, all on one device, none of which writes what another one
        reads or writes.

        Args:
            make: of one product.
            lists: an item for each, by the names that `make` takes them by.
            told: what all of them are: "the group". What is wrong with one names it by its number.
        """
        members = []
        for index, row in enumerate(zip(*lists.values(), strict=True)):
            try:
                member = make(**dict(zip(lists, row, strict=True)))
            except KronopError as error:
                raise type(error)(f"product {index} of {told}: {error}") from None
            member._number = f"[{index}]"
            members.append(member)
        self.members = tuple(members)
        self._views = {
            f"{name}{member._number}": item
            for member in members
            for name, item in member._views.items()
        }
        names = (f"{item.name}{member._number}" for item in self.operands for member in members)
        self._named = tuple(names)
        self._settle(self._views)
        self.share_among(self._threads)
        _check_apart(members)
        self.Y = members[0].Y
        self._source_is_result = any(member.accumulates for member in members)

    @property
    def results(self) -> tuple[Any, ...]:
        return tuple(member.Y for member in self.members)

    def share_among(self, threads: int) -> None:
        super().share_among(threads)
        for member in self.members:  # They run in the scratch memory of all, sized for `threads`.
            member.share_among(threads)

    @functools.cached_property
    def _sizes(self) -> dict[Any, GemmSize]:
        """The products that are not empty, with their sizes."""
        sizes = {member: member.size for member in self.members}
        return {member: size for member, size in sizes.items() if size}

    @property
    def size(self) -> GemmSize:
        """As many products of their mean size."""
        return mean_size(self._sizes.values())

    def _needed(self, planned: Planned) -> int:
        sizes = self._sizes.values() or (self.size,)
        return max(planned.workspace_bytes(size, self._threads) for size in sizes)


def mean_size(sizes: Collection[GemmSize]) -> GemmSize:
    """As many products of the mean of these sizes."""
    if not sizes:
        return GemmSize(0)
    m, n, k = (-(-sum(getattr(item, name) for item in sizes) // len(sizes)) for name in "mnk")
    return GemmSize(m, n, k, sum(item.batch for item in sizes))


def lists_of(needed: Mapping[str, Any], others: Mapping[str, Any]) -> dict[str, list[Any]]:
    """Lists of equal lengths, by their names for the caller.

    Args:
        others: sequences that may be None, and are left out then.

    Raises:
        ElementTypeError: an argument is no sequence.
        ArgumentError: sequences of other lengths, or empty ones.
    """
    lists = {}
    given = {name: items for name, items in others.items() if items is not None}
    for name, value in {**needed, **given}.items():
        try:
            lists[name] = list(value)
        except TypeError:
            raise ElementTypeError(
                name,
                expected="a list with an item for each product",
                got=type(value).__name__,
                hint="pass lists of tensors",
            ) from None
    counts = {len(items) for items in lists.values()}
    if len(counts) > 1 or 0 in counts:
        raise ArgumentError(
            "lists of products",
            expected="an item for each product, at least one",
            got=", ".join(f"{len(items)} {name}" for name, items in lists.items()),
            hint="pass lists of one length; a stacked tensor counts as a list of matrices",
        )
    return lists


def _check_apart(members: Sequence[Members]) -> None:
    """Raises ArgumentError if a product writes memory that another one reads or writes."""
    spans = sorted(
        (*span(item.view), index, name)
        for index, member in enumerate(members)
        for name, item in member._placed.items()
        if item.view.in_place and 0 not in item.view.shape
    )
    for at, (_, high, index, name) in enumerate(spans):
        for low, _, other, its in spans[at + 1 :]:
            if low >= high:
                break
            if index == other or "Y" not in (name, its):
                continue
            both = [(members[index], name), (members[other], its)]
            if overlaps(*(member._views[key] for member, key in both)):
                raise ArgumentError(
                    " and ".join(f"{one._called(key)}{one._number}" for one, key in both),
                    expected="separate memory, since products run side by side",
                    got="tensors that overlap",
                    hint="pass other tensors, or copies",
                )
