"""The operation of Kronecker products."""

from __future__ import annotations

from kronop.core.operation import Operation
from kronop.families.kron.arguments import KronMatmulArguments
from kronop.families.kron.declaration import MATMUL
from kronop.families.kron.description import KronMatmulDescription


class KronMatmulOperation(Operation[KronMatmulDescription, KronMatmulArguments], kind=MATMUL):
    """Y = epilogue(X (F1 x ... x FN)), or with X on the other side.

    It runs on `KronMatmulArguments`, for any number of rows M and any batch.

    Args:
        target: "x86" (or "x86-amx", "x86-avx512", "x86-avx2", "x86-generic"), "arm64", a GPU,
            as 80 or "sm_80", or "cuda".
        tile_description: tile sizes and math, or None for the planner's choice.
        X, F, Y: descriptions of the operand, of the factors and of the result.
        epilogue_functor: one of the four, or a visitor tree.
        factors: (rows, columns) of each factor, in the order of the product.
        side: Side.Right for X (F1 x ... x FN), Side.Left for (F1 x ... x FN) X.

    Raises:
        DescriptionError: no kernel serves this; the message says why and what to change.
        ElementTypeError: what is no description, epilogue or sequence of integers.

    Example:
        >>> tensor = kronop.TensorDescription(kronop.float32)
        >>> epilogue = kronop.LinearCombination(kronop.float32, 1, kronop.float32, kronop.float32)
        >>> operation = kronop.KronMatmulOperation(
        ...     90, None, tensor, tensor, tensor, epilogue, factors=((8, 8), (8, 8))
        ... )
        >>> print(operation.plan)  # of a GPU, which need not be here
        plan for sm_90a: 1 step
          kron_f32_8x8p2_...
        >>> operation.sizes(1024)  # memory in bytes
        Sizes(x_shape=(1024, 64), y_shape=(1024, 64), y_bytes=262144, workspace_bytes=...)
    """
