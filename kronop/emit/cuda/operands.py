"""What both kernels share: operand views, vector checks, traits, parameter packing and grids."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence

from kronop.artifacts import Field, KernelSignature, Launch, Scalar, Status
from kronop.descriptions.datatype import (
    DataType,
    bfloat16,
    float16,
    float32,
    float64,
    int8,
)
from kronop.descriptions.epilogue import Epilogue
from kronop.descriptions.math_instruction import MathInstruction, MathOperation, OpClass
from kronop.emit.design import Design
from kronop.frozen import dataclass
from kronop.target import Target

MOST_BLOCKS = 2**31 - 1
SCALARS = 4
REGISTERS = 65536
MOST_RESIDENT = 8
VECTOR_BYTES = 16
_WARP, _QUARTERS = 32, 4
# Another plan for few rows, which is another kernel to compile, has to gain that much: three
# that the model expected to gain 17 to 24 % lost when they ran (16 x 8^4, 1024 x 16^3, 1024 x 9^4).
_GAIN_OF_FEW_ROWS = 1.3
# Rows of a plan that knows no batch: one that training has.
MANY_ROWS = 16384


@dataclass(frozen=True, slots=True, kw_only=True)
class View:
    """An operand as a kernel sees it: a pointer and, for each index, its stride in elements."""

    pointer: int
    strides: Mapping[str, tuple[int, ...]]

    def field(self, operand: str) -> dict[str, int | tuple[int, ...]]:
        """Members of the parameter struct: `<index>_<operand>`, and the pointer."""
        return {operand: self.pointer} | {
            f"{index}_{operand}": row for index, row in self.strides.items()
        }


def allows_vectors(
    view: View, extents: Mapping[str, Sequence[int]], along: str, width: int, element: DataType
) -> int:
    """1 where `along` has stride 1 and all else keeps accesses of `width` elements aligned."""
    if width == 1:
        return 1
    strides = [
        stride
        for index, row in view.strides.items()
        for stride, extent in zip(row, extents[index], strict=True)
        if extent > 1 and not (index == along and stride == 1)
    ]
    unit = any(stride == 1 for stride in view.strides[along])
    aligned = view.pointer % (width * element.bytes) == 0 and all(
        stride % width == 0 for stride in strides
    )
    return int(unit and aligned)


def accept_math(instruction: MathInstruction) -> Status:
    """The kernels here are for the ordinary cores."""
    if instruction.opcode_class is OpClass.TensorOp:
        return Status.reject(f"no tensor-core kernel for {instruction}; use OpClass.Simt")
    return Status.accept()


def splits_of(math_instruction: MathInstruction) -> bool | None:
    """Whether operands are taken as two each for this instruction, a rounded value and its rest.

    None where `kron_mma` has no such product. What is between two 16-bit factors is rounded to
    their type where the tile holds such elements, and else as TF32, whose significand is that of
    float16.
    """
    if math_instruction.opcode_class is not OpClass.TensorOp:
        return None
    element, operation = math_instruction.element_a, math_instruction.math_operation
    shape = math_instruction.instruction_shape
    if (element, shape) in ((float64, (8, 8, 4)), (int8, (16, 8, 32))):
        return False
    if shape != (16, 8, 8):
        return None
    if element is float32 and operation is MathOperation.multiply_add_fast_f32:
        return True
    known = operation is MathOperation.multiply_add and element in (float32, float16, bfloat16)
    return False if known else None


def element_types(
    instruction: MathInstruction, source: DataType, output: DataType, epilogue: Epilogue | None
) -> tuple[tuple[str, str], ...]:
    """The aliases of a trait struct; an epilogue that there is is rendered in it."""
    accumulator = instruction.element_accumulator.cxx
    identity = ("Epilogue", f"kronop::Identity<{accumulator}>")
    return (
        ("Input", source.cxx),
        ("Factor", instruction.element_b.cxx),
        ("Output", output.cxx),
        ("Accumulator", accumulator),
        *((identity,) if epilogue is None else ()),
    )


def saturates(epilogue: Epilogue | None) -> bool:
    """Whether integers are clamped, and not wrapped, on their way to the output type."""
    return epilogue is not None and epilogue.saturates


def scalar_kind(epilogue: Epilogue | None) -> Scalar:
    """How the epilogue's scalars travel: as 64-bit integers where it computes in integers."""
    integer = epilogue is not None and epilogue.element_epilogue.kind == "int"
    return Scalar.INT64 if integer else Scalar.FLOAT64


