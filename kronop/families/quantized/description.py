"""The quantized Kronecker family: a Kronecker product whose rows are rounded to integers.

With Z = X (F1 x ... x FN), rounded to X's element type, for each row m of Z

    most   = max over n of |Z[m, n]|
    top    = 2^(bits - 1) - 1
    S[m]   = clip most / top
    Y[m,n] = the integer that is nearest to Z[m, n] / S[m], at least -top - 1 and at most top

where each operation is one of IEEE float32, `clip most` comes before the division by top, and ties
go to even. So Y S is about Z, but for what `clip` cuts off. Two kinds of rows are different:

    not finite: most is infinity or NaN. S is NaN, and all of Y is 0.
    zero:       clip most / top is below 2^-100, near the least float32. S is 1, and all of Y is 0.

Between two factors, sums are rounded to X's type or not at all, as in `kron`, and neighbouring
factors may be multiplied with each other first. This is how FlatQuant (Sun et al., 2024) quantizes
the activations of a language model for its matrix products: symmetrically, with a scale per token.

Integers of 8 bits are int8. Two integers of 4 bits, each in two's complement, are a byte, with that
of the even column in the low half; there are then half as many bytes as columns of Z.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from kronop.descriptions.datatype import DataType, bfloat16, float16, float32, int8
from kronop.descriptions.epilogue import LinearCombination, LinearCombinationClamp
from kronop.descriptions.scalars import EpilogueArguments
from kronop.descriptions.strided import Strided
from kronop.descriptions.tensor import TensorDescription
from kronop.errors import DescriptionError, KronopError
from kronop.families.kron.description import KronMatmulDescription, KronProblem, Side
from kronop.frozen import dataclass

ELEMENTS = (bfloat16, float16, float32)
# Rows whose scale is smaller count as zeros. NOTE: what quotients are corrected by on GPUs is then
# a float32, and numbers that some modes of processors take for zeros become 0 either way.
LEAST_SCALE = 2.0**-100
# The least clip, for which quotients are still finite.
LEAST_CLIP = 1e-6
_ALIGNMENT = 16
# What every small description of this family has in common.
Y, EPILOGUE = TensorDescription(int8), LinearCombinationClamp(int8, 1, float32, float32)


@dataclass(frozen=True, slots=True, kw_only=True)
class QuantizedKronDescription(KronMatmulDescription):
    """The frozen description of a quantized Kronecker product: X is (..., M, product of all rows),
    Y is (..., M, bytes of a row).

    Attributes:
        Y: the bytes of the integers, whose element type is int8 for either number of bits.
        epilogue: a LinearCombinationClamp to int8: 1 / S is what it scales by, and is not given.
        bits: of an integer, 4 or 8.

    The others are those of a KronMatmulDescription, with X on the left.

    Raises:
        DescriptionError: other element types or bits, X on the right, or an odd number of integers
            of 4 bits.

    Example:
        >>> matrix = kronop.TensorDescription(kronop.float32)
        >>> integers = kronop.TensorDescription(kronop.int8)
        >>> clamp = kronop.LinearCombinationClamp(kronop.int8, 1, kronop.float32, kronop.float32)
        >>> described = [matrix, matrix, integers, clamp, [(64, 64), (64, 64)]]
        >>> operation = kronop.QuantizedKronOperation(90, None, *described, bits=4)
        >>> operation.description.row_bytes
        2048
    """

    bits: int = 8

    def __post_init__(self) -> None:
        KronMatmulDescription.__post_init__(self)
        check_bits(self.bits, self.output_columns, DescriptionError)
        check_element_of_x(self.X.element, DescriptionError)
        if self.side is not Side.Right:
            raise DescriptionError(
                "side of a quantized product",
                expected="Side.Right: a scale belongs to a row of X",
                got=str(self.side),
                hint="transpose X",
            )
        if type(self.epilogue) is not LinearCombinationClamp or self.Y.element != int8:
            raise DescriptionError(
                "epilogue of a quantized product",
                expected="a LinearCombinationClamp to int8",
                got=repr(self.epilogue),
                hint="results are bytes of rounded and clamped integers",
            )

    @property
    def row_bytes(self) -> int:
        """Bytes of a row of Y."""
        return self.output_columns * self.bits // 8

    def shapes(self, size: int) -> dict[str, Any]:
        return {**KronMatmulDescription.shapes(self, size), "Y": (size, self.row_bytes)}

    @property
    def product(self) -> KronMatmulDescription:
        """The product alone, into row-major memory of X's type."""
        element, accumulator = self.X.element, self.math.element_accumulator
        alignment = _ALIGNMENT // element.bytes
        while self.output_columns % alignment:
            alignment //= 2
        return KronMatmulDescription(
            math=self.math,
            tile=self.tile,
            X=self.X,
            F=self.F,
            Y=TensorDescription(element, alignment=alignment),
            epilogue=LinearCombination(element, alignment, accumulator, accumulator),
            factors=self.factors,
        )

    def reference(
        self,
        x: Any,
        factors: Sequence[Any],
        z: Any = None,
        output_op: EpilogueArguments | None = None,
        clip: float = 1.0,
    ) -> Any:
        """Y by NumPy, of the product in float64. `z` and `output_op` are None."""
        return self.quantized(self.product.reference(x, factors), clip)[0]

    def quantized(self, product: Any, clip: float = 1.0) -> tuple[Any, Any]:
        """(bytes, scales) of a product by NumPy: the definition.

        Args:
            product: (..., M, N) of any type; it is rounded to X's, if it is of another one.
            clip: what the largest magnitudes are multiplied by.

        Returns:
            int8 (..., M, bytes of a row) and float32 (..., M, 1).
        """
        rounded = _rounded(product, self.X.element)
        top = np.float32(2 ** (self.bits - 1) - 1)
        with np.errstate(all="ignore"):
            most = np.abs(rounded).max(-1, keepdims=True)
            scale = np.float32(clip) * most / top
            finite, large = np.isfinite(most), scale >= np.float32(LEAST_SCALE)
            whole = np.rint(np.clip(rounded / scale, -top - 1, top))
        integers = np.where(finite & large, whole, 0).astype(np.int8)
        scales = np.where(finite, np.where(large, scale, np.float32(1)), np.float32(np.nan))
        if self.bits == 4:
            integers = (integers[..., ::2] & 15) | (integers[..., 1::2] << 4)
        return integers.astype(np.int8), scales


