"""One interface to the arrays of NumPy and torch, for making, copying and comparing them."""

from __future__ import annotations

import contextlib
import importlib.util
import os
import signal
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Protocol

import numpy as np

from kronop.args.host import thread_count
from kronop.bench.protocol import ROTATED_BYTES, keep_memory
from kronop.errors import ArgumentError, DeviceError, installing
from kronop.tensors import Tensor

# NumPy copies with one thread; from this many bytes on, several threads are faster.
_SHARED_BYTES = 1 << 20


class Arrays(Protocol):
    """What a benchmark needs of a framework; types are given by name, such as "float32"."""

    framework: str
    device: str

    def random(self, shape: tuple[int, ...], dtype: str) -> Tensor:
        """Normally distributed values, the same in every process. Types of one byte get four times
        the width, so that most integers, which are rounded towards 0, are not 0."""
        ...

    def poisoned(self, shape: tuple[int, ...], dtype: str) -> Tensor:
        """A new array filled with NaN."""
        ...

    def double(self, value: Tensor) -> Tensor: ...

    def copy(self, target: Tensor, source: Tensor) -> None: ...

    def error(self, actual: Tensor, expected: Tensor) -> float:
        """Norm of the difference over the norm of `expected`, which is float64."""
        ...

    def is_finite(self, value: Tensor) -> bool: ...

    def rows(self, value: Tensor, indices: list[int]) -> Tensor:
        """A copy of these rows."""
        ...

    def flush(self) -> None:
        """Reads more memory than the caches hold.

        That also makes the caches write changed lines back, which the timed call would have to do.
        """
        ...

    def release(self) -> None:
        """Returns unused memory to the device."""
        ...

    def describe(self) -> dict[str, str | int]:
        """The names and versions of the device and libraries."""
        ...


