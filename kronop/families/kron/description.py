"""The Kronecker matmul family: Y = epilogue(X (F1 x ... x FN)), or (F1 x ... x FN) X.

Treat a row of X as a tensor with one digit per factor; each factor then contracts its own digit
(a mode product), in any order, and no transpose is ever needed:

    Y[m, q1, ..., qN] = sum over p1 ... pN of X[m, p1, ..., pN] F1[p1, q1] ... FN[pN, qN]

The left side is the same sum with the roles of rows and columns exchanged, that is with the
strides of X, Y, Z and of every factor exchanged: (F1 x ... x FN) X = (X' (F1' x ... x FN'))'.
So planning and kernels know only the form above, over strides.
"""

from __future__ import annotations

import enum
import math
from collections.abc import Sequence
from dataclasses import field, replace
from typing import Any

import numpy as np

from kronop.descriptions.datatype import float64
from kronop.descriptions.epilogue import Epilogue
from kronop.descriptions.numeric import finish, widen
from kronop.descriptions.scalars import EpilogueArguments
from kronop.descriptions.shaped import Shaped
from kronop.descriptions.shared import (
    LISTS_OF_INTEGERS,
    check_memory,
    check_operands,
    check_sizes,
    refuse_float8,
)
from kronop.descriptions.strided import Strided
from kronop.descriptions.tensor import TensorDescription
from kronop.errors import DescriptionError, ElementTypeError
from kronop.frozen import dataclass


class Side(enum.Enum):
    """The side of the Kronecker product on which X is.

    Example:
        >>> kronop.Side.Right.value, kronop.Side.Left.value
        ('X (F1 x ... x FN)', '(F1 x ... x FN) X')
    """

    Right = "X (F1 x ... x FN)"
    Left = "(F1 x ... x FN) X"


@dataclass(frozen=True, slots=True, kw_only=True)
class KronMatmulDescription(Shaped):
    """One Kronecker matmul: `KronMatmulOperation` makes it, as its attribute `description`.

    Attributes:
        math: the multiply-add; `tile.math_instruction` where a tile is given.
        tile: tile sizes, or None for the planner's choice.
        X: the operand.
        Y: the result (Z is like Y).
        F: what all factors have in common.
        epilogue: what happens to the product.
        factors: (rows, columns) of each factor as it stands in the product.
        side: gemkm (Right): X is (..., M, prod rows), Y (..., M, prod columns);
            gekmm (Left): X is (..., prod columns, M), Y (..., prod rows, M).

    Raises:
        DescriptionError: element types that differ, no factors, or sizes that are not positive.
        ElementTypeError: what is no description or epilogue.

    Example:
        >>> tensor = kronop.TensorDescription(kronop.float32)
        >>> epilogue = kronop.LinearCombination(kronop.float32, 1, kronop.float32, kronop.float32)
        >>> what = kronop.KronMatmulDescription(
        ...     math=kronop.MathInstruction.simt(kronop.float32), tile=None,
        ...     X=tensor, F=tensor, Y=tensor, epilogue=epilogue, factors=((8, 2), (4, 3)),
        ... )
        >>> what.x_shape(16), what.y_shape(16)
        ((16, 32), (16, 6))
        >>> what.reference(np.ones((16, 32)), [np.ones((8, 2)), np.ones((4, 3))])[0].tolist()
        [32.0, 32.0, 32.0, 32.0, 32.0, 32.0]
    """

    X: TensorDescription
    F: TensorDescription
    Y: TensorDescription
    epilogue: Epilogue
    factors: tuple[tuple[int, int], ...] = field(metadata=LISTS_OF_INTEGERS)
    side: Side = Side.Right

    def __post_init__(self) -> None:
        check_operands(self, ("X", "F"), trees=True)
        refuse_float8(self.math, "Kronecker product")
        if not self.factors:
            raise DescriptionError(
                "factors",
                expected="at least one (rows, columns)",
                got="none",
                hint="give the shape of every factor",
            )
        for index, shape in enumerate(self.factors):
            check_sizes(f"factors[{index}]", ("rows", "columns"), shape)
        if not isinstance(self.side, Side):
            raise ElementTypeError(
                "side",
                expected="kronop.Side.Right or kronop.Side.Left",
                got=repr(self.side),
                hint="name one",
            )

    @property
    def contractions(self) -> tuple[tuple[int, int], ...]:
        """(contracted, produced) size of each digit, first digit first."""
        return self.factors if self.side is Side.Right else tuple((q, p) for p, q in self.factors)

    @property
    def input_columns(self) -> int:
        """Elements of a row of X in the canonical form."""
        return math.prod(size for size, _ in self.contractions)

    @property
    def output_columns(self) -> int:
        """Elements of a row of Y in the canonical form."""
        return math.prod(size for _, size in self.contractions)

    def shapes(self, size: int) -> dict[str, Any]:
        order = 1 if self.side is Side.Right else -1
        x, y = (size, self.input_columns)[::order], (size, self.output_columns)[::order]
        return {"X": x, "factors": list(self.factors), "Y": y}

    def reference(
        self,
        x: Any,
        factors: Sequence[Any],
        z: Any = None,
        output_op: EpilogueArguments | None = None,
    ) -> Any:
        """The result by NumPy: in float64 for floats, in wrapping int64 for integers.

        Args:
            x: (..., M, K) for the right side, (..., K, M) for the left one.
            factors: one (..., rows, columns) array per factor; leading dimensions broadcast.
            z: like the result, or None.
            output_op: the epilogue's scalars; its defaults where None.

        Raises:
            OutOfMemoryError: a result that no memory could hold.
        """
        wide = widen(self.math.element_accumulator)
        value = np.asarray(x, wide)
        matrices = [np.asarray(item, wide) for item in factors]
        if self.side is Side.Left:
            value, matrices = value.swapaxes(-1, -2), [item.swapaxes(-1, -2) for item in matrices]
        columns = math.prod(item.shape[-1] for item in matrices)
        check_memory("the result", (*value.shape[:-1], columns), float64)
        before, after = 1, math.prod(item.shape[-2] for item in matrices)
        for matrix in matrices:
            contracted, produced = matrix.shape[-2:]
            after //= contracted
            value = value.reshape(*value.shape[:-1], before, contracted, after)
            # (..., M, before, P, after) with (..., 1, 1, Q, P) in front: a batched product.
            value = matrix.swapaxes(-1, -2)[..., None, None, :, :] @ value
            before *= produced
            value = value.reshape(*value.shape[:-3], before * after)
        if self.side is Side.Left:
            value = value.swapaxes(-1, -2)
        return finish(self.epilogue, output_op, value, z)


