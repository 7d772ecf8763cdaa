"""The families of operations: what each of them is described by."""

from __future__ import annotations

from collections.abc import Sequence

from kronop.args.kron import KronMatmulArguments
from kronop.args.ksparse import KSparseArguments
from kronop.args.ksparse_chain import KSparseChainArguments
from kronop.args.ksparse_gradient import KSparseGradientArguments
from kronop.descriptions.epilogue import Epilogue
from kronop.descriptions.kron import KronMatmulDescription, KronProblem, Side
from kronop.descriptions.ksparse import KSparseDescription, KSparseProblem
from kronop.descriptions.ksparse_chain import KSparseChainDescription, KSparseChainProblem
from kronop.descriptions.ksparse_gradient import KSparseGradientDescription, KSparseGradientProblem
from kronop.descriptions.math_instruction import MathInstruction
from kronop.descriptions.tensor import TensorDescription
from kronop.descriptions.tile import TileDescription
from kronop.errors import ElementTypeError, mismatch
from kronop.operation import Operation, emitter_of, integers
from kronop.target import Target


class KronMatmulOperation(Operation[KronMatmulDescription, KronProblem, KronMatmulArguments]):
    """Y = epilogue(X (F1 x ... x FN)), or with X on the other side.

    Args:
        target: "x86" (or "x86-amx", "x86-avx512", "x86-avx2", "x86-generic"), 80, 90, "sm_80" or
            "sm_90a".
        tile_description: tile sizes and math, or None for the planner's choice.
        X, F, Y: descriptions of the operand, of the factors and of the result.
        epilogue_functor: one of the four.
        factors: (rows, columns) of each factor, in the order of the product.
        side: Side.Right for X (F1 x ... x FN), Side.Left for (F1 x ... x FN) X.

    Raises:
        DescriptionError: no kernel serves this; the message says why and what to change.
    """

    def __init__(
        self,
        target: object,
        tile_description: TileDescription | None,
        X: TensorDescription,
        F: TensorDescription,
        Y: TensorDescription,
        epilogue_functor: Epilogue,
        factors: Sequence[Sequence[int]],
        side: Side = Side.Right,
    ) -> None:
        target = Target.parse(target)
        description = KronMatmulDescription(
            math=_math(KronMatmulDescription, target, tile_description, X),
            tile=tile_description,
            X=X,
            F=F,
            Y=Y,
            epilogue=epilogue_functor,
            factors=_shapes(factors),
            side=_side(side),
        )
        super().__init__(target, description)


class KSparseOperation(Operation[KSparseDescription, KSparseProblem, KSparseArguments]):
    """Y = epilogue(X K') (batch first) or epilogue(K X) (batch last), K Kronecker-sparse.

    K is I_a x dense(b, c) x I_d in structure, with the weights W of shape (a, b, c, d) for entries:
    Y[n, i, j, l] = sum over k of X[n, i, k, l] W[i, j, k, l], where features count (i, k, l) and
    (i, j, l). It runs on `KSparseArguments`, for any number of rows; what it makes is for the
    promises of X, W and Y (alignments in elements), which these arguments then have to keep.

    Args:
        target: "x86" (or "x86-amx", "x86-avx512", "x86-avx2", "x86-generic"), 80, 90, "sm_80" or
            "sm_90a".
        tile_description: tile sizes and math, or None for the planner's choice.
        X, W, Y: descriptions of the operand, of the weights and of the result.
        epilogue_functor: one of the four; the bias is added before the activation.
        pattern: (a, b, c, d), positive integers.
        batch_last: X is (a c d, B) and Y (a b d, B), instead of (B, a c d) and (B, a b d).

    Raises:
        DescriptionError: no kernel serves this, or W promises an alignment along a dimension of
            one element (d = 1); the message says why and what to change.
        ElementTypeError: what is no description, epilogue or sequence of integers.
    """

    def __init__(
        self,
        target: object,
        tile_description: TileDescription | None,
        X: TensorDescription,
        W: TensorDescription,
        Y: TensorDescription,
        epilogue_functor: Epilogue,
        pattern: Sequence[int],
        batch_last: bool = False,
    ) -> None:
        target = Target.parse(target)
        description = KSparseDescription(
            math=_math(KSparseDescription, target, tile_description, X),
            tile=tile_description,
            X=X,
            W=W,
            Y=Y,
            epilogue=epilogue_functor,
            pattern=integers("pattern", pattern),
            batch_last=batch_last,
        )
        super().__init__(target, description)


