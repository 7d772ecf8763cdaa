"""The operation of matrix products."""

from __future__ import annotations

from kronop.core.operation import Operation
from kronop.families.gemm import UNIVERSAL
from kronop.families.gemm.arguments import GemmArguments
from kronop.families.gemm.description import GemmDescription, GemmProblem


class GemmOperationUniversal(
    Operation[GemmDescription, GemmProblem, GemmArguments], kind=UNIVERSAL
):
    """D = epilogue(A B, C), for any M, N and K: one product, slices of its sum, or a batch.

    It runs on `GemmArguments`.

    Args:
        target: "x86" (or "x86-amx", "x86-avx512", "x86-avx2", "x86-generic"), 80, 90, "sm_80" or
            "sm_90a".
        tile_description: tile sizes and math, or None for the planner's choice.
        A, B, C: descriptions of the operands and of the source; the result D is like C.
        epilogue_functor: one of the four, or a visitor tree.
        swizzling_functor: the order in which a GPU takes tiles: `IdentitySwizzle1`, 2, 4, 8 or
            `BatchedIdentitySwizzle`.
        visitor: the epilogue is a visitor tree.

    Raises:
        DescriptionError: no kernel serves this; the message says why and what to change.
        ElementTypeError: what is no description or epilogue.
    """
