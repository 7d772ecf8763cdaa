"""Loads cubins into this process and launches their kernels, through the driver's bindings."""

from __future__ import annotations

import ctypes
import functools
import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any, SupportsInt

from kronop import knobs
from kronop.artifacts import Binary, Launch, Status
from kronop.compiler.images import broken, check_image
from kronop.compiler.parameters import parameter_words
from kronop.cuda_line import cuda_extra
from kronop.errors import DeviceError, OutOfMemoryError, installing
from kronop.late import imported, module_lock

# A kernel that needs more dynamic shared memory than this must have an attribute set.
_DEFAULT_SHARED_BYTES = 48 * 1024
# The driver's errors for an image that it can't read; all other errors are not the image's fault.
_BROKEN = {
    "CUDA_ERROR_INVALID_IMAGE",
    "CUDA_ERROR_INVALID_SOURCE",
    "CUDA_ERROR_NOT_FOUND",
    "CUDA_ERROR_SHARED_OBJECT_INIT_FAILED",
    "CUDA_ERROR_SHARED_OBJECT_SYMBOL_NOT_FOUND",
}
_MOST_CONFIGS = 64  # A bound: configurations of destroyed streams can't be recognised.


@functools.cache
def cuda_devices() -> Status:
    """Whether this machine has a driver and a GPU that CUDA kernels can run on.

    Code that needs the driver must ask here first: without a driver, some calls of the bindings
    hang instead of failing.

    Returns:
        A status that is true, or false with a `reason`; the same one each time.

    Example:
        >>> status = kronop.compiler.cuda_devices()
        >>> bool(status) == (status.reason == "")
        True
        >>> status.reason  # doctest: +SKIP
        'no NVIDIA driver: libcuda.so.1 was not found'
    """
    name = "nvcuda.dll" if sys.platform == "win32" else "libcuda.so.1"
    try:
        ctypes.CDLL(name)
    except OSError:
        return Status.reject(f"no NVIDIA driver: {name} was not found")
    try:
        driver = _driver()
    except ImportError:
        return Status.reject(f"cuda-bindings is not installed; {installing(cuda_extra())}")
    (error,) = driver.cuInit(0)
    if error:
        return Status.reject(f"the NVIDIA driver does not start: {error.name}")
    error, count = driver.cuDeviceGetCount()
    if error or count == 0:
        return Status.reject("the NVIDIA driver finds no GPU")
    return Status.accept()


@functools.cache
def _driver() -> ModuleType:
    return imported("cuda.bindings.driver")


# Reentrant: a signal handler may interrupt `bind` and bind.
_lock = module_lock()


class CudaKernel:
    """A loaded CUDA kernel, independent of contexts and devices until it is bound."""

    def __init__(self, entry: str, library: object, kernel: SupportsInt) -> None:
        self.entry = entry
        self._library = library
        self._kernel = kernel
        self._shared_bytes: dict[int, int] = {}

    def address(self, launch: Launch, device: int = 0) -> int:
        """The CUkernel, for callers in native code, with the shared memory that `launch` needs on
        GPU `device` allowed.

        Raises:
            DeviceError: there is no such device, or it lacks the shared memory.
        """
        self._raise_shared_bytes(launch.shared_bytes, device)
        return int(self._kernel)

    def bind(self, launch: Launch, device: int = 0) -> Callable[[int], None]:
        """A function that runs `launch` on GPU `device`, given the handle of a stream.

        The kernel takes its parameter struct by value; the function keeps the bytes. Each call
        restores the context that was current before it.

        Raises:
            DeviceError: there is no such device, or it lacks the shared memory.
        """
        return self.bind_words(launch, device)[0]

    def bind_words(
        self, launch: Launch, device: int = 0
    ) -> tuple[Callable[[int], None], ctypes.Array[ctypes.c_uint64]]:
        """(the launcher as of `bind`, its parameters as 8-byte words).

        The words may be changed between two calls, because each launch copies them.
        """
        driver = _driver()
        context = _primary_context(device)
        self._raise_shared_bytes(launch.shared_bytes, device)
        words = parameter_words(launch)
        pointers = (ctypes.c_void_p * 1)(ctypes.addressof(words))
        function = driver.CUfunction(int(self._kernel))
        parameters = ctypes.addressof(pointers)
        subject = f"launch of {self.entry} on GPU {device}, {_geometry(launch)}"
        launch_kernel, current = driver.cuLaunchKernelEx, driver.cuCtxGetCurrent
        # One configuration per stream, never changed once made: threads may launch on different
        # streams at the same time.
        configs: dict[int, object] = {}

        def run(stream: int, _keep: object = (words, pointers, self)) -> None:
            config = configs.get(stream)
            if config is None:
                if len(configs) >= _MOST_CONFIGS:
                    configs.clear()
                config = configs[stream] = _config(launch, stream)
            foreign = current()[1] != context
            if foreign:
                check(driver.cuCtxPushCurrent(context), subject)
            (error,) = launch_kernel(config, function, parameters, 0)
            if foreign:
                check(driver.cuCtxPopCurrent(), subject)
            if error:
                check((error,), subject)

        return (_printing(run, subject, context) if knobs.current().debug >= 1 else run), words

    def _raise_shared_bytes(self, wanted: int, device: int) -> None:
        """Allows `wanted` bytes of dynamic shared memory; never lowers an earlier allowance."""
        with _lock:
            if wanted <= self._shared_bytes.get(device, _DEFAULT_SHARED_BYTES):
                return
            driver = _driver()
            attribute = driver.CUfunction_attribute.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
            handle = check(driver.cuDeviceGet(device), f"GPU {device}")
            check(
                driver.cuKernelSetAttribute(attribute, wanted, self._kernel, handle),
                f"{wanted} bytes of dynamic shared memory for {self.entry} on GPU {device}",
            )
            before, self._shared_bytes[device] = self._shared_bytes.get(device, 0), wanted
            # A signal handler may have allowed more in between, and the call above has lowered it.
            self._raise_shared_bytes(before, device)


