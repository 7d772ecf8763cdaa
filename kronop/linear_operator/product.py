"""Kronecker products as operators of linear_operator, multiplied by kronop."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import torch
from linear_operator import operators
from linear_operator.utils.memoize import cached

from kronop.errors import mismatch
from kronop.families.kron.formed import kronecker_product
from kronop.families.kron.torch.functional import gekmm
from kronop.families.kron.torch.operators import kron_backward
from kronop.linear_operator import dense
from kronop.linear_operator.substitution import accelerated, substitutes

_Dense = operators.DenseLinearOperator


class _Products:
    """Products and derivatives by kronop where they are faster, by the parent class where not.

    What the parent class derives from an operator (its eigenvectors, roots, Cholesky factors and
    sums) is made of kronop's operators too.
    """

    linear_ops: Sequence[operators.LinearOperator]
    shape: torch.Size

    def matmul(
        self, other: torch.Tensor | operators.LinearOperator
    ) -> torch.Tensor | operators.LinearOperator:
        """The product with a tensor (..., columns) or (columns,), or with an operator.

        Without gradients autograd is not asked: making its function of an operator takes several
        times as long as calling the kernel.
        """
        if torch.is_grad_enabled() or not isinstance(other, torch.Tensor):
            return super().matmul(other)  # type: ignore[misc]
        if (factors := self._decided.get(_facts(other, False))) is not None:
            return gekmm(factors, other.contiguous())
        rows, columns = self.shape[-2:]
        if other.dim() == 0 or other.shape[-min(other.dim(), 2)] != columns:
            raise RuntimeError(
                mismatch(
                    "other",
                    expected=f"{columns} rows, for an operator of {rows} x {columns}",
                    got=f"shape {tuple(other.shape)}",
                    hint="operator @ other contracts the operator's columns",
                )
            )
        return self._matmul(other)

    def _matmul(self, rhs: torch.Tensor) -> torch.Tensor:
        found = self._product(rhs, False)
        return super()._matmul(rhs) if found is None else found  # type: ignore[misc]

    def _t_matmul(self, rhs: torch.Tensor) -> torch.Tensor:
        found = self._product(rhs, True)
        return super()._t_matmul(rhs) if found is None else found  # type: ignore[misc]

    def _product(self, rhs: torch.Tensor, transposed: bool) -> torch.Tensor | None:
        """The product with rhs (..., columns) or (columns,); None where it is the parent's."""
        is_constant = not torch.is_grad_enabled()
        if is_constant and (known := self._decided.get(_facts(rhs, transposed))) is not None:
            return gekmm(known, rhs.contiguous())
        factors, is_dense = self._factors(), all(type(item) is _Dense for item in self.linear_ops)
        x = rhs.unsqueeze(-1) if rhs.dim() == 1 else rhs
        if factors is None or x.shape[-2] != self.shape[-2 if transposed else -1]:
            return None
        is_faster = dense.is_faster(factors, x)
        if not is_faster and is_dense:
            return None
        if transposed:
            factors = [item.mT for item in factors]
        if is_faster and is_dense and is_constant and rhs.dim() > 1:
            self._decided[_facts(rhs, transposed)] = factors
        found = gekmm(factors, x.contiguous()) if is_faster else _looped(factors, x)
        return found.squeeze(-1) if rhs.dim() == 1 else found

    @functools.cached_property
    def _decided(self) -> dict[tuple[object, ...], list[torch.Tensor]]:
        """By the facts of what is multiplied, factors that are tensors and multiplied by kronop."""
        return {}

    def _factors(self) -> list[torch.Tensor] | None:
        """The factors as tensors, or None: see `dense.matrices`."""
        if torch.is_grad_enabled() or all(type(item) is _Dense for item in self.linear_ops):
            return dense.matrices(self.linear_ops)
        # A solve by conjugate gradients multiplies by one operator again and again.
        given = self.representation()  # type: ignore[attr-defined]
        states = None if any(map(torch.is_inference, given)) else [*map(_state, given)]
        known, found = getattr(self, "_constant_factors", (None, None))
        if states is None or known != states:
            # Operators of linear_operator keep what they wrote down, so that those whose tensors
            # changed are made anew.
            anew = self.representation_tree()(*given)  # type: ignore[attr-defined]
            found = dense.matrices(anew.linear_ops)
            self._constant_factors = states, found
        return found

    def _bilinear_derivative(
        self, left_vecs: torch.Tensor, right_vecs: torch.Tensor
    ) -> tuple[torch.Tensor | None, ...]:
        given = self.representation()  # type: ignore[attr-defined]
        arguments = [item.detach().requires_grad_(item.requires_grad) for item in given]
        wanted = [item for item in arguments if item.requires_grad]
        left, right = (
            item.unsqueeze(-1) if item.dim() == 1 else item for item in (left_vecs, right_vecs)
        )
        with torch.enable_grad():
            tree = self.representation_tree()  # type: ignore[attr-defined]
            factors = dense.matrices(tree(*arguments).linear_ops) if wanted else None
            if factors is None:
                return super()._bilinear_derivative(left_vecs, right_vecs)  # type: ignore[misc,no-any-return]
            ends, gradients = _derivatives(left, right, factors)
        found = iter(torch.autograd.grad(ends, wanted, gradients, allow_unused=True))
        return tuple(next(found) if item.requires_grad else None for item in arguments)

    @cached  # type: ignore[untyped-decorator]
    def to_dense(self) -> torch.Tensor:
        return kronecker_product([dense.matrix(item) for item in self.linear_ops])

    def __add__(self, other: torch.Tensor | operators.LinearOperator) -> operators.LinearOperator:
        with accelerated():
            return super().__add__(other)  # type: ignore[misc]

    def add_diagonal(self, diag: torch.Tensor) -> operators.LinearOperator:
        with accelerated():
            return super().add_diagonal(diag)  # type: ignore[misc]

    def root_decomposition(self, method: str | None = None) -> operators.LinearOperator:
        with accelerated():
            return super().root_decomposition(method=method)  # type: ignore[misc]

    def root_inv_decomposition(
        self, *arguments: object, **options: object
    ) -> operators.LinearOperator:
        with accelerated():
            return super().root_inv_decomposition(*arguments, **options)  # type: ignore[misc]

    def _cholesky(self, upper: bool = False) -> operators.LinearOperator:
        with accelerated():
            return super()._cholesky(upper=upper)  # type: ignore[misc]

    def _svd(self) -> Any:
        with accelerated():
            return super()._svd()  # type: ignore[misc]

    def _symeig(self, *arguments: object, **options: object) -> Any:
        with accelerated():
            return super()._symeig(*arguments, **options)  # type: ignore[misc]


