"""The operations of Kronecker-sparse products, of their chains and of weights' gradients."""

from __future__ import annotations

from kronop.core.operation import Operation
from kronop.families.ksparse.arguments import KSparseArguments, KSparseChainArguments
from kronop.families.ksparse.declaration import CHAIN, GRADIENT, PRODUCT
from kronop.families.ksparse.description import KSparseChainDescription, KSparseDescription
from kronop.families.ksparse.gradient_arguments import KSparseGradientArguments
from kronop.families.ksparse.gradient_description import KSparseGradientDescription


class KSparseOperation(Operation[KSparseDescription, KSparseArguments], kind=PRODUCT):
    """Y = epilogue(X K') (batch first) or epilogue(K X) (batch last), K Kronecker-sparse.

    K is I_a x dense(b, c) x I_d in structure, with the weights W of shape (a, b, c, d) for entries:
    Y[n, i, j, l] = sum over k of X[n, i, k, l] W[i, j, k, l], where features count (i, k, l) and
    (i, j, l). It runs on `KSparseArguments`, for any number of rows. Its kernels rely on the
    alignments (in elements) that X, W and Y promise, so arguments that break them are refused.

    Args:
        target: "x86" (or "x86-amx", "x86-avx512", "x86-avx2", "x86-generic"), "arm64", a GPU,
            as 80 or "sm_80", or "cuda".
        tile_description: tile sizes and math, or None for the planner's choice.
        X, W, Y: descriptions of the operand, of the weights and of the result.
        epilogue_functor: one of the four, where the bias is added before the activation, or a
            visitor tree.
        pattern: (a, b, c, d), positive integers.
        batch_last: X is (a c d, B) and Y (a b d, B), instead of (B, a c d) and (B, a b d).

    Raises:
        DescriptionError: no kernel serves this, or W promises an alignment along a dimension of
            one element (d = 1); the message says why and what to change.
        ElementTypeError: what is no description, epilogue or sequence of integers.

    Example:
        >>> tensor = kronop.TensorDescription(kronop.float32)
        >>> epilogue = kronop.LinearCombination(kronop.float32, 1, kronop.float32, kronop.float32)
        >>> operation = kronop.KSparseOperation(
        ...     "x86-avx2", None, tensor, tensor, tensor, epilogue, pattern=(2, 8, 8, 1)
        ... )
        >>> print(operation.plan)
        plan for x86-avx2: 1 step
          ksparse_f32_2_8_8_1_avx2: one Kronecker-sparse factor: ...
        >>> operation.sizes(1024).y_shape
        (1024, 16)
    """


class KSparseChainOperation(Operation[KSparseChainDescription, KSparseChainArguments], kind=CHAIN):
    """Y = epilogue(X K1' ... KL') (batch first) or epilogue(KL ... K1 X) (batch last).

    Each factor is as in `KSparseOperation`, and takes as many features as the one before gives: a c
    d of a pattern is a b d of the one before. It runs on `KSparseChainArguments`. On a GPU two
    adjacent factors are one launch where the planner expects that to be faster.

    Args:
        target: "x86" (or "x86-amx", "x86-avx512", "x86-avx2", "x86-generic"), "arm64", a GPU,
            as 80 or "sm_80", or "cuda".
        tile_description: tile sizes and math of every product, each of which is then a launch of
            its own; None for the planner's choice.
        X, W, Y: descriptions of the operand, of all weights and of the result.
        epilogue_functor: one of the four, where the bias is added before the activation, or a
            visitor tree; applied after the last factor. The results between two factors are rounded
            to the element type of X.
        patterns: (a, b, c, d) of each factor, the right-most one, which is applied first, first.
        batch_last: X is (a c d, B), a c d of the first pattern, and Y (a b d, B), a b d of the
            last, instead of (B, a c d) and (B, a b d).

    Raises:
        DescriptionError: factors that do not follow each other, or no kernel serves this (8-bit
            types: a second factor would meet the wider results of the first); the message says
            why and what to change.
        ElementTypeError: what is no description, epilogue or sequence of integers.

    Example:
        >>> tensor = kronop.TensorDescription(kronop.float32)
        >>> epilogue = kronop.LinearCombination(kronop.float32, 1, kronop.float32, kronop.float32)
        >>> operation = kronop.KSparseChainOperation(
        ...     "x86-avx2", None, tensor, tensor, tensor, epilogue,
        ...     patterns=((1, 8, 16, 2), (8, 2, 2, 1))
        ... )
        >>> operation.sizes(1024).x_shape, operation.sizes(1024).y_shape
        ((1024, 32), (1024, 16))
        >>> print(operation.plan)
        plan for x86-avx2: 1 step
          ksparse_chain_f32_1_8_16_2_then_8_2_2_1_avx2: 2 Kronecker-sparse factors, ...
    """


class KSparseGradientOperation(
    Operation[KSparseGradientDescription, KSparseGradientArguments], kind=GRADIENT
):
    """Y = epilogue(the gradient of a Kronecker-sparse product's weights, or of a factor).

    It runs on `KSparseGradientArguments`, on GPUs only. `weight_gradient` has the formulas.

    Args:
        target: a GPU, as 80 or "sm_80", or "cuda".
        tile_description: tile sizes and math, or None for the planner's choice.
        X, G, Y: descriptions of the product's operand, of its result's gradient and of the result.
        epilogue_functor: one of the four.
        pattern: (a, b, c, d) of the product; for a factor, the number of elements before its digit,
            its columns, its rows, and the number of elements behind its digit.
        tied: whether one (c, b) matrix, a factor, stands for all weights.
        batch_last: X is (a c d, B) and G (a b d, B).
        products: how many products there are, in a dimension in front of X, G and Y; None where
            they have none.
        factors: (rows, columns) of the at least two factors whose product the tied matrix is; Y is
            then a vector of their gradients. Empty for the gradient of the matrix itself.

    Raises:
        DescriptionError: no kernel serves this; the message says why and what to change.
        ElementTypeError: what is no description, epilogue or sequence of integers.

    Example:
        >>> tensor = kronop.TensorDescription(kronop.float32)
        >>> epilogue = kronop.LinearCombination(kronop.float32, 1, kronop.float32, kronop.float32)
        >>> operation = kronop.KSparseGradientOperation(
        ...     90, None, tensor, tensor, tensor, epilogue, pattern=(2, 8, 8, 1)
        ... )
        >>> print(operation.plan)  # a GPU's, which need not be here
        plan for sm_90a: 2 steps
          ksparse_gradient_f32_8x8_...
          add_shares_f32_linear_sm_90a: adds the shares of 128 results
        ...
        >>> operation.sizes(1024).y_shape  # whatever the batch
        (2, 8, 8, 1)
    """
