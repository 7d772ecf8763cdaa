"""Repeated calls: recognised by their signature, then launched with new addresses, unchecked.

The first call with a signature goes the long way, through the arguments, which check everything.
So does the second one, and its launches are kept as a function of the tensors' addresses. Every
later call with that signature only allocates the result, writes the addresses into the packed
parameters and launches them. A call that might differ in any way goes the long way again.

The slots (see `addressed`) are numbered in this order: the operands, Z for each result, the
results, and the scratch memory. Most calls have one result; groups of products have many.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from kronop import knobs
from kronop.args import changes, host, signature
from kronop.args.base import Arguments
from kronop.args.memory import DeviceBuffer
from kronop.args.overlap import ends, is_crossed
from kronop.args.plain import recorded
from kronop.args.staging import in_use
from kronop.args.stream import stream_handle
from kronop.args.tensor import view
from kronop.args.view import Device, TensorView, contiguous_strides
from kronop.core import winners
from kronop.core.addressed import Product, Reach, Symbols, UnfitError
from kronop.core.gathering import is_gathering
from kronop.core.native.calls import NativeCall, Span, maker, native_call
from kronop.tensors import Tensor

# Bounds of the memory that remembered calls hold, in tensors and launches.
_MOST_HELD, _MOST_TENSORS = 1 << 14, 1 << 12
_MOST_SEEN = 512
# Calls of a form that are tried one after the other.
_MOST_NATIVE = 8
_NUMBERS = (float, int)

Key = tuple[Any, ...]
Compose = Callable[[Sequence[Any], Sequence[int]], "Call | None"]
"""What makes a call from the tensors' facts and addresses alone; see `repeat`."""


class Call:
    """What every call with one signature does.

    Args:
        tensors: those of such a call; no reference to them is kept.
        results: how many results the call has.
        read, written: the memory that kernels read, and that of results of the caller.
        product: the launches of that call.
        makes: the functions that make results that are not given, by slot.
        device, framework: those of X.

    Attributes:
        knobs: the settings that were in force during that call.
        product: the launches.
    """

    def __init__(
        self,
        tensors: Sequence[Tensor],
        results: int,
        read: Sequence[Span],
        written: Sequence[Span],
        product: Product,
        makes: Mapping[int, signature.Maker],
        device: Device,
        framework: str,
    ) -> None:
        self.knobs = knobs.current()
        self.product = product
        # By which tensors autograd records; None where native code can't take the call.
        self._natives: dict[Key, NativeCall | None] = {}
        self._kind = device, framework
        self._is_host, self._device, self._framework = device.is_host, device.index, framework
        self._address = signature.addresser(framework)
        self._make_scratch = None if device.is_host else signature.scratch_maker(framework)
        self._makes, self._first = tuple(makes.items()), len(tensors) - results
        self._read, self._written = read, written
        self._reach = Reach(tensors, [(slot, above) for slot, _, above in (*read, *written)])
        self._counted = [slot for slot, _, _ in written if changes.counted((tensors[slot],))]
        self._count_change = changes.counter(tensors[self._counted[0]]) if self._counted else None

    def run(self, tensors: list[Tensor], addresses: list[int]) -> Any:
        """The result, or the list of them where there are several; None, with nothing written to
        the caller's memory, if this call must go the long way and be checked.

        Args:
            tensors: as of `repeat`.
            addresses: theirs; those of new results are written into this list.
        """
        if not self._reach.holds(tensors):
            return None
        if self._written and self._may_overlap(addresses):
            return None
        results, x = tensors[self._first :], tensors[0]
        for slot, make in self._makes:
            try:
                result = make(x)
            except (MemoryError, RuntimeError):
                return None
            address = self._address(result)
            if address % signature.ALIGNMENT or not (address or 0 in result.shape):
                return None
            results[slot - self._first], addresses[slot] = result, address
        if self._count_change is not None:
            self._count_change(tuple([tensors[slot] for slot in self._counted]))
        stream = 0 if self._is_host else stream_handle(None, self._framework, self._device)
        if not self.product.scratch_bytes:
            self.product.launch(addresses, stream)
        elif not self._launch_with_scratch(addresses, stream, x):
            return None
        return results if len(results) > 1 else results[0]

    def native(
        self, alpha: float, beta: float, tensors: Sequence[Tensor], result: Tensor
    ) -> NativeCall | None:
        """What runs the call in native code; None if nothing can, or not yet. The tensors are those
        that `run` got, and its result."""
        pattern = recorded(tensors)
        make = None if pattern in self._natives else maker(self._kind[0])
        if make is not None:
            spans, scalars = (self._read, self._written), (alpha, beta)
            self._natives[pattern] = native_call(
                make, self.product, *scalars, tensors, result, spans, self._kind
            )
        return self._natives.get(pattern)

    def _launch_with_scratch(self, addresses: list[int], stream: int, x: Tensor) -> bool:
        """Launches the product; False if torch's allocator has no room for the scratch memory."""
        product = self.product
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
        if len(self._written) > 1:
            return is_crossed(self._read, self._written, addresses)
        ((slot, below, above),) = self._written
        low, high = addresses[slot] + below, addresses[slot] + above
        for slot, below, above in self._read:
            address = addresses[slot]
            if address + below < high and low < address + above:
                return True
        return False


