"""Repeated calls: recognised by their signature, then launched with new addresses, unchecked.

The first call with a signature goes the long way, through the arguments, which check everything.
So does the second one, and its launches are kept as a function of the tensors' addresses. Every
later call with that signature only allocates the result, writes the addresses into the packed
parameters and launches them. A call that might differ in any way goes the long way again.

The slots (see `addressed`) are numbered in this order: the operands that the caller gives (the
last one is the result, if it is given), the results made here, and the scratch memory.
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
from kronop.core.gathering import is_gathering
from kronop.core.reach import Reach

_MOST_CALLS = 512
# With more tensors the checks cost little beside the work. The limit also bounds the memory that
# remembered calls hold.
_MOST_TENSORS = 1 << 10
_NUMBERS = (float, int)

Key = tuple[Any, ...]


class Call:
    """What every call with one signature does.

    Args:
        tensors: the tensors of a call that ran the long way; no reference to them is kept.
        addresses: the tensors' addresses.
        beta: the call's beta.
        products: the launches of that call, in order.
        device, framework: those of X.
        results: slots of tensors that are written besides the last one.

    Attributes:
        knobs: the settings that were in force during that call.
    """

    def __init__(
        self,
        tensors: Sequence[Any],
        addresses: Sequence[int],
        beta: float,
        products: Sequence[Product],
        device: Device,
        framework: str,
        results: Sequence[int] = (),
    ) -> None:
        self.knobs = knobs.current()
        self._products = tuple(products)
        self._is_host, self._device, self._framework = device.is_host, device.index, framework
        self._address = signature.addresser(framework)
        self._make_scratch = None if device.is_host else signature.scratch_maker(framework)
        source, result = len(tensors) - 2, len(tensors) - 1
        self._count_change = changes.counter(tensors[result])
        # Z's memory may overlap the result's if Z is not read (beta is 0) or is the result itself.
        is_apart = bool(beta) and addresses[source] != addresses[result]
        apart = [slot for slot in range(source + is_apart) if addresses[slot]]
        self._results = tuple(results)
        self._read = tuple(_span(slot, tensors[slot]) for slot in apart if slot not in results)
        written = [result, *results] if addresses[result] else []
        self._written = tuple(_span(slot, tensors[slot]) for slot in written)
        spans = (*self._read, *self._written)
        self._reach = Reach(tensors, [(slot, above) for slot, _, above in spans])

    def run(self, tensors: Sequence[Any], addresses: list[int]) -> Any:
        """The result; None, with nothing written to the caller's memory, if this call must go the
        long way and be checked."""
        if not self._reach.holds(tensors):
            return None
        given = tensors[-1]
        if given is not None:
            if self._may_overlap(addresses):
                return None
            if self._count_change is not None:
                others = [tensors[slot] for slot in self._results] if self._results else ()
                self._count_change((given, *others))
        stream = 0 if self._is_host else stream_handle(None, self._framework, self._device)
        x = result = tensors[0]
        for product in self._products:
            source, result = result, given  # `source` keeps this product's input allocated.
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
        """Launches the product; False if torch's allocator has no room for the scratch memory."""
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
        # `memory` is freed before the kernels have run. This is safe: the allocator hands it out
        # again only for work that follows these kernels on the same stream.
        product.launch([*addresses, self._address(memory)], stream)
        return True

    def _may_overlap(self, addresses: Sequence[int]) -> bool:
        """Whether the bounds of a result of the caller overlap those of an operand that is read, or
        of another result."""
        others = self._read
        for item in self._written:
            slot, below, above = item
            low, high = addresses[slot] + below, addresses[slot] + above
            for slot, below, above in others:
                address = addresses[slot]
                if address + below < high and low < address + above:
                    return True
            others = (*others, item)
        return False


def _span(slot: int, tensor: Any) -> tuple[int, int, int]:
    """The slot, and the bounds of the tensor's memory in bytes from its address."""
    item = view(tensor, "")
    low, high = span(item)
    return slot, low - item.pointer, high - item.pointer


class Lesson:
    """Records a call that goes the long way, so that later calls can repeat its launches."""

    def __init__(self, key: Key, beta: float, tensors: Sequence[Any], addresses: list[int]) -> None:
        self._key, self._beta, self._tensors, self._given = key, beta, tensors, addresses
        self._addresses = list(addresses)
        self._x = 0
        self._products: list[Product] | None = []
        self._place: tuple[Device, str] | None = None

    def add(self, arguments: Arguments, slots: Mapping[str, int]) -> None:
        """Records arguments that ran. Their X is the first tensor, or the result of the previous
        arguments that were added.

        Args:
            slots: the slots of the operands other than X and Y, by name.
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

    def end(self, results: Sequence[int] = ()) -> None:
        """Stores the recorded call, or None if calls with this signature must go the long way.

        Args:
            results: slots of tensors that are written besides the last one.
        """
        if len(_calls) >= _MOST_CALLS:
            _calls.clear()
        _calls[self._key] = (
            Call(self._tensors, self._given, self._beta, self._products, *self._place, results)
            if self._products and self._place
            else None
        )


# Calls by signature; None for calls that must always go the long way. No lock is needed: at worst
# two threads learn the same call, or one thread clears what another has just stored.
_calls: dict[Key, Call | None] = {}
_seen: dict[Key, None] = {}
_age = 0


def forget() -> None:
    """Drops all remembered calls."""
    outdate()
    _calls.clear()
    _seen.clear()


def outdate() -> None:
    """Changes `surroundings`, so that callers drop remembered calls they hold themselves."""
    global _age
    _age += 1


def repeat(
    form: object, alpha: Any, beta: Any, tensors: Sequence[Any]
) -> tuple[Any, Lesson | None]:
    """(the result, None) if the call was repeated; else (None, lesson), with nothing written.

    The caller then makes the call the long way and records it in the lesson, if there is one.

    Args:
        form: identifies the function and its arguments other than tensors and these scalars.
        alpha, beta: scalars.
        tensors: X, other inputs, Z and the result; None for each tensor that is not given.
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
    """The remembered call for these arguments, or None; the arguments are those of `repeat`."""
    known = recognise(form, alpha, beta, tensors)
    call = None if known is None else _calls.get(known[0])
    return call if call is not None and call.knobs is knobs.current() else None


def surroundings() -> tuple[Any, ...]:
    """All process-wide state that, besides the arguments, decides what a call does."""
    return (
        knobs.current(),
        host.host_threads("torch"),
        host.thread_count(),
        winners.generation(),
        _age,
    )


def _lesson(key: Key, beta: float, tensors: Sequence[Any], addresses: list[int]) -> Lesson | None:
    """A lesson from the second call with a signature on; None for the first.

    Recording a call costs time and memory, which a signature that is used once never repays.
    """
    if len(tensors) > _MOST_TENSORS or knobs.current().debug or is_gathering():
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
    """(the call's signature, the tensors' addresses); None if the call must go the long way.

    The arguments are those of `repeat`.
    """
    # Scalars in the key that compare equal must have the same effect: True == 1 and -0.0 == 0.0,
    # so bools and negative zeros are refused.
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
