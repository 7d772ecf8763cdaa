"""Several products and gradients over common memory, made before: launched from addresses alone.

What `prepared` does for a call, for a sequence of them that gives several results and has memory
of its own in between: the backward of a product is one. The sequence is made the long way the
first two times; what was launched the second time is kept as a function of the addresses of the
tensors that it was given, of its results, and of one piece of scratch memory for everything else.

The slots are those of the tensors given, then of the results, then that of the scratch memory.
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
from kronop.core.addressed import Launches, Product, Symbols, UnfitError, symbol
from kronop.core.prepared import Key, surroundings
from kronop.core.reach import Reach

__all__ = [
    "Maker",
    "Program",
    "Recording",
    "ScratchMaker",
    "find",
    "forget",
    "repeat",
    "surroundings",
]

_MOST_PROGRAMS, _MOST_CALLS = 256, 64
# What kernels take their scratch memory to be aligned to, on every target.
_ALIGNMENT = 64

# From a tensor on the same device, a new one; for scratch memory: of so many bytes.
Maker = signature.Maker
ScratchMaker = Callable[[Any, int], Any]


class _Regions(Symbols):
    """Memory by its addresses: pieces of it belong to a slot each, at an offset."""

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
        """Of all pieces, and of the kernels' own, which take turns."""
        return self._taken + self._most

    def add(self, slot: int, low: int, high: int, pointer: int) -> None:
        """The memory low .. high belongs to a tensor at `pointer`; no two pieces may overlap."""
        for start, stop, _, other in self._pieces:
            if low < stop and start < high and other != pointer:
                raise UnfitError
        self._lows[slot] = pointer % signature.ALIGNMENT
        self._pieces.append((low, high, symbol(slot, self._lows[slot]) - pointer, pointer))

    def add_scratch(self, low: int, high: int) -> None:
        """The memory low .. high is to be a part of the scratch memory."""
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
    """What was launched, over addresses.

    Args:
        products: in their order.
        makers: of the results.
        make_scratch: of the scratch memory; None where there is none.
        reach: of the tensors given.
        device, framework: of the tensors.

    Attributes:
        knobs: those under which it was made.
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

    def run(self, tensors: Sequence[Any], addresses: list[int]) -> list[Any] | None:
        """The results, or None where the checks have to decide: nothing was launched then.

        Args:
            tensors: those given.
            addresses: theirs; taken over.
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
        # The scratch memory goes back to its framework, whose own order on the stream it has.
        return made[: self._results]


class Recording:
    """What is noted while a sequence is made the long way, for those that follow."""

    def __init__(self, key: Key, tensors: Sequence[Any], addresses: Sequence[int]) -> None:
        self._key, self._tensors, self._addresses = key, tensors, addresses
        self._calls: list[Arguments] = []

    def add(self, arguments: Arguments) -> None:
        """Notes arguments that ran."""
        self._calls.append(arguments)

    def end(
        self,
        results: Sequence[tuple[Any, Maker]],
        scratch: Sequence[Any],
        make_scratch: ScratchMaker,
    ) -> None:
        """Remembers what was noted, or that such sequences go the long way.

        Args:
            results: the tensors that were made, with what makes them; these have an address that
                is a multiple of 64.
            scratch: the tensors that were made for what is in between.
            make_scratch: makes memory for these, of so many bytes.
        """
        try:
            found = self._program(results, scratch, make_scratch)
        except UnfitError:
            found = None
        if len(_programs) >= _MOST_PROGRAMS:
            _programs.clear()
        _programs[self._key] = found

    def _program(
        self,
        results: Sequence[tuple[Any, Maker]],
        scratch: Sequence[Any],
        make_scratch: ScratchMaker,
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


# By signature; None for those that have to go the long way. See `prepared` for threads.
_programs: dict[Key, Program | None] = {}
_seen: dict[Key, None] = {}


def forget() -> None:
    """Drops everything that was learned."""
    prepared.outdate()
    _programs.clear()
    _seen.clear()


def find(form: object, alpha: Any, tensors: Sequence[Any]) -> Program | None:
    """What repeats such a sequence, if it was learned and all tensors are apart: see `repeat`."""
    known = _recognise(form, alpha, tensors)
    if known is None or len(set(known[1])) < len(tensors):
        return None
    found = _programs.get(known[0])
    return found if found is not None and found.knobs is knobs.current() else None


def _recognise(form: object, alpha: Any, tensors: Sequence[Any]) -> tuple[Key, list[int]] | None:
    known = prepared.recognise(form, alpha, 0, [*tensors, None, None])
    if known is None:
        return None
    key, addresses = known
    del addresses[-2:]
    # Tensors that are one are told apart from those that are not.
    return (*key, *map(addresses.index, addresses)), addresses


def repeat(
    form: object, alpha: Any, tensors: Sequence[Any]
) -> tuple[list[Any] | None, Recording | None]:
    """(the results, None), or (None, where to note the sequence that is now made the long way, if
    it is to be noted). Nothing is written in the second case.

    Args:
        form: which sequence it is, and what else decides it.
        alpha: its scalar.
        tensors: those that are given; the first one leads.
    """
    known = _recognise(form, alpha, tensors)
    if known is None:
        return None, None
    key, addresses = known
    found = _programs.get(key)
    if found is not None and found.knobs is knobs.current():
        return found.run(tensors, addresses), None
    if knobs.current().debug or _programs.get(key, False) is None:
        return None, None
    if key in _seen:
        return None, Recording(key, tensors, addresses)
    if len(_seen) >= _MOST_PROGRAMS:
        _seen.clear()
    _seen[key] = None
    return None, None
