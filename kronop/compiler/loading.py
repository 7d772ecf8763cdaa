"""Binaries to kernels that are ready to launch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from kronop.artifacts import Binary, BinaryFormat, Launch
from kronop.compiler.cuda_kernel import load_cuda
from kronop.compiler.host_kernel import load_host
from kronop.compiler.images import check_image
from kronop.errors import DeviceError, mismatch
from kronop.target import Target, detect_x86_arch, runs


class Kernel(Protocol):
    """A loaded kernel."""

    @property
    def entry(self) -> str: ...

    def bind(self, launch: Launch, device: int = 0) -> Callable[[int], None]:
        """A ready launcher of `launch`, called with a CUstream as int (0 = default stream)."""

    def bind_words(self, launch: Launch, device: int = 0) -> tuple[Callable[[int], None], Any]:
        """As `bind`, and the 8-byte words that the launcher passes, to be changed by its owner."""


# Without a lock, which a signal's handler could meet in the middle of a load: what two threads load
# at once is loaded twice, and both are given one of the two.
_kernels: dict[str, Kernel] = {}


def load(binary: Binary, target: Target) -> Kernel:
    """The kernel in `binary`; the same one each time, for code is never unloaded.

    Raises:
        DeviceError: it was compiled for another target, or can't run on this machine.
        BrokenImageError: nothing can load it.
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
    kernel = _kernels.get(binary.key)
    if kernel is None:
        is_cuda = binary.format is BinaryFormat.CUBIN
        kernel = _kernels.setdefault(
            binary.key, load_cuda(binary) if is_cuda else load_host(binary)
        )
    return kernel


def prove(binary: Binary) -> None:
    """Load what was just compiled, so that nothing is kept that does not load.

    A binary for a GPU, or for another processor than this one, is only checked to be whole.

    Raises:
        BrokenImageError: nothing can load it.
    """
    check_image(binary)
    if binary.format is BinaryFormat.SHARED_OBJECT and runs(binary.arch, detect_x86_arch()):
        # Whatever was loaded under that key came from another image.
        _kernels[binary.key] = load_host(binary)
