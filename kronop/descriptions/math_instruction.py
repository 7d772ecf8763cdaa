"""The multiply-add instruction of which a kernel's inner loop is made."""

from __future__ import annotations

import enum
from collections.abc import Sequence

from kronop.descriptions.datatype import (
    FLOAT8,
    DataType,
    bfloat16,
    float16,
    float32,
    float64,
    int8,
    int32,
    int64,
    result_type,
    tfloat32,
)
from kronop.errors import DescriptionError
from kronop.frozen import dataclass


class OpClass(enum.Enum):
    """Simt: ordinary cores (vector units on x86). TensorOp: tensor cores (AMX tiles on x86).

    Example:
        >>> kronop.MathInstruction.tensor_op(kronop.float16).opcode_class.name
        'TensorOp'
    """

    Simt = "simt"
    TensorOp = "tensorop"


class MathOperation(enum.Enum):
    """How a product is formed and added.

    - `multiply_add`: one multiply-add. On tensor cores it rounds float32 operands to TF32.
    - `multiply_add_saturate` of int8 on the tensor cores is `multiply_add` by PyCUTLASS's other
      name. A sum that exceeds int32 wraps around, so that results equal those of `simt` bit by bit.
    - `multiply_add_fast_f32` splits float32 operands in two: three TF32 products, as accurate as
      float32 arithmetic.
    - `multiply_add_fast_f16` and `multiply_add_fast_bf16` round float32 operands to 16 bits.

    Example:
        >>> kronop.MathInstruction.tensor_op(kronop.float32).math_operation.name
        'multiply_add_fast_f32'
        >>> kronop.MathOperation.multiply_add_fast_bf16.rounded
        kronop.bfloat16
    """

    multiply_add = "multiply_add"
    multiply_add_saturate = "multiply_add_saturate"
    multiply_add_fast_f32 = "multiply_add_fast_f32"
    multiply_add_fast_f16 = "multiply_add_fast_f16"
    multiply_add_fast_bf16 = "multiply_add_fast_bf16"

    @property
    def rounded(self) -> DataType | None:
        """What float32 operands are rounded to before they are multiplied; None if they are not."""
        fast = {"multiply_add_fast_f16": float16, "multiply_add_fast_bf16": bfloat16}
        return fast.get(self.value)


_MA, _SATURATE = MathOperation.multiply_add, MathOperation.multiply_add_saturate
_OF_FLOATS = tuple(item for item in MathOperation if item is not _SATURATE)
_SIMT_SHAPE = (1, 1, 1)

# Rows: class, shape, operand types, accumulator types, operations. The first two Simt rows and the
# TensorOp rows, except the last two, are PyCUTLASS's. The last two rows are the tiles of x86-amx;
# the other Simt rows are further types that the SIMT and x86 kernels compute.
_Row = tuple[
    OpClass,
    tuple[int, int, int],
    tuple[DataType, ...],
    tuple[DataType, ...],
    tuple[MathOperation, ...],
]
_VALID: tuple[_Row, ...] = (
    (OpClass.Simt, _SIMT_SHAPE, (float64,), (float64,), (_MA,)),
    (OpClass.Simt, _SIMT_SHAPE, (float32,), (float32,), (_MA,)),
    (OpClass.Simt, _SIMT_SHAPE, (float16, bfloat16, *FLOAT8), (float32,), (_MA,)),
    (OpClass.Simt, _SIMT_SHAPE, (float16,), (float16,), (_MA,)),
    (OpClass.Simt, _SIMT_SHAPE, (int32, int8), (int32,), (_MA,)),
    (OpClass.Simt, _SIMT_SHAPE, (int64,), (int64,), (_MA,)),
    (OpClass.TensorOp, (8, 8, 4), (float64,), (float64,), (_MA,)),
    (OpClass.TensorOp, (16, 8, 8), (float32, tfloat32, float16, bfloat16), (float32,), _OF_FLOATS),
    (OpClass.TensorOp, (16, 8, 16), (float16,), (float16, float32), (_MA,)),
    (OpClass.TensorOp, (16, 8, 16), (bfloat16,), (float32,), (_MA,)),
    (OpClass.TensorOp, (16, 8, 32), (int8,), (int32,), (_SATURATE, _MA)),
    (OpClass.TensorOp, (16, 8, 32), FLOAT8, (float32,), (_MA,)),
    (OpClass.TensorOp, (16, 16, 32), (bfloat16,), (float32,), (_MA,)),
    (OpClass.TensorOp, (16, 16, 64), (int8,), (int32,), (_MA,)),
)


# The types of operands without tensor cores; the one-line functions take the same types.
SIMT_ELEMENTS = tuple(
    dict.fromkeys(item for row in _VALID if row[0] is OpClass.Simt for item in row[2])
)


