"""Principal submatrices of operators: grids of which some points are missing.

With A = K + sigma2 I on the whole grid, o the points that are there and m the others,

    det A[o, o] = det A det A^-1[m, m],    A[o, o]^-1 b = (A^-1 (b - u))[o],

where u is zero on o and A^-1[m, m]^-1 (A^-1 b)[m] on m (Jacobi's complementary minors, and block
elimination; Horn and Johnson, Matrix Analysis, 0.8). A^-1 and det A are exact and cheap where K has
an eigendecomposition. So what is left is a system of the points that are missing.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NoReturn, Self

import numpy as np

from kronop.descriptions.shared import Array
from kronop.errors import ArgumentError
from kronop.late import imported
from kronop.operators.blocks import Block
from kronop.operators.conjugate_gradients import CGInfo, cg, norms_of
from kronop.operators.frameworks import (
    as_tensor,
    check_decomposable,
    is_torch,
    placed,
    taken,
)
from kronop.operators.kept import constant
from kronop.operators.masks import positions, read_mask
from kronop.operators.operator import Operator, on_columns, shifted
from kronop.operators.systems import Shifted
from kronop.tensors import Scale, Tensor

# Dense matrices are formed up to this order: 32 MB in float64, and a second to decompose.
_DENSE = 2000
_METHODS = (None, "dense", "iterative")


class Solvable(Operator):
    """An operator with what is built on products: solvers, and the parts that masks tell."""

    def solve(self, b: Array, sigma2: Scale = 0.0) -> Array:
        self.check_square("solve")
        self.check_columns(b, "b")
        return on_columns(Shifted(self, sigma2).solution, b)

    def masked(self, mask: Tensor, **options: Any) -> MaskedOperator:
        """The operator's rows and columns of those positions where the mask is true, with the
        options of `kronop.MaskedOperator(operator, mask, ...)`.

        Raises:
            ArgumentError, ElementTypeError: as of `kronop.MaskedOperator`.
        """
        return MaskedOperator(self, mask, **options)

    def cg(self, b: Tensor, **options: Any) -> tuple[Tensor, CGInfo]:
        """The solution by conjugate gradients, with the options of `kronop.cg(operator, b, ...)`.

        Returns:
            (x, info) as of `kronop.cg`, with x of b's shape.

        Raises:
            ArgumentError, ElementTypeError: as of `kronop.cg`.
        """
        return cg(self, b, **options)


class MaskedOperator(Solvable):
    """The rows and columns of a square operator at those positions where a mask is true: the
    covariance of a grid's observed points.

    Solutions and determinants are of symmetric positive definite matrices. Both are exact, by a
    dense Cholesky decomposition, which is kept, if at most 2,000 points are observed, or at most
    2,000 missing and the operator has an eigendecomposition. Beyond that, solutions are by
    conjugate gradients, and logarithms of determinants are estimates, by stochastic Lanczos
    quadrature.

    Args:
        operator: one of kronop's operators (..., N, N).
        mask: N booleans of NumPy or the operator's framework, in the grid's shape or flat.
        method: "dense" is exact for any number of points, "iterative" is what large grids get.
        probes: with how many random vectors determinants are estimated; the error falls with their
            square root.
        seed: of these vectors. With one seed, estimates are the same in each call.
        rtol: of conjugate gradients, as for `kronop.cg`; 1e-8 in float64 and 1e-4 in float32.

    Raises:
        ArgumentError: the operator is not square, the mask has another number of elements, none
            that is true or another grid's shape, or an option is out of range.
        ElementTypeError: the operator is none of kronop's, or the mask is not of booleans.

    Example:
        >>> K = kronop.KroneckerOperator([np.array([[2.0, 1.0], [1.0, 2.0]]), np.diag([1.0, 3.0])])
        >>> seen = np.array([[True, True], [False, True]])
        >>> M = K.masked(seen)  # or kronop.MaskedOperator(K, seen)
        >>> M.to_dense().tolist()
        [[2.0, 0.0, 0.0], [0.0, 6.0, 3.0], [0.0, 3.0, 6.0]]
        >>> x = M.solve(np.ones(3), 0.5)
        >>> bool(np.allclose(M @ x + 0.5 * x, 1)), round(float(M.logdet(0.5)), 4)
        (True, 4.4203)
        >>> M.padded(x).shape  # zeros where nothing was seen: K @ M.padded(x) is a prediction
        (4,)
    """

    def __init__(
        self,
        operator: Operator,
        mask: Tensor,
        *,
        method: str | None = None,
        probes: int = 32,
        seed: int = 0,
        rtol: float | None = None,
    ) -> None:
        self._operator, self._mask = operator, read_mask(operator, mask)
        fits = all(isinstance(item, (int, np.integer)) for item in (probes, seed))
        if method not in _METHODS or not fits or probes < 2 or seed < 0:
            raise ArgumentError(
                "method, probes and seed",
                expected='None, "dense" or "iterative", an integer from 2 and one from 0 on',
                got=(method, probes, seed),
                hint="leave them out",
            )
        if rtol is None:
            rtol = 1e-8 if "64" in str(operator.dtype) else 1e-4
        self._options = {"method": method, "probes": probes, "seed": seed, "rtol": rtol}
        self._observed, self._missing = (
            positions(where, operator.tensors[0]) for where in (self._mask, ~self._mask)
        )

    @property
    def operator(self) -> Operator:
        """The operator of all positions."""
        return self._operator

    @property
    def mask(self) -> Tensor:
        """The mask (N,), of NumPy."""
        return self._mask

    @property
    def options(self) -> dict[str, Any]:
        """method, probes, seed and rtol."""
        return dict(self._options)

    @property
    def tensors(self) -> tuple[Tensor, ...]:
        return self.operator.tensors

    def like(self, tensors: Sequence[Tensor]) -> Self:
        return self._with(self.operator.like(tensors))

    def _with(self, operator: Operator) -> Self:
        return type(self)(operator, self.mask, **self.options)

    @property
    def shape(self) -> tuple[int, ...]:
        count = self._observed.shape[0]
        return (*self.operator.shape[:-2], count, count)

    @property
    def T(self) -> Self:
        return self._with(self.operator.T)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.shape[-1]} positions of {self.operator!r})"

    def padded(self, x: Array) -> Array:
        """Values of the observed points (n,) or (..., n, C), as (N,) or (..., N, C) with zeros at
        the others.

        Raises:
            ArgumentError, ElementTypeError: x does not fit the operator.
        """
        self.check_columns(x, "x")
        return on_columns(lambda columns: placed(columns, self._observed, self._order), x)

    @property
    def _order(self) -> int:
        return self.operator.shape[-1]

    def to_dense(self) -> Tensor:
        return self.operator.submatrix(self._observed)

    def submatrix(self, index: Tensor) -> Tensor:
        return self.operator.submatrix(self._observed[index])

    def diagonal(self) -> Tensor:
        return taken(self.operator.diagonal()[..., None], self._observed)[..., 0]

    def _multiply(self, x: Tensor) -> Tensor:
        return taken(self.operator @ placed(x, self._observed, self._order), self._observed)

    def _scaled(self, scale: Scale) -> Self:
        return self._with(self.operator._scaled(scale))

    def direct_solver(self) -> Callable[[Tensor, Tensor], Tensor]:
        return self._solved

    def _solved(self, b: Tensor, sigma2: Tensor) -> Tensor:
        """The values of x of columns b."""
        block = self._block(sigma2)
        if not block.dense:
            return self.cg(b, sigma2=sigma2, rtol=self._options["rtol"])[0]
        if block.inverted:
            return self._completed(b, sigma2, block.solve)
        return block.solve(b, (*self.tensors, sigma2))

    def _completed(
        self, b: Tensor, sigma2: Tensor, solve: Callable[[Tensor, Sequence[Tensor]], Tensor]
    ) -> Tensor:
        """The values of x of columns b, by what solves with the inverse's block of the missing
        points."""
        whole, b = self.operator.direct_solver(), placed(b, self._observed, self._order)
        u = solve(taken(whole(b, sigma2), self._missing), (*self.tensors, sigma2))
        return taken(whole(b - placed(u, self._missing, self._order), sigma2), self._observed)

    def preconditioner(self, sigma2: Tensor, rtol: float) -> Callable[[Tensor], Tensor] | None:
        """What `cg` is preconditioned by if it is given nothing: solutions with the whole grid,
        completed by conjugate gradients at the missing points."""
        return (lambda b: self._nearly(b, sigma2, rtol)) if self._is_definite(sigma2) else None

    def _nearly(self, b: Tensor, sigma2: Tensor, rtol: float) -> Tensor:
        """The values of x of columns b, with a residual of about rtol / 2 of b."""
        xp, block = self.framework, self._block_of(self._missing, inverted=True, dense=False)

        def solve(y: Tensor, tensors: Sequence[Tensor]) -> Tensor:
            # What iterations leave of y, times the operator, is the residual at what was observed.
            residual = taken(self.operator @ placed(y, self._missing, self._order), self._observed)
            share = norms_of(y) / xp.maximum(norms_of(residual), norms_of(b))
            wanted = 0.5 * max(rtol, 1e-12) * share * norms_of(b)
            wanted = xp.where(wanted > 0, wanted, 1)[..., None, :]
            return wanted * block.iterated(y / wanted, tensors, atol=1.0)

        return self._completed(b, sigma2, solve)

    def slogdet(self, sigma2: Scale = 0.0) -> tuple[Tensor, Tensor]:
        value, _ = self.estimate_logdet(sigma2)
        return self.framework.ones_like(value), value

    def estimate_logdet(self, sigma2: Scale = 0.0) -> tuple[Tensor, Tensor]:
        """`(log det(operator + sigma2 I), its standard error)`, each (...).

        The error is that of the mean over random vectors, and 0 where the determinant is exact.
        Of torch tensors the first is differentiable; its gradient is estimated by the same vectors,
        or exact as well. The error is not that of the gradient, which may be larger where points
        are missing and sigma2 is small: compare two seeds, or pass `method="dense"`.

        Args:
            sigma2: as for `solve`.

        Raises:
            ArgumentError: a factor is not symmetric, or the matrix not positive definite.
            ElementTypeError: the element type is neither float32 nor float64.
        """
        check_decomposable(self.tensors[0])
        sigma2 = as_tensor(sigma2, self.tensors[0], "sigma2")
        block, tensors = self._block(sigma2), (*self.tensors, sigma2)
        if is_torch(self.framework):
            imported("kronop.torch.implicit")
            from kronop.torch.implicit import logdet

            value, error = logdet(block, tensors)
        else:
            value, error = block.logdet(tensors)
        return value + self.operator.logdet(sigma2) if block.inverted else value, error

    def _is_definite(self, sigma2: Scale) -> bool:
        """Whether the whole grid's matrix has an eigendecomposition and is positive definite, by
        more than rounding. A part of one that is not may be, but the inverse is no way to it."""
        if not self.operator.decomposes:
            return False
        try:
            with constant(self.tensors):
                values = shifted(self.operator.eigh().values, sigma2)
        except ArgumentError:  # A factor is not symmetric.
            return False
        xp = self.framework
        least, most = xp.amin(values, -1), xp.amax(values, -1)
        return bool((least > 10 * xp.finfo(values.dtype).eps * most).all())

    def _block(self, sigma2: Tensor) -> Block:
        """What there is to solve with: the smaller one of the two systems if either is dense, or
        that of the missing points if the whole grid's is solved exactly."""
        observed, missing = self._observed.shape[0], self._missing.shape[0]
        method, inverted = self._options["method"], False
        if method == "iterative" or observed > min(missing, _DENSE):
            inverted = self._is_definite(sigma2)
        smaller = min(observed, missing if inverted else observed)
        dense = smaller <= _DENSE if method is None else method == "dense" or not smaller
        inverted = inverted and not (dense and observed <= missing)
        index = self._missing if inverted else self._observed
        return self._block_of(index, inverted=inverted, dense=dense)

    def _block_of(self, index: Tensor, *, inverted: bool, dense: bool) -> Block:
        options = self._options
        return Block(self.operator, index, options, self, inverted=inverted, dense=dense)

    def eigh(self) -> NoReturn:
        """Refused: a part of a Kronecker product has no eigenvectors that are such a product.

        Raises:
            ArgumentError: always.
        """
        raise ArgumentError(
            "eigh",
            expected="an operator of all positions",
            got=f"a masked one of {self.shape[-1]}",
            hint="solve and logdet need none; numpy.linalg.eigh(operator.to_dense()) does, for"
            " some thousand positions",
        )

    def eigvalsh(self) -> NoReturn:
        """Refused, as `eigh`.

        Raises:
            ArgumentError: always.
        """
        self.eigh()