def signature(
    name: str,
    scalar: Scalar,
    pointers: Sequence[tuple[str, int]],
    integers: Sequence[tuple[str, int]],
    more: Sequence[Field] = (),
) -> KernelSignature:
    """Pointers, 64-bit integers, further fields and the scalars, as the headers declare them."""
    return KernelSignature(
        name,
        (
            *(Field(item, Scalar.POINTER, count) for item, count in pointers),
            *(Field(item, Scalar.INT64, count) for item, count in integers),
            *more,
            Field("scalars", scalar, SCALARS),
        ),
    )


def make_launch(
    index: int,
    design: Design,
    blocks: int,
    values: Mapping[str, int | tuple[int, ...] | tuple[float, ...]],
) -> Launch:
    """The launch of one step; blocks past the grid's limit are walked by the blocks there are."""
    return Launch(
        step=index,
        parameters=design.signature.pack(values),
        blocks=design.signature.blocks(values),
        grid=(min(blocks, MOST_BLOCKS), 1, 1),
        block=(design.threads, 1, 1),
        shared_bytes=design.shared_bytes,
    )


def resident_blocks(threads: int, registers: int, shared_bytes: int, target: Target) -> int:
    """Blocks that a multiprocessor can hold by the planner's estimate: ptxas' register budget.

    NOTE: measured with ptxas 13.4: without this bound it spilled a few registers of small blocks,
    with a bound of one block it hoisted loads up to 255 registers.
    """
    by_registers = REGISTERS // (threads * round_up(registers, 8))
    return max(1, min(by_registers, target.shared_bytes // shared_bytes, MOST_RESIDENT))


def affordable_blocks(blocks: int, threads: int, registers: int) -> int:
    """As many of `blocks` as leave a thread all `registers`.

    Each quarter of a multiprocessor has its own registers, so ptxas budgets five blocks of two
    warps as twelve warps.
    """
    warps = REGISTERS // (_WARP * round_up(registers, 8)) // _QUARTERS * _QUARTERS
    return max(1, min(blocks, warps // cover(threads, _WARP)))


def cover(extent: int, size: int) -> int:
    """Tiles of `size` that cover `extent`."""
    return -(-extent // size)


def round_up(value: int, multiple: int) -> int:
    return cover(value, multiple) * multiple


def gains_much(few: float, usual: float) -> bool:
    """Whether a plan for few rows, of these costs, is taken instead of the one for many."""
    return usual > _GAIN_OF_FEW_ROWS * few


def powers_of_two(least: int, most: int) -> list[int]:
    """The powers of two from `least` to `most`."""
    return [1 << bit for bit in range(64) if least <= 1 << bit <= most]


def widest_divisor(promise: int, sizes: Iterable[int]) -> int:
    """The widest vector, at most `promise`, that divides all `sizes`."""
    return math.gcd(promise, *sizes)


def vector_of(element: DataType) -> int:
    """Elements of one 16-byte access."""
    return VECTOR_BYTES // element.bytes


def shape_name(shapes: Sequence[tuple[int, int]]) -> str:
    """(8, 8) five times -> "8x8p5"; at most 40 characters."""
    parts: list[tuple[tuple[int, int], int]] = []
    for shape in shapes:
        if parts and parts[-1][0] == shape:
            parts[-1] = (shape, parts[-1][1] + 1)
        else:
            parts.append((shape, 1))
    names = [f"{p}x{q}" + (f"p{count}" if count > 1 else "") for (p, q), count in parts]
    text = "_".join(names)
    return text if len(text) <= 40 else f"{names[0]}_and_{len(shapes) - parts[0][1]}_more"
