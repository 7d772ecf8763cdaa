"""Distances and kernel matrices of all pairs, in the cases `1.3`, `2/expanded`, `gaussian`."""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from kronop.bench.arrays import Arrays
from kronop.bench.distances import peers
from kronop.bench.distances.problem import Host, Problem, by_rows, checked_rows, scaled
from kronop.bench.protocol import Call
from kronop.descriptions.datatype import TENSOR_TYPES
from kronop.emit.pipes import Work
from kronop.errors import ArgumentError
from kronop.families.distance.api import DIRECT, MODES, distance_arguments
from kronop.families.distance.command import kernel_of, norm_of, size_of
from kronop.families.distance.form import TermKind
from kronop.families.distance.kernels import Gaussian, Kernel, PowerNorm
from kronop.families.distance.size import DistanceSize
from kronop.families.distance.work import work_of_matrix
from kronop.tensors import Tensor

CASES = (
    *("1", "inf", "2", "2/expanded", "1.3", "0.5", "1.5", "3", "4", "gaussian"),
    *("1/symmetric", "2/expanded/symmetric"),
)
SHAPES = {
    "cuda": ("30000x30000x1024", "20000x20000x32"),
    "cpu": ("2000x2000x3", "2000x2000x32", "500x500x1024"),
}
PEERS = {"cpu": ("torch", "scipy", "sklearn"), "cuda": ("torch", "kermac")}


@dataclass(frozen=True, slots=True, kw_only=True)
class Matrix(Problem):
    """The matrix of all pairs.

    Attributes:
        case: the case as the user wrote it.
        kernel: a norm or a kernel.
        expanded: squared distances may be matrix products.
        symmetric: the points are compared with themselves.
    """

    size: DistanceSize
    case: str
    kernel: Kernel
    dtype: str
    expanded: bool
    symmetric: bool
    kind: ClassVar[str] = "matrix"

    @property
    def extents(self) -> Mapping[str, int]:
        return {"m": self.size.m, "n": self.size.n, "k": self.size.k}

    @property
    def result(self) -> tuple[int, ...]:
        return self.size.m, self.size.n

    @property
    def p(self) -> float | None:
        """The norm; None for another kernel."""
        return self.kernel.p if isinstance(self.kernel, PowerNorm) else None

    @property
    def bandwidth(self) -> float | None:
        """That of a Gaussian kernel; None for others."""
        return self.kernel.bandwidth if isinstance(self.kernel, Gaussian) else None

    def work(self, *, units: bool) -> Work:
        return work_of_matrix(
            self.kernel.bound().form,
            self.size,
            element=TENSOR_TYPES[self.dtype].bytes,
            sums=self.sums,
            units=units,
            expanded=self.expanded,
            symmetric=self.symmetric,
        )

    def operands(self, arrays: Arrays) -> tuple[Tensor, ...]:
        x1 = arrays.random((self.size.m, self.size.k), self.dtype)
        if self.symmetric:
            return x1, x1
        return x1, arrays.random((self.size.n, self.size.k), self.dtype)

    def call(self, operands: Sequence[Tensor], result: Tensor) -> Call:
        x1, x2 = operands
        mode = MODES[1] if self.expanded else DIRECT
        arguments = distance_arguments(x1, x2, self.kernel.bound(), mode, result)
        operation: Any = arguments.operation
        return functools.partial(operation.run, arguments)

    @property
    def checked(self) -> list[int]:
        return checked_rows(self.size.m, self.size.n * self.size.k)

    def expected(self, operands: Sequence[Host]) -> Host:
        x1, x2 = operands
        bound = self.kernel.bound()

        def of(row: int) -> Host:
            found = bound.form.evaluate(x1[row : row + 1], x2, bound.values, bound.vectors)
            return np.asarray(found[0], np.float64)

        return by_rows(of, self.checked)

    def error(self, found: Host, expected: Host, operands: Sequence[Host]) -> float:
        """Of expanded distances, the largest difference of squares over the largest squared norm of
        a point."""
        if self.expanded and self.p == 2:
            largest = max(float(np.square(item).sum(-1).max()) for item in operands)
            return float(np.abs(found**2 - expected**2).max()) / largest
        return Problem.error(self, found, expected, operands)

    def peer(self, name: str, arrays: Arrays, operands: Sequence[Tensor]) -> Call:
        asked = peers.Asked(
            p=self.p, bandwidth=self.bandwidth, dtype=self.dtype, expanded=self.expanded
        )
        return peers.call_of(name, asked, arrays, *operands)


def problem_of(case: str, shape: str, scale: float, dtype: str) -> Matrix:
    """The problem of a case (a norm or a kernel's name, then `/expanded` or `/symmetric`) and a
    shape (M x N x K), whose numbers of points are scaled.

    Raises:
        ArgumentError: the case or the shape is not written so, or they do not fit each other.
    """
    size = size_of(shape)
    size = DistanceSize(scaled(size.m, scale), scaled(size.n, scale), size.k)
    name, *flags = case.split("/")
    kernel = PowerNorm(norm_of(name)) if name[:1] in "0123456789.i" else kernel_of(name)
    if isinstance(kernel, Gaussian):  # Random points are then 1 apart, in units of the bandwidth.
        kernel = Gaussian(math.sqrt(2 * size.k))
    terms = {term.kind for term in kernel.bound().form.terms}
    wrong = set(flags) - {"expanded", "symmetric"}
    if wrong or ("expanded" in flags and TermKind.Two not in terms):
        raise ArgumentError(
            "case",
            expected="a norm or kernel, then /symmetric, or /expanded if it is of squares",
            got=repr(case),
            hint="for example 1.3, inf/symmetric, 2/expanded, gaussian",
        )
    if "symmetric" in flags:
        size = DistanceSize(size.m, size.m, size.k)
    return Matrix(
        size=size,
        case=case,
        kernel=kernel,
        dtype=dtype,
        expanded="expanded" in flags,
        symmetric="symmetric" in flags,
    )
