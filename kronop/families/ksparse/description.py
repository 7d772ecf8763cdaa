"""The Kronecker-sparse family: Y = epilogue(X K'), with K = I_a x dense(b, c) x I_d in structure.

K is (a b d) x (a c d); its nonzeros are the entries of the weights W of shape (a, b, c, d):

    K[i b d + j d + l, i c d + k d + l] = W[i, j, k, l]

Batch first, X is (B, a c d) and Y = X K' is (B, a b d):

    Y[n, i, j, l] = sum over k of X[n, i, k, l] W[i, j, k, l]

Batch last, X is (a c d, B) and Y = K X is (a b d, B): the same sum with exchanged strides.

A chain of factors is Y = epilogue(X K1' K2' ... KL'), or Y = KL ... K2 K1 X batch last: K1 is the
right-most factor of the matrix product, and is applied first. The results between two factors are
rounded to the tensors' element type.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import field
from typing import Any

import numpy as np

from kronop.descriptions.datatype import Layout, result_type
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
)
from kronop.descriptions.strided import Strided
from kronop.descriptions.tensor import TensorDescription
from kronop.errors import DescriptionError, KronopError
from kronop.frozen import dataclass

Pattern = tuple[int, int, int, int]


def inputs_of(pattern: Pattern) -> int:
    """Features of a factor's operand, a c d."""
    a, _, c, d = pattern
    return a * c * d


def outputs_of(pattern: Pattern) -> int:
    """Features of a factor's result, a b d."""
    a, b, _, d = pattern
    return a * b * d


class OfFeatures(Shaped):
    """A base of the descriptions of products with one factor, and with a chain of them.

    X is (B, input_columns) and Y is (B, output_columns), or both transposed with `batch_last`.
    """

    __slots__ = ()
    batch_last: bool

    @property
    def weights(self) -> dict[str, Any]:
        """The pattern of the weights, or a list of them, by the name of their argument."""
        raise NotImplementedError

    @property
    def chain(self) -> tuple[Pattern, ...]:
        """The pattern of each factor, the one that is applied first being first."""
        (found,) = self.weights.values()
        return tuple(found) if isinstance(found, list) else (found,)

    @property
    def input_columns(self) -> int:
        """Features of X, a c d of the first pattern."""
        return inputs_of(self.chain[0])

    @property
    def output_columns(self) -> int:
        """Features of Y, a b d of the last pattern."""
        return outputs_of(self.chain[-1])

    def shapes(self, size: int) -> dict[str, Any]:
        order = -1 if self.batch_last else 1
        x, y = (size, self.input_columns)[::order], (size, self.output_columns)[::order]
        return {"X": x, **self.weights, "Y": y}

    def reference(
        self,
        x: Any,
        weights: Any,
        z: Any = None,
        bias: Any = None,
        output_op: EpilogueArguments | None = None,
    ) -> Any:
        """The result by NumPy: in float64 for floats, in wrapping int64 for integers.

        Nothing is rounded between factors.

        Args:
            x: (B, a c d), or (a c d, B) with batch_last.
            weights: (a, b, c, d), or of a chain one such array for each factor.
            z: like the result, or None.
            bias: (a b d,) of the last factor, or None.
            output_op: the epilogue's scalars; its defaults where None.
        """
        wide = widen(self.math.element_accumulator)
        value = np.asarray(x, wide).T if self.batch_last else np.asarray(x, wide)
        every = [weights] if "W" in self.weights else weights
        for pattern, weight in zip(self.chain, every, strict=True):
            value = product_of_rows(pattern, value, np.asarray(weight, wide))
        if self.batch_last:
            value = value.T
            bias = None if bias is None else np.asarray(bias)[:, None]
        return finish(self.epilogue, output_op, value, z, bias)


def product_of_rows(pattern: Pattern, rows: Any, weights: Any) -> Any:
    """rows K' by NumPy: (B, a c d) -> (B, a b d)."""
    a, b, c, d = pattern
    value = np.einsum("nikl,ijkl->nijl", rows.reshape(-1, a, c, d), weights)
    return value.reshape(-1, a * b * d)


@dataclass(frozen=True, slots=True, kw_only=True)
class KSparseDescription(OfFeatures):
    """One product with a Kronecker-sparse factor: the `description` of a `KSparseOperation`.

    Attributes:
        math: the multiply-add; `tile.math_instruction` where a tile is given.
        tile: tile sizes, or None for the planner's choice.
        X: the operand.
        W: the weights (a, b, c, d).
        Y: the result (Z is like Y).
        epilogue: what happens to the product.
        pattern: (a, b, c, d).
        batch_last: X is (a c d, B) and Y (a b d, B), instead of (B, a c d) and (B, a b d).

    Raises:
        DescriptionError: element types that differ, sizes that are not positive, or an alignment
            of W that no such weights can have.
        ElementTypeError: what is no description or epilogue.

    Example:
        >>> tensor = kronop.TensorDescription(kronop.float32)
        >>> epilogue = kronop.LinearCombination(kronop.float32, 1, kronop.float32, kronop.float32)
        >>> what = kronop.KSparseDescription(
        ...     math=kronop.MathInstruction.simt(kronop.float32), tile=None,
        ...     X=tensor, W=tensor, Y=tensor, epilogue=epilogue, pattern=(2, 3, 4, 5),
        ... )
        >>> what.x_shape(16), what.y_shape(16)
        ((16, 40), (16, 30))
        >>> what.reference(np.ones((16, 40)), np.ones((2, 3, 4, 5))).max().item()
        4.0
    """

    X: TensorDescription
    W: TensorDescription
    Y: TensorDescription
    epilogue: Epilogue
    pattern: Pattern = field(metadata=INTEGERS)
    batch_last: bool = False

    def __post_init__(self) -> None:
        check_operands(self, ("X", "W"), trees=True)
        check_sizes("pattern", ("a", "b", "c", "d"), self.pattern)
        check_weights(self.W, [self.pattern])
        check_flag("batch_last", self.batch_last)

    @property
    def weights(self) -> dict[str, Any]:
        return {"W": self.pattern}