class KSparseChainOperation(
    Operation[KSparseChainDescription, KSparseChainProblem, KSparseChainArguments]
):
    """Y = epilogue(X K1' ... KL') (batch first) or epilogue(KL ... K1 X) (batch last).

    Each factor is as in `KSparseOperation`, and takes as many features as the one before gives: a c
    d of a pattern is a b d of the one before. It runs on `KSparseChainArguments`. On a GPU two
    adjacent factors are one launch where the planner expects that to be faster.

    Args:
        target: "x86" (or "x86-amx", "x86-avx512", "x86-avx2", "x86-generic"), 80, 90, "sm_80" or
            "sm_90a".
        tile_description: tile sizes and math of every product, each of which is then a launch of
            its own; None for the planner's choice.
        X, W, Y: descriptions of the operand, of all weights and of the result.
        epilogue_functor: one of the four, applied after the last factor; the bias is added before
            the activation. What is between two factors is rounded to the element type of X.
        patterns: (a, b, c, d) of each factor, the right-most one, which is applied first, first.
        batch_last: X is (a c d, B), a c d of the first pattern, and Y (a b d, B), a b d of the
            last, instead of (B, a c d) and (B, a b d).

    Raises:
        DescriptionError: factors that do not follow each other, or no kernel serves this (8-bit
            types: a second factor would meet the wider results of the first); the message says
            why and what to change.
        ElementTypeError: what is no description, epilogue or sequence of integers.
    """

    def __init__(
        self,
        target: object,
        tile_description: TileDescription | None,
        X: TensorDescription,
        W: TensorDescription,
        Y: TensorDescription,
        epilogue_functor: Epilogue,
        patterns: Sequence[Sequence[int]],
        batch_last: bool = False,
    ) -> None:
        target = Target.parse(target)
        each = enumerate(integers("patterns", patterns))
        description = KSparseChainDescription(
            math=_math(KSparseChainDescription, target, tile_description, X),
            tile=tile_description,
            X=X,
            W=W,
            Y=Y,
            epilogue=epilogue_functor,
            patterns=tuple(integers(f"patterns[{index}]", item) for index, item in each),
            batch_last=batch_last,
        )
        super().__init__(target, description)


class KSparseGradientOperation(
    Operation[KSparseGradientDescription, KSparseGradientProblem, KSparseGradientArguments]
):
    """Y = epilogue(the gradient of a Kronecker-sparse product's weights, or of a factor).

    Args:
        target: 80, 90, "sm_80" or "sm_90a".
        tile_description: tile sizes and math, or None for the planner's choice.
        X, G, Y: descriptions of the product's operand, of its result's gradient and of the result.
        epilogue_functor: one of the four.
        pattern: (a, b, c, d) of the product; of a factor, what is before its digit, its columns,
            its rows and what is behind it.
        tied: whether one (c, b) matrix, a factor, stands for all weights.
        batch_last: X is (a c d, B) and G (a b d, B).
        products: how many products there are, in a dimension in front of X, G and Y; None where
            they have none.
        factors: (rows, columns) of the at least two factors whose product the tied matrix is; Y is
            then a vector of their gradients. Empty for that of the matrix.

    Raises:
        DescriptionError: no kernel serves this; the message says why and what to change.
    """

    def __init__(
        self,
        target: object,
        tile_description: TileDescription | None,
        X: TensorDescription,
        G: TensorDescription,
        Y: TensorDescription,
        epilogue_functor: Epilogue,
        pattern: Sequence[int],
        tied: bool = False,
        batch_last: bool = False,
        products: int | None = None,
        factors: Sequence[Sequence[int]] = (),
    ) -> None:
        target = Target.parse(target)
        description = KSparseGradientDescription(
            math=_math(KSparseGradientDescription, target, tile_description, X),
            tile=tile_description,
            X=X,
            G=G,
            Y=Y,
            epilogue=epilogue_functor,
            pattern=integers("pattern", pattern),
            tied=tied,
            batch_last=batch_last,
            products=products,
            factors=_shapes(factors),
        )
        super().__init__(target, description)


def _math(
    family: type, target: Target, tile: TileDescription | None, X: TensorDescription
) -> MathInstruction:
    if isinstance(tile, TileDescription):
        return tile.math_instruction
    if tile is not None or not isinstance(X, TensorDescription):
        name, value = ("X", X) if tile is None else ("tile_description", tile)
        raise ElementTypeError(
            mismatch(
                name,
                expected="a TileDescription or None" if tile is not None else "a TensorDescription",
                got=repr(value),
                hint="build one with kronop",
            )
        )
    return emitter_of(family, target).instruction(X.element, target)


def _shapes(factors: Sequence[Sequence[int]]) -> tuple[tuple[int, int], ...]:
    shapes = enumerate(integers("factors", factors))
    return tuple(integers(f"factors[{index}]", shape) for index, shape in shapes)


def _side(side: object) -> Side:
    if not isinstance(side, Side):
        raise ElementTypeError(
            mismatch(
                "side",
                expected="kronop.Side.Right or kronop.Side.Left",
                got=repr(side),
                hint="name one",
            )
        )
    return side
