"""The operations of distances, kernel matrices, their gradients and products."""

from __future__ import annotations

from kronop.core.operation import Operation
from kronop.families.distance.arguments import DistanceArguments, KernelMatmulArguments
from kronop.families.distance.declaration import GRADIENT, MATRIX, PRODUCT
from kronop.families.distance.description import DistanceDescription, KernelMatmulDescription
from kronop.families.distance.gradient_arguments import DistanceGradientArguments
from kronop.families.distance.gradient_description import DistanceGradientDescription


class DistanceOperation(Operation[DistanceDescription, DistanceArguments], kind=MATRIX):
    """Distances, or another kernel, between all pairs of points:
    `Y[m, n] = epilogue(kernel(X1[m], X2[n]))`.

    It runs on `DistanceArguments`, for any numbers of points and features, with any values of the
    kernel: of the `kernel` given here only the form counts.

    Args:
        target: "x86" (or "x86-avx512", "x86-avx2", "x86-generic"), "arm64", a GPU, as 80
            or "sm_80", or "cuda".
        tile_description: tile sizes and math, or None for the planner's choice.
        X1, X2, Y: descriptions of the points, (M, K) and (N, K), and of the result, (M, N).
        epilogue_functor: one of the four, or a visitor tree.
        kernel: one of `kronop.kernels`, or the form of one.
        symmetric: X1 and X2 will be the same tensor.
        expanded: squared distances may be computed by matrix products.

    Raises:
        DescriptionError: no kernel serves this; the message says why and what to change.
        ElementTypeError: what is no description, epilogue or kernel.

    Example:
        >>> points = kronop.TensorDescription(kronop.float32)
        >>> epilogue = kronop.LinearCombination(kronop.float32, 1, kronop.float32, kronop.float32)
        >>> norm = kronop.kernels.PowerNorm(2)
        >>> operation = kronop.DistanceOperation(90, None, points, points, points, epilogue, norm)
        >>> print(operation.plan)
        plan for sm_90a: 1 step
          distance_...: kernels of pairs of points...
    """


class DistanceGradientOperation(
    Operation[DistanceGradientDescription, DistanceGradientArguments], kind=GRADIENT
):
    """Sums of derivatives of powers of differences:
    `Y[o, n, m] = epilogue(sum over k of C[o, k] A[k, m] sgn(t) |t|^(p - 1))` with
    `t = D[n, m] - B[n, k]`.

    It runs on `DistanceGradientArguments`, for any sizes, and with any value of a general power.

    Args:
        target: "x86" (or "x86-avx512", "x86-avx2", "x86-generic"), "arm64", a GPU, as 80
            or "sm_80", or "cuda".
        tile_description: tile sizes and math, or None for the planner's choice.
        A, B, C, D, Y: descriptions of weights of pairs (K, M), points (N, K), coefficients (O, K),
            points (N, M) and the result (O, N, M).
        epilogue_functor: one of the four.
        power: p, a positive number: 0.5, 1, 1.5, 2, 2.5, 3 and 4 have kernels of their own; for
            others, it is the general power, whose value the arguments have.
        expanded: for p = 2, differences may be multiplied out into matrix products.

    Raises:
        DescriptionError: no kernel serves this; the message says why and what to change.
        ElementTypeError: what is no description, epilogue or power.
        ArgumentError: a power that is not positive and finite.

    Example:
        >>> matrix = kronop.TensorDescription(kronop.float32)
        >>> epilogue = kronop.LinearCombination(kronop.float32, 1, kronop.float32, kronop.float32)
        >>> described = [matrix, matrix, matrix, matrix, matrix, epilogue]  # A, B, C, D and Y
        >>> operation = kronop.DistanceGradientOperation(90, None, *described, 2.0)
        >>> print(operation.plan)
        plan for sm_90a: 1 step
          distance_gradient_...: sums of derivatives of powers of differences...
    """


class KernelMatmulOperation(
    Operation[KernelMatmulDescription, KernelMatmulArguments], kind=PRODUCT
):
    """The product of a kernel matrix, which is not stored, and a matrix:
    `Y[m, c] = epilogue(sum over n of (kernel(X1[m], X2[n]) + regularization [m = n]) V[n, c])`.

    It runs on `KernelMatmulArguments`, for any numbers of points, features and columns, with any
    values of the kernel: of the `kernel` given here only the form counts.

    Args:
        target: "x86" (or "x86-avx512", "x86-avx2", "x86-generic"), "arm64", a GPU, as 80
            or "sm_80", or "cuda".
        tile_description: tile sizes and math, or None for the planner's choice.
        X1, X2, V, Y: descriptions of the points, (M, K) and (N, K), of the matrix, (N, C), and of
            the result, (M, C).
        epilogue_functor: one of the four.
        kernel: one of `kronop.kernels`, or the form of one.

    Raises:
        DescriptionError: no kernel serves this; the message says why and what to change.
        ElementTypeError: what is no description, epilogue or kernel.

    Example:
        >>> matrix = kronop.TensorDescription(kronop.float32)
        >>> epilogue = kronop.LinearCombination(kronop.float32, 1, kronop.float32, kronop.float32)
        >>> described = [matrix, matrix, matrix, matrix, epilogue]  # of X1, X2, V and Y
        >>> gaussian = kronop.kernels.Gaussian(bandwidth=1.0)
        >>> operation = kronop.KernelMatmulOperation(90, None, *described, gaussian)
        >>> print(operation.plan)
        plan for sm_90a: ...products of a kernel matrix...
    """