def check_bits(bits: object, columns: int, error: type[KronopError]) -> None:
    """Raises `error` unless rows of `columns` integers of so many bits can be stored."""
    if type(bits) is not int or bits not in (4, 8):
        raise error("bits", expected="4 or 8", got=repr(bits), hint="they are stored in bytes")
    if columns * bits % 8:
        raise error(
            "columns of a product in 4 bits",
            expected="an even number, two for each byte",
            got=columns,
            hint="take bits=8, or factors with an even number of columns",
        )


def check_element_of_x(element: DataType, error: type[KronopError]) -> None:
    """Raises `error` unless products of this type are quantized."""
    if element not in ELEMENTS:
        raise error(
            "element type of X",
            expected=f"one of {', '.join(item.name for item in ELEMENTS)}",
            got=element.name,
            hint="convert all tensors to one of these",
        )


def _rounded(product: Any, element: DataType) -> Any:
    """The numbers, rounded to the nearest of an element type, in float32."""
    numbers = np.asarray(product)
    with np.errstate(over="ignore"):
        if element is not bfloat16:
            return numbers.astype(element.name).astype(np.float32)
        single = np.ascontiguousarray(numbers, np.float32)
    bits = single.view(np.uint32)
    nearest = bits + 0x7FFF + (bits >> 16 & 1) & np.uint32(0xFFFF0000)
    return np.where(np.isfinite(single), nearest.view(np.float32), single)


@dataclass(frozen=True, slots=True, kw_only=True)
class QuantizedKronProblem:
    """A quantized product with its memory.

    Attributes:
        product: the product; its y are the bytes, contiguous over the batch and the rows.
        scales: the address of the scales, in the same order.
        clip: what largest magnitudes are multiplied by.
    """

    product: KronProblem
    scales: int
    clip: float

    @property
    def x(self) -> Strided:
        """The product's operand."""
        return self.product.x

    @property
    def y(self) -> Strided:
        """The bytes."""
        return self.product.y
