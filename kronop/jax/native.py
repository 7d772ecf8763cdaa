"""XLA's custom call `kronop`: a handler in C++, and the programs of recorded launches that it runs.

The handler is compiled once a machine by the host's compiler against the headers that JAX ships,
and kept in compiled_cache.db as kernels are. The structs here are those of call.hpp.
"""

from __future__ import annotations

import ctypes
import functools
import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jax

from kronop import compiler
from kronop.artifacts import Language, Source
from kronop.compiler.cuda_headers import driver_headers
from kronop.compiler.host_kernel import HostKernel, alone_address
from kronop.core.addressed import Record
from kronop.core.native.launches import HEADERS, Kept, launches
from kronop.frozen import dataclass
from kronop.late import module_lock
from kronop.target import Target

CALL = "kronop"
"""The name of the custom call, on every platform."""
_HEADERS = Path(__file__).parent / "include"
_PLATFORMS = {"cpu": "cpu", "cuda": "CUDA"}  # The names in lowering rules, and in XLA.
_DRIVER = "libcuda.so.1"


class _Program(ctypes.Structure):
    _fields_ = (
        ("key", ctypes.c_int64),
        ("next", ctypes.c_void_p),
        ("launches", ctypes.c_void_p),
        ("launch_count", ctypes.c_int64),
        ("alignments", ctypes.c_void_p),
        ("slot_count", ctypes.c_int64),
        ("alone", ctypes.c_void_p),
    )


class _Command(ctypes.Structure):
    _fields_ = tuple((name, ctypes.c_void_p) for name in ("program", "driver", "handler"))


@dataclass(frozen=True, slots=True, kw_only=True)
class Program:
    """Recorded launches, as the handler takes them.

    Attributes:
        records: the launches, in order; their slots are the call's arguments, then its results.
        alignments: of each slot's address, in bytes.
    """

    records: tuple[Record, ...]
    alignments: tuple[int, ...]

    def key(self, platform: str) -> int:
        """A digest of all that the launches do, the same in every process: XLA may find a function
        compiled in an earlier process in JAX's own cache."""
        told = [
            (
                record.kernel.entry,
                record.launch.parameters,
                record.launch.grid,
                record.launch.block,
                record.launch.shared_bytes,
                record.launch.overlaps,
                record.patches,
            )
            for record in self.records
        ]
        digest = hashlib.sha256(repr((platform, self.alignments, told)).encode()).digest()
        return int.from_bytes(digest[:8], "little", signed=True)


_lock = module_lock()
# Everything that the handler reads, by key: never freed, because compiled functions may run it.
_registered: dict[tuple[str, int], object] = {}


def register(platform: str, program: Program, devices: Sequence[int]) -> int:
    """The key under which the handler of a platform finds the program from now on.

    Args:
        platform: "cpu" or "cuda".
        devices: the indices of the GPUs that may run it; (0,) for a CPU.
    """
    key = program.key(platform)
    with _lock:
        if (platform, key) not in _registered:
            made, kept = _struct(key, program, devices)
            driver = None if platform == "cpu" else _launch_address()
            command = _Command(program=ctypes.addressof(made), driver=driver)
            _library(platform)(ctypes.addressof(command), 0)
            _registered[platform, key] = made, kept, program
    return key


def _struct(key: int, program: Program, devices: Sequence[int]) -> tuple[_Program, Kept]:
    """The program in native memory, and what owns the memory that it points to."""
    kept = Kept()
    made = _Program(
        key=key,
        launches=launches(program.records, devices, kept),
        launch_count=len(program.records),
        alignments=kept.numbers(program.alignments),
        slot_count=len(program.alignments),
        alone=alone_address(),
    )
    return made, kept


@functools.cache
def _library(platform: str) -> Any:
    """The library's function that obeys a `_Command`; its handler is known to XLA from now on."""
    target, sources = Target.parse("x86"), [source(platform)]
    _, (kernel,) = compiler.load_all(compiler.compile_sources(sources, target), sources, target)
    assert isinstance(kernel, HostKernel)
    command = _Command()
    kernel.function(ctypes.addressof(command), 0)
    capsule = jax.ffi.pycapsule(ctypes.c_void_p(command.handler))
    jax.ffi.register_ffi_target(CALL, capsule, platform=_PLATFORMS[platform])
    return kernel.function


def _launch_address() -> int:
    """The address of the driver's cuLaunchKernelEx."""
    function = ctypes.CDLL(_DRIVER).cuLaunchKernelEx
    return ctypes.cast(function, ctypes.c_void_p).value or 0


def source(platform: str) -> Source:
    """The translation unit with a platform's handler."""
    header = {"cpu": "host", "cuda": "cuda"}[platform]
    entry = f"kronop_jax_{header}"
    return Source(
        entry=entry,
        text=f'#include "kronop_jax/{header}.hpp"\n\n'
        f'extern "C" int {entry}(void* command, int) {{ return obey(command); }}\n',
        language=Language.CXX,
        include_directories=(
            str(_HEADERS),
            str(HEADERS),
            jax.ffi.include_dir(),
            *(driver_headers() if platform == "cuda" else ()),
        ),
    )
