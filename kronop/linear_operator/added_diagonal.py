"""A Kronecker product plus a diagonal, decomposed once for its solve and its determinant."""

from __future__ import annotations

from typing import NoReturn

import torch
from linear_operator import operators, settings
from torch.autograd.function import FunctionCtx

from kronop.errors import mismatch
from kronop.frozen import dataclass
from kronop.linear_operator.dense import matrix
from kronop.linear_operator.product import KroneckerProductLinearOperator
from kronop.linear_operator.substitution import accelerated, substitutes


@substitutes(operators.KroneckerProductAddedDiagLinearOperator)
class KroneckerProductAddedDiagLinearOperator(
    operators.KroneckerProductAddedDiagLinearOperator  # type: ignore[misc]
):
    """The sum of a Kronecker product and a diagonal operator, as linear_operator's class.

    A marginal likelihood needs an inverse quadratic form and a determinant. linear_operator
    decomposes all factors for each of them; here one decomposition serves both, where the diagonal
    is constant or a Kronecker product of diagonals like the factors.

    Args:
        linear_ops: a Kronecker product (..., N, N) and a DiagLinearOperator, in any order.
        preconditioner_override: as for linear_operator's AddedDiagLinearOperator.

    Example:
        >>> import torch
        >>> from kronop.linear_operator import KroneckerProductLinearOperator
        >>> K = KroneckerProductLinearOperator(2 * torch.eye(2), torch.eye(3))
        >>> noisy = K.add_diagonal(torch.tensor(0.5))
        >>> type(noisy).__name__
        'KroneckerProductAddedDiagLinearOperator'
        >>> [round(item.item(), 3) for item in noisy.inv_quad_logdet(torch.ones(6, 1), logdet=True)]
        [2.4, 5.498]
    """

    def inv_quad_logdet(
        self,
        inv_quad_rhs: torch.Tensor | None = None,
        logdet: bool | None = False,
        reduce_inv_quad: bool = True,
    ) -> tuple[torch.Tensor | None, torch.Tensor | None]:
        """`(trace of rhs^T A^-1 rhs, log |A|)` of this operator A (..., N, N), differentiable.

        Where one decomposition serves both, a second derivative of the former raises
        NotImplementedError; elsewhere, linear_operator's own are used, which are wrong.

        Args:
            inv_quad_rhs: (..., N, M) or (N,), or None.
            logdet: whether the determinant is asked for.
            reduce_inv_quad: without it the diagonal (..., M) instead of the trace.

        Returns:
            The trace (...), or the diagonal, and the logarithm (...).
        """
        if not logdet or inv_quad_rhs is None or not self._is_shared(inv_quad_rhs):
            with accelerated():
                return super().inv_quad_logdet(inv_quad_rhs, logdet, reduce_inv_quad)  # type: ignore[no-any-return]
        found = _decomposed(self.linear_op, self.diag_tensor)
        rhs = inv_quad_rhs.unsqueeze(-1) if inv_quad_rhs.dim() == 1 else inv_quad_rhs
        with torch.no_grad():
            solution = found.solve(rhs)
        quadratic = _InverseQuadratic.apply(self, solution, rhs, *self.representation())
        return quadratic.sum(-1) if reduce_inv_quad else quadratic, found.logdet()

    def _is_shared(self, rhs: torch.Tensor) -> bool:
        """Whether linear_operator would decompose the factors twice; small operators it decomposes
        as one dense matrix by Cholesky's method."""
        fits = rhs.shape[: max(rhs.dim() - 1, 1)] == self.shape[:-1]
        product, diagonal = self.linear_op, self.diag_tensor
        is_product = isinstance(product, operators.KroneckerProductLinearOperator)
        return (
            fits
            and is_product
            and self.shape[-1] > settings.max_cholesky_size.value()
            and settings.fast_computations.log_prob.on()
            and settings.fast_computations.solves.on()
            and all(item.is_square for item in product.linear_ops)
            and (self._diag_is_constant or _is_alike(product, diagonal))
        )

    def _solve(self, *arguments: object, **options: object) -> torch.Tensor:
        with accelerated():
            return super()._solve(*arguments, **options)

    def _logdet(self) -> torch.Tensor:
        with accelerated():
            return super()._logdet()

    def _root_decomposition(self) -> torch.Tensor | operators.LinearOperator:
        with accelerated():
            return super()._root_decomposition()

    def _root_inv_decomposition(
        self, *arguments: object, **options: object
    ) -> torch.Tensor | operators.LinearOperator:
        with accelerated():
            return super()._root_inv_decomposition(*arguments, **options)


