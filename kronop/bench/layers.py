"""Kronecker-sparse layers as a benchmark sees them: inputs, calls, the check, memory.

torch is imported inside functions, so that the other benchmarks run without it.
"""

from __future__ import annotations

import functools
import math
import os
import random
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from kronop.bench.arrays import Arrays
from kronop.bench.patterns import Case, Pattern
from kronop.bench.protocol import Call, keeping, sets_for
from kronop.descriptions.datatype import TENSOR_TYPES
from kronop.tensors import Tensor

if TYPE_CHECKING:
    import torch

ALGORITHMS = ("kernel", "bmm", "einsum", "bsr", "dense", "sparse")
OURS = "kernel"
_SPARSE = ("bsr", "sparse")
# How many rows of results, and blocks of the weights' gradient, are compared with float64.
_CHECKED_ROWS, _CHECKED_BLOCKS = 64, 4
# Bytes of an index in torch's sparse matrices.
_INDEX_BYTES = 4


class Inputs:
    """The inputs of all algorithms of a case: sets of X (and of Y's gradient), and the weights."""

    def __init__(self, case: Case, arrays: Arrays) -> None:
        pattern, element = case.pattern, TENSOR_TYPES[case.dtype].bytes
        self.case = case
        self.sets = sets_for(case.bytes(element))
        self.xs = [arrays.random(self._shape(pattern.inputs), case.dtype) for _ in range(self.sets)]
        self.gs = [
            arrays.random(self._shape(pattern.outputs), case.dtype)
            for _ in range(self.sets * case.backward)
        ]
        self.weight = arrays.random(pattern.sizes, case.dtype)
        if element > 1:  # torch has no division for types of one byte.
            self.weight /= math.sqrt(pattern.c)
        for x in self.xs:
            x.requires_grad_(case.backward)

    def _shape(self, features: int) -> tuple[int, int]:
        return (
            (self.case.batch, features)
            if self.case.layout == "first"
            else (features, self.case.batch)
        )

    def layer(self, algorithm: str) -> torch.nn.Module | Callable[[Tensor], Tensor]:
        """A layer with these weights and no bias; for types of one byte, which layers don't have,
        the algorithm's function."""
        from kronop.bench.models.formed import Dense, Sparse
        from kronop.torch.nn import KSLinear
        from kronop.torch.nn.algorithms import ALGORITHMS, dense_factor

        case, weight = self.case, self.weight
        is_last = case.layout == "last"
        if weight.element_size() == 1:
            apply = ALGORITHMS[algorithm]
            return lambda x: apply(x, [weight], None, is_last)
        if algorithm == "dense":
            return Dense(dense_factor(weight), is_last).requires_grad_(case.backward)
        # torch multiplies sparse matrices of 16 bits on GPUs only, and has no gradient for them.
        if algorithm in _SPARSE and not case.backward and self._is_multiplied():
            return Sparse(weight, is_last, algorithm == "bsr")
        layer = KSLinear(
            [case.pattern.sizes],
            weights=[weight],
            bias=False,
            algo=algorithm,
            bs_last=is_last,
        )
        return layer.requires_grad_(case.backward)

    def _is_multiplied(self) -> bool:
        return bool(self.weight.is_cuda or self.weight.element_size() > 2)

    def calls(self, layer: Callable[[Tensor], Tensor]) -> list[Call]:
        """One call for each set, which returns its results: Y and, with backward, the gradients.

        With several sets, each call keeps its results until its next turn, so that results rotate
        among buffers as inputs do.
        """
        run = self._backward if self.case.backward else self._forward
        calls: list[Call] = [functools.partial(run, layer, index) for index in range(self.sets)]
        return keeping(calls) if self.sets > 1 else calls

    def _forward(self, layer: Callable[[Tensor], Tensor], index: int) -> list[Tensor]:
        import torch

        with torch.no_grad():
            return [layer(self.xs[index])]

    def _backward(self, layer: torch.nn.Module, index: int) -> list[Tensor]:
        import torch

        x = self.xs[index]
        y = layer(x)
        gradients = torch.autograd.grad(y, [x, *layer.parameters()], self.gs[index])
        return [y.detach(), *gradients]

    def poison(self, arrays: Arrays) -> None:
        """Fills and frees memory of the result's size with NaN: the next result will likely get
        this memory, so that elements which are not written show."""
        result = self.case.result
        name = result.name if result.kind == "float" else f"float{8 * result.bytes}"
        arrays.poisoned(self._shape(self.case.pattern.outputs), name)


