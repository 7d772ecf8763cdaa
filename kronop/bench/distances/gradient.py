"""Gradients of distances: `4x2000x2000x512` is O x N x K x M, and a case is a power."""

from __future__ import annotations

import functools
import importlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

import kronop
from kronop.bench.arrays import Arrays
from kronop.bench.distances.problem import (
    Host,
    Problem,
    by_rows,
    checked_rows,
    extents_of,
    scaled,
)
from kronop.bench.protocol import Call
from kronop.bench.timing import PeerUnavailableError, need
from kronop.descriptions.datatype import TENSOR_TYPES
from kronop.emit.pipes import Work
from kronop.families.distance.command import norm_of
from kronop.families.distance.form import POWERS, TermKind
from kronop.families.distance.gradient_size import GradientSize
from kronop.families.distance.work import work_of_gradient
from kronop.tensors import Tensor

CASES = ("1", "2", "1.3")
SHAPES = {"cuda": ("4x2000x2000x512",), "cpu": ("4x64x500x500",)}
PEERS: Mapping[str, tuple[str, ...]] = {"cpu": (), "cuda": ("kermac",)}


@dataclass(frozen=True, slots=True, kw_only=True)
class Gradient(Problem):
    """The sums over k of C[o, k] A[k, m] s(D[n, m] - B[n, k]), where s(t) = sgn(t) |t|^(p - 1)."""

    o: int
    n: int
    k: int
    m: int
    p: float
    case: str
    dtype: str
    kind: ClassVar[str] = "gradient"

    @property
    def extents(self) -> Mapping[str, int]:
        return {"o": self.o, "n": self.n, "k": self.k, "m": self.m}

    @property
    def result(self) -> tuple[int, ...]:
        return self.o, self.n, self.m

    def work(self, *, units: bool) -> Work:
        return work_of_gradient(
            POWERS.get(abs(self.p - 1), TermKind.General),
            GradientSize(self.m, self.n, self.k, self.o),
            element=TENSOR_TYPES[self.dtype].bytes,
            sums=self.sums,
            units=units,
            expanded=self.p == 2,
        )

    def operands(self, arrays: Arrays) -> tuple[Tensor, ...]:
        shapes = ((self.k, self.m), (self.n, self.k), (self.o, self.k), (self.n, self.m))
        return tuple(arrays.random(shape, self.dtype) for shape in shapes)

    def call(self, operands: Sequence[Tensor], result: Tensor) -> Call:
        a, b, c, d = operands
        return functools.partial(kronop.cdist_grad, a, b, c, d, self.p, result)

    @property
    def checked(self) -> list[int]:
        return checked_rows(self.n, self.k * self.m)

    def picked(self, result: Tensor) -> Tensor:
        return result[:, self.checked].swapaxes(0, 1)

    def expected(self, operands: Sequence[Host]) -> Host:
        a, b, c, d = operands

        def of(row: int) -> Host:
            t = d[row] - b[row][:, None]
            found: Host = c @ (a * np.sign(t) * np.abs(t) ** (self.p - 1))
            return found

        return by_rows(of, self.checked)

    def peer(self, name: str, arrays: Arrays, operands: Sequence[Tensor]) -> Call:
        if name != "kermac":
            raise PeerUnavailableError("it has no such sums")
        if arrays.device != "cuda" or self.dtype != "float32":
            raise PeerUnavailableError("it is for float32 on GPUs")
        need("kermac")
        out = arrays.poisoned(self.result, self.dtype)
        grad = importlib.import_module("kermac").cdist_grad
        return functools.partial(grad, *operands, out=out, p=self.p)


def problem_of(case: str, shape: str, scale: float, dtype: str) -> Gradient:
    """The problem of a power and a shape O x N x K x M, whose numbers of points K and M are scaled.

    Raises:
        ArgumentError: they are not written so.
    """
    hint = "sets of coefficients, features, and points twice"
    o, n, k, m = extents_of(shape, "O x N x K x M", "4x512x2000x2000", hint)
    k, m = scaled(k, scale), scaled(m, scale)
    return Gradient(o=o, n=n, k=k, m=m, p=norm_of(case), case=case, dtype=dtype)
