"""Brings tensors to where, and into the form in which, kernels read them; and results back.

Tensors that kernels can read stay where they are and cost nothing. For the others a Placement
collects what is to be done before and after each run, and at `sync`.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from kronop.args.device import check, cuda_driver, current
from kronop.args.host import HostBuffer
from kronop.args.memory import DeviceBuffer
from kronop.args.overlap import RawMemory, raw_array
from kronop.args.storage import Kept, check_kept
from kronop.args.stream import torch_stream
from kronop.args.strides import is_gapless, matrix_strides, reach
from kronop.args.tensor import device_framework
from kronop.args.view import CPU, Device, TensorView
from kronop.descriptions.tensor import TensorDescription

Step = Callable[[int], None]


class Form:
    """The dense memory that an operand is copied to: shape (which it broadcasts to) and strides."""

    __slots__ = ("shape", "strides")

    def __init__(self, shape: tuple[int, ...], strides: tuple[int, ...]) -> None:
        self.shape = shape
        self.strides = strides


def form_for(
    item: TensorView,
    description: TensorDescription,
    device: Device,
    shape: tuple[int, ...] | None = None,
) -> Form | None:
    """The copy that `device` needs of this operand; None where kernels can read its own memory,
    or the image of it that a staged copy is.

    Args:
        shape: what the copy broadcasts to, where strides alone cannot express it.
    """
    if (
        shape is None
        and item.in_place
        and (item.device == device or is_gapless(item.shape, item.strides))
    ):
        return None
    shape = item.shape if shape is None else shape
    return Form(shape, matrix_strides(shape, description.layout, description.alignment))


class Placement:
    """Operands and workspace of one operation on one device.

    Attributes:
        before: copies to make before each run, called with the stream.
        after: copies to make after each run, called with the stream.
        fetch: starts copies to the host, called with the stream at `sync`.
        scatter: finishes them when the stream has been waited for.
        buffers: device memory that must outlive the work on every stream.
        kept: the memory that tensors must still have at each run.
    """

    def __init__(self, device: Device) -> None:
        self.device = device
        self.before: list[Step] = []
        self.after: list[Step] = []
        self.fetch: list[Step] = []
        self.scatter: list[Callable[[], None]] = []
        self.buffers: list[DeviceBuffer] = []
        self.kept: list[Kept] = []
        self.fresh = False  # Whether a result on the device is newer than its host tensor.
        self._host: list[HostBuffer] = []
        self._known: dict[Any, TensorView] = {}
        self._held: set[tuple[int, int]] = set()

    def input(self, name: str, item: TensorView, form: Form | None) -> TensorView:
        """Where kernels read `item`: in place, or a copy of it that is renewed before each run.

        Memory does not depend on what an operand is called; other places may.

        Raises:
            ArgumentError: the tensor's memory was freed or moved since it was read.
        """
        self._keep(name, item)
        if form is None and item.device == self.device:
            return item
        shape = None if form is None else (form.shape, form.strides)
        where = item.pointer or id(item.owner)  # Arrays that are not in place have no pointer.
        key = (where, item.shape, item.strides, item.element, shape)
        if key not in self._known:
            self._known[key] = self._input(item, form)
        return self._known[key]

    def _input(self, item: TensorView, form: Form | None) -> TensorView:
        if form is not None and item.device == self.device:
            place = self._room(item, form)
            self.before.append(_copy(place, item))
            return place
        target, source, gather = self._staged(item, form)
        if gather is not None:
            self.before.append(gather)
        self.before.append(_upload(target, source))
        return target

    def output(self, name: str, item: TensorView, form: Form | None, *, read: bool) -> TensorView:
        """Where kernels write `item`; with `read` they find its values there before each run.

        Raises:
            ArgumentError: as for `input`.
        """
        self._keep(name, item)
        if item.device == self.device:
            if form is None:
                return item
            place = self._room(item, form)
            if read:
                self.before.append(_copy(place, item))
            self.after.append(_copy(item, place))
            return place
        target, host, gather = self._staged(item, form)
        if read:
            self.before.append(self._unless_fresh([gather, _upload(target, host)]))
        if item.storage is not None:
            kept = item.storage.kept(name)
            self.fetch.append(lambda stream: check_kept((kept,)))
        self.fetch.append(_download(host, target))
        if gather is not None:
            scatter = _copy(item, host)
            self.scatter.append(lambda: scatter(0))
        return target

    def _keep(self, name: str, item: TensorView) -> None:
        storage = item.storage
        # Tensors often share theirs. A tensor that was read later may have found a larger one.
        if storage is None or (id(storage.holder), storage.nbytes) in self._held:
            return
        kept = storage.kept(name)
        check_kept((kept,))  # Before anything asks a driver or a framework for that memory.
        self._held.add((id(storage.holder), storage.nbytes))
        self.kept.append(kept)

    def workspace(self, nbytes: int) -> int:
        """Address of `nbytes` bytes; 0 for none."""
        return self._allocate(nbytes, self.device)[0] if nbytes else 0

    def _unless_fresh(self, steps: list[Step | None]) -> Step:
        """A second run before `sync` goes on from the first one's result, as without staging."""

        def copy(stream: int) -> None:
            if not self.fresh:
                for step in steps:
                    if step is not None:
                        step(stream)

        return copy

    def _allocate(self, nbytes: int, device: Device) -> tuple[int, Any]:
        if device.is_host:
            memory = HostBuffer(nbytes)
            self._host.append(memory)
            return memory.pointer, memory
        buffer = DeviceBuffer(nbytes, device.index)
        self.buffers.append(buffer)
        return buffer.pointer, buffer

    def _room(self, item: TensorView, form: Form, device: Device | None = None) -> TensorView:
        """New memory of this form."""
        place = device or self.device
        low, high = reach(form.shape, form.strides)
        pointer, memory = self._allocate((high - low + 1) * item.element.bytes, place)
        return TensorView(
            pointer=pointer - low * item.element.bytes,
            shape=form.shape,
            strides=form.strides,
            element=item.element,
            device=place,
            framework=item.framework,
            writable=True,
            owner=memory,
        )

    def _staged(
        self, item: TensorView, form: Form | None
    ) -> tuple[TensorView, TensorView, Step | None]:
        """(on the GPU, the same memory image on the host, how to gather it there or None)."""
        if form is None:
            return self._room(item, Form(item.shape, item.strides)), item, None
        target = self._room(item, form)
        host = self._room(item, form, CPU)
        return target, host, _copy(host, item)