class Lesson:
    """Records a call that goes the long way, so that later calls can repeat its launches."""

    def __init__(
        self, key: Key, beta: float, tensors: Sequence[Tensor], addresses: list[int], results: int
    ) -> None:
        self._key, self._beta, self._tensors, self._given = key, beta, tensors, addresses
        self._results = results

    def learn(self, arguments: Arguments, slots: Mapping[str, int]) -> None:
        """Stores the launches of arguments that ran, or None if calls with this signature must go
        the long way.

        Args:
            slots: the slots of the operands by name, without those of the only X and Y.
        """
        try:
            call = self._call(arguments, slots)
        except UnfitError:
            call = None
        launches = len(call.product.records) if call else 0
        _keep(self._key, call, len(self._tensors) + launches)

    def _call(self, arguments: Arguments, slots: Mapping[str, int]) -> Call:
        tensors, addresses = self._tensors, list(self._given)
        first = len(tensors) - self._results
        makes = {}
        for slot, result in enumerate(arguments.results[: self._results], first):
            if tensors[slot] is None:
                item = view(result, "Y")
                makes[slot] = maker_of(item, arguments.framework, result)
                addresses[slot] = item.pointer
        places = {**slots, "Y": first, "": len(tensors)}
        product = Product(arguments, Symbols(places, addresses, arguments.device))
        source = first - self._results
        # Z's memory may overlap the result's if Z is not read (beta is 0) or is the result itself.
        read = [
            slot
            for slot, address in enumerate(self._given[:first])
            if address
            and (slot < source or (self._beta and address != self._given[slot + self._results]))
        ]
        written = [slot for slot in range(first, len(tensors)) if slot not in makes]
        facts = (arguments.device, arguments.framework)
        reads, writes = (
            [(slot, *ends(view(tensors[slot], ""))) for slot in slots] for slots in (read, written)
        )
        return Call(tensors, self._results, reads, writes, product, makes, *facts)


def maker_of(item: TensorView, framework: str, result: Tensor) -> signature.Maker:
    """The function that makes a result like this one; raises `UnfitError` if there is none."""
    if (
        item.framework != framework
        or item.pointer % signature.ALIGNMENT
        or item.strides != contiguous_strides(item.shape)
    ):
        raise UnfitError
    return signature.maker(framework, item.shape, result)


# Calls by signature; None for calls that must always go the long way. `_seen` has the hashes of the
# signatures of calls that were made once. No lock is needed: at worst two threads learn the same
# call, or one thread clears what another has just stored.
_calls: dict[Key, Call | None] = {}
# Calls that native code runs, by form and X's shape.
_natives: dict[Key, list[NativeCall]] = {}
_seen: set[int] = set()
_held = 0
_age = 0


