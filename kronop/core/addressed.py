"""Launches over addresses: parameters are packed once, then each call writes its own addresses.

Each operand has a slot. While parameters are packed, a symbolic address stands for the memory of
each operand, so a packed word tells which operand it points into and at which offset.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from kronop.args import signature
from kronop.args.base import Arguments
from kronop.args.staging import Form
from kronop.args.view import Device, TensorView
from kronop.artifacts import Launch
from kronop.compiler import Kernel
from kronop.compiler.tensor_maps import write_block
from kronop.emit.plan import Plan
from kronop.frozen import dataclass
from kronop.tensor_map import TensorMap
from kronop.tensors import Tensor

# The symbolic address of slot i is ((i + 1) << 48) + _MIDDLE: offsets of either sign then stay
# within the slot's own range of 2^48 addresses.
_SLOT_BITS, _MIDDLE = 48, 1 << 47
MOST_BYTES = _MIDDLE
"""No memory that a symbolic address stands for may have so many: those of a whole process."""
_MOST_LAUNCHES = 512
# How many plans are looked at for one without tensor maps.
_CANDIDATES = 64

_Patch = tuple[int, int, int]  # Index of a parameter word, slot, bytes to add to its address.
# (the bytes of a tensor map within the parameters, the map, slot, bytes to add to its address).
_Blocks = list[tuple[memoryview, TensorMap, int, int]]
_Ready = tuple[list[tuple[Any, int, int, int]], _Blocks, list[Callable[[int], None]]]


class UnfitError(Exception):
    """A call that addresses alone can't repeat; for example it copies an operand, launches nothing,
    or launches too many kernels to keep."""


class Symbols:
    """Symbolic addresses in place of the operands' memory; raises `UnfitError` where there is none.

    Args:
        slots: the slot of each operand by its name; the name "" means the scratch memory.
        addresses: the operands' addresses by slot, at the time the arguments ran.
        device: the device on which they ran.

    Attributes:
        nbytes: bytes of scratch memory that the kernels asked for.
    """

    def __init__(self, slots: Mapping[str, int], addresses: Sequence[int], device: Device) -> None:
        self.nbytes = 0
        self._slots, self._addresses, self._device = slots, addresses, device

    @property
    def lows(self) -> list[int]:
        """For each slot, the low bits of its symbolic address: those of the real address."""
        return [address % signature.ALIGNMENT for address in self._addresses] + [0]

    def input(self, name: str, item: TensorView, form: Form | None) -> TensorView:
        if form is not None or item.device != self._device:
            raise UnfitError
        return dataclasses.replace(item, pointer=self._symbol(name, item.pointer))

    def _symbol(self, name: str, pointer: int) -> int:
        slot = self._slots[name]
        # The tensor's memory moved after its signature was read, so its slot is not this address.
        if pointer != self._addresses[slot]:
            raise UnfitError
        return symbol(slot, pointer % signature.ALIGNMENT)

    def output(self, name: str, item: TensorView, form: Form | None, *, read: bool) -> TensorView:
        return self.input(name, item, form)

    def workspace(self, nbytes: int) -> int:
        self.nbytes = nbytes
        return symbol(self._slots[""], 0) if nbytes else 0


class Reach:
    """How far into its storage each torch tensor of a call reaches: a storage may be shrunk
    (`untyped_storage().resize_`) while a tensor's shape and strides stay.

    Args:
        tensors: the tensors of a call that ran; no reference to them is kept.
        ends: (index in `tensors`, bytes from the tensor's address to the end of its memory).
    """

    def __init__(self, tensors: Sequence[Tensor], ends: Iterable[tuple[int, int]]) -> None:
        self._ends = tuple(
            (place, above, tensors[place].element_size())
            for place, above in ends
            if hasattr(tensors[place], "untyped_storage")
        )

    def holds(self, tensors: Sequence[Tensor]) -> bool:
        """Whether the storages of these tensors, of the same shapes, are large enough."""
        for place, above, size in self._ends:
            tensor = tensors[place]
            if len(tensor.untyped_storage()) < tensor.storage_offset() * size + above:
                return False
        return True


def symbol(slot: int, low: int) -> int:
    """The symbolic address of a slot, with these low bits."""
    return (slot + 1 << _SLOT_BITS) + _MIDDLE + low


def patches(parameters: bytes, pointers: Sequence[int], lows: Sequence[int]) -> list[_Patch]:
    """For each symbolic address in packed parameters: its word, its slot, and its byte offset.

    Args:
        parameters: parameters that were packed with symbolic addresses.
        pointers: the indices of the words that are addresses; null addresses get no patch.
        lows: for each slot, the low bits of its symbolic address.
    """
    words = memoryview(parameters).cast("Q")
    return [(at, *_place(words[at], lows)) for at in pointers if words[at]]


def maps(launch: Launch, lows: Sequence[int]) -> tuple[Map, ...]:
    """The tensor maps of a launch that was packed with symbolic addresses."""
    return tuple(
        Map(offset, nbytes, value, *_place(value.address, lows))
        for offset, nbytes, value in launch.blocks
        if value.address
    )


def _place(symbolic: int, lows: Sequence[int]) -> tuple[int, int]:
    """The slot of a symbolic address, and its offset in bytes from that slot's address."""
    slot = (symbolic >> _SLOT_BITS) - 1
    return slot, symbolic - symbol(slot, lows[slot])


def plan_without_maps(arguments: Arguments, symbols: Symbols) -> Plan:
    """The plan that the operation runs or, where that takes tensor maps, the first of its
    candidates that takes none; the former if all do."""
    operation: Any = arguments.operation
    planned: Plan = operation.plan_for(arguments.size, arguments.device.index)

    def takes_maps(plan: Plan) -> bool:
        return any(launch.blocks for launch in arguments.launches(plan, symbols))

    if not takes_maps(planned):
        return planned
    others = operation.candidates(_CANDIDATES, arguments.size)
    return next((item for item in others if not takes_maps(item)), planned)


@dataclass(frozen=True, slots=True)
class Map:
    """A tensor map in packed parameters: its first byte, and the place of its tensor's memory as a
    slot and the bytes to add to that slot's address."""

    offset: int
    nbytes: int
    value: TensorMap
    slot: int
    displacement: int


@dataclass(frozen=True, slots=True)
class Record:
    """One launch of a kernel, over addresses: `patches` as of the function of that name. A map
    without memory is in no list: it is the same in every launch."""

    kernel: Kernel
    launch: Launch
    patches: tuple[_Patch, ...]
    maps: tuple[Map, ...]


class Product:
    """The launches of one product, over addresses.

    Args:
        arguments: the arguments that ran.
        symbols: the symbolic addresses of their operands.
        make: allocates the result; None if the caller gives it.
        plan: one of the operation; None for that which it runs.

    Attributes:
        records: its launches, in order.
        scratch_bytes: bytes of scratch memory that they need.
    """

    def __init__(
        self,
        arguments: Arguments,
        symbols: Symbols,
        make: signature.Maker | None = None,
        plan: Plan | None = None,
    ) -> None:
        operation: Any = arguments.operation
        self.make = make
        self._device = arguments.device.index
        served = operation.serve(plan or operation.plan_for(arguments.size, self._device))
        launches = arguments.launches(served, symbols)
        if not 0 < len(launches) <= _MOST_LAUNCHES:
            raise UnfitError
        self.scratch_bytes = symbols.nbytes
        lows = symbols.lows
        steps = served.plan.steps
        self.records = tuple(
            Record(
                served.kernels[item.step],
                item,
                tuple(patches(item.parameters, steps[item.step].design.signature.pointers, lows)),
                maps(item, lows),
            )
            for item in launches
        )
        self.launch = Launches([self]).launch

    def bind(self) -> _Ready:
        """New launchers with parameters of their own: (patches to words, blocks to write anew,
        launchers)."""
        every: list[tuple[Any, int, int, int]] = []
        blocks: _Blocks = []
        launchers = []
        for record in self.records:
            launch = record.launch
            # Tensor maps encode real addresses, and there are only symbols yet: bind without
            # them, and write them in each launch.
            fixed = tuple(block for block in launch.blocks if not block[-1].address)
            bare = dataclasses.replace(launch, blocks=fixed) if launch.blocks else launch
            launcher, words = record.kernel.bind_words(bare, self._device)
            launchers.append(launcher)
            every += [(words, *patch) for patch in record.patches]
            for item in record.maps:
                place = memoryview(words).cast("B")[item.offset : item.offset + item.nbytes]
                blocks.append((place, item.value, item.slot, item.displacement))
        return every, blocks, launchers


class Launches:
    """All launches of some products, over addresses; any number of threads may use it at once."""

    def __init__(self, products: Sequence[Product]) -> None:
        self._products = products
        # Idle sets of launchers. Each launch takes one for itself and puts it back afterwards, so
        # two threads never write addresses into the same parameters.
        self._ready: list[_Ready] = []

    def launch(self, addresses: Sequence[int], stream: int) -> None:
        """Launches on `stream` with these addresses in the slots."""
        try:
            ready = self._ready.pop()
        except IndexError:
            every = [product.bind() for product in self._products]
            ready = (
                [item for own, _, _ in every for item in own],
                [item for _, own, _ in every for item in own],
                [launcher for _, _, own in every for launcher in own],
            )
        for words, at, slot, displacement in ready[0]:
            words[at] = addresses[slot] + displacement
        for place, value, slot, displacement in ready[1]:
            write_block(value, place, addresses[slot] + displacement)
        for launcher in ready[2]:
            launcher(stream)
        self._ready.append(ready)