def _is_alike(product: operators.LinearOperator, diagonal: operators.LinearOperator) -> bool:
    """Whether the diagonal is a Kronecker product of diagonals of the factors' sizes."""
    return isinstance(diagonal, operators.KroneckerProductDiagLinearOperator) and [
        item.shape for item in product.linear_ops
    ] == [item.shape for item in diagonal.linear_ops]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Decomposed:
    """A = S (Q diag(values) Q^T + shift) S, with S diagonal and Q a Kronecker product.

    Attributes:
        vectors: Q, without gradient, in the type of the decomposition.
        values: eigenvalues (..., N), differentiable; their gradients need no differences of
            eigenvalues, as those of Q would, which degenerate ones have not.
        shift: (..., N) or (..., 1).
        scale: the diagonal of S (..., N), or None for one of ones.
        kind: the operator's element type.
    """

    vectors: KroneckerProductLinearOperator
    values: torch.Tensor
    shift: torch.Tensor
    scale: torch.Tensor | None
    kind: torch.dtype

    def logdet(self) -> torch.Tensor:
        """log |A| (...,)."""
        found = (self.values + self.shift).log().sum(-1)
        if self.scale is not None:
            found = found + 2 * self.scale.log().sum(-1)
        return found.to(self.kind)

    def solve(self, rhs: torch.Tensor) -> torch.Tensor:
        """A^-1 rhs (..., N, M)."""
        scale = None if self.scale is None else self.scale.unsqueeze(-1)
        x = rhs.to(self.values.dtype)
        x = x if scale is None else x / scale
        spectrum = self.values + self.shift
        # Where the operator is not positive definite, its inverse square root is not a number.
        spectrum = spectrum.where(spectrum >= 0, torch.nan)
        x = self.vectors._t_matmul(x) / spectrum.unsqueeze(-1)
        x = self.vectors._matmul(x)
        return (x if scale is None else x / scale).to(self.kind)


def _decomposed(
    product: operators.LinearOperator, diagonal: operators.LinearOperator
) -> _Decomposed:
    """The decomposition of product + diagonal, from those of the factors.

    With a diagonal that is a Kronecker product it is that of S^-1 product S^-1, S its square root
    (Rakitsch et al., It is all in the noise, NeurIPS 2013), whose factors are scaled one by one.
    """
    kind = settings._linalg_dtype_symeig.value()
    factors = [matrix(item).to(kind) for item in product.linear_ops]
    scale, shift = None, diagonal._diagonal()[..., :1].to(kind)
    if not isinstance(diagonal, operators.ConstantDiagLinearOperator):
        roots = [item._diagonal().to(kind).sqrt() for item in diagonal.linear_ops]
        factors = [
            item / (root.unsqueeze(-1) * root.unsqueeze(-2))
            for item, root in zip(factors, roots, strict=True)
        ]
        scale, shift = _diagonal_of(roots), torch.ones_like(shift)
    values, vectors = zip(*(torch.linalg.eigh(item) for item in factors), strict=True)
    return _Decomposed(
        vectors=KroneckerProductLinearOperator(*(item.detach() for item in vectors)),
        values=_diagonal_of([item.clamp_min(0.0) for item in values]),
        shift=shift,
        scale=scale,
        kind=product.dtype,
    )


def _diagonal_of(diagonals: list[torch.Tensor]) -> torch.Tensor:
    """The diagonal (..., N) of the Kronecker product of diagonal matrices, given as (..., N_i)."""
    found = diagonals[0]
    for item in diagonals[1:]:
        found = (found.unsqueeze(-1) * item.unsqueeze(-2)).flatten(-2)
    return found


class _InverseQuadratic(torch.autograd.Function):  # type: ignore[misc]
    """The diagonal of rhs^T A^-1 rhs, from a solution of A solution = rhs that is known already;
    its gradients have none, since the solution was not recorded."""

    @staticmethod
    def forward(
        ctx: FunctionCtx,
        operator: operators.LinearOperator,
        solution: torch.Tensor,
        rhs: torch.Tensor,
        *arguments: torch.Tensor,
    ) -> torch.Tensor:
        # NOTE: made anew of the arguments it would take as long as its derivative.
        ctx.operator = operator
        ctx.save_for_backward(solution, *arguments)
        return (solution * rhs).sum(-2)

    @staticmethod
    def backward(ctx: FunctionCtx, grad: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        solution, *arguments = ctx.saved_tensors  # Which are as they were, or this raises.
        is_recorded = torch.is_grad_enabled()
        with torch.no_grad():
            scaled = solution * grad.unsqueeze(-2)
            found: list[torch.Tensor | None] = [None] * len(arguments)
            if any(ctx.needs_input_grad[3:]):
                found = ctx.operator._bilinear_derivative(-scaled, solution)
            found = [2 * scaled if ctx.needs_input_grad[2] else None, *found]
        if is_recorded:
            # NOTE: torch's once_differentiable returns constants where `grad` is one, as it is for
            # a sum: second derivatives would lack these terms, without a word.
            found = [item if item is None else _Once.apply(item.requires_grad_()) for item in found]
        return None, None, *found


class _Once(torch.autograd.Function):  # type: ignore[misc]
    """A gradient that raises where it is differentiated."""

    @staticmethod
    def forward(ctx: FunctionCtx, gradient: torch.Tensor) -> torch.Tensor:
        return gradient.clone()

    @staticmethod
    def backward(ctx: FunctionCtx, grad: torch.Tensor) -> NoReturn:
        raise NotImplementedError(
            mismatch(
                "derivatives of inv_quad_logdet",
                expected="first ones",
                got="second ones of its inverse quadratic form",
                hint="differentiate a dense matrix instead: to_dense() of the operator",
            )
        )