class NumpyArrays:
    """Host arrays; float32 and float64, the types that NumPy multiplies through a BLAS."""

    framework, device = "numpy", "cpu"

    def __init__(self) -> None:
        self._random = np.random.default_rng(0)
        self._waste = np.ones(0, np.float32)
        self._threads = thread_count()
        self._pool = ThreadPoolExecutor(self._threads)

    def random(self, shape: tuple[int, ...], dtype: str) -> Tensor:
        if dtype == "int8":
            return (4 * self._random.standard_normal(shape)).astype(np.int8)
        if dtype not in ("float32", "float64"):
            raise ArgumentError(
                "dtype",
                expected="float32 or float64 where torch is not installed",
                got=dtype,
                hint=installing("torch"),
            )
        return self._random.standard_normal(shape, np.dtype(dtype).type)

    def poisoned(self, shape: tuple[int, ...], dtype: str) -> Tensor:
        return np.full(shape, np.nan, dtype)

    def double(self, value: Tensor) -> Tensor:
        return np.asarray(value, np.float64)

    def copy(self, target: Tensor, source: Tensor) -> None:
        """Copies; large arrays with all threads, as the kernels and torch do."""
        if target.nbytes < _SHARED_BYTES:
            np.copyto(target, source)
            return
        parts = (np.array_split(item, self._threads) for item in (target, source))
        list(self._pool.map(np.copyto, *parts))

    def error(self, actual: Tensor, expected: Tensor) -> float:
        return float(np.linalg.norm(actual - expected) / np.linalg.norm(expected))

    def is_finite(self, value: Tensor) -> bool:
        return bool(np.isfinite(value).all())

    def rows(self, value: Tensor, indices: list[int]) -> Tensor:
        return value[indices]

    def flush(self) -> None:
        if not self._waste.size:
            self._waste = np.ones(ROTATED_BYTES // 4, np.float32)
        self._waste.sum()

    def release(self) -> None:
        pass

    def describe(self) -> dict[str, str | int]:
        return {"numpy": np.__version__, **_cpu(), "threads": self._threads}


class TorchArrays:
    """torch tensors on "cpu" or on the current GPU."""

    framework = "torch"

    def __init__(self, device: str, asked: str = "--device cuda") -> None:
        with uninterrupted():
            import torch

        if device == "cuda" and not torch.cuda.is_available():
            option = asked.split()[0]
            raise DeviceError(
                asked,
                expected="a GPU that torch can use",
                got=f"none with torch {torch.__version__}",
                hint="install torch for CUDA and a driver, or use"
                f" {option} {'cpu' if option == '--device' else 'x86'}",
            )
        self.device = device
        self._torch = torch
        self._random = torch.Generator(device).manual_seed(0)
        self._waste: Tensor = None

    def random(self, shape: tuple[int, ...], dtype: str) -> Tensor:
        kind = getattr(self._torch, dtype)
        if kind.itemsize == 1:
            return (4 * self.random(shape, "float32")).to(kind)
        return self._torch.randn(shape, generator=self._random, device=self.device, dtype=kind)

    def poisoned(self, shape: tuple[int, ...], dtype: str) -> Tensor:
        kind = getattr(self._torch, dtype)
        return self._torch.full(shape, float("nan"), device=self.device, dtype=kind)

    def double(self, value: Tensor) -> Tensor:
        return value.double()

    def copy(self, target: Tensor, source: Tensor) -> None:
        target.copy_(source)

    def error(self, actual: Tensor, expected: Tensor) -> float:
        return float((actual.double() - expected).norm() / expected.norm())

    def is_finite(self, value: Tensor) -> bool:
        return bool(self._torch.isfinite(value).all())

    def rows(self, value: Tensor, indices: list[int]) -> Tensor:
        return value[self._torch.tensor(indices, device=self.device)]

    def flush(self) -> None:
        if self._waste is None:
            ones = self._torch.ones(ROTATED_BYTES // 4, device=self.device)
            # On a CPU NumPy sums: torch's threads would go on spinning while a call is timed.
            self._waste = ones if self.device == "cuda" else ones.numpy()
        self._waste.sum()

    def release(self) -> None:
        # kronop's workspaces can't use the memory that torch's allocator keeps.
        if self.device == "cuda":
            self._torch.cuda.empty_cache()

    def describe(self) -> dict[str, str | int]:
        told: dict[str, str | int] = {"torch": self._torch.__version__, "numpy": np.__version__}
        if self.device == "cuda":
            return told | {
                "device": self._torch.cuda.get_device_name(),
                "cuda": str(self._torch.version.cuda),
            }
        return told | _cpu() | {"threads": self._torch.get_num_threads()}


@contextlib.contextmanager
def uninterrupted() -> Iterator[None]:
    """Ctrl-C takes effect at the end of a `with` block: amid the import of torch's modules it would
    end the process with an error of C++."""
    if threading.current_thread() is not threading.main_thread():
        yield  # Only the main thread is interrupted.
        return
    caught: list[int] = []
    before = signal.signal(signal.SIGINT, lambda number, frame: caught.append(number))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
    if caught:
        raise KeyboardInterrupt


def arrays_for(device: str, *, torch_for: str = "", asked: str = "--device cuda") -> Arrays:
    """torch's tensors on the device, or NumPy's arrays on a CPU without torch.

    For a CPU it also makes this process's malloc keep freed memory: see `keep_memory`.

    Args:
        device: "cpu" or "cuda".
        torch_for: what torch is needed for on a CPU too, if it is; for messages.
        asked: the command-line option that asks for a GPU, for messages.

    Raises:
        DeviceError: there is no GPU, or torch is needed and not installed.
    """
    if device == "cpu":
        keep_memory()
    if importlib.util.find_spec("torch") is not None:
        return TorchArrays(device, asked)
    if device == "cuda" or torch_for:
        raise DeviceError(
            torch_for or asked,
            expected="the package torch" if torch_for else "torch, which times the GPU",
            got="no such package",
            hint=installing("torch"),
        )
    return NumpyArrays()


def shuffle(x: Tensor, factors: Tensor) -> Tensor:
    """The classical algorithm: multiply by the last digit, rotate it to the front, repeat.

    After all factors every digit has come around once, so the order is the original one.
    """
    rows = x.shape[0]
    for factor in reversed(factors):
        x = (x.reshape(rows, -1, factor.shape[0]) @ factor).swapaxes(1, 2).reshape(rows, -1)
    return x


def spread_rows(count: int, some: int) -> list[int]:
    """Indices of about `some` of `count` rows, spread evenly, with the first and the last one."""
    some = min(count, max(2, some))
    return [index * (count - 1) // max(some - 1, 1) for index in range(some)]


def _cpu() -> dict[str, str | int]:
    """The CPU's name, and the load average of the last minute; a load above 1 is a warning."""
    try:
        with open("/proc/cpuinfo") as lines:
            name = next(line.split(":")[1].strip() for line in lines if "model name" in line)
        return {"device": name, "load": f"{os.getloadavg()[0]:.1f}"}
    except (OSError, StopIteration):
        return {"device": "unknown CPU"}
