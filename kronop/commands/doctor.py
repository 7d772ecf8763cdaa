"""What kronop finds on this machine: compilers, GPUs, packages, the cache; and what is missing."""

from __future__ import annotations

import argparse
import contextlib
import functools
import os
import platform
import re
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np

import kronop
from kronop import compiler, cpus, knobs
from kronop.cuda_line import LEAST, cuda_extra, driver_release, needs_cuda12, version_of_package
from kronop.errors import CompileError, KronopError, installing
from kronop.machine import H200
from kronop.progress import Progress
from kronop.target import Target, detect_x86_arch

_CUDA = "cuda"  # The extra of the line of CUDA that fits here.
# Packages, what they are for, and the extra that brings them.
_PACKAGES = (
    ("torch", "kronop.torch: gradients, layers", "torch"),
    ("cupy", "tensors on GPUs without torch", _CUDA),
    ("rmm", "pools of GPU memory", _CUDA),
    ("jax", "kronop.jax", "jax"),
    ("scipy", "kronop.scipy", "scipy"),
    ("gpytorch", "kronop.linear_operator", "gpytorch"),
    ("nvmath", "kronop.linalg on GPUs", "linalg"),
)
# How many findings there are.
_LOOKS = 6 + len(_PACKAGES)
# What distributions are called whose names are not their packages'.
_DISTRIBUTIONS = {
    "cupy": ("cupy-cuda13x", "cupy-cuda12x", "cupy"),
    "rmm": ("rmm-cu13", "rmm-cu12", "rmm"),
    "nvmath": ("nvmath-python",),
}


class Finding(NamedTuple):
    """A line: what was looked for, whether it is there and works, and what can be done if not."""

    name: str
    works: bool
    told: str
    hint: str = ""

    def __str__(self) -> str:
        hint = f"; {self.hint}" if self.hint else ""
        return f"{self.name:<14} {'ok' if self.works else '--'}  {self.told}{hint}"


EXAMPLES = {"doctor": "what works here, and what to install"}


def configure(parser: argparse.ArgumentParser) -> None:
    pass


def execute(options: argparse.Namespace) -> None:
    """Prints a line for each finding as soon as there is one.

    Raises:
        CompileError: kernels can neither be made for this CPU nor for a GPU of this machine.
    """
    print(f"kronop {kronop.__version__}, Python {platform.python_version()}, {platform.platform()}")
    works = {}
    with Progress(_LOOKS, "looking, and compiling trial kernels") as progress:
        for finding in findings():
            progress.advance()
            progress.print(str(finding))
            works[finding.name] = finding.works
    targets = [name for name in ("this CPU", "GPUs") if works[name]]
    print(f"\nkronop runs on {' and '.join(targets) or 'nothing here'}.")
    if not targets:
        raise CompileError("expected a compiler for this CPU or a GPU, got neither; see above")


def findings() -> Iterator[Finding]:
    """What there is, one by one: trial kernels take a second each."""
    yield _cpus()
    yield _tried("this CPU", _on_cpu)
    nvrtc = _tried("NVRTC", _by_nvrtc)
    yield nvrtc
    yield _cuda(_released(nvrtc.told), driver_release())
    yield _gpus()
    for name, what, extra in _PACKAGES:
        yield _package(name, what, extra)
    yield _cache()


def _tried(name: str, attempt: Callable[[], str]) -> Finding:
    try:
        return Finding(name, True, attempt())
    except Exception as error:  # A broken installation raises anything.
        text = str(error) if isinstance(error, KronopError) else repr(error)
        told, _, hint = text.partition("; ")
        return Finding(name, False, told.splitlines()[0], hint.splitlines()[0] if hint else "")


def _cpus() -> Finding:
    count = cpus.cpu_count()
    load = os.getloadavg()[0] if hasattr(os, "getloadavg") else 0.0
    told = f"{count}, load {load:.1f}"
    if load <= count / 2:
        return Finding("CPUs", True, told)
    return Finding(
        "CPUs", True, told, "others keep them busy: times vary, and calls take fewer threads"
    )


@contextlib.contextmanager
def _own_cache() -> Iterator[None]:
    """An empty one, which is gone afterwards; nothing is said of compiling into it."""
    with tempfile.TemporaryDirectory() as folder, knobs.using(cache_dir=Path(folder), quiet=True):
        yield


def _on_cpu() -> str:
    return f"{detect_x86_arch()}; {_tried_on('x86')}"


def _tried_on(target: str) -> str:
    """Compiles a product into a cache of its own, and compares its numbers with NumPy's."""
    with _own_cache():
        operation = _operation(target)
        seconds = _compiled(operation)
        x = np.arange(32, dtype=np.float32).reshape(2, 16)
        factors = [np.arange(16, dtype=np.float32).reshape(4, 4) for _ in range(2)]
        y = np.empty_like(x)
        epilogue = operation.epilogue_type(1.0, 0.0)
        arguments = kronop.KronMatmulArguments(
            operation=operation, X=x, factors=factors, Y=y, output_op=epilogue
        )
        operation.run(arguments)
        arguments.sync()
        (binary,) = operation.binaries
    if not np.array_equal(y, x @ np.kron(*factors)):
        raise CompileError(f"a trial kernel by {binary.compiler} gives wrong numbers")
    return f"{binary.compiler}; a trial kernel took {seconds:.1f} s"


