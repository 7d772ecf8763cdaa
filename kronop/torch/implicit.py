"""Gradients of the solution of a symmetric linear system, however it is found.

M x = b gives M dx = db - dM x. So a gradient g of x is one of b, h = M^-1 g, and one of all that M
is made of: that of the function -h^T M x, with h and x fixed. M^-1 is never differentiated, and
what it is computed from (eigenvectors, iterations) needs no gradient.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Protocol

import torch
from torch import Tensor

from kronop.torch import transforms


class System(Protocol):
    """A system M x = b whose matrix is symmetric and made of tensors."""

    def solve(self, b: Tensor, tensors: Sequence[Tensor]) -> Tensor:
        """x (..., N, C) of b (..., N, C); only its values matter."""

    def multiply(self, x: Tensor, tensors: Sequence[Tensor]) -> Tensor:
        """M x, by functions that torch differentiates."""


def solution(system: System, b: Tensor, tensors: Sequence[Tensor]) -> Tensor:
    """x, differentiable in b and the tensors, to any order."""
    return _Solution.apply(system, b, *tensors)


class _Solution(torch.autograd.Function):  # type: ignore[misc]
    @staticmethod
    def forward(system: System, b: Tensor, *tensors: Tensor) -> Any:
        with without_autocast(b):
            return system.solve(b, tensors)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
        ctx.system, b, *tensors = inputs
        ctx.shape_of_b = b.shape
        ctx.save_for_backward(output, *tensors)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        x, *tensors = map(_of_now, ctx.saved_tensors)
        of_b = _Solution.apply(ctx.system, gradient, *tensors)
        found = _pulled(
            lambda changed: ctx.system.multiply(x, changed),
            -of_b,
            tensors,
            ctx.needs_input_grad[2:],
        )
        return None, of_b.sum_to_size(ctx.shape_of_b), *found


class DeterminantSystem(System, Protocol):
    """One whose determinant is known by products with probes W, of which the trace of W^T A W is
    that of A."""

    def logdet(self, tensors: Sequence[Tensor]) -> tuple[Tensor, Tensor]:
        """The values of log det M (...), and of its standard error."""

    def probes(self, tensors: Sequence[Tensor]) -> Tensor:
        """W (N, C)."""

    def probed(self, tensors: Sequence[Tensor]) -> Tensor:
        """M W, by functions that torch differentiates."""


def logdet(system: DeterminantSystem, tensors: Sequence[Tensor]) -> tuple[Tensor, Tensor]:
    """log det M, differentiable in the tensors, to any order, and its standard error.

    d log det M is the trace of M^-1 dM, so that of W^T M^-1 dM W: a gradient is one more solution.
    """
    value, error = _Determinant.apply(system, *tensors)
    return value, error


class _Determinant(torch.autograd.Function):  # type: ignore[misc]
    @staticmethod
    def forward(system: DeterminantSystem, *tensors: Tensor) -> Any:
        with without_autocast(tensors[0]):
            return system.logdet(tensors)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
        ctx.system, *tensors = inputs
        ctx.mark_non_differentiable(output[1])
        ctx.save_for_backward(*tensors)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor, _: object) -> tuple[Tensor | None, ...]:
        tensors, system = [*map(_of_now, ctx.saved_tensors)], ctx.system
        of_probes = _Solution.apply(system, system.probes(tensors), *tensors)
        of_probes = of_probes * gradient[..., None, None]
        return None, *_pulled(system.probed, of_probes, tensors, ctx.needs_input_grad[1:])


def _of_now(tensor: Tensor) -> Tensor:
    """A saved tensor without the wrapper of a transform that has ended. NOTE: torch 2.13 takes one
    such wrapper off, and not two, which a derivative within a derivative's would have."""
    return tensor.view_as(tensor) if transforms.are_needed() else tensor


def _pulled(
    function: Callable[[Sequence[Tensor]], Tensor],
    gradient: Tensor,
    tensors: Sequence[Tensor],
    needs: Sequence[bool],
) -> list[Tensor | None]:
    """The gradients of the tensors that need one, from that of a function of all."""
    wanted = [at for at, need in enumerate(needs) if need]
    found: list[Tensor | None] = [None] * len(tensors)
    if wanted:

        def of_wanted(*chosen: Tensor) -> Tensor:
            changed = list(tensors)
            for at, item in zip(wanted, chosen, strict=True):
                changed[at] = item
            return function(changed)

        with without_autocast(gradient):
            _, pull = torch.func.vjp(of_wanted, *(tensors[at] for at in wanted))
            for at, item in zip(wanted, pull(gradient), strict=True):
                found[at] = item
    return found


def without_autocast(beside: Tensor) -> torch.autocast:
    """Products in this block keep their type: autocast, as with torch's solvers, is for others."""
    return torch.autocast(beside.device.type, enabled=False)


def are_constant(tensors: Sequence[Tensor]) -> bool:
    """Whether what is computed of the tensors has to be no part of a graph, nor of a transform."""
    if transforms.are_needed() or torch.compiler.is_compiling():
        return False
    return not (torch.is_grad_enabled() and any(item.requires_grad for item in tensors))


@contextlib.contextmanager
def unrecorded() -> Iterator[None]:
    """In this block results have no graph, and are no inference tensors, which autograd refuses."""
    with torch.inference_mode(False), torch.no_grad():
        yield
