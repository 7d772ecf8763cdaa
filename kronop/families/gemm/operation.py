"""The operation of matrix products."""

from __future__ import annotations

from kronop.core.operation import Operation
from kronop.families.gemm.arguments import GemmArguments, GemmGroupedArguments
from kronop.families.gemm.declaration import GROUPED, UNIVERSAL
from kronop.families.gemm.description import GemmDescription, GemmGroupedDescription
from kronop.frozen import derived


class GemmOperationUniversal(Operation[GemmDescription, GemmArguments], kind=UNIVERSAL):
    """The matrix product `D = epilogue(A B, C)`, for any M, N and K: one product, slices of its
    sum, or a batch.

    It runs on `GemmArguments`.

    Args:
        target: "x86" (or "x86-amx", "x86-avx512", "x86-avx2", "x86-generic"), "arm64", a GPU,
            as 80 or "sm_80", or "cuda"; also by PyCUTLASS's name, `arch`.
        tile_description: tile sizes and math, or None for the planner's choice.
        A, B, C: descriptions of the operands and of the source; the result D is like C.
        epilogue_functor: one of the four, or a visitor tree.
        swizzling_functor: the order in which a GPU takes tiles: `IdentitySwizzle1`, 2, 4, 8 or
            `BatchedIdentitySwizzle`; without a tile, the planner takes 1024 columns together
            where that is more.
        visitor: the epilogue is a visitor tree.

    Raises:
        DescriptionError: no kernel serves this; the message says why and what to change.
        ElementTypeError: what is no description or epilogue.

    Example:
        >>> matrix = kronop.TensorDescription(kronop.float16, kronop.RowMajor, 8)
        >>> epilogue = kronop.LinearCombination(kronop.float16, 8, kronop.float32, kronop.float32)
        >>> operation = kronop.GemmOperationUniversal(90, None, matrix, matrix, matrix, epilogue)
        >>> print(operation.plan)
        plan for sm_90a: 1 step
          gemm_...: a matrix product...
    """


class GemmOperationGrouped(Operation[GemmGroupedDescription, GemmGroupedArguments], kind=GROUPED):
    """A group of matrix products, `D_g = epilogue(A_g B_g, C_g)` for each product g, each of its
    own M, N and K.

    It runs on `GemmGroupedArguments`.

    Args:
        target: as of a GemmOperationUniversal.
        tile_description: tile sizes and math, or None for the planner's choice.
        A, B, C: descriptions that all products' operands obey; results are like C.
        epilogue_functor: one of the four.
        swizzling_functor: the order in which a GPU takes tiles of a product.
        precompute_mode: `kronop.SchedulerMode.Device` or `.Host`, PyCUTLASS's words; the launches
            are the same.

    Raises:
        DescriptionError: no kernel serves this; the message says why and what to change.
        ElementTypeError: what is no description or epilogue.

    Example:
        >>> matrix = kronop.TensorDescription(kronop.float16, kronop.RowMajor, 8)
        >>> epilogue = kronop.LinearCombination(kronop.float16, 8, kronop.float32, kronop.float32)
        >>> operation = kronop.GemmOperationGrouped(90, None, matrix, matrix, matrix, epilogue)
        >>> print(operation.plan)
        plan for sm_90a: 1 step
          gemm_...: matrix products...
    """

    @derived
    def product(self) -> GemmOperationUniversal:
        """The operation of one product."""
        what = self.description
        return GemmOperationUniversal(
            self.target, what.tile, what.A, what.B, what.Y, what.epilogue, what.swizzling_functor
        )
