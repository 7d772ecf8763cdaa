"""Staging: copies operands to memory that kernels can read, and results back.

Tensors that kernels can read in place are not copied. For the others a Placement collects the
copies to make before each run, after it, and at `sync`.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from kronop.args.device import check, cuda_driver, current
from kronop.args.host import HostBuffer
from kronop.args.memory import DeviceBuffer
from kronop.args.overlap import RawMemory, raw_array, span
from kronop.args.storage import Kept, check_kept
from kronop.args.stream import torch_stream
from kronop.args.strides import is_gapless, matrix_strides, reach
from kronop.args.tensor import device_framework
from kronop.args.view import CPU, Device, TensorView
from kronop.descriptions.tensor import TensorDescription
from kronop.frozen import dataclass
from kronop.late import imported

Step = Callable[[int], None]


@dataclass(frozen=True, slots=True, eq=False)
class Form:
    """The shape and strides of a dense copy of an operand; the operand broadcasts to the shape."""

    shape: tuple[int, ...]
    strides: tuple[int, ...]


def form_for(
    item: TensorView,
    description: TensorDescription,
    device: Device,
    shape: tuple[int, ...] | None = None,
) -> Form | None:
    """The form of the copy that kernels on `device` need of this operand.

    None if kernels can read the operand's memory, or a byte-by-byte copy of it on their device.

    Args:
        shape: the shape to broadcast the copy to, if strides alone cannot express the broadcast.
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
        before: copies to make before each run; functions of the stream.
        after: copies to make after each run; functions of the stream.
        fetch: `sync` calls these with the stream to start copies to the host.
        scatter: `sync` calls these after waiting for the stream, to copy on into host tensors.
        buffers: device memory that must outlive the work on every stream.
        kept: the memory of the tensors, which each run checks to be still there.
    """

    def __init__(self, device: Device) -> None:
        self.device = device
        self.before: list[Step] = []
        self.after: list[Step] = []
        self.fetch: list[Step] = []
        self.scatter: list[Callable[[], None]] = []
        self.buffers: list[DeviceBuffer] = []
        self.kept: list[Kept] = []
        self.fresh = False  # True while the result on the device is newer than its host tensor.
        self._host: list[HostBuffer] = []
        self._known: dict[Any, TensorView] = {}
        self._held: set[tuple[int, int]] = set()

    def input(self, name: str, item: TensorView, form: Form | None) -> TensorView:
        """Where kernels read `item`: in place, or a copy of it that is renewed before each run.

        The name is used in messages only; other implementations of `Places` look operands up by it.

        Raises:
            ArgumentError: the tensor's memory was freed or moved after the tensor was read.
        """
        self._keep(name, item)
        if form is None and item.device == self.device:
            return item
        shape = None if form is None else (form.shape, form.strides)
        where = item.pointer or id(item.owner)  # The pointer is 0 if an array is not in place.
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
        """Where kernels write `item`; with `read`, its values are copied there before each run.

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
        # Operands often share a storage, which is then checked once for each size it was seen with:
        # it may have grown between the reading of two tensors.
        if storage is None or (id(storage.holder), storage.nbytes) in self._held:
            return
        kept = storage.kept(name)
        check_kept((kept,))  # Drivers and frameworks must not be asked to copy freed memory.
        self._held.add((id(storage.holder), storage.nbytes))
        self.kept.append(kept)

    def workspace(self, nbytes: int) -> int:
        """The address of `nbytes` new bytes; 0 if `nbytes` is 0."""
        return self._allocate(nbytes, self.device)[0] if nbytes else 0

    def _unless_fresh(self, steps: list[Step | None]) -> Step:
        """The steps, skipped while the device has a result that was not fetched yet.

        A second run before `sync` thus continues from the first one's result, as without staging.
        """

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
        """New memory of this form on `device` (None: the placement's device)."""
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
        """(the copy on the GPU, the same bytes on the host, the step that gathers them there).

        The step is None if the tensor's own memory serves as the bytes on the host.
        """
        if form is None:
            return self._room(item, Form(item.shape, item.strides)), item, None
        target = self._room(item, form)
        host = self._room(item, form, CPU)
        return target, host, _copy(host, item)


def _distinct(item: TensorView, like: TensorView) -> TensorView:
    """`item` cut to extent 1 in each dimension along which `like` is broadcast (stride 0)."""
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
        # The view of a vector has one more dimension (M, of extent 1) than the array.
        here = source.owner.view(np.ndarray)
        same = here.size == math.prod(whole)
        here = here.reshape(whole) if same else np.broadcast_to(here, whole)
        here = here[tuple(slice(extent) for extent in source.shape)]
        there = there.view(here.dtype.newbyteorder("="))

    def copy(stream: int) -> None:
        np.copyto(there, here)

    return copy


class _ForeignStream:
    """A CUstream as an object with the CUDA stream protocol, for libraries that expect one."""

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
        torch = imported("torch")
        place = torch.device("cuda", index)
        to, of = (torch.as_tensor(RawMemory(item), device=place) for item in (target, source))

        def copy(stream: int) -> None:
            with torch.cuda.stream(torch_stream(stream, place)):
                to.copy_(of)

        return copy
    cupy = imported("cupy")
    with cupy.cuda.Device(index):
        there, here = (cupy.asarray(RawMemory(item)) for item in (target, source))

    def copy_arrays(stream: int) -> None:
        with cupy.cuda.Device(index), cupy.cuda.Stream.from_external(_ForeignStream(stream)):
            cupy.copyto(there, here)

    return copy_arrays


def _upload(target: TensorView, source: TensorView) -> Step:
    transfer = cuda_driver().cuMemcpyHtoDAsync
    return _transfer(transfer, target, source, target.device, "copying a tensor to the GPU")


def _download(target: TensorView, source: TensorView) -> Step:
    transfer = cuda_driver().cuMemcpyDtoHAsync
    return _transfer(transfer, target, source, source.device, "copying a result from the GPU")


def _transfer(
    transfer: Any, target: TensorView, source: TensorView, gpu: Device, doing: str
) -> Step:
    """Copies all bytes from the lowest to the highest element."""
    (to, end), (of, _) = span(target), span(source)

    def copy(stream: int) -> None:
        with current(gpu.index):
            check(transfer(to, of, end - to, stream), doing)

    return copy


@contextlib.contextmanager
def in_use(buffers: list[DeviceBuffer], stream: int) -> Iterator[None]:
    """The work that the block gives to `stream` waits for earlier uses of the buffers, and later
    uses wait for that work."""
    for buffer in buffers:
        buffer.ready_on(stream)
    try:
        yield
    finally:
        for buffer in buffers:
            buffer.used_on(stream)
