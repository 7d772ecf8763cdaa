"""The lines of CUDA, 12 and 13: which of them the driver and the packages of a machine fit.

An environment has packages of one line. A driver serves every line up to its own.
"""

from __future__ import annotations

import ctypes

from kronop.late import imported

NEWEST = 13
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


def cuda_extra() -> str:
    """The extra of pyproject.toml that fits here: "cuda12" under a driver of CUDA 12 or beside
    packages of it, such as those that torch brings, else "cuda13"."""
    driver = driver_release()
    bindings = version_of_package("cuda-bindings").partition(".")[0]
    if not bindings and version_of_package("nvidia-cuda-runtime-cu12"):
        bindings = "12"
    lines = [driver[0] if driver else NEWEST, int(bindings or NEWEST)]
    return f"cuda{max(min(*lines, NEWEST), LEAST[0])}"
