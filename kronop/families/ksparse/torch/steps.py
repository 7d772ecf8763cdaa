"""A chain applied factor by factor, and its gradients, each launched after a single look-up.

The results between factors are kept for the backward. From the third call with tensors of the same
signature on, a recorded `Program` launches the kernels, and none of the Python here runs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from kronop.core import program
from kronop.errors import ElementTypeError
from kronop.families.ksparse.api import chain_patterns, gradient_arguments, ksmm, sparse_arguments
from kronop.families.ksparse.description import inputs_of
from kronop.families.ksparse.gradient_arguments import KSparseGradientArguments
from kronop.families.ksparse.shape_arguments import with_features
from kronop.families.ksparse.torch.computing import as_matrix, check_types, compute_gradient, turned
from kronop.frozen import dataclass
from kronop.torch.memory import Buffers, Calls, on_gpu, repeated


def _product(
    calls: Calls,
    x: Tensor,
    weight: Tensor,
    last: bool,
    alpha: float,
    bias: Tensor | None = None,
    out: Tensor | None = None,
) -> Tensor:
    """The product with one factor."""
    scalars = (alpha, 0.0)
    return calls(
        lambda: ksmm(x, weight, batch_last=last, alpha=alpha, bias=bias, out=out),
        lambda: sparse_arguments(x, [weight], last, bias, None, scalars, None, out),
    )


def products(
    x: Tensor, chain: Sequence[Tensor], bias: Tensor | None, alpha: float, last: bool
) -> list[Tensor]:
    """The result of each factor of the chain; the last one is times `alpha`, plus the bias."""

    def work(calls: Calls) -> tuple[list[Tensor], Sequence[Tensor]]:
        check_differentiable(x, chain)
        # Check all factors before the first one runs, or a later one would fail in the middle.
        chain_patterns(chain)
        check_types(x, chain)
        every = [x]
        for weight in chain[:-1]:
            every.append(_product(calls, every[-1], weight, last, 1.0))
        return [*every[1:], _product(calls, every[-1], chain[-1], last, alpha, bias)], ()

    form, tensors = _forward_of(x, chain, bias, last)
    return repeated(form, alpha, tensors, work)


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


@dataclass(frozen=True, slots=True)
class Back:
    """What a backward of a chain is given.

    Attributes:
        grad: the gradient of the result.
        chain: the weights.
        operands: the operand of each factor; None if the gradient of its weights is not asked for.
        kinds: the types of the weights' gradients, None for those that are not asked for; at least
            one is asked for.
        alpha: what the product was scaled by.
        last: whether the batch is behind the features.
        needs_x: whether the gradient of x is asked for.
    """

    grad: Tensor
    chain: Sequence[Tensor]
    operands: Sequence[Tensor | None]
    kinds: Sequence[torch.dtype | None]
    alpha: float
    last: bool
    needs_x: bool

    @property
    def form(self) -> tuple[object, ...]:
        """The key, beside alpha and the tensors, under which its program is recorded."""
        return ("factors' gradients", self.last, self.needs_x, *self.kinds)

    @property
    def tensors(self) -> list[Tensor]:
        """All tensors that are given."""
        return [self.grad, *self.chain, *(item for item in self.operands if item is not None)]

    def work(self, calls: Calls) -> tuple[list[Tensor], Sequence[Tensor]]:
        """The gradients of the weights that are asked for, in order, then that of x if asked for;
        and the memory that was used between."""
        buffers, last = Buffers(), self.last

        def gradient(at: int, grad: Tensor, alpha: float) -> Tensor:
            x, pattern, kind = self.operands[at], tuple(self.chain[at].shape), self.kinds[at]

            def arguments() -> KSparseGradientArguments:
                some, g = as_matrix(x, last), as_matrix(grad, last)
                out = grad.new_empty(pattern, dtype=kind)
                return gradient_arguments(some, g, pattern, batch_last=last, alpha=alpha, out=out)

            return calls(lambda: compute_gradient(x, grad, pattern, alpha, last, kind), arguments)

        def product(at: int, grad: Tensor, alpha: float) -> Tensor:
            shape = with_features(grad.shape, inputs_of(self.chain[at].shape), last)
            out = buffers.take(shape, grad) if at else grad.new_empty(shape)
            _product(calls, grad, turned(self.chain[at]), last, alpha, out=out)
            buffers.give(grad)
            return out

        wanted = [kind is not None for kind in self.kinds]
        end, found = walk_back(self.grad, wanted, self.needs_x, self.alpha, gradient, product)
        buffers.give(end)
        every = [item for item in found if item is not None]
        return [*every, end] if self.needs_x else every, buffers.every


def walk_back(
    grad: Tensor,
    wanted: Sequence[bool],
    needs_x: bool,
    alpha: float,
    gradient: Callable[[int, Tensor, float], Tensor],
    product: Callable[[int, Tensor, float], Tensor],
) -> tuple[Tensor, list[Tensor | None]]:
    """(the gradient of x if it is asked for, those of the weights that are `wanted`), from the last
    factor to the first whose gradient is asked for.

    Args:
        gradient, product: (index of a factor, the gradient of its result, alpha) -> the gradient of
            its weights, or of its operand.
    """
    found: list[Tensor | None] = [None] * len(wanted)
    first = -1 if needs_x else list(wanted).index(True)
    for at in reversed(range(len(wanted))):
        if wanted[at]:
            found[at] = gradient(at, grad, alpha)
        if at > first:
            grad, alpha = product(at, grad, alpha), 1.0  # It contains alpha from here on.
    return grad, found


def known_gradients(back: Back) -> program.Program | None:
    """The program that repeats these `gradients`, if such a call was recorded."""
    given = (back.grad, *back.operands)
    if not on_gpu(back.grad) or not all(item is None or item.is_contiguous() for item in given):
        return None
    return program.find(back.form, back.alpha, back.tensors)


def gradients(back: Back) -> tuple[Tensor | None, list[Tensor | None]]:
    """The gradients of x (or None) and of the weights, given that of the result."""
    grad, last, kinds = back.grad, back.last, back.kinds
    shape = with_features(grad.shape, inputs_of(back.chain[0].shape), last)
    # Copy here what the calls below would copy, so that the recording has the copies' addresses.
    grad, *operands = (
        item if item is None or item.is_contiguous() else as_matrix(item, last)
        for item in (grad, *back.operands)
    )
    back = Back(grad, back.chain, operands, kinds, back.alpha, last, back.needs_x)
    if on_gpu(grad):
        results = repeated(back.form, back.alpha, back.tensors, back.work)
    else:
        results, _ = back.work(Calls())
    found = iter(results)
    of_weights = [None if kind is None else next(found) for kind in kinds]
    of_x = next(found) if back.needs_x else None
    return of_x if of_x is None or of_x.shape == shape else of_x.view(shape), of_weights


def check_differentiable(x: Tensor, weights: Sequence[Tensor]) -> None:
    """Refuses operands of types for which there is no backward."""
    for name, item in (("x", x), *((f"weights[{at}]", item) for at, item in enumerate(weights))):
        if item.element_size() == 1 and item.is_floating_point():
            raise ElementTypeError(
                f"element type of {name}",
                expected="one that has gradients",
                got=item.dtype,
                hint="8-bit floats have none; convert the tensors, or use torch.no_grad()",
            )
