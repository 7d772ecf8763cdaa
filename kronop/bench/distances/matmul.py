"""Kernel matrices times columns: `100000x100000x16x1` is M x N x K x C, and a case is a kernel."""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from kronop.bench.arrays import Arrays
from kronop.bench.distances import peers
from kronop.bench.distances.problem import (
    Host,
    Problem,
    by_rows,
    checked_rows,
    extents_of,
    scaled,
)
from kronop.bench.protocol import Call
from kronop.descriptions.datatype import TENSOR_TYPES
from kronop.emit.pipes import Work
from kronop.families.distance.api import product_arguments
from kronop.families.distance.command import kernel_of
from kronop.families.distance.kernels import Gaussian, Kernel
from kronop.families.distance.product_size import KernelMatmulSize
from kronop.families.distance.work import work_of_matmul
from kronop.tensors import Tensor

CASES = ("gaussian",)
SHAPES = {
    "cuda": tuple(f"100000x100000x{k}x{c}" for c in (1, 16) for k in (3, 16, 64)),
    "cpu": tuple(f"5000x5000x{k}x{c}" for c in (1, 16) for k in (3, 64)),
}
PEERS = {"cpu": ("torch", "keops"), "cuda": ("torch", "keops")}


@dataclass(frozen=True, slots=True, kw_only=True)
class Matmul(Problem):
    """The kernel matrix of M and N points of K features, times C columns."""

    m: int
    n: int
    k: int
    c: int
    kernel: Kernel
    case: str
    dtype: str
    kind: ClassVar[str] = "matmul"

    @property
    def extents(self) -> Mapping[str, int]:
        return {"m": self.m, "n": self.n, "k": self.k, "c": self.c}

    @property
    def result(self) -> tuple[int, ...]:
        return self.m, self.c

    def work(self, *, units: bool) -> Work:
        # The least work has squared distances from products.
        return work_of_matmul(
            self.kernel.bound().form,
            KernelMatmulSize(self.m, self.n, self.k, c=self.c),
            element=TENSOR_TYPES[self.dtype].bytes,
            sums=self.sums,
            units=units,
            expanded=True,
        )

    def operands(self, arrays: Arrays) -> tuple[Tensor, ...]:
        shapes = ((self.m, self.k), (self.n, self.k), (self.n, self.c))
        return tuple(arrays.random(shape, self.dtype) for shape in shapes)

    def call(self, operands: Sequence[Tensor], result: Tensor) -> Call:
        x1, x2, v = operands
        arguments = product_arguments(x1, x2, v, self.kernel.bound(), result)
        operation: Any = arguments.operation
        return functools.partial(operation.run, arguments)

    @property
    def checked(self) -> list[int]:
        return checked_rows(self.m, self.n * self.k)

    def expected(self, operands: Sequence[Host]) -> Host:
        x1, x2, v = operands
        bound = self.kernel.bound()

        def of(row: int) -> Host:
            found = bound.form.evaluate(x1[row : row + 1], x2, bound.values, bound.vectors)
            product: Host = found[0] @ v
            return product

        return by_rows(of, self.checked)

    def peer(self, name: str, arrays: Arrays, operands: Sequence[Tensor]) -> Call:
        bandwidth = self.kernel.bandwidth if isinstance(self.kernel, Gaussian) else None
        asked = peers.Asked(p=None, bandwidth=bandwidth, dtype=self.dtype, expanded=True)
        x1, x2, v = operands
        return peers.product_of(name, asked, arrays, x1, x2, v)


def problem_of(case: str, shape: str, scale: float, dtype: str) -> Matmul:
    """The problem of a kernel's name and a shape M x N x K x C, whose numbers of points are scaled.

    Raises:
        ArgumentError: they are not written so.
    """
    hint = "points twice, features, and columns"
    m, n, k, c = extents_of(shape, "M x N x K x C", "5000x5000x16x1", hint)
    kernel = kernel_of(case)
    if isinstance(kernel, Gaussian):  # Random points are then 1 apart, in units of the bandwidth.
        kernel = Gaussian(math.sqrt(2 * k))
    return Matmul(
        m=scaled(m, scale), n=scaled(n, scale), k=k, c=c, kernel=kernel, case=case, dtype=dtype
    )