def forget() -> None:
    """Drops all remembered calls."""
    outdate()
    _drop()
    _seen.clear()


def _drop() -> None:
    global _held
    _calls.clear()
    _natives.clear()
    _held = 0


def _keep(key: Key, call: Call | None, size: int) -> None:
    global _held
    if _held + size > _MOST_HELD:
        _drop()
    _calls[key] = call
    _held += size


def outdate() -> None:
    """Changes `surroundings`, so that callers drop remembered calls they hold themselves."""
    global _age
    _age += 1
    _natives.clear()


def repeat(
    form: object,
    alpha: Any,
    beta: Any,
    tensors: list[Tensor],
    results: int = 1,
    compose: Compose | None = None,
) -> tuple[Any, Lesson | None]:
    """(the result, None) if the call was repeated; else (None, lesson), with nothing written.

    The caller then makes the call the long way and records it in the lesson, if there is one.

    Args:
        form: identifies the function and its arguments other than tensors and these scalars.
        alpha, beta: scalars.
        tensors: X, other inputs, Z and the result; None for each tensor that is not given.
        results: how many results there are. Of several, a Z for each comes before all of them, and
            the list of them is the result.
        compose: makes a call that is not remembered from what is known of its parts; None if it
            must go the long way.
    """
    try:
        natives = _natives.get((form, tensors[0].shape), [])
    except (AttributeError, RuntimeError, TypeError):  # No tensor, or one without plain extents.
        natives = []
    for native in natives:
        result = native.run(alpha, beta, tensors)
        if result is not None:
            return result, None
    known = recognise(form, alpha, beta, tensors, results)
    if known is None:
        return None, None
    key, addresses = known
    call = _calls.get(key)
    if call is not None and call.knobs is knobs.current():
        result = call.run(tensors, addresses)
        if result is not None and results == 1 and not call.knobs.debug:
            made = call.native(alpha, beta, tensors, result)
            if made is not None:
                natives = _natives.setdefault((form, tensors[0].shape), [])
                others = [item for item in natives if item is not made]
                natives[:] = [made, *others[: _MOST_NATIVE - 1]]
        return result, None
    lesson = _lesson(key, beta, tensors, addresses, results)
    if compose is None or knobs.current().debug or is_gathering():
        return None, lesson
    call = compose(key[-len(tensors) :], addresses)
    if call is None:
        return None, lesson
    if lesson is not None:
        _keep(key, call, len(tensors) + len(call.product.records))
    return call.run(tensors, addresses), None


def find(form: object, alpha: Any, beta: Any, tensors: Sequence[Tensor]) -> Call | None:
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


def _lesson(
    key: Key, beta: float, tensors: Sequence[Tensor], addresses: list[int], results: int
) -> Lesson | None:
    """A lesson from the second call with a signature on; None for the first.

    Recording a call costs time and memory, which a signature that is used once never repays.
    """
    if len(tensors) > _MOST_TENSORS or knobs.current().debug or is_gathering():
        return None
    if _calls.get(key, False) is None:
        return None
    seen = hash(key)
    if seen in _seen:
        return Lesson(key, beta, tensors, addresses, results)
    if len(_seen) >= _MOST_SEEN:
        _seen.clear()
    _seen.add(seen)
    return None


def recognise(
    form: object, alpha: Any, beta: Any, tensors: Sequence[Tensor], results: int = 1
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
        addresses[-1] == addresses[-2] if results == 1 else _in_place(addresses, results),
        host.host_threads("torch"),
        host.thread_count(),
        winners.generation(),
        *facts,
    )
    return key, addresses


def _in_place(addresses: Sequence[int], results: int) -> tuple[bool, ...]:
    """For each of several results, whether its Z is where it is."""
    return tuple(map(operator.eq, addresses[-2 * results : -results], addresses[-results:]))
