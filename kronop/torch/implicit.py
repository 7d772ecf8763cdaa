"""Gradients of the solution of a symmetric linear system, however it is found.

M x = b gives M dx = db - dM x. So a gradient g of x is one of b, h = M^-1 g, and one of all that M
is made of: that of the function -h^T M x, with h and x fixed. M^-1 is never differentiated, and
what it is computed from (eigenvectors, iterations) needs no gradient.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import Any, Protocol

import torch

from kronop.torch import transforms


class System(Protocol):
    """A system M x = b whose matrix is symmetric and made of tensors."""

    def solve(self, b: Any, tensors: Sequence[Any]) -> Any:
        """x (..., N, C) of b (..., N, C); only its values matter."""

    def multiply(self, x: Any, tensors: Sequence[Any]) -> Any:
        """M x, by functions that torch differentiates."""


def solution(system: System, b: Any, tensors: Sequence[Any]) -> Any:
    """x, differentiable in b and the tensors, to any order."""
    return _Solution.apply(system, b, *tensors)


class _Solution(torch.autograd.Function):  # type: ignore[misc]
    @staticmethod
    def forward(system: System, b: Any, *tensors: Any) -> Any:
        with without_autocast(b):
            return system.solve(b, tensors)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
        ctx.system, b, *tensors = inputs
        ctx.shape_of_b = b.shape
        ctx.save_for_backward(output, *tensors)

    @staticmethod
    def backward(ctx: Any, gradient: Any) -> tuple[Any, ...]:
        x, *tensors = ctx.saved_tensors
        of_b = _Solution.apply(ctx.system, gradient, *tensors)
        wanted = [at for at, need in enumerate(ctx.needs_input_grad[2:]) if need]
        found: list[Any] = [None] * len(tensors)
        if wanted:

            def multiply(*chosen: Any) -> Any:
                changed = list(tensors)
                for at, item in zip(wanted, chosen, strict=True):
                    changed[at] = item
                return ctx.system.multiply(x, changed)

            with without_autocast(gradient):
                _, pull = torch.func.vjp(multiply, *(tensors[at] for at in wanted))
                for at, item in zip(wanted, pull(-of_b), strict=True):
                    found[at] = item
        return None, of_b.sum_to_size(ctx.shape_of_b), *found


def without_autocast(beside: Any) -> Any:
    """Products in this block keep their type: autocast, as with torch's solvers, is for others."""
    return torch.autocast(beside.device.type, enabled=False)


def are_constant(tensors: Sequence[Any]) -> bool:
    """Whether what is computed of the tensors has to be no part of a graph, nor of a transform."""
    if transforms.are_needed() or torch.compiler.is_compiling():
        return False
    return not (torch.is_grad_enabled() and any(item.requires_grad for item in tensors))


@contextlib.contextmanager
def unrecorded() -> Iterator[None]:
    """In this block results have no graph, and are no inference tensors, which autograd refuses."""
    with torch.inference_mode(False), torch.no_grad():
        yield
