"""Calls that were checked before: recognised by their signature, then launched with new addresses.

The first call with a signature is made the long way, through the arguments, where every check is.
The second one too, and what it launched is kept as a function of the tensors' addresses. From then
on a call with that signature allocates the result, writes the addresses into packed parameters
and launches them. Whatever could be otherwise goes the long way again.

Slots (see `addressed`) are of the operands that are given, in their order (the last is the result,
if it is given), then of the results that are made, then of the scratch memory.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from kronop import knobs
from kronop.args import changes, host, signature
from kronop.args.base import Arguments
from kronop.args.memory import DeviceBuffer
from kronop.args.overlap import span
from kronop.args.staging import in_use
from kronop.args.stream import stream_handle
from kronop.args.tensor import view
from kronop.args.view import Device, contiguous_strides
from kronop.core import winners
from kronop.core.addressed import Product, Symbols, UnfitError
from kronop.core.reach import Reach

_MOST_CALLS = 512
# Beyond these the checks cost little beside the work, and the memory of what is kept has a bound.
_MOST_TENSORS = 1 << 10
_NUMBERS = (float, int)

Key = tuple[Any, ...]


class Call:
    """Everything that calls with one signature do.

    Args:
        tensors: those of a call that ran; not kept.
        addresses: theirs.
        beta: of that call.
        products: what it ran.
        device, framework: of X.

    Attributes:
        knobs: those under which it was learned.
    """

    def __init__(
        self,
        tensors: Sequence[Any],
        addresses: Sequence[int],
        beta: float,
        products: Sequence[Product],
        device: Device,
        framework: str,
    ) -> None:
        self.knobs = knobs.current()
        self._products = tuple(products)
        self._is_host, self._device, self._framework = device.is_host, device.index, framework
        self._address = signature.addresser(framework)
        self._make_scratch = None if device.is_host else signature.scratch_maker(framework)
        source, result = len(tensors) - 2, len(tensors) - 1
        self._count_change = changes.counter(tensors[result])
        # Z may be anywhere where it is not read, or where it is the result itself.
        is_apart = bool(beta) and addresses[source] != addresses[result]
        apart = range(source + is_apart)
        self._read = tuple(_span(slot, tensors[slot]) for slot in apart if addresses[slot])
        self._written = _span(result, tensors[result]) if addresses[result] else (0, 0, 0)
        spans = [*self._read, self._written] if addresses[result] else self._read
        self._reach = Reach(tensors, [(slot, above) for slot, _, above in spans])

    def run(self, tensors: Sequence[Any], addresses: list[int]) -> Any:
        """The result, or None where the checks have to decide: nothing has been written then."""
        if not self._reach.holds(tensors):
            return None
        given = tensors[-1]
        if given is not None:
            if self._may_overlap(addresses):
                return None
            if self._count_change is not None:
                self._count_change((given,))
        stream = 0 if self._is_host else stream_handle(None, self._framework, self._device)
        x = result = tensors[0]
        for product in self._products:
            source, result = result, given  # What was made before lives until it has been read.
            if product.make is not None:
                try:
                    result = product.make(x)
                except (MemoryError, RuntimeError):
                    return None
                address = self._address(result)
                if not address or address % signature.ALIGNMENT:
                    return None
                addresses.append(address)
            if not product.scratch_bytes:
                product.launch(addresses, stream)
            elif not self._launch_with_scratch(product, addresses, stream, x):
                return None
            del source
        return result

    def _launch_with_scratch(
        self, product: Product, addresses: list[int], stream: int, x: Any
    ) -> bool:
        """Whether there was memory in the framework's allocator, where it comes from there."""
        if self._is_host:
            borrowed = host.borrow(product.scratch_bytes)
            product.launch([*addresses, borrowed.pointer], stream)
            host.give_back(borrowed)
            return True
        if self._make_scratch is None:
            buffer = DeviceBuffer(product.scratch_bytes, self._device)
            with in_use([buffer], stream):
                product.launch([*addresses, buffer.pointer], stream)
            return True
        try:
            memory = self._make_scratch(x, product.scratch_bytes)
        except (MemoryError, RuntimeError):
            return False
        # Freed before its kernels have run: what gets it next follows them on their stream.
        product.launch([*addresses, self._address(memory)], stream)
        return True

    def _may_overlap(self, addresses: Sequence[int]) -> bool:
        """Whether the result that is given and an operand lie in each other's bounds."""
        slot, below, above = self._written
        low, high = addresses[slot] + below, addresses[slot] + above
        for slot, below, above in self._read:
            address = addresses[slot]
            if address + below < high and low < address + above:
                return True
        return False


def _span(slot: int, tensor: Any) -> tuple[int, int, int]:
    """The slot, and bounds of the tensor's memory relative to its address."""
    item = view(tensor, "")
    low, high = span(item)
    return slot, low - item.pointer, high - item.pointer


