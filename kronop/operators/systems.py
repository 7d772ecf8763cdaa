"""Linear systems (operator + sigma2 I) x = b, as `kronop.torch.implicit` differentiates them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from kronop.late import imported
from kronop.operators.frameworks import as_tensor, is_torch
from kronop.operators.operator import Operator
from kronop.tensors import Scale, Tensor


class Shifted:
    """A symmetric operator plus a multiple of the identity.

    Its tensors are those of the operator, and sigma2.
    """

    def __init__(self, operator: Operator, sigma2: Scale) -> None:
        self._operator = operator
        self._sigma2 = as_tensor(sigma2, operator.tensors[0], "sigma2")
        self._solver: Callable[[Tensor, Tensor], Tensor] | None = None

    def solution(self, b: Tensor) -> Tensor:
        """x of checked columns b, differentiable for torch."""
        tensors = (*self._operator.tensors, self._sigma2)
        if not is_torch(self._operator.framework):
            return self.solve(b, tensors)
        imported("kronop.torch.implicit")
        from kronop.torch.implicit import solution

        return solution(self, b, tensors)

    def solve(self, b: Tensor, tensors: Sequence[Tensor]) -> Tensor:
        """The values of x. The decompositions are made once, for all gradients of this system."""
        if self._solver is None:
            self._solver = self._operator.of(tensors[:-1]).direct_solver()
        return self._solver(b, tensors[-1])

    def multiply(self, x: Tensor, tensors: Sequence[Tensor]) -> Tensor:
        """The left side, in which every tensor may have a gradient."""
        return shifted_product(self._operator.like(tensors[:-1]), tensors[-1], x)


def shifted_product(operator: Any, sigma2: Tensor, x: Tensor) -> Tensor:
    """(operator + sigma2 I) x for columns x (..., N, C)."""
    return operator @ x + sigma2[..., None, None] * x
