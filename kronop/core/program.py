"""Repeated sequences of products and gradients over common memory, launched by addresses alone.

`prepared` repeats one call. This module repeats a sequence of calls that has several results and
intermediate tensors; the backward of a product is one. The sequence goes the long way the first
two times. The launches of the second time are kept as a function of the addresses of the given
tensors, of the results, and of one piece of scratch memory for all intermediate tensors.

The slots are numbered in this order: the given tensors, the results, the scratch memory.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from kronop import knobs
from kronop.args import signature
from kronop.args.base import Arguments
from kronop.args.overlap import span
from kronop.args.stream import stream_handle
from kronop.args.tensor import view
from kronop.args.view import Device
from kronop.core import prepared
from kronop.core.addressed import Launches, Product, Reach, Symbols, UnfitError, symbol
from kronop.core.gathering import is_gathering
from kronop.core.prepared import Key
from kronop.core.prepared import surroundings as surroundings
from kronop.tensors import Tensor

_MOST_PROGRAMS, _MOST_CALLS = 256, 64
# The alignment in bytes that kernels of every target assume of their scratch memory.
_ALIGNMENT = 64

# A Maker allocates a result on the device of the tensor it is given. A ScratchMaker does the same
# for scratch memory, of a number of bytes.
Maker = signature.Maker
ScratchMaker = Callable[[Tensor, int], Tensor]
Made = Sequence[tuple[Tensor, Maker]]


class _Regions(Symbols):
    """Symbolic addresses looked up by real address: each piece of memory lies at an offset in a
    slot."""

    def __init__(self, device: Device, scratch: int) -> None:
        super().__init__({}, [], device)
        self._pieces: list[tuple[int, int, int, int]] = []
        self._scratch, self._lows = scratch, [0] * (scratch + 1)
        self._taken = self._most = 0

    @property
    def lows(self) -> list[int]:
        return self._lows

    @property
    def scratch_bytes(self) -> int:
        """Bytes of all intermediate tensors, plus the largest workspace of a kernel.

        The kernels run one after another, so they share one workspace.
        """
        return self._taken + self._most

    def add(self, slot: int, low: int, high: int, pointer: int) -> None:
        """Registers the memory low .. high of a tensor at `pointer`.

        Raises:
            UnfitError: it overlaps the memory of a tensor at another address.
        """
        for start, stop, _, other in self._pieces:
            if low < stop and start < high and other != pointer:
                raise UnfitError
        self._lows[slot] = pointer % signature.ALIGNMENT
        self._pieces.append((low, high, symbol(slot, self._lows[slot]) - pointer, pointer))

    def add_scratch(self, low: int, high: int) -> None:
        """Registers the memory low .. high of an intermediate tensor, to lie in the scratch memory
        from now on."""
        self._pieces.append((low, high, symbol(self._scratch, 0) + self._taken - low, low))
        self._taken -= (low - high) // _ALIGNMENT * _ALIGNMENT

    def workspace(self, nbytes: int) -> int:
        self._most = max(self._most, nbytes)
        return symbol(self._scratch, 0) + self._taken if nbytes else 0

    def _symbol(self, name: str, pointer: int) -> int:
        for low, high, shift, _ in self._pieces:
            if low <= pointer < high:
                return pointer + shift
        raise UnfitError


class Program:
    """The launches of a sequence, over addresses.

    Args:
        products: the launches, in order.
        makers: for each result, the function that allocates it.
        make_scratch: allocates the scratch memory; None if none is needed.
        reach: how far the given tensors reach into their storages.
        device, framework: those of the tensors.

    Attributes:
        knobs: the settings that were in force when the sequence was recorded.
    """

    def __init__(
        self,
        products: Sequence[Product],
        makers: Sequence[Maker],
        make_scratch: Maker | None,
        reach: Reach,
        device: Device,
        framework: str,
    ) -> None:
        self.knobs = knobs.current()
        self._launch, self._results = Launches(products).launch, len(makers)
        self._makers = [*makers] if make_scratch is None else [*makers, make_scratch]
        self._reach = reach
        self._is_host, self._device, self._framework = device.is_host, device.index, framework
        self._address = signature.addresser(framework)

    def run(self, tensors: Sequence[Tensor], addresses: list[int]) -> list[Tensor] | None:
        """The results; None, with nothing launched, if the sequence must go the long way.

        Args:
            tensors: the given tensors.
            addresses: their addresses; this list is extended here.
        """
        if not self._reach.holds(tensors):
            return None
        made, like = [], tensors[0]
        for make in self._makers:
            try:
                item = make(like)
            except (MemoryError, RuntimeError):
                return None
            address = self._address(item)
            if address % _ALIGNMENT:
                return None
            made.append(item)
            addresses.append(address)
        stream = 0 if self._is_host else stream_handle(None, self._framework, self._device)
        self._launch(addresses, stream)
        # The scratch memory is freed here, before the kernels have run. This is safe: the framework
        # hands it out again only for work that follows on the same stream.
        return made[: self._results]


class Recording:
    """Records the calls of a sequence that goes the long way, so that it can be repeated."""

    def __init__(self, key: Key, tensors: Sequence[Tensor], addresses: Sequence[int]) -> None:
        self._key, self._tensors, self._addresses = key, tensors, addresses
        self._calls: list[Arguments] = []

    def add(self, arguments: Arguments) -> None:
        """Records arguments that ran."""
        self._calls.append(arguments)

    def end(self, results: Made, scratch: Sequence[Tensor], make_scratch: ScratchMaker) -> None:
        """Stores the recorded sequence, or None if such sequences must go the long way.

        Args:
            results: the tensors that were made, each with the function that makes one like it at
                an address that is a multiple of 64.
            scratch: the intermediate tensors that were made.
            make_scratch: allocates memory for them, given a number of bytes.
        """
        try:
            found = self._program(results, scratch, make_scratch)
        except UnfitError:
            found = None
        if len(_programs) >= _MOST_PROGRAMS:
            _programs.clear()
        _programs[self._key] = found

    def _program(
        self, results: Made, scratch: Sequence[Tensor], make_scratch: ScratchMaker
    ) -> Program:
        if not 0 < len(self._calls) <= _MOST_CALLS:
            raise UnfitError
        first, given = self._calls[0], len(self._tensors)
        regions = _Regions(first.device, given + len(results))
        every = (*self._tensors, *(item for item, _ in results))
        ends = []
        for slot, tensor in enumerate(every):
            item = view(tensor, "")
            low, high = span(item)
            regions.add(slot, low, high, item.pointer)
            ends.append((slot, high - item.pointer))
        for tensor in scratch:
            regions.add_scratch(*span(view(tensor, "")))
        products = [Product(arguments, regions) for arguments in self._calls]
        nbytes = regions.scratch_bytes
        maker = (lambda like: make_scratch(like, nbytes)) if nbytes else None
        reach, makers = Reach(every, ends[:given]), [make for _, make in results]
        return Program(products, makers, maker, reach, first.device, first.framework)


# Programs by signature; None for sequences that must always go the long way. No lock is needed,
# for the reason given in `prepared`.
_programs: dict[Key, Program | None] = {}
_seen: dict[Key, None] = {}


def forget() -> None:
    """Drops all remembered programs, and makes callers of `surroundings` drop theirs."""
    prepared.outdate()
    _programs.clear()
    _seen.clear()


def find(form: object, alpha: Any, tensors: Sequence[Tensor]) -> Program | None:
    """The remembered program for this sequence, or None; arguments as of `repeat`.

    None also if two of the tensors have the same address.
    """
    known = _recognise(form, alpha, tensors)
    if known is None or len(set(known[1])) < len(tensors):
        return None
    found = _programs.get(known[0])
    return found if found is not None and found.knobs is knobs.current() else None


def _recognise(form: object, alpha: Any, tensors: Sequence[Tensor]) -> tuple[Key, list[int]] | None:
    known = prepared.recognise(form, alpha, 0, [*tensors, None, None])
    if known is None:
        return None
    key, addresses = known
    del addresses[-2:]
    # The key records which tensors share an address: a program that was recorded with one tensor
    # in two places must not be used for two tensors, nor the reverse.
    return (*key, *map(addresses.index, addresses)), addresses


def repeat(
    form: object, alpha: Any, tensors: Sequence[Tensor]
) -> tuple[list[Tensor] | None, Recording | None]:
    """(the results, None) if the sequence was repeated; else (None, recording), nothing written.

    The caller then runs the sequence the long way and records it, if there is a recording.

    Args:
        form: identifies the sequence and its arguments other than tensors and alpha.
        alpha: its scalar.
        tensors: the given tensors; results and scratch memory are made on the first one's device.
    """
    known = _recognise(form, alpha, tensors)
    if known is None:
        return None, None
    key, addresses = known
    found = _programs.get(key)
    if found is not None and found.knobs is knobs.current():
        return found.run(tensors, addresses), None
    if knobs.current().debug or is_gathering() or _programs.get(key, False) is None:
        return None, None
    if key in _seen:
        return None, Recording(key, tensors, addresses)
    if len(_seen) >= _MOST_PROGRAMS:
        _seen.clear()
    _seen[key] = None
    return None, None