class Lesson:
    """What is noted while a call is made the long way, for those that follow."""

    def __init__(self, key: Key, beta: float, tensors: Sequence[Any], addresses: list[int]) -> None:
        self._key, self._beta, self._tensors, self._given = key, beta, tensors, addresses
        self._addresses = list(addresses)
        self._x = 0
        self._products: list[Product] | None = []
        self._place: tuple[Device, str] | None = None

    def add(self, arguments: Arguments, slots: Mapping[str, int]) -> None:
        """Notes arguments that ran. X is the first tensor, or what the arguments before made.

        Args:
            slots: of the operands besides X and Y.
        """
        if self._products is None:
            return
        try:
            self._products.append(self._product(arguments, slots))
            self._place = arguments.device, arguments.framework
        except UnfitError:
            self._products = None

    def _product(self, arguments: Arguments, slots: Mapping[str, int]) -> Product:
        result, make = arguments.Y, None
        at = len(self._tensors) - 1
        if result is not self._tensors[at]:
            at = len(self._addresses)
            item = view(result, "Y")
            if item.pointer % signature.ALIGNMENT or item.strides != contiguous_strides(item.shape):
                raise UnfitError
            make = signature.maker(arguments.framework, item.shape, result)
            self._addresses.append(item.pointer)
        places = {**slots, "X": self._x, "Y": at, "": len(self._addresses)}
        self._x = at
        return Product(arguments, Symbols(places, self._addresses, arguments.device), make)

    def end(self) -> None:
        """Remembers what was noted, or that calls with this signature go the long way."""
        if len(_calls) >= _MOST_CALLS:
            _calls.clear()
        _calls[self._key] = (
            Call(self._tensors, self._given, self._beta, self._products, *self._place)
            if self._products and self._place
            else None
        )


# By signature; None for those that have to go the long way. Dictionaries need no lock for this:
# at worst two threads learn the same, or one forgets what another has just learned.
_calls: dict[Key, Call | None] = {}
_seen: dict[Key, None] = {}
_age = 0


def forget() -> None:
    """Drops everything that was learned."""
    outdate()
    _calls.clear()
    _seen.clear()


def outdate() -> None:
    """What others have kept of what was learned is not to be used any more."""
    global _age
    _age += 1


def repeat(
    form: object, alpha: Any, beta: Any, tensors: Sequence[Any]
) -> tuple[Any, Lesson | None]:
    """(the result, None), or (None, where to note the call that is now made the long way, if it is
    to be noted). Nothing is written in the second case.

    Args:
        form: which function it is, and what else it was given that is no tensor.
        alpha, beta: scalars.
        tensors: X, other inputs, Z and the result, None for those that are not given.
    """
    known = recognise(form, alpha, beta, tensors)
    if known is None:
        return None, None
    key, addresses = known
    call = _calls.get(key)
    if call is not None and call.knobs is knobs.current():
        return call.run(tensors, addresses), None
    return None, _lesson(key, beta, tensors, addresses)


def find(form: object, alpha: Any, beta: Any, tensors: Sequence[Any]) -> Call | None:
    """What repeats such a call, if it was learned: see `repeat`."""
    known = recognise(form, alpha, beta, tensors)
    call = None if known is None else _calls.get(known[0])
    return call if call is not None and call.knobs is knobs.current() else None


def surroundings() -> tuple[Any, ...]:
    """What decides a call besides its arguments."""
    return (
        knobs.current(),
        host.host_threads("torch"),
        host.thread_count(),
        winners.generation(),
        _age,
    )


def _lesson(key: Key, beta: float, tensors: Sequence[Any], addresses: list[int]) -> Lesson | None:
    """From the second call on: what is called once is not worth learning."""
    if len(tensors) > _MOST_TENSORS or knobs.current().debug:
        return None
    if _calls.get(key, False) is None:
        return None
    if key in _seen:
        return Lesson(key, beta, tensors, addresses)
    if len(_seen) >= _MOST_CALLS:
        _seen.clear()
    _seen[key] = None
    return None


def recognise(
    form: object, alpha: Any, beta: Any, tensors: Sequence[Any]
) -> tuple[Key, list[int]] | None:
    """(what calls are told apart by, the tensors' addresses); None for odd ones. See `repeat`."""
    # Equal scalars must mean the same: no bool is among them, and no zero has a sign.
    if (
        type(alpha) not in _NUMBERS
        or type(beta) not in _NUMBERS
        or not alpha
        or (not beta and math.copysign(1.0, beta) < 0.0)
    ):
        return None
    reading = signature.read(tensors)
    if reading is None:
        return None
    facts, addresses = reading
    key: Key = (
        form,
        alpha,
        beta,
        addresses[-1] == addresses[-2],
        host.host_threads("torch"),
        host.thread_count(),
        winners.generation(),
        *facts,
    )
    return key, addresses