def _distinct(item: TensorView, like: TensorView) -> TensorView:
    """`item` without the repetitions of the dimensions along which `like` repeats itself."""
    missing = len(like.shape) - len(item.shape)
    shape = tuple(
        1 if not stride and extent > 1 else own
        for own, extent, stride in zip(
            item.shape, like.shape[missing:], like.strides[missing:], strict=True
        )
    )
    return item.reshaped(shape, item.strides)


def _copy(target: TensorView, source: TensorView) -> Step:
    """Copies elements between two tensors of one device; `source` may broadcast."""
    whole = source.shape
    source, target = _distinct(source, target), _distinct(target, target)
    if not target.device.is_host:
        return _device_copy(target, source)
    there = raw_array(target)
    if source.in_place:
        here = raw_array(source)
    else:
        # The view of a vector has a dimension M that the array has not; it adds no element.
        here = source.owner.view(np.ndarray).reshape(whole)
        here = here[tuple(slice(extent) for extent in source.shape)]
        there = there.view(here.dtype.newbyteorder("="))

    def copy(stream: int) -> None:
        np.copyto(there, here)

    return copy


class _ForeignStream:
    """A CUstream for libraries that take one by the CUDA stream protocol."""

    def __init__(self, handle: int) -> None:
        self._handle = handle

    def __cuda_stream__(self) -> tuple[int, int]:
        return 0, self._handle


def _device_copy(target: TensorView, source: TensorView) -> Step:
    index = target.device.index
    framework = next(
        (item.framework for item in (source, target) if item.framework in ("torch", "cupy")), None
    )
    if (framework or device_framework()) == "torch":
        import torch

        place = torch.device("cuda", index)
        to, of = (torch.as_tensor(RawMemory(item), device=place) for item in (target, source))

        def copy(stream: int) -> None:
            with torch.cuda.stream(torch_stream(stream, place)):
                to.copy_(of)

        return copy
    import cupy  # type: ignore[import-not-found, import-untyped, unused-ignore]

    with cupy.cuda.Device(index):
        there, here = (cupy.asarray(RawMemory(item)) for item in (target, source))

    def copy_arrays(stream: int) -> None:
        with cupy.cuda.Device(index), cupy.cuda.Stream.from_external(_ForeignStream(stream)):
            cupy.copyto(there, here)

    return copy_arrays


def _image(item: TensorView) -> tuple[int, int]:
    """Address of the lowest element, and bytes from there to the end of the highest."""
    low, high = reach(item.shape, item.strides)
    return item.pointer + low * item.element.bytes, (high - low + 1) * item.element.bytes


def _upload(target: TensorView, source: TensorView) -> Step:
    driver, index = cuda_driver(), target.device.index
    (to, nbytes), (of, _) = _image(target), _image(source)

    def copy(stream: int) -> None:
        with current(index):
            check(driver.cuMemcpyHtoDAsync(to, of, nbytes, stream), "copying a tensor to the GPU")

    return copy


def _download(target: TensorView, source: TensorView) -> Step:
    driver, index = cuda_driver(), source.device.index
    (to, nbytes), (of, _) = _image(target), _image(source)

    def copy(stream: int) -> None:
        with current(index):
            check(driver.cuMemcpyDtoHAsync(to, of, nbytes, stream), "copying a result from the GPU")

    return copy


@contextlib.contextmanager
def in_use(buffers: list[DeviceBuffer], stream: int) -> Iterator[None]:
    """Orders the buffers' memory on `stream` around the work that is given to it in the block."""
    for buffer in buffers:
        buffer.ready_on(stream)
    try:
        yield
    finally:
        for buffer in buffers:
            buffer.used_on(stream)
