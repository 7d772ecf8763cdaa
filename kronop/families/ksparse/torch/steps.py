"""A chain applied factor by factor, and its gradients, each launched after a single look-up.

The results between factors are kept for the backward. From the third call with tensors of the same
signature on, a recorded `Program` launches the kernels, and none of the Python here runs.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from kronop.core import program
from kronop.errors import ElementTypeError, mismatch
from kronop.families.ksparse.api import chain_patterns, ksmm, ksparse_arguments
from kronop.families.ksparse.description import inputs_of
from kronop.families.ksparse.gradient_api import gradient_arguments
from kronop.families.ksparse.shape_arguments import with_features
from kronop.families.ksparse.torch.computing import compute_gradient
from kronop.families.ksparse.torch.shapes import as_matrix, check_types
from kronop.torch.memory import Buffers, make_bytes, maker_of, on_gpu


class _Calls:
    """Calls the public functions for one factor's product and gradient."""

    def product(
        self,
        x: Tensor,
        weight: Tensor,
        last: bool,
        alpha: float,
        bias: Tensor | None,
        out: Tensor | None,
    ) -> Tensor:
        return ksmm(x, weight, batch_last=last, alpha=alpha, bias=bias, out=out)

    def gradient(
        self, x: Tensor, grad: Tensor, weight: Tensor, last: bool, alpha: float, kind: torch.dtype
    ) -> Tensor:
        return compute_gradient(x, grad, tuple(weight.shape), alpha, last, kind)


class _NotedCalls(_Calls):
    """Makes the same calls through arguments objects, which are recorded; for plain tensors that
    are not empty."""

    def __init__(self, recording: program.Recording) -> None:
        self._recording = recording

    def product(
        self,
        x: Tensor,
        weight: Tensor,
        last: bool,
        alpha: float,
        bias: Tensor | None,
        out: Tensor | None,
    ) -> Tensor:
        pattern, scalars = tuple(weight.shape), (alpha, 0.0)
        return self._run(
            ksparse_arguments(x, weight, pattern, last, bias, None, scalars, None, out)
        )

    def gradient(
        self, x: Tensor, grad: Tensor, weight: Tensor, last: bool, alpha: float, kind: torch.dtype
    ) -> Tensor:
        pattern = tuple(weight.shape)
        x, grad = as_matrix(x, last), as_matrix(grad, last)
        out = x.new_empty(pattern, dtype=kind)
        return self._run(
            gradient_arguments(x, grad, pattern, batch_last=last, alpha=alpha, out=out)
        )

    def _run(self, arguments: Any) -> Tensor:
        arguments.operation.run(arguments)
        self._recording.add(arguments)
        return arguments.Y


def products(
    x: Tensor, chain: Sequence[Tensor], bias: Tensor | None, alpha: float, last: bool
) -> list[Tensor]:
    """The result of each factor of the chain; the last one is times `alpha`, plus the bias."""
    form, tensors = _forward_of(x, chain, bias, last)
    results, recording = program.repeat(form, alpha, tensors)
    if results is not None:
        return results
    check_differentiable(x, chain)
    # Check all factors before the first one runs, or a later one would fail in the middle.
    chain_patterns(chain)
    check_types(x, chain)
    calls = _Calls() if recording is None else _NotedCalls(recording)
    results = []
    for weight in chain[:-1]:
        x = calls.product(x, weight, last, 1.0, None, None)
        results.append(x)
    results.append(calls.product(x, chain[-1], last, alpha, bias, None))
    if recording is not None:
        recording.end([(item, maker_of(item)) for item in results], (), make_bytes)
    return results


def _forward_of(
    x: Tensor, chain: Sequence[Tensor], bias: Tensor | None, last: bool
) -> tuple[tuple[object, ...], list[Tensor]]:
    """(form, tensors): the key under which a forward's program is recorded."""
    tensors = [x, *chain] if bias is None else [x, *chain, bias]
    return ("factors", last, bias is None), tensors


def known_products(
    x: Tensor, chain: Sequence[Tensor], bias: Tensor | None, alpha: float, last: bool
) -> program.Program | None:
    """The program that repeats these `products`, if such a call was recorded."""
    form, tensors = _forward_of(x, chain, bias, last)
    return program.find(form, alpha, tensors)


def _backward_of(
    grad: Tensor,
    chain: Sequence[Tensor],
    operands: Sequence[Tensor | None],
    kinds: Sequence[torch.dtype | None],
    last: bool,
    needs_x: bool,
) -> tuple[tuple[object, ...], list[Tensor]]:
    """(form, tensors): the key under which a backward's program is recorded."""
    given = [item for item in operands if item is not None]
    return ("factors' gradients", last, needs_x, *kinds), [grad, *chain, *given]