def check_weights(weights: TensorDescription, patterns: Sequence[Pattern]) -> None:
    """Raises DescriptionError if weights promise an alignment, but a run of them in memory has
    only one element."""
    along, at = ("d", 3) if weights.layout is Layout.RowMajor else ("c", 2)
    single = [pattern for pattern in patterns if pattern[at] == 1]
    if weights.alignment > 1 and single:
        raise DescriptionError(
            "alignment of W",
            expected=f"1 for {weights.layout.value} weights {single[0]}: a run along {along} is"
            " one element",
            got=weights.alignment,
            hint="describe W with alignment 1",
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Ends:
    """The memory of a product or a chain without its weights: what launches are computed from.

    Attributes:
        rows: the batch B.
        x, y: rows are the batch, columns the features; batch strides are not used.
        z: like y, or None where beta is 0.
        bias: a row with a value for each output feature; NOTHING where there is none.
        scalars: the epilogue's, in its order.
        workspace: pointer to the bytes that the plan asked for; 0 where it asked for none.
        threads: most threads that a host kernel may use.
    """

    rows: int
    x: Strided
    z: Strided | None
    bias: Strided
    y: Strided
    scalars: tuple[float, ...]
    workspace: int
    threads: int


@dataclass(frozen=True, slots=True, kw_only=True)
class KSparseProblem(Ends):
    """A Kronecker-sparse product with its memory.

    Attributes:
        weights: with strides of a, b, c and d.
    """

    weights: Strided


@dataclass(frozen=True, slots=True, kw_only=True)
class KSparseChainDescription(OfFeatures):
    """Products with Kronecker-sparse factors, one after the other, as of `KSparseChainOperation`.

    Attributes:
        math: the multiply-add; `tile.math_instruction` where a tile is given.
        tile: tile sizes of every product, each of which is then a step of its own; None for the
            planner's choice.
        X: the operand.
        W: the weights of all factors, which have one description.
        Y: the result (Z is like Y).
        epilogue: what happens to the last product.
        patterns: (a, b, c, d) of each factor, the first applied first.
        batch_last: X is (a c d, B) and Y (a b d, B), instead of (B, a c d) and (B, a b d).

    Raises:
        DescriptionError: element types that differ, sizes that are not positive, factors that do
            not follow each other, or an alignment of W that no such weights can have.
        ElementTypeError: what is no description or epilogue.

    Example:
        >>> tensor = kronop.TensorDescription(kronop.float32)
        >>> epilogue = kronop.LinearCombination(kronop.float32, 1, kronop.float32, kronop.float32)
        >>> what = kronop.KSparseChainDescription(
        ...     math=kronop.MathInstruction.simt(kronop.float32), tile=None,
        ...     X=tensor, W=tensor, Y=tensor, epilogue=epilogue,
        ...     patterns=((1, 8, 16, 2), (8, 3, 2, 1)),
        ... )
        >>> what.x_shape(16), what.y_shape(16)
        ((16, 32), (16, 24))
        >>> weights = [np.ones((1, 8, 16, 2)), np.ones((8, 3, 2, 1))]
        >>> what.reference(np.ones((16, 32)), weights).max().item()  # 16 x 2
        32.0
    """

    X: TensorDescription
    W: TensorDescription
    Y: TensorDescription
    epilogue: Epilogue
    patterns: tuple[Pattern, ...] = field(metadata=LISTS_OF_INTEGERS)
    batch_last: bool = False

    def __post_init__(self) -> None:
        check_operands(self, ("X", "W"), trees=True)
        check_flag("batch_last", self.batch_last)
        _check_patterns(self.patterns)
        check_weights(self.W, self.patterns)
        element = self.X.element
        if len(self.patterns) > 1 and result_type(element) != element:
            raise DescriptionError(
                "element of X in a chain",
                expected="a type that results have as well",
                got=f"{element!r}, of which results are {result_type(element)!r}",
                hint="use that type for all tensors, or a KSparseOperation for each factor",
            )

    @property
    def weights(self) -> dict[str, Any]:
        return {"weights": list(self.patterns)}


def _check_patterns(patterns: object) -> None:
    if not isinstance(patterns, tuple) or not patterns:
        raise DescriptionError(
            "patterns",
            expected="at least one (a, b, c, d)",
            got=repr(patterns),
            hint="give the pattern of every factor, the right-most one first",
        )
    for index, pattern in enumerate(patterns):
        check_sizes(f"patterns[{index}]", ("a", "b", "c", "d"), pattern)
    check_chain(patterns, "patterns", DescriptionError)


def check_chain(patterns: Sequence[Pattern], name: str, error: type[KronopError]) -> None:
    """Raises the error if a factor takes other features than the one before gives.

    Args:
        name: what messages call the factors.
    """
    for index, (before, pattern) in enumerate(itertools.pairwise(patterns), 1):
        given, taken = outputs_of(before), inputs_of(pattern)
        if given != taken:
            raise error(
                f"{name}[{index}]",
                expected=f"a c d = {given}, the outputs of {name}[{index - 1}]",
                got=f"{taken} from {pattern}",
                hint="list the right-most factor first",
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class KSparseChainProblem(Ends):
    """A chain with its memory.

    Attributes:
        weights: of each factor.
    """

    weights: tuple[Strided, ...]
