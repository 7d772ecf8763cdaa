"""Binaries to kernels that are ready to launch."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from typing import Any, Protocol

from kronop.artifacts import Binary, BinaryFormat, Launch
from kronop.compiler.cuda_kernel import load_cuda
from kronop.compiler.host_kernel import load_host
from kronop.errors import DeviceError, mismatch
from kronop.target import Target


class Kernel(Protocol):
    """A loaded kernel."""

    @property
    def entry(self) -> str: ...

    def bind(self, launch: Launch, device: int = 0) -> Callable[[int], None]:
        """A ready launcher of `launch`, called with a CUstream as int (0 = default stream)."""

    def bind_words(self, launch: Launch, device: int = 0) -> tuple[Callable[[int], None], Any]:
        """As `bind`, and the 8-byte words that the launcher passes, to be changed by its owner."""


_kernels: dict[str, Kernel] = {}
_lock = threading.Lock()


def _renew_lock() -> None:
    """In a forked child: another thread of the parent may have held the lock for ever."""
    global _lock
    _lock = threading.Lock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_renew_lock)


def load(binary: Binary, target: Target) -> Kernel:
    """The kernel in `binary`; the same one each time, for code is never unloaded.

    Raises:
        DeviceError: it was compiled for another target, or can't run on this machine.
    """
    if (binary.format is BinaryFormat.CUBIN) != (target.backend == "cuda") or (
        binary.arch != target.arch
    ):
        raise DeviceError(
            mismatch(
                f"kernel {binary.entry}",
                expected=f"a binary for {target}",
                got=f"one for {binary.arch}",
                hint="compile it for this target",
            )
        )
    with _lock:
        kernel = _kernels.get(binary.key)
        if kernel is None:
            is_cuda = binary.format is BinaryFormat.CUBIN
            kernel = load_cuda(binary) if is_cuda else load_host(binary)
            _kernels[binary.key] = kernel
        return kernel