@dataclass(frozen=True, slots=True)
class MathInstruction:
    """One multiply-add instruction.

    Args:
        instruction_shape: [M, N, K] of the instruction; [1, 1, 1] for Simt. None for that which a
            GPU has for the rest.
        element_a, element_b: types of the operands; equal in every valid combination.
        element_accumulator: type of the sum. Ordinary cores and CPUs add up in float32 where it is
            float16.
        opcode_class: Simt or TensorOp.
        math_operation: how a product is formed and added.

    Raises:
        DescriptionError: there is no such instruction; the message lists the valid ones.

    Example:
        >>> print(kronop.MathInstruction([1, 1, 1], kronop.float32, kronop.float32, kronop.float32))
        Simt 1x1x1 float32 x float32 -> float32 multiply_add
        >>> print(kronop.MathInstruction.simt(kronop.int8))
        Simt 1x1x1 int8 x int8 -> int32 multiply_add
        >>> print(kronop.MathInstruction.tensor_op(kronop.float16))
        TensorOp 16x8x8 float16 x float16 -> float32 multiply_add
    """

    instruction_shape: tuple[int, int, int]
    element_a: DataType
    element_b: DataType
    element_accumulator: DataType
    opcode_class: OpClass
    math_operation: MathOperation

    def __init__(
        self,
        instruction_shape: Sequence[int] | None,
        element_a: DataType,
        element_b: DataType,
        element_accumulator: DataType,
        opcode_class: OpClass = OpClass.Simt,
        math_operation: MathOperation = MathOperation.multiply_add,
    ) -> None:
        # A shape that is not a sequence is kept as it is: `__post_init__` then refuses it with the
        # table of valid instructions, instead of a TypeError from tuple().
        shape: object = instruction_shape
        shape = tuple(shape) if isinstance(shape, Sequence) else shape
        types = (element_a, element_b, element_accumulator)
        values = (shape, *types, opcode_class, math_operation)
        for name, value in zip(self.__slots__, values, strict=True):
            object.__setattr__(self, name, value)
        self.__post_init__()

    def __post_init__(self) -> None:
        shapes = [row[1] for row in _VALID if self._is_in(row)]
        if self.instruction_shape is None and shapes:
            object.__setattr__(self, "instruction_shape", shapes[0])
        if self.instruction_shape in shapes:
            return
        raise DescriptionError(
            "MathInstruction",
            expected="one of the combinations below",
            got=str(self),
            hint="choose one of\n" + valid_combinations(),
        )

    def _is_in(self, row: _Row) -> bool:
        """Whether a row has all but the shape."""
        opclass, _, operands, accumulators, operations = row
        return (
            self.opcode_class is opclass
            and self.element_a in operands
            and self.element_b == self.element_a
            and self.element_accumulator in accumulators
            and self.math_operation in operations
        )

    @property
    def added_in(self) -> DataType:
        """The type in which ordinary cores, CPUs and slices add up: float32 of float16."""
        return float32 if self.element_accumulator == float16 else self.element_accumulator

    def summed_in(self, accumulator: DataType) -> MathInstruction:
        """The same with sums of another type; itself if there is no such instruction."""
        if accumulator == self.element_accumulator:
            return self
        try:
            types = (self.element_a, self.element_b, accumulator)
            return MathInstruction(None, *types, self.opcode_class, self.math_operation)
        except DescriptionError:
            return self

    @classmethod
    def simt(cls, element: DataType) -> MathInstruction:
        """The SIMT instruction for tensors of `element`.

        Sums of 8-bit and 16-bit floats are float32, sums of int8 are int32. The intermediate result
        between two factors has the type of the sum; for int8 it is int32 and wraps around.

        Raises:
            DescriptionError: `element` is not in SIMT_ELEMENTS.
        """
        if element not in SIMT_ELEMENTS:
            raise DescriptionError(
                "element type",
                expected=f"one of {', '.join(item.name for item in SIMT_ELEMENTS)}",
                got=repr(element),
                hint="convert the tensors to one of these",
            )
        narrow = (float16, bfloat16, *FLOAT8)
        accumulator = float32 if element in narrow else result_type(element)
        return cls(_SIMT_SHAPE, element, element, accumulator, OpClass.Simt, _MA)

    @classmethod
    def amx(cls, element: DataType = bfloat16) -> MathInstruction:
        """The tile product of x86-amx: bfloat16 with sums in float32, int8 with sums in int32.

        With bfloat16, the intermediate result between two factors is rounded to bfloat16, and
        subnormal numbers count as zero. With int8, results equal those of `simt` bit by bit.

        Raises:
            DescriptionError: `element` is neither bfloat16 nor int8.
        """
        if element is bfloat16:
            return cls((16, 16, 32), element, element, float32, OpClass.TensorOp, _MA)
        if element is int8:
            return cls((16, 16, 64), element, element, int32, OpClass.TensorOp, _MA)
        raise DescriptionError(
            "element type of AMX tiles",
            expected="bfloat16 or int8",
            got=repr(element),
            hint="use kronop.MathInstruction.simt for other types",
        )

    @classmethod
    def tensor_op(cls, element: DataType) -> MathInstruction:
        """The tensor-core instruction for `element` that is as accurate as the SIMT one.

        Raises:
            DescriptionError: the tensor cores have no instruction for `element`; use `simt` for
                int32 and int64.
        """
        if element is float64:
            return cls((8, 8, 4), element, element, element, OpClass.TensorOp, _MA)
        if element is int8:
            return cls((16, 8, 32), element, element, int32, OpClass.TensorOp, _SATURATE)
        if element in FLOAT8:
            return cls((16, 8, 32), element, element, float32, OpClass.TensorOp, _MA)
        operation = MathOperation.multiply_add_fast_f32 if element is float32 else _MA
        return cls((16, 8, 8), element, element, float32, OpClass.TensorOp, operation)

    def __str__(self) -> str:
        given: object = self.instruction_shape
        shape = "x".join(map(str, given)) if isinstance(given, tuple) else repr(given)
        types = (self.element_a, self.element_b, self.element_accumulator)
        every = (self.opcode_class, *types, self.math_operation)
        opclass, a, b, sums, operation = (getattr(item, "name", repr(item)) for item in every)
        return f"{opclass} {shape} {a} x {b} -> {sums} {operation}"


def valid_combinations() -> str:
    """The table of valid instructions as text, one per line."""
    lines = []
    for opclass, shape, operands, accumulators, operations in _VALID:
        lines.append(
            f"  OpClass.{opclass.name} {list(shape)}"
            f" {'|'.join(item.name for item in operands)}"
            f" -> {'|'.join(item.name for item in accumulators)}"
            f" {'|'.join(item.name for item in operations)}"
        )
    return "\n".join(lines)
