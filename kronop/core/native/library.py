"""The native library: compiled against tvm-ffi's headers by the host's compiler, through kronop's
cache, beside the calls that could use it. Without tvm-ffi or a compiler there is none."""

from __future__ import annotations

import ctypes
import functools
import os
import sys
import threading
from typing import Any

from kronop import compiler
from kronop.artifacts import Language, Source
from kronop.compiler.cuda_headers import driver_headers
from kronop.compiler.host_kernel import HostKernel
from kronop.core.native.launches import HEADERS
from kronop.errors import KronopError
from kronop.late import imported, is_initializing, spec_of
from kronop.target import Target

_DRIVER = "libcuda.so.1"
_OF_DRIVER = (
    "cuLaunchKernelEx",
    "cuCtxGetCurrent",
    "cuCtxPushCurrent_v2",
    "cuCtxPopCurrent_v2",
    "cuTensorMapReplaceAddress",
)
_OF_TVM = (
    "TVMFFIEnvTensorAlloc",
    "TVMFFIEnvGetStream",
    "TVMFFIObjectDecRef",
    "TVMFFIFunctionCreate",
)
_MAKE = "kronop.make_program_"
_WITHOUT_ADDITIONS = "TVM_FFI_DISABLE_TORCH_C_DLPACK"


class _Start(ctypes.Structure):
    _fields_ = (
        ("interface", ctypes.c_void_p * len(_OF_TVM)),
        ("driver", ctypes.c_void_p * len(_OF_DRIVER)),
        ("make", ctypes.c_void_p),
    )


# By backend: what makes functions of programs; None while it is built, and where it can't be.
_makers: dict[str, Any] = {}


def maker(backend: str) -> Any:
    """A function of tvm-ffi from a program's address and tensors to a function, or None as long as
    there is none. The first call begins to build it.

    Args:
        backend: "x86" or "cuda".
    """
    if backend not in _makers and _may_import():
        _makers[backend] = None
        if spec_of("tvm_ffi") is not None:
            name = _name(backend)
            threading.Thread(target=_build, args=(backend,), name=name, daemon=True).start()
    return _makers.get(backend)


def _may_import() -> bool:
    """Whether tvm-ffi can be imported: it imports torch where that is installed, which takes a
    second, so that only processes that have it anyway may."""
    torch = sys.modules.get("torch")
    return not _has_torch() if torch is None else not is_initializing(torch)


@functools.cache
def _has_torch() -> bool:
    return spec_of("torch") is not None


def wait(backend: str) -> Any:
    """As `maker`, once it is built."""
    maker(backend)
    for thread in threading.enumerate():
        if thread.name == _name(backend):
            thread.join()
    return _makers.get(backend)


def _name(backend: str) -> str:
    return f"kronop builds its native library for {backend}"


def _build(backend: str) -> None:
    try:
        _makers[backend] = _built(backend)
    except (KronopError, OSError, AttributeError, ImportError):
        return  # Calls go on without it.


def _tvm_ffi() -> Any:
    """tvm-ffi without what it adds to old versions of torch: that starts CUDA, and no process may
    fork then."""
    before = os.environ.get(_WITHOUT_ADDITIONS)
    os.environ[_WITHOUT_ADDITIONS] = "1"
    try:
        return imported("tvm_ffi")
    finally:
        if before is None:
            del os.environ[_WITHOUT_ADDITIONS]
        else:
            os.environ[_WITHOUT_ADDITIONS] = before


def _built(backend: str) -> Any:
    tvm_ffi = _tvm_ffi()
    target, sources = Target.parse("x86"), [source(backend)]
    _, (kernel,) = compiler.load_all(compiler.compile_sources(sources, target), sources, target)
    assert isinstance(kernel, HostKernel)
    library = ctypes.CDLL(tvm_ffi.libinfo.find_libtvm_ffi())
    start = _Start()
    start.interface[:] = [_address(library, name) for name in _OF_TVM]
    if backend == "cuda":
        driver = ctypes.CDLL(_DRIVER)
        start.driver[:] = [_address(driver, name) for name in _OF_DRIVER]
    kernel.function(ctypes.addressof(start), 0)
    made = ctypes.c_void_p()
    if library.TVMFFIFunctionCreate(None, ctypes.c_void_p(start.make), None, ctypes.byref(made)):
        return None
    name = (_MAKE + backend).encode()
    array = _Bytes(name, len(name))
    if library.TVMFFIFunctionSetGlobal(ctypes.byref(array), made, 1):
        return None
    return tvm_ffi.get_global_func(_MAKE + backend)


class _Bytes(ctypes.Structure):
    _fields_ = (("data", ctypes.c_char_p), ("size", ctypes.c_size_t))


def _address(library: ctypes.CDLL, name: str) -> int:
    return ctypes.cast(getattr(library, name), ctypes.c_void_p).value or 0


def source(backend: str) -> Source:
    """The translation unit of a backend."""
    tvm_ffi = _tvm_ffi()
    header = {"x86": "host", "cuda": "cuda"}[backend]
    entry = f"kronop_native_{header}"
    return Source(
        entry=entry,
        text=f'#include "kronop_native/{header}.hpp"\n\n'
        f'extern "C" int {entry}(void* start, int) {{ return kronop_native::begin(start); }}\n',
        language=Language.CXX,
        include_directories=(
            str(HEADERS),
            *tvm_ffi.libinfo.include_paths(),
            *(driver_headers() if backend == "cuda" else ()),
        ),
    )