def known_gradients(
    grad: Tensor,
    chain: Sequence[Tensor],
    operands: Sequence[Tensor | None],
    kinds: Sequence[torch.dtype | None],
    alpha: float,
    last: bool,
    needs_x: bool,
) -> program.Program | None:
    """The program that repeats these `gradients`, if such a call was recorded."""
    given = [grad, *(item for item in operands if item is not None)]
    if not on_gpu(grad) or not all(item.is_contiguous() for item in given):
        return None
    form, tensors = _backward_of(grad, chain, operands, kinds, last, needs_x)
    return program.find(form, alpha, tensors)


def gradients(
    grad: Tensor,
    chain: Sequence[Tensor],
    operands: Sequence[Tensor | None],
    kinds: Sequence[torch.dtype | None],
    alpha: float,
    last: bool,
    needs_x: bool,
) -> tuple[Tensor | None, list[Tensor | None]]:
    """The gradients of x (or None) and of the weights, given that of the result.

    Args:
        operands: the operand of each factor; None if the gradient of its weights is not asked for.
        kinds: the types of the weights' gradients, None for those that are not asked for; at least
            one is asked for.
    """
    shape = with_features(grad.shape, inputs_of(chain[0].shape), last)
    # Copy here what the calls below would copy, so that the recording has the copies' addresses.
    if not grad.is_contiguous():
        grad = as_matrix(grad, last)
    operands = [
        item if item is None or item.is_contiguous() else as_matrix(item, last) for item in operands
    ]
    results = recording = None
    if on_gpu(grad):
        form, tensors = _backward_of(grad, chain, operands, kinds, last, needs_x)
        results, recording = program.repeat(form, alpha, tensors)
    if results is None:
        calls = _Calls() if recording is None else _NotedCalls(recording)
        run = _Backward(chain, operands, kinds, last, needs_x, calls)
        results = run.through(grad, alpha)
        if recording is not None:
            every = [(item, maker_of(item)) for item in results]
            recording.end(every, run.buffers.every, make_bytes)
    found = iter(results)
    of_weights = [None if kind is None else next(found) for kind in kinds]
    of_x: Any = next(found) if needs_x else None
    if needs_x and of_x.shape != shape:
        of_x = of_x.view(shape)
    return of_x, of_weights


def check_differentiable(x: Tensor, weights: Sequence[Tensor]) -> None:
    """Refuses operands of types for which there is no backward."""
    for name, item in (("x", x), *((f"weights[{at}]", item) for at, item in enumerate(weights))):
        if item.element_size() == 1 and item.is_floating_point():
            raise ElementTypeError(
                mismatch(
                    f"element type of {name}",
                    expected="one that has gradients",
                    got=item.dtype,
                    hint="8-bit floats have none; convert the tensors, or use torch.no_grad()",
                )
            )


class _Backward:
    """The backward of a chain, from the last factor to the first whose gradient is asked for."""

    def __init__(
        self,
        chain: Sequence[Tensor],
        operands: Sequence[Tensor | None],
        kinds: Sequence[torch.dtype | None],
        last: bool,
        needs_x: bool,
        calls: _Calls,
    ) -> None:
        self._chain, self._operands, self._kinds = chain, operands, kinds
        self._last, self._needs_x, self._calls = last, needs_x, calls
        asked = [at for at, kind in enumerate(kinds) if kind is not None]
        self._first = -1 if needs_x else asked[0]
        self.buffers = Buffers()

    def through(self, grad: Tensor, alpha: float) -> list[Tensor]:
        """The gradients of the weights that are asked for, in order, then that of x if asked
        for."""
        found, last = [], self._last
        for at in reversed(range(len(self._chain))):
            weight, kind = self._chain[at], self._kinds[at]
            if kind is not None:
                x = self._operands[at]
                found.append(self._calls.gradient(x, grad, weight, last, alpha, kind))
            if at > self._first:
                shape = with_features(grad.shape, inputs_of(weight.shape), last)
                out = self.buffers.take(shape, grad) if at else grad.new_empty(shape)
                self._calls.product(grad, weight.transpose(1, 2), last, alpha, None, out)
                self.buffers.give(grad)
                grad, alpha = out, 1.0  # The gradient contains alpha from here on.
        self.buffers.give(grad)
        return [*reversed(found), grad] if self._needs_x else found[::-1]
