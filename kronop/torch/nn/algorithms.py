"""The algorithms that multiply by a chain of Kronecker-sparse factors, with the same results.

Each takes an operand (..., a c d), or (a c d, ...) with `batch_last`; the weights, each
(a, b, c, d), with the right-most factor first; and a bias (a b d,) or None.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from kronop.families.ksparse.shape_arguments import with_features
from kronop.families.ksparse.torch.computing import as_matrix
from kronop.families.ksparse.torch.functional import ksmm
from kronop.families.ksparse.torch.sparse import biased, bmm_product, einsum_product, sparse_product
from kronop.torch.checks import are_symbols
from kronop.torch.nn.checks import check_operand

Algorithm = Callable[[Tensor, Sequence[Tensor], Tensor | None, bool], Tensor]


def dense_product(weights: Sequence[Tensor]) -> Tensor:
    """W = K_1 ... K_L (out, in), the right-most factor first in `weights`; differentiable."""
    result = dense_factor(weights[0])
    for weight in weights[1:]:
        result = bmm_product(result, weight, True)
    return result


def dense_factor(weight: Tensor) -> Tensor:
    """The dense matrix K (a b d, a c d) of weights (a, b, c, d)."""
    a, b, c, d = weight.shape
    lanes = torch.diag_embed(weight, dim1=2, dim2=4)  # (a, b, d, c, d)
    both = torch.diag_embed(lanes.movedim(0, -1), dim1=0, dim2=3)  # (a, b, d, a, c, d)
    return both.reshape(a * b * d, a * c * d)


def _kernel(x: Tensor, weights: Sequence[Tensor], bias: Tensor | None, batch_last: bool) -> Tensor:
    return ksmm(x, weights, bias=bias, batch_last=batch_last)


def _dense(x: Tensor, weights: Sequence[Tensor], bias: Tensor | None, batch_last: bool) -> Tensor:
    """One product with the chain's dense matrix, formed in every call because the parameters are
    the factors."""
    matrix = dense_product(weights)
    if not batch_last:
        return torch.nn.functional.linear(x, matrix, bias)
    result = matrix @ as_matrix(x, True)
    return biased(result.reshape(with_features(x.shape, len(matrix), True)), bias, True)


def _one_by_one(apply: Callable[[Tensor, Tensor, bool], Tensor]) -> Algorithm:
    def chain(
        x: Tensor, weights: Sequence[Tensor], bias: Tensor | None, batch_last: bool
    ) -> Tensor:
        for weight in weights:
            x = apply(x, weight, batch_last)
        return biased(x, bias, batch_last)

    return chain


ALGORITHMS: dict[str, Algorithm] = {
    "kernel": _kernel,
    "bmm": _one_by_one(bmm_product),
    "bsr": _one_by_one(functools.partial(sparse_product, blocks=True)),
    "einsum": _one_by_one(einsum_product),
    "dense": _dense,
    "sparse": _one_by_one(functools.partial(sparse_product, blocks=False)),
}


def multiply(
    x: Tensor, weights: Sequence[Tensor], bias: Tensor | None, batch_last: bool, algo: str
) -> Tensor:
    """The product by the algorithm of this name; torch.fx records its calls."""
    if algo != "kernel":  # The kernel's function does both itself.
        if are_symbols((x,)):
            handle = torch.overrides.handle_torch_function
            return handle(multiply, (x,), x, weights, bias, batch_last, algo)
        check_operand(x, weights[0], batch_last)
    return ALGORITHMS[algo](x, weights, bias, batch_last)
