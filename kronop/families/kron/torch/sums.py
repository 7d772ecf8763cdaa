"""The gradients of the factors of runs, from the operands A and B of `runs`.

A is (outer, before rows behind, inner), made from x; B is (outer, before columns behind, inner),
made from the gradient. Both are contiguous, and hold some rows at a time.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from kronop.families.kron.formed import kronecker_product
from kronop.families.kron.runs import Run, permutes
from kronop.families.ksparse.api import gradient_arguments, weight_gradient
from kronop.torch.memory import Calls, kind_of, on_gpu


def leading(*tensors: Tensor) -> tuple[int, ...]:
    """The shape to which the dimensions before the last two broadcast."""
    shapes = [shape for item in tensors if (shape := item.shape[:-2])]
    return torch.broadcast_shapes(*shapes) if shapes else ()


class MatrixSums:
    """The gradients of factors that may have a batch, from those of the runs' merged factors,
    which are summed up by torch's matrix products.

    Args:
        matrices: (..., P, Q), as x is contracted.
        parts: the runs.
        alpha: the factor that gradients are scaled by.
    """

    def __init__(self, matrices: Sequence[Tensor], parts: Sequence[Run], alpha: float) -> None:
        self._matrices, self._parts, self._alpha = matrices, parts, alpha
        self._sums: list[Tensor | None] = [None] * len(parts)

    def add(self, at: int, a: Tensor, b: Tensor) -> None:
        """Adds some rows to the gradient of run `at`."""
        self._sums[at] = _contract(a, b, self._parts[at], self._alpha, self._sums[at])

    def found(self) -> dict[int, Tensor]:
        """The gradient of each factor of the runs that were asked for, by its index."""
        every: dict[int, Tensor] = {}
        for run, merged in zip(self._parts, self._sums, strict=True):
            if run.wanted and merged is not None:
                own = self._matrices[run.start : run.stop]
                # Summed over the leading dimensions that no factor of the run has.
                found = _split(merged.sum_to_size(*leading(*own), *merged.shape[-2:]), own)
                every |= dict(enumerate(found, run.start))
        return every


class KernelSums:
    """The gradients of factors without a batch, summed up by kernels into one tensor of the type
    that sums are taken in.

    Args:
        factors: matrices, as they were given to the product.
        parts: the runs.
        alpha: the factor that gradients are scaled by.
        left: whether the product is gekmm.
        calls: makes the kernel calls.

    Attributes:
        flat: the gradients of the factors, each row-major, one after the other.
    """

    def __init__(
        self,
        factors: Sequence[Tensor],
        parts: Sequence[Run],
        alpha: float,
        left: bool,
        calls: Calls,
    ) -> None:
        self._factors, self._parts, self._alpha, self._left = factors, parts, alpha, left
        self._calls = calls
        sizes = [item.numel() for item in factors]
        self._starts = [sum(sizes[:at]) for at in range(len(sizes) + 1)]
        self.flat = factors[0].new_empty(sum(sizes), dtype=kind_of(factors[0]))
        self._begun: set[int] = set()

    def add(self, at: int, a: Tensor, b: Tensor) -> None:
        """Adds some rows to the gradients of run `at`."""
        run = self._parts[at]
        own = self._factors[run.start : run.stop]
        out = self.flat[self._starts[run.start] : self._starts[run.stop]]
        behind = run.behind * a.shape[-1]
        rows, columns = run.rows, run.columns
        if self._left:  # gekmm contracts transposed factors: transpose their gradients back.
            a, b, rows, columns = b, a, columns, rows
        factors, beta = (own if len(own) > 1 else []), int(at in self._begun)
        out = out if factors else out.view(rows, columns)
        x, g = a.reshape(-1, rows * behind), b.reshape(-1, columns * behind)
        how: dict[str, Any] = {"tied": True, "alpha": self._alpha, "beta": beta}
        how |= {"z": out if beta else None, "out": out, "factors": factors}
        pattern = (1, columns, rows, behind)
        self._calls(
            lambda: weight_gradient(x, g, pattern, **how),
            lambda: gradient_arguments(x, g, pattern, **how),
        )
        self._begun.add(at)


def _contract(a: Tensor, b: Tensor, run: Run, alpha: float, sums: Tensor | None) -> Tensor:
    """alpha dG (*lead, P, Q), the gradient of the merged factor, in the type that sums are taken
    in; plus `sums` if that is not None."""
    *lead, outer, _, inner = b.shape
    size, count, behind = math.prod(lead), outer * run.before, run.behind * inner
    shape, kind = (*lead, run.rows, run.columns), kind_of(b)
    a = a.expand(*lead, *a.shape[-3:])
    if not on_gpu(b):  # Few CPUs multiply 16-bit matrices fast, so widen them first.
        a = a.to(kind).reshape(size, count, run.rows, behind)
        b = b.to(kind).reshape(size, count, run.columns, behind)
        found = _by_matmul(a, b, permutes(run, inner)).view(shape).mul_(alpha)
        return found if sums is None else sums.add_(found)
    beta = 0 if sums is None else 1
    sums = b.new_empty(shape, dtype=kind) if sums is None else sums
    out = sums.view(size, run.rows, run.columns)
    a = a.reshape(size, -1, run.rows * behind)
    b = b.reshape(size, -1, run.columns * behind)
    pattern = (1, run.columns, run.rows, behind)
    weight_gradient(a, b, pattern, tied=True, alpha=alpha, beta=beta, z=out, out=out)
    return sums


def _by_matmul(a: Tensor, b: Tensor, permuted: bool) -> Tensor:
    """dG (size, P, Q), from operands (size, count, P or Q, behind)."""
    if b.shape[-1] == 1 or permuted:
        a, b = (item.mT.reshape(len(b), -1, item.shape[-2]) for item in (a, b))
        return a.mT @ b
    return (a @ b.mT).sum(1)


def _split(merged: Tensor, matrices: Sequence[Tensor]) -> list[Tensor]:
    """The gradients of the factors, from that of their Kronecker product."""
    if len(matrices) == 1:
        return [merged]
    half = len(matrices) // 2
    first, second = matrices[:half], matrices[half:]
    # In the sums' type: products of several factors may leave that of the factors.
    left, right = (
        kronecker_product(item.to(merged.dtype) for item in part) for part in (first, second)
    )
    digits = merged.reshape(
        *merged.shape[:-2], left.shape[-2], right.shape[-2], left.shape[-1], right.shape[-1]
    )
    # Written as sums of products: torch.einsum takes twice the time to find out the same.
    return [
        *_split((digits * right[..., None, :, None, :]).sum((-3, -1)), first),
        *_split((digits * left[..., :, None, :, None]).sum((-4, -2)), second),
    ]
