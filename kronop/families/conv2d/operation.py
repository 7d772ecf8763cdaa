"""The operation of convolutions."""

from __future__ import annotations

from kronop.core.operation import Operation
from kronop.families.conv2d.arguments import Conv2dArguments
from kronop.families.conv2d.declaration import CONV2D
from kronop.families.conv2d.description import Conv2dDescription


class Conv2dOperation(Operation[Conv2dDescription, Conv2dArguments], kind=CONV2D):
    """A convolution `D = epilogue(A * B, C)`, or its gradient in the images or the filters.

    It serves any extents, strides, padding, dilation and groups, and runs on `Conv2dArguments`.

    Args:
        conv_kind: one of `kronop.conv.Operator`: fprop, dgrad, wgrad.
        iterator_algorithm: one of `kronop.conv.IteratorAlgorithm`, for CUTLASS's kernels; None for
            any.
        target: "x86" (or "x86-amx", "x86-avx512", "x86-avx2", "x86-generic"), "arm64", a GPU,
            as 80 or "sm_80", or "cuda"; also by PyCUTLASS's name, `arch`.
        tile_description: tile sizes and math, or None for the planner's choice.
        A, B, C: descriptions of the operands and of the source; the result D is like C. Of fprop
            these are images, filters and results; of dgrad results, filters and images; of wgrad
            results, images and filters.
        stride_support: `kronop.conv.StrideSupport.Unity` promises strides of 1; None, or Strided,
            for any.
        epilogue_functor: one of the four, or a visitor tree.
        swizzling_functor: the order in which a GPU takes tiles.

    Raises:
        DescriptionError: no kernel serves this; the message says why and what to change.
        ElementTypeError: what is no description or epilogue.

    Example:
        >>> tensor = kronop.TensorDescription(kronop.float32, kronop.TensorNHWC)
        >>> epilogue = kronop.LinearCombination(kronop.float32, 1, kronop.float32, kronop.float32)
        >>> fprop = kronop.conv.Operator.fprop
        >>> operation = kronop.Conv2dOperation(
        ...     fprop, None, "x86", None, tensor, tensor, tensor, None, epilogue
        ... )
        >>> print(operation.plan)
        plan for x86...: 1 step
          conv2d_...: ...
    """
