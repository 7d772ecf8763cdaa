"""GPUs: whether there is a driver, which GPU is current, and which target serves a GPU."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Iterator
from typing import Any

from kronop.args.view import CPU, Device, TensorView
from kronop.errors import DescriptionError, DeviceError, OutOfMemoryError, installing, mismatch
from kronop.late import imported
from kronop.target import every_target

_TARGETS = {target.generation: target for target in every_target() if target.backend == "cuda"}


@functools.cache
def _probe() -> tuple[Any, str]:
    """(the driver bindings, "") or (None, why there are none).

    Every use of a GPU must ask here first: on a machine without a driver, some calls of cuda-core
    raise the first time and hang the second time.
    """
    try:
        driver = imported("cuda.bindings.driver")
    except ImportError as error:
        return None, f"the package cuda-bindings is missing ({error}); {installing('cuda13')}"
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
        raise DeviceError(
            mismatch(
                "GPU",
                expected="an NVIDIA GPU with its driver",
                got=reason,
                hint=hint,
            )
        )
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
        raise kind(
            mismatch(
                doing,
                expected="success",
                got=status.name,
                hint="see the CUDA documentation of this error",
            )
        )
    if many:
        return values
    return values[0] if values else None


@contextlib.contextmanager
def current(index: int) -> Iterator[None]:
    """Makes GPU `index` current in this thread for a `with` block, then restores the previous
    context."""
    driver = cuda_driver()
    before = check(driver.cuCtxGetCurrent(), "asking for the current context")
    if (
        int(before)
        and int(check(driver.cuCtxGetDevice(), "asking for the current device")) == index
    ):
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
    return Device("cuda", int(check(driver.cuCtxGetDevice(), "asking for the current device")))


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
        return Device(
            "cuda",
            int(check(driver.cuPointerGetAttribute(attribute, pointer), "locating a GPU tensor")),
        )


def target_of(view: TensorView) -> str:
    """The name of the target that serves this tensor: "x86", or that of its GPU.

    Raises:
        DescriptionError: no target fits the GPU's generation, or the GPU has less shared memory for
            a block than the target plans with.
    """
    return target_of_device(view.device)


def target_of_device(device: Device) -> str:
    """As `target_of`, for a device."""
    if device.kind not in (CPU.kind, "cuda"):
        return device.kind
    return "x86" if device == CPU else _target_of_gpu(device.index)


@functools.cache
def _target_of_gpu(index: int) -> str:
    major, minor, shared_bytes = _abilities(index)
    if major not in _TARGETS:
        raise DescriptionError(
            mismatch(
                f"cuda:{index}",
                expected="compute capability "
                + " or ".join(f"{item.generation}.0 ({item})" for item in _TARGETS.values()),
                got=f"{major}.{minor}",
                hint="use a supported GPU, or an x86 operation on host tensors",
            )
        )
    target = _TARGETS[major]
    if shared_bytes < target.shared_bytes:
        # GPUs of compute capability 8.6 and 8.9 run code for 8.0, but their shared memory is too
        # small for the tiles that are planned for an A100.
        raise DescriptionError(
            mismatch(
                f"cuda:{index} of compute capability {major}.{minor}",
                expected=f"{target.shared_bytes} bytes of shared memory for a block, for which"
                f" {target} is planned",
                got=f"{shared_bytes} bytes at most",
                hint="use a GPU of the data centre, or an x86 operation on host tensors",
            )
        )
    return target.name


def _abilities(index: int) -> tuple[int, int, int]:
    """A GPU's compute capability, major and minor, and the most shared memory of a block."""
    names = cuda_driver().CUdevice_attribute
    return (
        _attribute(index, names.CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR),
        _attribute(index, names.CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR),
        _attribute(index, names.CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN),
    )


def _attribute(index: int, name: Any) -> int:
    driver = cuda_driver()
    handle = check(driver.cuDeviceGet(index), f"opening GPU {index}")
    return int(
        check(driver.cuDeviceGetAttribute(name, handle), f"asking GPU {index} for its abilities")
    )


def name_of_device(index: int) -> str:
    """The name of GPU `index`, as its driver tells it."""
    driver = cuda_driver()
    handle = check(driver.cuDeviceGet(index), f"opening GPU {index}")
    name = check(driver.cuDeviceGetName(256, handle), f"asking GPU {index} for its name")
    return bytes(name).partition(b"\0")[0].decode()  # The rest of the 256 bytes are zeros.
