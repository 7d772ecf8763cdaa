"""The gradient of weights: of those of a Kronecker-sparse product, or of one factor's.

With X the operand of a product with K = I_a x dense(b, c) x I_d in structure (see `ksparse`) and G
the gradient of its result, that of the weights W (a, b, c, d) is, n being the batch,

    Y[i, p, q, l] = sum over n of G[n, i, p, l] X[n, i, q, l]

A digit of a Kronecker product has the same matrix F (c, b) for every i and l: its weights are
tied, `a` is the number of elements before the digit and `d` that behind it, and

    Y[q, p] = sum over n, i and l of G[n, i, p, l] X[n, i, q, l]

is the gradient of F, if G and X have the same digits around it. If F is itself a Kronecker product
F1 x ... x FN of `factors`, their gradients follow: with q and p as digits q1 .. qN, p1 .. pN,

    Yi[qi, pi] = sum over the other digits of Y[q, p] times all other Fj[qj, pj]
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import field
from typing import Any

import numpy as np

from kronop.descriptions.epilogue import Epilogue
from kronop.descriptions.numeric import finish, widen
from kronop.descriptions.scalars import EpilogueArguments
from kronop.descriptions.shaped import Shaped
from kronop.descriptions.shared import (
    INTEGERS,
    LISTS_OF_INTEGERS,
    check_flag,
    check_operands,
    check_sizes,
    refuse_float8,
)
from kronop.descriptions.strided import Strided
from kronop.descriptions.tensor import TensorDescription
from kronop.errors import DescriptionError
from kronop.families.ksparse.description import inputs_of, outputs_of
from kronop.frozen import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class KSparseGradientDescription(Shaped):
    """One gradient of weights: the `description` of a `KSparseGradientOperation`.

    Attributes:
        math: the multiply-add; `tile.math_instruction` where a tile is given.
        tile: tile sizes, or None for the planner's choice.
        X: the product's operand.
        G: the gradient of the product.
        Y: the result (Z is like Y).
        epilogue: what happens to the sums.
        pattern: (a, b, c, d).
        tied: whether all i and l share one (c, b) matrix.
        batch_last: X is (a c d, B) and G (a b d, B), instead of (B, a c d) and (B, a b d).
        products: extent of a dimension in front of X, G and Y, with a gradient for each of its
            indices; None where there is no such dimension.
        factors: (rows, columns) of the at least two factors whose product the tied matrix is; the
            result is then a vector of their gradients, each row-major, one after the other. Empty
            for the gradient of the matrix itself.

    Raises:
        DescriptionError: element types that differ, sizes that are not positive, or factors of
            another matrix.
        ElementTypeError: what is no description or epilogue.

    Example:
        >>> tensor = kronop.TensorDescription(kronop.float32)
        >>> epilogue = kronop.LinearCombination(kronop.float32, 1, kronop.float32, kronop.float32)
        >>> what = kronop.KSparseGradientDescription(
        ...     math=kronop.MathInstruction.simt(kronop.float32), tile=None,
        ...     X=tensor, G=tensor, Y=tensor, epilogue=epilogue, pattern=(2, 3, 4, 5),
        ... )
        >>> what.operands(16), what.y_shape(16)
        ({'X': (16, 40), 'G': (16, 30)}, (2, 3, 4, 5))
        >>> what.reference(np.ones((16, 40)), np.ones((16, 30))).max().item()  # sums over 16
        16.0
    """

    X: TensorDescription
    G: TensorDescription
    Y: TensorDescription
    epilogue: Epilogue
    pattern: tuple[int, int, int, int] = field(metadata=INTEGERS)
    tied: bool = False
    batch_last: bool = False
    products: int | None = None
    factors: tuple[tuple[int, int], ...] = field(default=(), metadata=LISTS_OF_INTEGERS)

    def __post_init__(self) -> None:
        check_operands(self, ("X", "G"))
        refuse_float8(self.math, "gradient of weights")
        check_sizes("pattern", ("a", "b", "c", "d"), self.pattern)
        if self.products is not None:
            check_sizes("products", ("products",), (self.products,))
        check_flag("tied", self.tied)
        check_flag("batch_last", self.batch_last)
        if self.factors:
            self._check_factors()

    def _check_factors(self) -> None:
        for index, shape in enumerate(self.factors):
            check_sizes(f"factors[{index}]", ("rows", "columns"), shape)
        rows, columns = (math.prod(sizes) for sizes in zip(*self.factors, strict=True))
        _, b, c, _ = self.pattern
        single = self.tied and self.products is None and len(self.factors) > 1
        if not single or (rows, columns) != (c, b):
            raise DescriptionError(
                "factors",
                expected=f"at least two whose product is one tied matrix of {c} x {b}",
                got=self.factors,
                hint="leave them out for the gradient of the matrix itself",
            )

    @property
    def lead(self) -> tuple[int, ...]:
        """The extent of the dimension in front as a tuple, which is empty if there is none."""
        return () if self.products is None else (self.products,)

    @property
    def weights(self) -> tuple[int, ...]:
        """Shape of one gradient, or of the vector of all factors' gradients."""
        _, b, c, _ = self.pattern
        if self.factors:
            return (sum(rows * columns for rows, columns in self.factors),)
        return (c, b) if self.tied else self.pattern

    def shapes(self, size: int) -> dict[str, Any]:
        order = -1 if self.batch_last else 1
        x, g = ((size, of(self.pattern))[::order] for of in (inputs_of, outputs_of))
        y = (*self.lead, *self.weights)  # Whatever the batch.
        return {"X": (*self.lead, *x), "G": (*self.lead, *g), "Y": y}

    def reference(
        self,
        x: Any,
        g: Any,
        z: Any = None,
        output_op: EpilogueArguments | None = None,
        factors: Sequence[Any] = (),
    ) -> Any:
        """The result by NumPy in float64.

        Args:
            x: X, as of `shapes`.
            g: G, likewise.
            z: like the result, or None.
            output_op: the epilogue's scalars; its defaults where None.
            factors: the matrices where the description has `factors`.
        """
        wide = widen(self.math.element_accumulator)
        a, b, c, d = self.pattern
        x, g = np.asarray(x, wide), np.asarray(g, wide)
        if self.batch_last:
            x, g = x.swapaxes(-1, -2), g.swapaxes(-1, -2)
        rows = x.shape[-2]
        x = x.reshape(self.products or 1, rows, a, c, d)
        g = g.reshape(self.products or 1, rows, a, b, d)
        indices = "gniql,gnipl->gqp" if self.tied else "gniql,gnipl->gipql"
        value = np.einsum(indices, x, g, optimize=True)
        if self.factors:
            value = self._of_factors(value, [np.asarray(factor, wide) for factor in factors])
        return finish(self.epilogue, output_op, value.reshape(self.y_shape(rows)), z)

    def _of_factors(self, value: Any, factors: Sequence[Any]) -> Any:
        """The gradients of the factors, one after the other, from that of their product."""
        count = len(self.factors)
        digits = value.reshape(*itertools.chain(*zip(*self.factors, strict=True)))
        found = []
        for own in range(count):
            operands: list[Any] = [digits, list(range(2 * count))]
            for at in range(count):
                operands += [] if at == own else [factors[at], [at, count + at]]
            found.append(np.einsum(*operands, [own, count + own], optimize=True).reshape(-1))
        return np.concatenate(found)


@dataclass(frozen=True, slots=True, kw_only=True)
class KSparseGradientProblem:
    """A gradient of weights with its memory: what launches are computed from.

    Attributes:
        rows: the batch B.
        x, g: rows are the batch, columns the features, with one batch stride, of the products.
        y: the result, with strides of (product, i, l, p, q); 0 for i and l of tied weights. The
            gradients of factors, a vector, have the last stride alone.
        z: like y, or None where beta is 0.
        scalars: the epilogue's, in its order.
        workspace: pointer to the bytes that the plan asked for.
        factors: the matrices of the description's factors.
    """

    rows: int
    x: Strided
    g: Strided
    y: Strided
    z: Strided | None
    scalars: tuple[float, ...]
    workspace: int
    factors: tuple[Strided, ...] = ()
