"""GPUs: whether there is a driver, which GPU is current, and which target serves a GPU."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
from collections.abc import Iterator
from typing import Any

from kronop.args.view import CPU, Device, TensorView
from kronop.cuda_line import cuda_extra
from kronop.errors import DeviceError, OutOfMemoryError, installing, warn
from kronop.late import imported
from kronop.machine import COPIED_SHARE
from kronop.target import Target

# A card whose speeds are this close to the table's, and that has as many multiprocessors, is the
# table's, and shares its plans.
_ALIKE = 0.03


@functools.cache
def _probe() -> tuple[Any, str]:
    """(the driver bindings, "") or (None, why there are none).

    Every use of a GPU must ask here first: on a machine without a driver, some calls of cuda-core
    raise the first time and hang the second time.
    """
    try:
        driver = imported("cuda.bindings.driver")
    except ImportError as error:
        return None, f"the package cuda-bindings is missing ({error}); {installing(cuda_extra())}"
    try:
        (status,) = driver.cuInit(0)
        count = driver.cuDeviceGetCount()[1] if not int(status) else 0
    except Exception as error:  # The bindings raise classes of their own if libcuda is absent.
        return None, f"no NVIDIA driver ({type(error).__name__})"
    if int(status):
        return None, f"the driver does not start ({status.name})"
    return (driver, "") if count else (None, "the driver sees no GPU")


def cuda_driver(hint: str = "use an x86 operation here") -> Any:
    """The module cuda.bindings.driver; `hint` ends the error message if there is no GPU.

    Raises:
        DeviceError: there is no driver or no GPU; the message says why.
    """
    module, reason = _probe()
    if module is None:
        raise DeviceError("GPU", expected="an NVIDIA GPU with its driver", got=reason, hint=hint)
    return module


def check(result: tuple[Any, ...], doing: str, *, many: bool = False) -> Any:
    """The value that a driver call returned; with `many`, the list of its values.

    Raises:
        OutOfMemoryError: the call failed because GPU memory ran out.
        DeviceError: the call failed for another reason.
    """
    status, *values = result
    if int(status):
        kind = OutOfMemoryError if status.name == "CUDA_ERROR_OUT_OF_MEMORY" else DeviceError
        hint = "see the CUDA documentation of this error"
        raise kind(doing, expected="success", got=status.name, hint=hint)
    return values if many else next(iter(values), None)


@contextlib.contextmanager
def current(index: int) -> Iterator[None]:
    """Makes GPU `index` current in this thread for a `with` block, then restores the previous
    context."""
    driver = cuda_driver()
    before = check(driver.cuCtxGetCurrent(), "asking for the current context")
    if int(before) and _current_index(driver) == index:
        yield
        return
    imported("cuda.core").Device(index).set_current()
    try:
        yield
    finally:
        check(driver.cuCtxSetCurrent(before), "restoring the current context")


def default_device() -> Device:
    """The GPU that host tensors go to: this thread's current one, else GPU 0.

    Raises:
        DeviceError: there is no driver or no GPU.
    """
    driver = cuda_driver()
    if not int(check(driver.cuCtxGetCurrent(), "asking for the current context")):
        return Device("cuda", 0)
    return Device("cuda", _current_index(driver))


def _current_index(driver: Any) -> int:
    return int(check(driver.cuCtxGetDevice(), "asking for the current device"))


def device_cc(device: int = 0) -> int:
    """The compute capability of a GPU, as in PyCUTLASS's programs: 80 of an A100, 90 of an H100.

    Args:
        device: index of the GPU.

    Raises:
        DeviceError: there is no driver or no such GPU.

    Example:
        >>> kronop.device_cc()  # doctest: +SKIP
        90
    """
    major, minor, _ = _abilities(device)
    return 10 * major + minor


def device_of_pointer(pointer: int) -> Device:
    """The GPU that holds the memory at `pointer`; for a null pointer, the default GPU."""
    driver = cuda_driver()
    if not pointer:
        return default_device()
    attribute = driver.CUpointer_attribute.CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL
    with current(default_device().index):
        found = driver.cuPointerGetAttribute(attribute, pointer)
        return Device("cuda", int(check(found, "locating a GPU tensor")))


def target_of(view: TensorView) -> str | Target:
    """The target that serves this tensor: "x86", or that of its GPU.

    Raises:
        DescriptionError: the GPU is older than all targets.
    """
    return target_of_device(view.device)


def target_of_device(device: Device) -> str | Target:
    """As `target_of`, for a device: a name if the card is the one that the name stands for."""
    if device.kind not in (CPU.kind, "cuda"):
        return device.kind
    return "x86" if device == CPU else _served(device.index)


@functools.cache
def _served(index: int) -> str | Target:
    card = card_of(index)
    return card.name if card == Target.parse(card.name) else card


@functools.cache
def card_of(index: int) -> Target:
    """The target of GPU `index`, with what its driver says of the card.

    Raises:
        DeviceError: there is no driver or no such GPU.
        DescriptionError: the GPU is older than all targets.
    """
    major, minor, shared_bytes = _abilities(index)
    typical = Target.of_capability(major, minor)
    assert typical.gpu is not None
    if typical.is_ptx:
        warn(
            f"GPU {index} has compute capability {major}.{minor}, newer than all targets; its"
            f" driver compiles kernels for {typical}"
        )
    cores = _attribute(index, "MULTIPROCESSOR_COUNT")
    hertz = 1e3 * _attribute(index, "CLOCK_RATE")
    bits = _attribute(index, "GLOBAL_MEMORY_BUS_WIDTH")
    # Data come twice in a cycle; drivers of some cards don't know the clock of their memory.
    moved = 1e3 * _attribute(index, "MEMORY_CLOCK_RATE") * 2 * bits / 8
    bandwidth = COPIED_SHARE * moved or typical.gpu.bandwidth
    hertz = hertz or typical.gpu.hertz
    card = dataclasses.replace(typical, shared_bytes=shared_bytes)
    ratios = hertz / typical.gpu.hertz, bandwidth / typical.gpu.bandwidth
    is_fast = all(abs(ratio - 1) <= _ALIKE for ratio in ratios)
    if cores == typical.cores and card == typical and is_fast:
        return typical
    return card.of_card(
        name_of_device(index),
        cores,
        hertz,
        bandwidth=bandwidth,
        level_2_bytes=_attribute(index, "L2_CACHE_SIZE"),
    )


def card_at_hand() -> Target:
    """The target of the GPU that host tensors go to.

    Raises:
        DeviceError: there is no driver or no GPU.
    """
    return card_of(default_device().index)


@functools.cache
def runs_on(target: Target, index: int) -> bool:
    """Whether kernels of the target run on GPU `index`: a cubin on its own and later minor compute
    capabilities, one of architecture-specific instructions (sm_90a) on its own alone, PTX on all
    later ones."""
    *capability, shared_bytes = _abilities(index)
    of = target.compiled_for.partition("_")[2]
    number = int(of.rstrip("a"))
    least = [number // 10, number % 10]
    if target.is_ptx:
        fits = capability >= least
    elif of.endswith("a"):
        fits = capability == least
    else:
        fits = capability[0] == least[0] and capability[1] >= least[1]
    return fits and shared_bytes >= target.shared_bytes


def _abilities(index: int) -> tuple[int, int, int]:
    """A GPU's compute capability, major and minor, and the most shared memory of a block."""
    major, minor = (_attribute(index, f"COMPUTE_CAPABILITY_{part}") for part in ("MAJOR", "MINOR"))
    return major, minor, _attribute(index, "MAX_SHARED_MEMORY_PER_BLOCK_OPTIN")


def _attribute(index: int, name: str) -> int:
    driver = cuda_driver()
    handle = check(driver.cuDeviceGet(index), f"opening GPU {index}")
    attribute = getattr(driver.CUdevice_attribute, f"CU_DEVICE_ATTRIBUTE_{name}")
    found = driver.cuDeviceGetAttribute(attribute, handle)
    return int(check(found, f"asking GPU {index} for its abilities"))


def name_of_device(index: int) -> str:
    """The name of GPU `index`, as its driver tells it."""
    driver = cuda_driver()
    handle = check(driver.cuDeviceGet(index), f"opening GPU {index}")
    name = check(driver.cuDeviceGetName(256, handle), f"asking GPU {index} for its name")
    return bytes(name).partition(b"\0")[0].decode()  # The rest of the 256 bytes are zeros.
