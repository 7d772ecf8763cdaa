"""cuSOLVER and cuBLAS through nvmath-python, imported at their first use."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator
from types import ModuleType

import numpy as np

from kronop.descriptions.datatype import DataType
from kronop.errors import DeviceError, installing
from kronop.frozen import dataclass
from kronop.late import imported

# Values of cuBLAS's and cuSOLVER's enumerations, which are part of their binary interface.
LOWER, UPPER = 0, 1
PLAIN, TRANSPOSED = 0, 1
LEFT = NON_UNIT = 0
WITH_VECTORS = 1


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Routines:
    """The functions and constants of one element type.

    Attributes:
        data_type: cudaDataType.
        one: the address of a 1 on the host.
        potrf, getrf, getrs, trsm: the batched forms.
    """

    data_type: int
    one: int
    potrf: Callable[..., None]
    getrf: Callable[..., None]
    getrs: Callable[..., None]
    trsm: Callable[..., None]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Library:
    """The modules `cusolverDn` and `cublas` of nvmath.bindings."""

    solver: ModuleType
    blas: ModuleType

    def routines(self, element: DataType) -> Routines:
        letter, data_type = _TYPES[element.name]
        return Routines(
            data_type=data_type,
            one=_ONES[element.name].__array_interface__["data"][0],
            potrf=getattr(self.solver, f"{letter}potrf_batched"),
            getrf=getattr(self.blas, f"{letter}getrf_batched"),
            getrs=getattr(self.blas, f"{letter}getrs_batched"),
            trsm=getattr(self.blas, f"{letter}trsm_batched"),
        )

    @contextlib.contextmanager
    def errors(self, doing: str) -> Iterator[None]:
        """Turns errors of the bindings, and of libraries that are not found, into DeviceError."""
        try:
            yield
        except Exception as error:
            if type(error).__module__.partition(".")[0] not in ("nvmath", "cuda"):
                raise
            raise DeviceError(
                doing,
                expected="success of cuSOLVER and cuBLAS",
                got=f"{type(error).__name__}: {error}",
                hint=f"free GPU memory, or {installing('linalg')} if a library is missing",
            ) from error


_TYPES = {"float32": ("s", 0), "float64": ("d", 1)}  # CUDA_R_32F, CUDA_R_64F
_ONES = {name: np.ones(1, name) for name in _TYPES}


@functools.cache
def library() -> Library:
    """The bindings.

    Raises:
        DeviceError: nvmath-python is not installed, or does not fit other packages.
    """
    try:
        blas, solver = (imported(f"nvmath.bindings.{name}") for name in ("cublas", "cusolverDn"))
    except ImportError as error:
        raise DeviceError(
            "linear algebra on a GPU",
            expected="the package nvmath-python",
            got=str(error),
            hint=installing("linalg"),
        ) from error
    return Library(solver=solver, blas=blas)