def _by_nvrtc() -> str:
    with _own_cache():
        operation = _operation(H200.arch)
        seconds = _compiled(operation)
        (binary,) = operation.binaries
    return f"{binary.compiler}; a trial kernel for {H200.arch} took {seconds:.1f} s"


def _released(told: str) -> tuple[int, int] | None:
    """The release of the NVRTC that compiled a trial kernel; None if none did."""
    release = re.search(r"release (\d+)\.(\d+)", told)
    return (int(release[1]), int(release[2])) if release else None


def _cuda(nvrtc: tuple[int, int] | None, driver: tuple[int, int] | None) -> Finding:
    """Which line of CUDA the packages are of, and whether the driver serves it: a driver loads
    cubins of every release of its own line and of earlier ones, but no newer PTX."""
    bindings = version_of_package("cuda-bindings")
    told = ", ".join(
        (
            f"NVRTC {_dotted(nvrtc)}" if nvrtc else "no NVRTC",
            f"cuda-bindings {bindings}" if bindings else "no cuda-bindings",
            f"a driver for CUDA {_dotted(driver)}" if driver else "no driver",
        )
    )
    lines = {int(bindings.partition(".")[0])} if bindings else set()
    lines |= {nvrtc[0]} if nvrtc else set()
    if driver and driver < LEAST:
        return Finding("CUDA", False, told, f"install a driver for CUDA {_dotted(LEAST)} or later")
    if not bindings or not nvrtc:
        return Finding("CUDA", False, told, installing(cuda_extra()))
    if len(lines) > 1 or (driver and driver[0] < max(lines)):
        newer = f", or a driver for CUDA {max(lines)}" if driver and driver[0] < max(lines) else ""
        return Finding(
            "CUDA",
            False,
            told,
            f"all have to be of one line: in a new environment, {installing(cuda_extra())}{newer}",
        )
    if max(lines) > LEAST[0] and needs_cuda12():
        hint = f"these GPUs need CUDA 12: in a new environment, {installing('cuda12')}"
        return Finding("CUDA", False, told, hint)
    if driver and driver < nvrtc:
        return Finding("CUDA", True, told, "the driver loads the kernels, but no PTX of this NVRTC")
    return Finding("CUDA", True, told)


def _dotted(release: tuple[int, int]) -> str:
    return ".".join(map(str, release))


def _gpus() -> Finding:
    status = compiler.cuda_devices()
    if not status:
        told, _, hint = status.reason.partition("; ")
        return Finding("GPUs", False, told, hint)
    from kronop.args.device import check, cuda_driver

    count = int(check(cuda_driver().cuDeviceGetCount(), "counting GPUs"))
    found = [_tried("GPUs", functools.partial(_on_gpu, index)) for index in range(count)]
    works = all(item.works for item in found)
    hint = next((item.hint for item in found if item.hint), "")
    return Finding("GPUs", works, "; ".join(item.told for item in found), hint)


def _on_gpu(index: int) -> str:
    from kronop.args.device import card_of, current, name_of_device

    told = f"{name_of_device(index)}, {_card(card_of(index))}"
    try:
        with current(index):
            return f"{told}, {_tried_on('cuda')}"
    except Exception as error:  # The figures are told all the same.
        raise CompileError(f"{told}: {str(error) or repr(error)}") from error


def _card(target: Target) -> str:
    """The figures of a GPU that plans are made by."""
    gpu = target.gpu
    assert gpu is not None
    return (
        f"{target}, {target.cores} multiprocessors at {gpu.hertz / 1e9:.2f} GHz with"
        f" {target.shared_bytes / 1024:.0f} KB of shared memory, copies at"
        f" {gpu.bandwidth / 1e9:.0f} GB/s, {gpu.level_2_bytes / 2**20:.0f} MB of level-2 cache"
    )


def _operation(target: str) -> kronop.KronMatmulOperation:
    matrix = kronop.TensorDescription(kronop.float32, kronop.RowMajor, 4)
    epilogue = kronop.LinearCombination(kronop.float32, 4, kronop.float32, kronop.float32)
    return kronop.KronMatmulOperation(target, None, matrix, matrix, matrix, epilogue, [(4, 4)] * 2)


def _compiled(operation: kronop.KronMatmulOperation) -> float:
    begin = time.perf_counter()
    compiler.forget()
    compiler.add_module([operation])
    return time.perf_counter() - begin


def _package(name: str, what: str, extra: str) -> Finding:
    for distribution in _DISTRIBUTIONS.get(name, (name,)):
        version = version_of_package(distribution)
        if version:
            return Finding(
                name, True, version if distribution == name else f"{distribution} {version}"
            )
    hint = installing(cuda_extra() if extra == _CUDA else extra)
    return Finding(name, False, f"not installed (optional, for {what})", hint)


def _cache() -> Finding:
    """Whether the cache keeps kernels, and how many."""
    cache = compiler.default_cache()
    try:
        cache.require(writable=True)
    except KronopError as error:
        told, _, hint = str(error).partition("; ")
        return Finding("cache", False, told, hint)
    entries = cache.list()
    size = sum(item.stat().st_size for item in cache.folder.rglob("*") if item.is_file()) / 1e6
    return Finding("cache", True, f"{cache.path}: {len(entries)} kernels, {size:.1f} MB")
