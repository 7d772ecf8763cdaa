"""Launches over addresses: parameters that were packed once, and get the addresses of every call.

Operands have slots. While parameters are packed, symbols stand for the operands' memory: what
kernels are given then tells which operand it is, and how far into it.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from kronop.args import signature
from kronop.args.base import Arguments
from kronop.args.staging import Form
from kronop.args.view import Device, TensorView
from kronop.artifacts import BlockValue

# A pointer to slot i reads (i + 1) << 48, plus this so that displacements of both signs fit.
_SLOT_BITS, _MIDDLE = 48, 1 << 47
_MOST_LAUNCHES = 64

_Patch = tuple[int, int, int]  # Word of the parameters, slot, and bytes to add to its address.
# Bytes of the parameters, what writes them, slot, and bytes to add to its address.
_Blocks = list[tuple[memoryview, BlockValue, int, int]]
_Ready = tuple[list[tuple[Any, int, int, int]], _Blocks, list[Callable[[int], None]]]


class UnfitError(Exception):
    """A call that is not to be repeated by addresses alone: it copies, or is empty or enormous."""


class Symbols:
    """Places that stand in for memory: what kernels are given tells which operand it is.

    Args:
        slots: operands' names -> slots; "" is the scratch memory.
        addresses: of the slots of operands, as they were when the arguments ran.
        device: where that was.

    Attributes:
        nbytes: of scratch memory.
    """

    def __init__(self, slots: Mapping[str, int], addresses: Sequence[int], device: Device) -> None:
        self.nbytes = 0
        self._slots, self._addresses, self._device = slots, addresses, device

    @property
    def lows(self) -> list[int]:
        """For each slot, the low bits that its symbol has."""
        return [address % signature.ALIGNMENT for address in self._addresses] + [0]

    def input(self, name: str, item: TensorView, form: Form | None) -> TensorView:
        if form is not None or item.device != self._device:
            raise UnfitError
        return dataclasses.replace(item, pointer=self._symbol(name, item.pointer))

    def _symbol(self, name: str, pointer: int) -> int:
        slot = self._slots[name]
        # Another address than the signature's: somebody moved the tensor in between.
        if pointer != self._addresses[slot]:
            raise UnfitError
        return symbol(slot, pointer % signature.ALIGNMENT)

    def output(self, name: str, item: TensorView, form: Form | None, *, read: bool) -> TensorView:
        return self.input(name, item, form)

    def workspace(self, nbytes: int) -> int:
        self.nbytes = nbytes
        return symbol(self._slots[""], 0) if nbytes else 0


def symbol(slot: int, low: int) -> int:
    """What stands for the address of a slot."""
    return (slot + 1 << _SLOT_BITS) + _MIDDLE + low


def patches(parameters: bytes, pointers: Sequence[int], lows: Sequence[int]) -> list[_Patch]:
    """What makes parameters that were packed over symbols those of a call.

    Args:
        parameters: packed.
        pointers: which of their words are addresses; those that are 0 stay so.
        lows: for each slot, the low bits that its symbol had.
    """
    words = memoryview(parameters).cast("Q")
    return [(at, *_place(words[at], lows)) for at in pointers if words[at]]


def _place(symbolic: int, lows: Sequence[int]) -> tuple[int, int]:
    """The slot of an address over symbols, and what is added to that slot's address."""
    slot = (symbolic >> _SLOT_BITS) - 1
    return slot, symbolic - symbol(slot, lows[slot])


class Product:
    """The launches of one product, over addresses.

    Args:
        arguments: what was run.
        symbols: where its operands were.
        make: makes the result; None where it is given.
    """

    def __init__(
        self, arguments: Arguments, symbols: Symbols, make: signature.Maker | None = None
    ) -> None:
        operation: Any = arguments.operation
        self.make = make
        self._device = arguments.device.index
        served = operation.serve(operation.plan_for(arguments.size, self._device))
        self._launches = arguments.launches(served, symbols)
        if not 0 < len(self._launches) <= _MOST_LAUNCHES:
            raise UnfitError
        self.scratch_bytes = symbols.nbytes
        self._kernels = served.kernels
        self._lows = lows = symbols.lows
        self._patches = [
            patches(item.parameters, served.plan.steps[item.step].design.signature.pointers, lows)
            for item in self._launches
        ]
        self.launch = Launches([self]).launch

    def bind(self) -> _Ready:
        """New launchers: where addresses go in their parameters, and what launches them."""
        every: list[tuple[Any, int, int, int]] = []
        blocks: _Blocks = []
        launchers = []
        for launch, found in zip(self._launches, self._patches, strict=True):
            # What blocks hold follows from addresses that are none yet.
            bare = dataclasses.replace(launch, blocks=()) if launch.blocks else launch
            launcher, words = self._kernels[launch.step].bind_words(bare, self._device)
            launchers.append(launcher)
            every += [(words, *patch) for patch in found]
            for offset, value in launch.blocks:
                place = memoryview(words).cast("B")[offset:]
                blocks.append((place, value, *_place(value.address, self._lows)))
        return every, blocks, launchers


class Launches:
    """All launches of some products, over addresses, by any number of threads."""

    def __init__(self, products: Sequence[Product]) -> None:
        self._products = products
        # Sets of launchers that no thread uses: each thread takes one, and gives it back.
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
            value.write(place, addresses[slot] + displacement)
        for launcher in ready[2]:
            launcher(stream)
        self._ready.append(ready)
