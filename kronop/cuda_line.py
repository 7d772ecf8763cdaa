"""The lines of CUDA, 12 and 13: which of them the driver and the packages of a machine fit.

An environment has packages of one line. A driver serves every line up to its own.
"""

from __future__ import annotations

import ctypes
import functools

from kronop.late import imported

NEWEST = 13
# The least compute capability that CUDA 13 compiles for.
_LEAST_OF_13 = (7, 5)
# The oldest release that is served, which drivers since 550 know.
LEAST = (12, 4)


def driver_release() -> tuple[int, int] | None:
    """The newest release of CUDA that the driver serves, such as (12, 4); None without a driver.

    Any process may ask: neither a GPU nor a package is needed.
    """
    version = ctypes.c_int()
    try:
        if ctypes.CDLL("libcuda.so.1").cuDriverGetVersion(ctypes.byref(version)):
            return None
    except (OSError, AttributeError):
        return None
    return version.value // 1000, version.value % 1000 // 10


def version_of_package(name: str) -> str:
    """The version of an installed distribution; empty if there is none."""
    metadata = imported("importlib.metadata")
    try:
        return str(metadata.version(name))
    except metadata.PackageNotFoundError:
        return ""


@functools.cache
def newest_gpu() -> tuple[int, int] | None:
    """The highest compute capability of the GPUs here; None where nothing tells it. NVML does not
    start CUDA, which a process that forks could not use in its children then."""
    try:
        nvml = ctypes.CDLL("libnvidia-ml.so.1")
        if nvml.nvmlInit_v2():
            return None
        count, found = ctypes.c_uint(), []
        nvml.nvmlDeviceGetCount_v2(ctypes.byref(count))
        for index in range(count.value):
            gpu, major, minor = ctypes.c_void_p(), ctypes.c_int(), ctypes.c_int()
            to = [ctypes.byref(item) for item in (gpu, major, minor)]
            if nvml.nvmlDeviceGetHandleByIndex_v2(index, to[0]):
                continue
            if not nvml.nvmlDeviceGetCudaComputeCapability(gpu, *to[1:]):
                found.append((major.value, minor.value))
        nvml.nvmlShutdown()
    except (OSError, AttributeError):
        return None
    return max(found, default=None)


def needs_cuda12() -> bool:
    """Whether CUDA 13 compiles for none of the GPUs here."""
    newest = newest_gpu()
    return newest is not None and newest < _LEAST_OF_13


def cuda_extra() -> str:
    """The extra of pyproject.toml that fits here: "cuda12" under a driver of CUDA 12, beside
    packages of it, such as those that torch brings, or for GPUs that CUDA 13 does not know, else
    "cuda13"."""
    if needs_cuda12():
        return "cuda12"
    driver = driver_release()
    bindings = version_of_package("cuda-bindings").partition(".")[0]
    if not bindings and version_of_package("nvidia-cuda-runtime-cu12"):
        bindings = "12"
    lines = [driver[0] if driver else NEWEST, int(bindings or NEWEST)]
    return f"cuda{max(min(*lines, NEWEST), LEAST[0])}"
