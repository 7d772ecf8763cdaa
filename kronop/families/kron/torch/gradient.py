"""The gradients of a Kronecker product, computed: plain tensors in, plain tensors out.

Tensors like x are seen as (*lead, outer, digits, inner): `outer` is M and `inner` is 1 for gemkm,
the other way round for gekmm. Where no factor has a batch, leading dimensions belong to `outer`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from kronop.core import program
from kronop.families.kron.api import gekmm, gemkm, kron_arguments
from kronop.families.kron.description import Side
from kronop.families.kron.runs import Run, runs
from kronop.families.kron.torch.sums import KernelSums, MatrixSums
from kronop.torch import memory
from kronop.torch.declaration import Named, Prepared
from kronop.torch.memory import Buffers, Calls, on_gpu

# Most bytes of a part of the rows, which are taken part by part: on a CPU what a core's cache
# holds, on a GPU what memory can spare.
_PART_BYTES = {"cpu": 2**23, "cuda": 2**30}


def gradients(given: Named) -> list[Tensor]:
    """Gradients of sum(grad * alpha * product) for x (needs[0]) and the factors (needs[1:]).

    Args:
        given: the arguments of kronop::kron_backward: `grad`, of the product's full shape; `x`,
            (..., M, K), or (..., K, M) where `left`; `factors`, as given to the product; `alpha`;
            `left`, whether the product is gekmm; `needs`, which gradients are asked for.

    Returns:
        Those asked for, in order, contiguous, each of the shape and type of what it belongs to.
    """
    grad, needs, tensors = given.grad, given.needs, [given.x, *given.factors]
    if not grad.numel() or not given.x.numel():
        found = {index: item.new_zeros(item.shape) for index, item in enumerate(tensors)}
    elif not any(needs[1:]):
        turned = [factor.mT for factor in given.factors]
        found = {0: _product(grad, turned, given.left, given.alpha)}
    else:
        found = _chain(given)
    return [_like(found[at], item) for at, item in enumerate(tensors) if needs[at]]


def _like(gradient: Tensor, item: Tensor) -> Tensor:
    """The gradient of `item`, summed over the dimensions that were broadcast, in its shape and
    type."""
    if gradient.numel() == item.numel():
        gradient = gradient.reshape(item.shape)
        if gradient.dtype == item.dtype and gradient.is_contiguous():
            return gradient
    return gradient.sum_to_size(item.shape).to(item.dtype).contiguous()


def _chain(given: Named) -> dict[int, Tensor]:
    """Every gradient by its index in `needs`, from the products of both x and the gradient with
    runs of factors: see `runs`."""
    grad, x, factors, left = given.grad, given.x, given.factors, given.left
    shared = all(math.prod(factor.shape[:-2]) == 1 for factor in factors)
    if shared:
        factors = [factor.reshape(factor.shape[-2:]) for factor in factors]
    a = _canonical(x.expand(*grad.shape[:-2], -1, -1) if shared else x, left, shared)
    b = _canonical(grad, left, shared)
    if shared and on_gpu(x):
        of_x, found = _by_kernels(a, b, factors, given)
    else:
        run = _Backward(a, b, factors, given, Calls())
        sums = MatrixSums(run.matrices, run.parts, given.alpha)
        of_x = run.through(sums)
        found = {at + 1: item.mT if left else item for at, item in sums.found().items()}
    if of_x is not None:
        found[0] = of_x.reshape(*grad.shape[:-2], *x.shape[-2:])
    return found


def _by_kernels(
    a: Tensor, b: Tensor, factors: Sequence[Tensor], given: Named
) -> tuple[Tensor | None, dict[int, Tensor]]:
    """(the gradient of x or None, the gradients of the factors by index). A backward like an
    earlier one is launched from addresses alone."""

    def work(calls: Calls) -> tuple[list[Tensor], Sequence[Tensor]]:
        run = _Backward(a, b, factors, given, calls)
        sums = KernelSums(factors, run.parts, given.alpha, given.left, calls)
        of_x = run.through(sums)
        return [sums.flat] if of_x is None else [sums.flat, of_x], run.buffers.every

    flat, *of_x = memory.repeated(_form(given), given.alpha, [b, a, *factors], work)
    # Copied apart: an operator's results may not share memory.
    every = torch.split_with_sizes_copy(flat.to(b.dtype), [item.numel() for item in factors])
    found = {at: item.view(factors[at - 1].shape) for at, item in enumerate(every, 1)}
    return of_x[0] if of_x else None, found


def _form(given: Named) -> tuple[str | bool, ...]:
    return ("backward", given.left, *given.needs)


def repeated(given: Named) -> Prepared | None:
    """The repeatable call that equals this one of `gradients`, if there was one before; for each
    tensor but the gradient its gradient, or None."""
    grad, x, factors, needs = given.grad, given.x, given.factors, given.needs
    is_whole = all(item.is_contiguous() for item in (grad, x)) and grad.shape[:-2] == x.shape[:-2]
    is_shared = all(item.dim() == 2 for item in factors)
    if not (is_whole and is_shared and any(needs[1:]) and grad.numel() and on_gpu(x)):
        return None
    a, b = (_canonical(item, given.left, True) for item in (x, grad))
    found = program.find(_form(given), given.alpha, [b, a, *factors])
    if found is None:
        return None
    shapes = [item.shape for item in (x, *factors)]
    sizes, kind = [item.numel() for item in factors], grad.dtype

    def finish(made: list[Tensor], tensors: Sequence[Tensor]) -> list[Tensor | None]:
        every = torch.split_with_sizes_copy(made[0].to(kind), sizes)
        every = [*(made[1:] or [None]), *every]
        of_each = zip(every, shapes, needs, strict=True)
        return [item.view(shape) if need else None for item, shape, need in of_each]

    return Prepared(tensors=[grad, x, *factors], launch=found.run, finish=finish)


def _canonical(item: Tensor, left: bool, shared: bool) -> Tensor:
    item = item.contiguous()
    if shared:
        return item.reshape(-1, *item.shape[-2:]) if left else item.reshape(-1, item.shape[-1], 1)
    return item.unsqueeze(-3 if left else -1)


class _Backward:
    """The products of x and of the gradient with the runs of factors, for some rows at a time.

    Args:
        a, b: x and the gradient as (*lead, outer, digits, inner).
        factors: as given to the product, or without dimensions of 1 in front.
        given: the arguments of `gradients`.
        calls: makes the kernel calls.

    Attributes:
        matrices: the factors (..., P, Q), as x is contracted.
        parts: the runs.
        buffers: memory for intermediates.
    """

    def __init__(
        self, a: Tensor, b: Tensor, factors: Sequence[Tensor], given: Named, calls: Calls
    ) -> None:
        self.matrices = [factor.mT if given.left else factor for factor in factors]
        shapes = tuple((int(item.shape[-2]), int(item.shape[-1])) for item in self.matrices)
        wants_x, *wanted = given.needs
        size, inner = a.element_size(), int(a.shape[-1])
        self.parts = runs(shapes, tuple(wanted), wants_x, inner, size, on_gpu(a))
        self._a, self._b, self._alpha, self._wants_x = a, b, given.alpha, wants_x
        self._own = [self.matrices[run.start : run.stop] for run in self.parts]
        self._last = max(run.stop for run in self.parts if run.wanted)
        self._first = min(run.start for run in self.parts if run.wanted)
        self.buffers = Buffers()
        self._calls = calls

    def through(self, sums: MatrixSums | KernelSums) -> Tensor | None:
        """Adds all rows to `sums`, and returns the gradient of x (*lead, outer, digits, inner), or
        None."""
        a, b, of_x = self._a, self._b, None
        if self._wants_x:
            of_x = b.new_empty(*b.shape[:-2], a.shape[-2], a.shape[-1])
        row = max(a[..., :1, :, :].numel(), b[..., :1, :, :].numel()) * b.element_size()
        step = max(1, _PART_BYTES[b.device.type] // row)
        for start in range(0, b.shape[-3], step):
            rows = slice(start, start + step)
            some = (None if item is None else item[..., rows, :, :] for item in (a, b, of_x))
            self._add(sums, *some)
        return of_x

    def _add(
        self, sums: MatrixSums | KernelSums, a: Tensor, b: Tensor, of_x: Tensor | None
    ) -> None:
        seen = []
        for run, own in zip(self.parts, self._own, strict=True):
            seen.append(a)
            if run.stop < self._last:
                a = self._apply(a, own, run, 1.0, None)
        for at in reversed(range(len(self.parts))):
            run = self.parts[at]
            if run.wanted:
                sums.add(at, seen[at], b)
            if run.stop <= self._last:
                self.buffers.give(seen[at])
            if of_x is not None or run.start > self._first:
                turned = [item.mT for item in self._own[at]]
                is_end = not run.start
                alpha, out = (self._alpha, of_x) if is_end else (1.0, None)
                after = self._apply(b, turned, run, alpha, out)
                self.buffers.give(b)
                b = after
        self.buffers.give(b)

    def _apply(
        self, item: Tensor, matrices: Sequence[Tensor], run: Run, alpha: float, out: Any
    ) -> Tensor:
        """`item` with the run's digits contracted with matrices (..., P, Q), times alpha."""
        *lead, outer, digits, inner = item.shape
        before, behind = run.before, run.behind * inner
        columns = math.prod(matrix.shape[-1] for matrix in matrices)
        if any(matrix.dim() > 2 for matrix in matrices):
            lead = torch.broadcast_shapes(lead, *(matrix.shape[:-2] for matrix in matrices))
        if out is None:
            shape = (*lead, outer, before * columns * run.behind, inner)
            out = self.buffers.take(shape, item)
        rows = digits * inner // (before * behind)
        left = behind > 1
        if left:  # All rows of a batch use the same matrix.
            matrices = [
                matrix.mT if matrix.dim() == 2 else matrix.mT.unsqueeze(-3) for matrix in matrices
            ]
        tail = (behind,) if left else ()
        source = item.reshape(*item.shape[:-3], outer * before, rows, *tail)
        result = out.view(*lead, outer * before, columns, *tail)
        side = Side.Left if left else Side.Right
        self._calls(
            lambda: _product(source, matrices, left, alpha, result),
            lambda: kron_arguments(source, matrices, side, alpha, out=result),
        )
        return out


def _product(
    x: Tensor, factors: Sequence[Tensor], left: bool, alpha: float, out: Tensor | None = None
) -> Tensor:
    if left:
        return gekmm(factors, x, alpha=alpha, out=out)
    return gemkm(x, factors, alpha=alpha, out=out)
