"""The operation of products of kernel matrices."""

from __future__ import annotations

from kronop.core.operation import Operation
from kronop.families.distance.declaration import PRODUCT
from kronop.families.distance.product_arguments import KernelMatmulArguments
from kronop.families.distance.description import (
    KernelMatmulDescription,
)


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
