"""From binaries to loaded kernels that are ready to launch."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Protocol

from kronop.artifacts import Binary, BinaryFormat, Launch
from kronop.compiler.cuda_kernel import load_cuda
from kronop.compiler.host_kernel import load_host
from kronop.compiler.images import check_image
from kronop.errors import DeviceError
from kronop.target import Target, detect_x86_arch, runs


class Kernel(Protocol):
    """A loaded kernel.

    Example:
        >>> tensor = kronop.TensorDescription(kronop.float32)
        >>> epilogue = kronop.LinearCombination(kronop.float32, 1, kronop.float32, kronop.float32)
        >>> operation = kronop.KronMatmulOperation(
        ...     "x86", None, tensor, tensor, tensor, epilogue, factors=((4, 4), (4, 4))
        ... )
        >>> binaries = kronop.compiler.compile_sources(operation.sources, operation.target)
        >>> kernel = kronop.compiler.load(binaries[0], operation.target)
        >>> kernel.entry == binaries[0].entry
        True
    """

    @property
    def entry(self) -> str:
        """The name of the function in the source."""

    def address(self, launch: Launch, device: int = 0) -> int:
        """What native code calls (a function, or a CUkernel) for `launch` on GPU `device`."""

    def bind(self, launch: Launch, device: int = 0) -> Callable[[int], None]:
        """A function that runs `launch`, given a CUstream as int (0 is the default stream)."""

    def bind_words(
        self, launch: Launch, device: int = 0
    ) -> tuple[Callable[[int], None], ctypes.Array[ctypes.c_uint64]]:
        """(the launcher as of `bind`, its parameters as 8-byte words, which may be changed)."""


# No lock guards this dictionary, because a signal handler that interrupts a load would wait for it
# forever. If two threads load a kernel at once, it is loaded twice and both get the same one.
_kernels: dict[str, Kernel] = {}


def load(binary: Binary, target: Target) -> Kernel:
    """The kernel in `binary`; the same object each time, because code is never unloaded.

    Args:
        binary: what `compile_sources` gave.
        target: what it was compiled for.

    Raises:
        DeviceError: the binary was compiled for another target, or can't run on this machine.
        BrokenImageError: the image can't be loaded; it is a DeviceError too.

    Example:
        >>> tensor = kronop.TensorDescription(kronop.float32)
        >>> epilogue = kronop.LinearCombination(kronop.float32, 1, kronop.float32, kronop.float32)
        >>> operation = kronop.KronMatmulOperation(
        ...     "x86", None, tensor, tensor, tensor, epilogue, factors=((4, 4), (4, 4))
        ... )
        >>> (binary,) = kronop.compiler.compile_sources(operation.sources, operation.target)
        >>> kernel = kronop.compiler.load(binary, operation.target)
        >>> kernel is kronop.compiler.load(binary, operation.target)
        True
    """
    is_cuda = binary.format is not BinaryFormat.SHARED_OBJECT
    if is_cuda != (target.backend == "cuda") or binary.arch != target.arch:
        raise DeviceError(
            f"kernel {binary.entry}",
            expected=f"a binary for {target}",
            got=f"one for {binary.arch}",
            hint="compile it for this target",
        )
    kernel = _kernels.get(binary.key)
    if kernel is None:
        kernel = _kernels.setdefault(
            binary.key, load_cuda(binary) if is_cuda else load_host(binary)
        )
    return kernel


def prove(binary: Binary) -> None:
    """Loads a binary that was just compiled, so that the cache never stores one that does not load.

    A binary for a GPU or for another processor is only checked to be complete.

    Raises:
        BrokenImageError: the image can't be loaded.
    """
    check_image(binary)
    if binary.format is BinaryFormat.SHARED_OBJECT and runs(binary.arch, detect_x86_arch()):
        # Replaces a kernel that was loaded from an earlier image with the same key.
        _kernels[binary.key] = load_host(binary)