def load_cuda(binary: Binary) -> CudaKernel:
    """The kernel in `binary`.

    Raises:
        DeviceError: there is no driver or GPU, or the driver fails.
        BrokenImageError: the driver can't read the cubin.
    """
    check_image(binary)
    status = cuda_devices()
    if not status:
        raise DeviceError(
            f"kernel {binary.entry} for {binary.arch}",
            expected="a GPU",
            got=status.reason,
            hint="run on a machine with a GPU or use the target 'x86'",
        )
    driver = _driver()
    library = _taken(driver.cuLibraryLoadData(binary.image, [], [], 0, [], [], 0), binary, "load")
    kernel = _taken(driver.cuLibraryGetKernel(library, binary.entry.encode()), binary, "look-up")
    return CudaKernel(binary.entry, library, kernel)


def _taken(result: tuple[Any, ...], binary: Binary, action: str) -> Any:
    """As `check`, but raises BrokenImageError if the image is at fault."""
    if result[0] and result[0].name in _BROKEN:
        raise broken(binary, f"{action}: {result[0].name}")
    return check(result, f"{action} of {binary.entry}")


def check(result: tuple[Any, ...], subject: str) -> Any:
    """The value in the result (error, value...) of a driver call.

    Raises:
        OutOfMemoryError: the device has no memory left.
        DeviceError: any other error; the message has CUDA's name for it.
    """
    error = result[0]
    if not error:
        return result[1] if len(result) > 1 else None
    driver = _driver()
    name, text = (
        answer[1].decode() if not answer[0] and answer[1] else str(error)
        for answer in (driver.cuGetErrorName(error), driver.cuGetErrorString(error))
    )
    if name == "CUDA_ERROR_OUT_OF_MEMORY":
        raise OutOfMemoryError(f"{subject}: {name} ({text}); free device memory and try again")
    if name == "CUDA_ERROR_UNSUPPORTED_PTX_VERSION":
        text += "; PTX of an NVRTC that is newer than the driver: install a newer driver"
    raise DeviceError(f"{subject}: {name} ({text})")


@functools.cache
def _primary_context(device: int) -> object:
    """The primary context of GPU `device`, which torch and CuPy use too; never released."""
    driver = _driver()
    handle = check(driver.cuDeviceGet(device), f"GPU {device}")
    return check(driver.cuDevicePrimaryCtxRetain(handle), f"context of GPU {device}")


def context_of(device: int) -> int:
    """The address of that context, for callers in native code."""
    return int(_primary_context(device))  # type: ignore[call-overload,no-any-return]


def _config(launch: Launch, stream: int) -> object:
    config = _driver().CUlaunchConfig()
    config.gridDimX, config.gridDimY, config.gridDimZ = launch.grid
    config.blockDimX, config.blockDimY, config.blockDimZ = launch.block
    config.sharedMemBytes = launch.shared_bytes
    config.hStream = stream
    config.attrs = [_early()] if launch.overlaps else []
    config.numAttrs = len(config.attrs)
    return config


@functools.cache
def _early() -> object:
    """The launch attribute that lets a kernel start before the previous one in its stream ends."""
    driver = _driver()
    attribute = driver.CUlaunchAttribute()
    attribute.id = driver.CUlaunchAttributeID.CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION
    attribute.value.programmaticStreamSerializationAllowed = 1
    return attribute


def _geometry(launch: Launch) -> str:
    return f"grid {launch.grid}, block {launch.block}, {launch.shared_bytes} bytes of shared memory"


def _printing(run: Callable[[int], None], subject: str, context: object) -> Callable[[int], None]:
    timed = knobs.current().debug >= 2

    def launch(stream: int) -> None:
        took = f": {_milliseconds(run, stream, subject, context):.4f} ms" if timed else ""
        if not timed:
            run(stream)
        print(f"kronop: {subject}, stream {stream:#x}{took}", file=sys.stderr, flush=True)

    return launch


def _milliseconds(run: Callable[[int], None], stream: int, subject: str, context: object) -> float:
    """The time of one launch, measured between two events; waits for the kernel to end."""
    driver = _driver()
    check(driver.cuCtxPushCurrent(context), subject)
    try:
        start, end = (check(driver.cuEventCreate(0), subject) for _ in range(2))
        check(driver.cuEventRecord(start, stream), subject)
        run(stream)
        check(driver.cuEventRecord(end, stream), subject)
        check(driver.cuEventSynchronize(end), subject)
        took = float(check(driver.cuEventElapsedTime(start, end), subject))
        for event in (start, end):
            check(driver.cuEventDestroy(event), subject)
        return took
    finally:
        check(driver.cuCtxPopCurrent(), subject)
