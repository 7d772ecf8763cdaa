"""The operation of quantized Kronecker products."""

from __future__ import annotations

from kronop.core.operation import Operation
from kronop.families.quantized.arguments import QuantizedKronArguments
from kronop.families.quantized.declaration import QUANTIZED
from kronop.families.quantized.description import QuantizedKronDescription


class QuantizedKronOperation(
    Operation[QuantizedKronDescription, QuantizedKronArguments], kind=QUANTIZED
):
    """A quantized Kronecker product: rows of X (F1 x ... x FN) as integers with a scale each.

    Args:
        target: as of a KronMatmulOperation.
        tile_description: tile sizes of the product's own kernels, or None for the planner's choice.
        X, F: descriptions of the operand and of the factors, of bfloat16, float16 or float32.
        Y: description of the bytes of the integers: int8.
        epilogue_functor: a LinearCombinationClamp to int8.
        factors: (rows, columns) of each factor, in the order of the product.
        bits: 4 or 8.

    Raises:
        DescriptionError: no kernel serves this; the message says why and what to change.

    Example:
        >>> matrix = kronop.TensorDescription(kronop.bfloat16)
        >>> integers = kronop.TensorDescription(kronop.int8)
        >>> clamp = kronop.LinearCombinationClamp(kronop.int8, 1, kronop.float32, kronop.float32)
        >>> described = [matrix, matrix, integers, clamp, [(64, 64), (64, 64)]]
        >>> operation = kronop.QuantizedKronOperation(90, None, *described, bits=4)
        >>> print(operation.plan)
        plan for sm_90a: 1 step
          quantized_...a scale for each row and its integers...
        >>> operation.sizes(10).y_shape  # in bytes, of two integers each
        (10, 2048)
    """