def _state(item: torch.Tensor) -> tuple[int, int]:
    """What differs after the tensor's elements or its memory changed."""
    return item.data_ptr(), item._version


def _facts(rhs: torch.Tensor, transposed: bool) -> tuple[object, ...]:
    return rhs.shape, rhs.dtype, rhs.device, transposed


def _looped(factors: list[torch.Tensor], x: torch.Tensor) -> torch.Tensor:
    """The product as linear_operator computes it: by one factor after the other."""
    operator = KroneckerProductLinearOperator(*factors)
    return operators.KroneckerProductLinearOperator._matmul(operator, x)


def _derivatives(
    left: torch.Tensor, right: torch.Tensor, factors: list[torch.Tensor]
) -> tuple[list[torch.Tensor], list[torch.Tensor]]:
    """Where the derivatives of sum(left * (F1 x ... x FN) right) begin: tensors with a graph, and
    their gradients."""
    if not dense.is_derivative_faster(factors, right):
        found = (left * _looped(factors, right)).sum()
        return [found], [torch.ones_like(found)]
    needs = [item.requires_grad for item in factors]
    with torch.no_grad():
        batch = torch.broadcast_shapes(*(item.shape[:-2] for item in (left, right, *factors)))
        left = left.expand(*batch, *left.shape[-2:]).contiguous()
        scalars = (1.0, True, [False, *needs])
        found = kron_backward(
            left, right.contiguous(), [item.detach() for item in factors], *scalars
        )
    return [item for item in factors if item.requires_grad], list(found)


@substitutes(operators.KroneckerProductLinearOperator)
class KroneckerProductLinearOperator(
    _Products,
    operators.KroneckerProductLinearOperator,  # type: ignore[misc]
):
    """The Kronecker product of operators or tensors (..., M_i, N_i), whose batches broadcast.

    linear_operator's class of the same name, and everything that it can do. Products, and the
    derivatives of all factors, are kronop's where the factors are dense, or small, or cheap to
    write down (a Toeplitz matrix, a sum); products with operators such as roots and diagonals are
    linear_operator's, and on a CPU those with many columns and large factors.

    Args:
        linear_ops: at least one operator or tensor.

    Raises:
        RuntimeError: an argument is neither, or batches do not broadcast.

    Example:
        >>> import torch
        >>> from kronop.linear_operator import KroneckerProductLinearOperator
        >>> a, b = torch.tensor([[2.0, 1.0], [1.0, 2.0]]), torch.diag(torch.tensor([1.0, 2.0, 4.0]))
        >>> K = KroneckerProductLinearOperator(a, b)
        >>> x = torch.arange(6.0)[:, None]
        >>> K.shape, bool(torch.allclose(K @ x, torch.kron(a, b) @ x))
        (torch.Size([6, 6]), True)
    """


@substitutes(operators.KroneckerProductTriangularLinearOperator)
class KroneckerProductTriangularLinearOperator(
    _Products,
    operators.KroneckerProductTriangularLinearOperator,  # type: ignore[misc]
):
    """The Kronecker product of triangular operators: what Cholesky decompositions return.

    Args:
        linear_ops: TriangularLinearOperators (..., N_i, N_i).
        upper: whether they are upper triangular.

    Example:
        >>> import torch
        >>> from kronop.linear_operator import KroneckerProductLinearOperator
        >>> K = KroneckerProductLinearOperator(4 * torch.eye(2), torch.eye(3))
        >>> root = K.cholesky()
        >>> type(root).__name__, root.to_dense()[0, 0].item()
        ('KroneckerProductTriangularLinearOperator', 2.0)
    """
