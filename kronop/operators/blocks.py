"""A block of a matrix that is not formed: solved with, and its determinant, for given points."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from kronop.operators.conjugate_gradients import by_the_quicker
from kronop.operators.factors import check_symmetric
from kronop.operators.frameworks import (
    batch_of,
    cholesky,
    diagonal,
    framework_of,
    identity,
    placed,
    solve_triangular,
    taken,
    turned,
)
from kronop.operators.kept import kept
from kronop.operators.lanczos import log_forms, not_definite, signs, standard_error
from kronop.operators.operator import Operator
from kronop.operators.systems import shifted_product
from kronop.tensors import Tensor


class Block:
    """M[index, index], symmetric positive definite, of M = operator + sigma2 I or of M's inverse,
    as `kronop.torch.implicit` differentiates it. Its tensors are the operator's, and sigma2.

    Of a dense one the matrix is formed and factored; of another one only products are made.

    Args:
        index: the positions of its rows and columns.
        options: those of a MaskedOperator.
        memory: the operator that keeps what is computed.
        inverted: whether M is the inverse.
        dense: whether the matrix is formed.
    """

    def __init__(
        self,
        operator: Operator,
        index: Tensor,
        options: Mapping[str, Any],
        memory: Operator,
        *,
        inverted: bool,
        dense: bool,
    ) -> None:
        self._operator, self._index, self._options, self._memory = operator, index, options, memory
        self.inverted, self.dense = inverted, dense

    def multiply(self, x: Tensor, tensors: Sequence[Tensor]) -> Tensor:
        operator, sigma2 = self._operator.of(tensors[:-1]), tensors[-1]
        whole = placed(x, self._index, operator.shape[-1])
        if self.inverted:
            return taken(operator.solve(whole, sigma2), self._index)
        return taken(shifted_product(operator, sigma2, whole), self._index)

    def solve(self, b: Tensor, tensors: Sequence[Tensor]) -> Tensor:
        """The values of x (..., n, C) of columns b."""
        if not self.dense:
            return self.iterated(b, tensors, warns=True, rtol=self._options["rtol"])
        root = self._root(tensors)
        half = solve_triangular(root, b, upper=False)
        return solve_triangular(turned(root), half, upper=True)

    def iterated(
        self, b: Tensor, tensors: Sequence[Tensor], *, warns: bool = False, **tolerance: float
    ) -> Tensor:
        """The same by conjugate gradients, to a tolerance that is that of `kronop.cg`, which
        `warns` where it is not reached."""
        lead = batch_of(self._operator.shape[:-2], tensors[-1].shape, b.shape[:-2])
        b = framework_of(b, "b").broadcast_to(b, (*lead, *b.shape[-2:]))
        # Of points that lie apart the inverse's block is nearly a multiple of the identity; where
        # they lie together, the block of M itself is nearly its inverse.
        others = [self._product(tensors, False)] if self.inverted else []
        product = self._product(tensors, self.inverted)
        return by_the_quicker(product, others, b, warns=warns, **tolerance)

    def logdet(self, tensors: Sequence[Tensor]) -> tuple[Tensor, Tensor]:
        """The values of the determinant's logarithm (...), and of its standard error."""
        if self.dense:
            logarithms = framework_of(tensors[0], "the operator").log(diagonal(self._root(tensors)))
            return 2 * logarithms.sum(-1), 0 * logarithms.sum(-1)
        values = log_forms(self._product(tensors, self.inverted), self.probes(tensors))
        return values.sum(-1), values.shape[-1] * standard_error(values)

    def probes(self, tensors: Sequence[Tensor]) -> Tensor:
        """W (n, C), of which the trace of W^T A W is that of A: in the mean over seeds, or, of a
        dense block, always."""
        order, options = self._index.shape[0], self._options
        if self.dense:
            return identity(order, tensors[0])
        return signs(order, options["probes"], options["seed"], tensors[0])

    def probed(self, tensors: Sequence[Tensor]) -> Tensor:
        """The products with the probes, by functions that torch differentiates."""
        if self.inverted or not self.dense:
            return self.multiply(self.probes(tensors), tensors)
        block = self._operator.of(tensors[:-1]).submatrix(self._index)
        return block + tensors[-1][..., None, None] * self.probes(tensors)

    def _root(self, tensors: Sequence[Tensor]) -> Tensor:
        """The Cholesky factor of the block."""

        def factored() -> Tensor:
            matrix = self.probed(tensors)
            check_symmetric(matrix, "the operator at the points of the mask")
            found = cholesky(matrix)
            if found is None:
                raise not_definite()
            return found

        return kept(self._memory, "root", tensors, factored)

    def _product(self, tensors: Sequence[Tensor], inverted: bool) -> Callable[[Tensor], Tensor]:
        """Products of values with columns by the block of M, or by that of its inverse."""
        operator, sigma2 = self._operator.of(tensors[:-1]), tensors[-1]
        solver = operator.direct_solver() if inverted else None

        def multiply(x: Tensor) -> Tensor:
            whole = placed(x, self._index, operator.shape[-1])
            if solver is None:
                return taken(shifted_product(operator, sigma2, whole), self._index)
            return taken(solver(whole, sigma2), self._index)

        return multiply