class Check:
    """Compares results on the first set with float64: a random sample of rows and of blocks."""

    def __init__(self, inputs: Inputs) -> None:
        case, pattern = inputs.case, inputs.case.pattern
        picked = random.Random(0)
        count = min(_CHECKED_ROWS, case.batch)
        self._rows = sorted({0, case.batch - 1, *picked.sample(range(case.batch), count)})
        self._blocks = [
            (picked.randrange(pattern.a), picked.randrange(pattern.d))
            for _ in range(_CHECKED_BLOCKS)
        ]
        self._case = case
        weight = inputs.weight.double()
        self._expected = [_product(self._picked(inputs.xs[0]), weight, pattern, "abcd")]
        if case.backward:
            g = self._picked(inputs.gs[0])
            self._expected.append(_product(g, weight.transpose(1, 2), pattern, "acbd"))
            self._expected.append(self._weight_gradient(inputs.xs[0], inputs.gs[0]))

    def complaint(self, results: Sequence[Tensor]) -> str:
        """Says that the results have the wrong element type; empty if it is right."""
        got, expected = str(results[0].dtype), f"torch.{self._case.result.name}"
        return "" if got == expected else f"its sums are {got}, not {expected}"

    def error(self, results: Sequence[Tensor]) -> float:
        """The largest relative error of a result; infinite if an element is not finite."""
        import torch

        if not all(math.isfinite(float(item.sum(dtype=torch.float32))) for item in results):
            return math.inf
        found = [self._picked(item) for item in results[:2]]
        if self._case.backward:
            found.append(torch.stack([self._block(results[2], i, l) for i, l in self._blocks]))
        return max(
            float((item - expected).norm() / expected.norm())
            for item, expected in zip(found, self._expected, strict=True)
        )

    def _block(self, gradient: Tensor, i: int, l: int) -> Tensor:
        """The block (b, c) at [i, :, :, l] of a gradient of weights or of the dense matrix."""
        a, b, c, d = self._case.pattern.sizes
        if gradient.dim() == 2:
            return gradient.view(a, b, d, a, c, d)[i, :, l, i, :, l].double()
        return gradient[i, :, :, l].double()

    def _picked(self, value: Tensor) -> Tensor:
        """The sampled rows in float64, as (rows, features)."""
        value = value.detach()
        picked = value[self._rows] if self._case.layout == "first" else value[:, self._rows].T
        return picked.double()

    def _weight_gradient(self, x: Tensor, g: Tensor) -> Tensor:
        """The expected gradients of the sampled blocks [i, :, :, l] of the weights."""
        import torch

        a, b, c, d = self._case.pattern.sizes
        if self._case.layout == "last":
            x, g = x.T, g.T
        x, g = x.detach().reshape(-1, a, c, d), g.reshape(-1, a, b, d)
        return torch.stack(
            [g[:, i, :, l].double().T @ x[:, i, :, l].double() for i, l in self._blocks]
        )


def _product(x: Tensor, weight: Tensor, pattern: Pattern, order: str) -> Tensor:
    """Rows of X times K', or times K if `weight` is transposed to (a, c, b, d)."""
    import torch

    a, d = pattern.a, pattern.d
    inner = weight.shape[2]
    rows = x.reshape(len(x), a, inner, d)
    return torch.einsum("nikl,ijkl->nijl", rows, weight).reshape(len(x), -1)


def needed_bytes(case: Case, algorithm: str, sets: int) -> int:
    """A lower bound of the memory that an algorithm takes besides the inputs.

    bmm and einsum make permuted copies, dense makes the matrix and an intermediate of its size, and
    the sparse algorithms make permuted copies, values and indices.
    """
    element, pattern = TENSOR_TYPES[case.dtype].bytes, case.pattern
    x, y = case.batch * pattern.inputs, case.batch * pattern.outputs
    gradients = (x + pattern.weights) * case.backward * element
    results = (y * case.result.bytes + gradients) * sets
    matrix = pattern.inputs * pattern.outputs * element
    extra = {
        "kernel": 0,
        "bmm": (x + y) * element,
        "einsum": (x + y) * element,
        "bsr": (x + y) * element + 2 * pattern.weights * (element + _INDEX_BYTES),
        "dense": (2 + case.backward) * matrix,
        "sparse": (x + y) * element + 2 * pattern.weights * (element + _INDEX_BYTES),
    }[algorithm]
    return results + extra


def free_bytes(device: str) -> int:
    """Free memory of the device, in bytes."""
    if device == "cuda":
        import torch

        return int(torch.cuda.mem_get_info()[0])
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
        return next(1024 * int(line.split()[1]) for line in lines if "MemAvailable" in line)
    except (OSError, StopIteration):
        return os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
