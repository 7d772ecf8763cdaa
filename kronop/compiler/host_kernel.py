"""Loads shared objects into this process and calls their kernels."""

from __future__ import annotations

import contextlib
import ctypes
import itertools
import os
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

from kronop import knobs
from kronop.artifacts import Binary, Launch
from kronop.compiler.commands import advice
from kronop.compiler.images import broken, check_image
from kronop.compiler.parameters import parameter_words
from kronop.compiler.private_folder import private_folder
from kronop.cpus import cpu_count
from kronop.errors import DescriptionError, DeviceError, OutOfMemoryError
from kronop.frozen import dataclass
from kronop.target import Target, name_of_cpu, runs

# Parts of the loader's messages if the machine lacks something and the image is not at fault.
_LACKS = ("cannot open shared object file", "failed to map segment", "cannot allocate memory")
# Numbers for the paths that the loader is given: see `_file_of`.
_numbers = itertools.count()
# 1 if kernels must do all their work on the calling thread: in a forked child OpenMP would wait for
# threads that exist only in the parent. All launchers share this one object, so that launchers
# which were bound before the fork see the change.
_alone = ctypes.c_int(0)


class _Crew(ctypes.Structure):
    """kronop::Crew of parallel.hpp, through which calls from several threads share the CPUs."""

    _fields_ = (
        *((name, ctypes.c_int) for name in ("cpus", "calls", "threads", "punctual")),
        *((name, ctypes.c_longlong) for name in ("latest", "balance", "pause", "resumption")),
    )


_crew = _Crew(cpus=cpu_count(), punctual=cpu_count())


def _stay_alone() -> None:
    _alone.value = 1
    _crew.calls = _crew.threads = 0  # Calls that were running at the fork run in the parent only.


def alone_address() -> int:
    """The address of the int that native code passes to kernels as `alone`."""
    return ctypes.addressof(_alone)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_stay_alone)


@dataclass(frozen=True, slots=True)
class HostKernel:
    """A loaded x86 kernel: `extern "C" int entry(const void* parameters, int alone)`.

    The function returns 0 on success. `alone` is 1 in a forked child.
    """

    entry: str
    function: Any

    def address(self, launch: Launch, device: int = 0) -> int:
        """The address of the function, for callers in native code."""
        return ctypes.cast(self.function, ctypes.c_void_p).value or 0

    def bind(self, launch: Launch, device: int = 0) -> Callable[[int], None]:
        """A function that runs the kernel from the calling thread; it ignores the stream.

        It keeps a copy of the parameters; the caller keeps the memory that they point to. In a
        forked child the calling thread does the work of all threads, one share after another.
        """
        return self.bind_words(launch, device)[0]

    def bind_words(
        self, launch: Launch, device: int = 0
    ) -> tuple[Callable[[int], None], ctypes.Array[ctypes.c_uint64]]:
        """(the launcher as of `bind`, its parameters as 8-byte words, which may be changed between
        two calls)."""
        function, entry, alone = self.function, self.entry, _alone
        words = parameter_words(launch)
        # A c_void_p that is made once: ctypes would convert a plain address in every call.
        pointer = ctypes.cast(words, ctypes.c_void_p)

        def run(stream: int, _keep: object = words) -> None:
            if status := function(pointer, alone):
                _fail(entry, status)

        return (_printing(run, self.entry) if knobs.current().debug >= 1 else run), words


def _fail(entry: str, status: int) -> None:
    raise DeviceError(
        f"kernel {entry}",
        expected="status 0",
        got=f"status {status}",
        hint="its result is not to be used",
    )


def _printing(run: Callable[[int], None], entry: str) -> Callable[[int], None]:
    timed = knobs.current().debug >= 2

    def launch(stream: int) -> None:
        start = time.perf_counter()
        run(stream)
        took = f" in {(time.perf_counter() - start) * 1e6:.1f} us" if timed else ""
        print(f"kronop: ran {entry} on x86{took}", file=sys.stderr, flush=True)

    return launch


def load_host(binary: Binary) -> HostKernel:
    """The kernel in `binary`, mapped into this process until it ends.

    Raises:
        DeviceError: this machine lacks the instructions, a library, or a folder for the file.
        BrokenImageError: the loader refuses the image.
        OutOfMemoryError: there is no memory for the code.
    """
    _check_machine(binary)
    check_image(binary)
    try:
        with _file_of(binary) as path:
            library = _mapped(binary, path)
        function = getattr(library, binary.entry)
    except AttributeError as error:
        raise broken(binary, error) from error
    except OSError as error:
        hint = advice(error, otherwise="set TMPDIR to a folder of your own")
        raise DeviceError(
            f"kernel {binary.entry}: no file to load it from ({error}); {hint}"
        ) from error
    except MemoryError as error:
        raise OutOfMemoryError(
            f"{binary.entry}: no memory for {len(binary.image)} bytes of code; free some"
        ) from error
    with contextlib.suppress(ValueError):  # Kernels that share no work lack the symbol.
        ctypes.c_void_p.in_dll(library, "kronop_crew").value = ctypes.addressof(_crew)
    function.argtypes = (ctypes.c_void_p, ctypes.c_int)
    function.restype = ctypes.c_int
    return HostKernel(binary.entry, function)


def _mapped(binary: Binary, path: str) -> ctypes.CDLL:
    """The library at `path`.

    Raises:
        BrokenImageError: the loader refuses the file's contents.
        DeviceError: the loader lacks file handles, memory, or OpenMP's library.
    """
    try:
        return ctypes.CDLL(path)
    except OSError as error:
        if any(lack in str(error) for lack in _LACKS):
            raise DeviceError(
                f"kernel {binary.entry} can't be loaded ({error}); install what is missing, or "
                "close files or free memory"
            ) from error
        raise broken(binary, error) from error


def _check_machine(binary: Binary) -> None:
    """Refuses a binary whose instructions this machine lacks: it would die by SIGILL."""
    here = Target.parse("x86")
    try:
        needed = Target.parse(name_of_cpu(binary.arch))
    except DescriptionError as error:
        raise DeviceError(f"kernel {binary.entry}: {error}") from None
    if not runs(needed.arch, here.arch):
        raise DeviceError(
            f"kernel {binary.entry}",
            expected=f"a machine with {binary.arch}",
            got=f"one with {here.arch}",
            hint=f"use the target {here.name!r}",
        )


@contextlib.contextmanager
def _file_of(binary: Binary) -> Iterator[str]:
    """A path from which the loader can map `binary`, valid until the block ends.

    On Linux the image is an anonymous file, which needs neither disk space nor a folder that allows
    execution. The loader takes a path that it has seen before for the library it loaded then, and
    numbers of file descriptors are reused; so each path is a link with a new number in its name.
    """
    with private_folder() as folder:
        path = f"{folder}/{binary.entry[:200]}-{next(_numbers)}.so"
        if sys.platform != "linux":
            with open(path, "wb") as file:
                file.write(binary.image)
            yield path
            return
        handle = os.memfd_create(binary.entry[:200], os.MFD_CLOEXEC)
        with open(handle, "wb") as file:
            file.write(binary.image)
            file.flush()
            os.symlink(f"/proc/self/fd/{handle}", path)
            yield path
