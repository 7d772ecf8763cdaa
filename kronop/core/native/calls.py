"""Remembered calls as functions of native code: the structs of kronop_native/program.hpp."""

from __future__ import annotations

import ctypes
import math
import operator
from collections.abc import Callable, Sequence
from typing import Any

from kronop import knobs
from kronop.args import changes, host, plain, signature
from kronop.args.view import Device
from kronop.compiler.cuda_kernel import context_of
from kronop.compiler.host_kernel import alone_address
from kronop.core import winners
from kronop.core.addressed import Product, Reach
from kronop.core.native import library
from kronop.core.native.launches import Kept, launches
from kronop.errors import DeviceError
from kronop.frozen import dataclass
from kronop.knobs import Knobs
from kronop.tensors import Tensor

Span = tuple[int, int, int]
"""A slot, and the bounds of its tensor's memory in bytes from its address."""
_DONE = 1


_LISTS = ("launches", "slots", "read", "written", "shared", "apart")
_FACTS_BYTES = 280
# Alignment in bytes of an address for which tensor maps are encoded first.
_OF_MAPS = 256


class _Program(ctypes.Structure):
    _fields_ = (
        *(
            field
            for name in _LISTS
            for field in ((name, ctypes.c_void_p), (f"{name}_count", ctypes.c_int64))
        ),
        ("slot_count", ctypes.c_int64),
        ("result", ctypes.c_int64),
        ("scratch_bytes", ctypes.c_int64),
        ("alone", ctypes.c_void_p),
        ("context", ctypes.c_void_p),
        ("facts", ctypes.c_void_p),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class NativeCall:
    """A remembered call that native code runs, for plain tensors of NumPy or torch.

    Attributes:
        function: of tvm-ffi, which takes the given tensors in the order of their slots.
        kept: what the function's program points to.
        alpha, beta: scalars.
        length: the number of slots; the result's is the last one.
        pick: takes the given tensors out of all.
        missing: the slots of tensors that calls don't give.
        is_plain: tells whether given tensors are of the call's kind, as far as native code doesn't.
        make: makes the result; None if native code does, or the caller gives it.
        count_change: reports a change of a given result to torch.
        knobs, generation: those of the call.
        count_threads, threads: the number of threads of a host run now, and then.
    """

    function: Any
    kept: Kept
    alpha: float
    beta: float
    length: int
    pick: Callable[[Sequence[Tensor]], tuple[Tensor, ...]]
    missing: tuple[int, ...]
    is_plain: Callable[[tuple[Tensor, ...]], bool]
    make: Callable[[], Tensor] | None
    count_change: Callable[[tuple[Tensor, ...]], None] | None
    knobs: Knobs
    generation: int
    count_threads: Callable[[], int]
    threads: int

    def run(self, alpha: Any, beta: Any, tensors: Sequence[Tensor]) -> Any:
        """The result; None, with nothing written to the caller's memory, if this call differs from
        the one that was recorded, or may."""
        if (
            (alpha is not self.alpha and not _is_same(alpha, self.alpha))
            or (beta is not self.beta and not _is_same(beta, self.beta))
            or knobs.current() is not self.knobs
            or winners.generation() != self.generation
            or self.count_threads() != self.threads
            or len(tensors) != self.length
        ):
            return None
        for slot in self.missing:
            if tensors[slot] is not None:
                return None
        given = self.pick(tensors)
        try:
            if not self.is_plain(given):
                return None
            if self.make is None:
                found = self.function(*given)
            else:
                made = self.make()
                found = self.function(*given, made)
        except (BufferError, MemoryError, RuntimeError, TypeError):
            return None
        if type(found) is not int:
            return found
        if found == _DONE:
            if self.count_change is not None:
                self.count_change(given[-1:])
            return given[-1] if self.make is None else made
        if found:
            raise DeviceError(
                "kernel of a repeated call",
                expected="status 0",
                got=f"status {-found}",
                hint="its result is not to be used",
            )
        return None


def _is_same(given: Any, recorded: float) -> bool:
    """Whether a scalar has the effect of the recorded one."""
    if type(given) is not float and type(given) is not int:
        return False
    return given == recorded and (given != 0 or math.copysign(1.0, given) > 0.0)


def maker(device: Device) -> Any:
    """What makes native calls for a device, or None as long as it is not built."""
    return library.maker("x86" if device.is_host else "cuda")


def native_call(
    make: Any,
    product: Product,
    alpha: float,
    beta: float,
    tensors: Sequence[Tensor],
    result: Tensor,
    spans: tuple[Sequence[Span], Sequence[Span]],
    kind: tuple[Device, str],
) -> NativeCall | None:
    """The native call of a product that was recorded; None if there can be none.

    Args:
        make: what `maker` returned.
        product: its launches, over slots.
        alpha, beta: scalars.
        tensors: those of a call by slot, Z and the result last.
        result: its result.
        spans: the bounds of memory that is read, and of memory of callers that is written.
        kind: the device and the framework of all tensors.
    """
    (device, framework), last = kind, len(tensors) - 1
    slots = [slot for slot, item in enumerate(tensors) if item is not None]
    is_new, given = tensors[last] is None, [tensors[slot] for slot in slots]
    is_arrays = framework == "numpy"
    # One tensor alone: `itemgetter` would return no tuple.
    if not plain.are_read(framework, given) or len(slots) == 1:
        return None
    places = {slot: place for place, slot in enumerate(slots)}
    ends = [(places[slot], above) for slot, _, above in (*spans[0], *spans[1])]
    count = None if is_new or is_arrays else changes.counter(result)
    make_result, passed, places_of_passed = None, given, slots
    if is_new and is_arrays:
        make_result = host.array_maker(result.shape, result.dtype)
        passed, places_of_passed = [*given, result], [*slots, last]
    kept, somewhere = Kept(), signature.addresser(framework)(result) & -_OF_MAPS
    program = _Program(
        slot_count=len(tensors),
        result=last if is_new and not is_arrays else -1,
        scratch_bytes=product.scratch_bytes,
        launches=launches(product.records, (device.index,), kept, somewhere),
        launches_count=len(product.records),
        alone=alone_address(),
        context=None if device.is_host else context_of(device.index),
        facts=kept.address(ctypes.create_string_buffer(_FACTS_BYTES * (len(passed) + 1))),
    )
    kept.list(program, "slots", [(slot,) for slot in places_of_passed])
    kept.list(program, "read", spans[0])
    kept.list(program, "written", spans[1])
    if tensors[last - 1] is not None and not is_new:
        address = signature.addresser(framework)
        is_same = address(tensors[last - 1]) == address(result)
        kept.list(program, "shared" if is_same else "apart", [(last - 1, last)])
    try:
        is_plain = plain.Arrays(given) if is_arrays else plain.Tensors(given, Reach(given, ends))
        function = make(kept.address(program), *passed, result)
    except (BufferError, RuntimeError, TypeError):
        return None  # DLPack lacks a type, or can't say that an array is read-only.
    if type(function) is int:
        return None
    count_threads = host.thread_counter(framework)
    return NativeCall(
        function=function,
        kept=kept,
        alpha=alpha,
        beta=beta,
        length=len(tensors),
        pick=operator.itemgetter(*slots),
        missing=tuple(slot for slot, item in enumerate(tensors) if item is None),
        is_plain=is_plain,
        make=make_result,
        count_change=count,
        knobs=knobs.current(),
        generation=winners.generation(),
        count_threads=count_threads,
        threads=count_threads(),
    )
