"""Arguments of several products that run together: groups, and arrays of matrices."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from kronop.args.base import Arguments, Places, Planned
from kronop.args.overlap import overlaps, span
from kronop.args.staging import Form
from kronop.args.view import TensorView
from kronop.artifacts import Launch
from kronop.errors import ArgumentError, ElementTypeError, KronopError, mismatch
from kronop.families.gemm.size import GemmSize


class Members(Arguments):
    """Arguments that may stand for those of several products, which share scratch memory.

    Attributes:
        members: the arguments of each product; empty if these are the arguments of one.
    """

    members: tuple[Any, ...] = ()

    @property
    def operand_views(self) -> Mapping[str, TensorView]:
        """The operands by their names in `kronop`, where Z is C and Y is D."""
        return self._views

    def _take_members(self, members: Sequence[Any]) -> None:
        """Accepts arguments of products, all on one device, none of which writes what another one
        reads or writes."""
        self.members = tuple(members)
        views = {
            f"{name}[{index}]": item
            for index, member in enumerate(members)
            for name, item in member.operand_views.items()
        }
        self._settle(views)
        self.share_among(self._threads)
        _check_apart(self.members)
        self._views, self.Y = views, self.members[0].Y
        self._source_is_result = any(member.accumulates for member in self.members)

    def share_among(self, threads: int) -> None:
        super().share_among(threads)
        for member in self.members:  # They run in the scratch memory of all, sized for `threads`.
            member.share_among(threads)

    @functools.cached_property
    def _sizes(self) -> dict[int, GemmSize]:
        """The sizes of products that are not empty, by their number."""
        sizes = {index: member.size for index, member in enumerate(self.members)}
        return {index: size for index, size in sizes.items() if size}

    def mean_size(self) -> GemmSize:
        """As many products of their mean size."""
        sizes = self._sizes.values()
        if not sizes:
            return GemmSize(0)
        m, n, k = (-(-sum(getattr(item, name) for item in sizes) // len(sizes)) for name in "mnk")
        return GemmSize(m, n, k, sum(item.batch for item in sizes))

    def launches(self, planned: Planned, places: Places) -> tuple[Launch, ...]:
        if not self.members:
            return super().launches(planned, places)
        if not self._sizes:
            return ()
        workspace = places.workspace(
            max(planned.workspace_bytes(size, self._threads) for size in self._sizes.values())
        )
        return self._launches_of(
            planned,
            tuple(
                self.members[index].problem_at(_Numbered(places, index), workspace)
                for index in self._sizes
            ),
        )

    def _launches_of(self, planned: Planned, problems: tuple[Any, ...]) -> tuple[Launch, ...]:
        """Those of the members that are not empty."""
        return tuple(launch for item in problems for launch in planned.launches(item))


class _Numbered:
    """The places of one product's operands, by names with its number: "A[3]"."""

    def __init__(self, places: Places, index: int) -> None:
        self._places, self._index = places, index

    def input(self, name: str, item: TensorView, form: Form | None) -> TensorView:
        return self._places.input(f"{name}[{self._index}]", item, form)

    def output(self, name: str, item: TensorView, form: Form | None, *, read: bool) -> TensorView:
        return self._places.output(f"{name}[{self._index}]", item, form, read=read)

    def workspace(self, nbytes: int) -> int:
        return self._places.workspace(nbytes)


def made(make: Callable[..., Any], rows: Sequence[Mapping[str, Any]], called: str) -> Iterator[Any]:
    """The arguments of each product; what is wrong with one names it by its number.

    Args:
        called: what all of them are: "the group".
    """
    for index, row in enumerate(rows):
        try:
            yield make(**row)
        except KronopError as error:
            raise type(error)(f"product {index} of {called}: {error}") from None


def rows_of(
    given: Mapping[str, Any], names: Mapping[str, str], optional: Sequence[str]
) -> list[dict[str, Any]]:
    """The arguments of each product, from lists with an item for each.

    Args:
        names: what an item of each is called.
        given, optional: as of `lists_of`, which says what is raised.
    """
    lists = lists_of(given, optional)
    keys = [names[name] for name in lists]
    return [dict(zip(keys, row, strict=True)) for row in zip(*lists.values(), strict=True)]


def lists_of(given: Mapping[str, Any], optional: Sequence[str]) -> dict[str, list[Any]]:
    """Lists of equal lengths, without those that are None.

    Args:
        given: sequences by their names for the caller.
        optional: names of sequences that may be None.

    Raises:
        ElementTypeError: an argument is no sequence.
        ArgumentError: sequences of other lengths, or empty ones.
    """
    lists = {}
    for name, value in given.items():
        if value is None and name in optional:
            continue
        try:
            lists[name] = list(value)
        except TypeError:
            raise ElementTypeError(
                mismatch(
                    name,
                    expected="a list with an item for each product",
                    got=type(value).__name__,
                    hint="pass lists of tensors",
                )
            ) from None
    counts = {name: len(items) for name, items in lists.items()}
    count = min(counts.values())
    if count != max(counts.values()) or not count:
        raise ArgumentError(
            mismatch(
                "lists of products",
                expected="an item for each product, at least one",
                got=", ".join(f"{length} {name}" for name, length in counts.items()),
                hint="pass lists of one length; a stacked tensor counts as a list of matrices",
            )
        )
    return lists


def _check_apart(members: Sequence[Members]) -> None:
    """Raises ArgumentError if a product writes memory that another one reads or writes."""
    spans = sorted(
        (*span(item), index, name)
        for index, member in enumerate(members)
        for name, item in member.operand_views.items()
        if item.in_place and 0 not in item.shape
    )
    for at, (_, high, index, name) in enumerate(spans):
        for low, _, other, its in spans[at + 1 :]:
            if low >= high:
                break
            unread = "Z" in (name, its) and not members[0].output_op.beta
            if index == other or "Y" not in (name, its) or unread:
                continue
            first, second = members[index].operand_views[name], members[other].operand_views[its]
            if overlaps(first, second):
                called = {"Y": "D", "Z": "C"}
                pair = " and ".join(
                    f"{called.get(key, key)}[{at}]" for key, at in ((name, index), (its, other))
                )
                raise ArgumentError(
                    mismatch(
                        pair,
                        expected="separate memory, since products run side by side",
                        got="tensors that overlap",
                        hint="pass other tensors, or copies",
                    )
                )