@dataclass(frozen=True, slots=True, kw_only=True)
class KronProblem:
    """A Kronecker matmul with its memory, in the canonical form: what launches are computed from.

    Attributes:
        rows: M.
        batch: extents of the batch dimensions, at most MOST_BATCH_DIMENSIONS, none of them 1.
        x, y: rows are M, columns the digits.
        factors: rows contracted, columns produced, first digit first.
        z: like y, or None where beta is 0.
        scalars: the epilogue's, in its order.
        workspace: pointer to the bytes that the plan asked for; 0 where it asked for none.
        threads: most threads that a host kernel may use.
    """

    rows: int
    batch: tuple[int, ...]
    x: Strided
    factors: tuple[Strided, ...]
    z: Strided | None
    y: Strided
    scalars: tuple[float, ...]
    workspace: int
    threads: int

    @property
    def all_rows(self) -> int:
        """M times the batch."""
        return self.rows * math.prod(self.batch)

    def folded(self) -> KronProblem:
        """The problem with its last batch dimensions turned into rows, where no factor depends on
        them and the strides of X, Y and Z allow it."""
        problem = self
        while problem.batch and not any(factor.batch[-1] for factor in problem.factors):
            rows = problem.rows
            matrices = [item for item in (problem.x, problem.y, problem.z) if item is not None]
            if rows > 1 and any(item.batch[-1] != rows * item.row for item in matrices):
                break
            problem = problem._with_last_as_rows()
        return problem

    def _with_last_as_rows(self) -> KronProblem:
        def drop(item: Strided) -> Strided:
            return replace(item, batch=item.batch[:-1])

        def fold(item: Strided) -> Strided:
            return replace(
                drop(item), strides=(item.batch[-1] if self.rows == 1 else item.row, item.column)
            )

        return replace(
            self,
            rows=self.rows * self.batch[-1],
            batch=self.batch[:-1],
            x=fold(self.x),
            factors=tuple(map(drop, self.factors)),
            z=None if self.z is None else fold(self.z),
            y=fold(self.y),
        )
