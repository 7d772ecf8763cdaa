"""Helpers that all CUDA designs share: operand views, vector checks, types, parameters, grids."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence

from kronop.artifacts import Block, Field, KernelSignature, Launch, Scalar, Status
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
)
from kronop.descriptions.epilogue import Epilogue
from kronop.descriptions.math_instruction import MathInstruction, MathOperation, OpClass
from kronop.emit.design import Design
from kronop.errors import ArgumentError
from kronop.frozen import dataclass
from kronop.machine import KEPT_BYTES, QUARTERS, REGISTERS, WARP, Feature
from kronop.target import Target

MOST_BLOCKS = 2**31 - 1
SCALARS = 4
MOST_RESIDENT = 8
VECTOR_BYTES = 16
_MAP_BYTES, _MAP_ALIGNMENT = 128, 64
# A separate plan for few rows means another kernel to compile, so it has to be faster by this
# factor. Measured: three plans with a modelled gain of 17 to 24 % were slower when they ran (16 x
# 8^4, 1024 x 16^3, 1024 x 9^4).
_GAIN_OF_FEW_ROWS = 1.3
# The rows that a plan assumes if none are given: a batch as in training.
MANY_ROWS = 16384


@dataclass(frozen=True, slots=True, kw_only=True)
class View:
    """An operand as a kernel sees it: a pointer and, for each index, its stride in elements."""

    pointer: int
    strides: Mapping[str, tuple[int, ...]]

    def field(self, operand: str) -> dict[str, int | tuple[int, ...]]:
        """The operand's members of the parameter struct: its pointer, and `<index>_<operand>`."""
        return {operand: self.pointer} | {
            f"{index}_{operand}": row for index, row in self.strides.items()
        }


def allows_vectors(
    view: View, extents: Mapping[str, Sequence[int]], along: str, width: int, element: DataType
) -> int:
    """1 if `along` has stride 1, and the address and all other strides keep accesses of `width`
    elements aligned; else 0."""
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
    """Whether the ordinary (SIMT) cores have the instruction."""
    if instruction.opcode_class is OpClass.TensorOp:
        return Status.reject(f"no tensor-core kernel for {instruction}; use OpClass.Simt")
    return Status.accept()


def accept_element(element: DataType, target: Target) -> Status:
    """Whether the target supports the element type: some lack the conversion of 8-bit floats to 16
    bits."""
    if element in FLOAT8 and not target.has(Feature.float8):
        return Status.reject(
            f"no kernel for {element.name}, which {target} cannot convert; use a newer GPU (sm_89"
            " or later), or convert the tensors to float16, which holds all their values"
        )
    return Status.accept()


def has_products(instruction: MathInstruction, target: Target) -> bool:
    """Whether the target's tensor cores multiply such elements faster than its ordinary cores."""
    element = instruction.element_a
    if element is float64:
        return target.has(Feature.double_products)
    if element in FLOAT8:
        return target.has(Feature.float8)
    if element is float16 and instruction.instruction_shape == (16, 8, 16):
        return target.has(Feature.half_products)
    return target.has(Feature.wide_products)


def multiplies(math: MathInstruction) -> bool:
    """Whether it is an instruction of warp-level tensor cores (AMX tiles are not of a GPU)."""
    if math.opcode_class is not OpClass.TensorOp or math.instruction_shape[1] != 8:
        return False
    operation = math.math_operation
    is_fast = operation.rounded or operation is MathOperation.multiply_add_fast_f32
    return not is_fast or math.element_a is float32


def fastest(element: DataType, target: Target, *, halves: bool = False) -> MathInstruction:
    """The default instruction: tensor cores, as accurate as the ordinary ones, where they have it.
    `halves`: the family has the product of float16 that older tensor cores have too."""
    if element in (int32, int64):
        return MathInstruction.simt(element)
    chosen = MathInstruction.tensor_op(element)
    if halves and element is float16 and not has_products(chosen, target):
        chosen = MathInstruction(
            (16, 8, 16), element, element, float32, OpClass.TensorOp, MathOperation.multiply_add
        )
    # A target without 8-bit float products refuses these types whatever the instruction.
    has = element in FLOAT8 or has_products(chosen, target)
    return chosen if has else MathInstruction.simt(element)


def accept_products(instruction: MathInstruction, target: Target) -> Status:
    """Whether the target's tensor cores have the instruction, if it is one of theirs."""
    if instruction.opcode_class is not OpClass.TensorOp or has_products(instruction, target):
        return Status.accept()
    return Status.reject(
        f"the tensor cores of {target} do not multiply {instruction.element_a.name}, or no faster"
        " than its ordinary cores; use OpClass.Simt"
    )


def splits_of(math_instruction: MathInstruction) -> bool | None:
    """Whether this instruction splits each operand in two, a rounded value and the remainder; None
    if `kron_mma` does not have the instruction.

    Between two 16-bit factors, results are rounded to their type if the tile holds 16-bit elements,
    and otherwise to TF32, whose significand is as long as that of float16.
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
    """The type aliases of a trait struct; the epilogue, if any, is rendered separately."""
    accumulator = instruction.element_accumulator.cxx
    identity = ("Epilogue", f"kronop::Identity<{accumulator}>")
    return (
        ("Input", source.cxx),
        ("Factor", instruction.element_b.cxx),
        ("Output", output.cxx),
        ("Accumulator", accumulator),
        *((identity,) if epilogue is None else ()),
    )


def map_blocks(names: str) -> tuple[Block, ...]:
    """The members of a parameter struct that are tensor maps, named by the operand's letter."""
    return tuple(Block(f"{name}_map", _MAP_BYTES, _MAP_ALIGNMENT) for name in names)


def scalar_fields(epilogue: Epilogue) -> Field:
    """The field of the epilogue's scalars."""
    return Field("scalars", scalar_kind(epilogue), SCALARS)


def scalar_kind(epilogue: Epilogue | None) -> Scalar:
    """The type in which the epilogue's scalars are passed: 64-bit integers if it computes in
    integers, else float64."""
    integer = epilogue is not None and epilogue.element_epilogue.kind == "int"
    return Scalar.INT64 if integer else Scalar.FLOAT64


def signature(
    name: str,
    scalar: Scalar,
    pointers: Sequence[tuple[str, int]],
    integers: Sequence[tuple[str, int]],
    more: Sequence[Field] = (),
) -> KernelSignature:
    """The signature of a parameter struct: pointers, 64-bit integers, further fields and the
    scalars, in the order in which the headers declare them."""
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
    design: Design, blocks: int, values: Mapping[str, int | tuple[int, ...] | tuple[float, ...]]
) -> Launch:
    """The launch of a kernel. The grid is limited: kernels loop, so that blocks within the limit do
    the work of those beyond it."""
    return Launch(
        parameters=design.signature.pack(values),
        blocks=design.signature.blocks(values),
        grid=(min(blocks, MOST_BLOCKS), 1, 1),
        block=(design.threads, 1, 1),
        shared_bytes=design.shared_bytes,
    )


def check_blocks(blocks: int) -> None:
    """Refuses more blocks than a grid has, of a kernel that does not loop over the rest.

    Raises:
        ArgumentError: there are too many.
    """
    if blocks > MOST_BLOCKS:
        raise ArgumentError(
            "tiles of a launch",
            expected=f"at most {MOST_BLOCKS}",
            got=blocks,
            hint="split the points or the batch into several calls",
        )


def resident_blocks(threads: int, registers: int, shared_bytes: int, target: Target) -> int:
    """Blocks that a multiprocessor can hold by the planner's estimate. The kernel passes it to
    ptxas, which derives its register budget from it.

    NOTE: measured with ptxas 13.4: without this bound, it spilled a few registers of small blocks;
    with a bound of one block, it hoisted loads until a thread had 255 registers.
    """
    by_registers = REGISTERS // (threads * round_up(registers, 8))
    assert target.gpu is not None
    by_threads = target.gpu.resident_threads // threads
    # A block may have all of it except what the system reserves.
    resident_bytes = max(target.shared_bytes, target.gpu.resident_bytes - KEPT_BYTES)
    by_memory = resident_bytes // shared_bytes
    return max(1, min(by_registers, by_threads, by_memory, MOST_RESIDENT))


def affordable_blocks(blocks: int, threads: int, registers: int) -> int:
    """The most blocks, up to `blocks`, for which every thread still has `registers` registers.

    Each quarter of a multiprocessor has its own registers, so ptxas budgets five blocks of two
    warps as twelve warps.
    """
    warps = REGISTERS // (WARP * round_up(registers, 8)) // QUARTERS * QUARTERS
    return max(1, min(blocks, warps // cover(threads, WARP)))


def blocks_of(threads: int, registers: int, shared_bytes: int, target: Target) -> int:
    """`resident_blocks`, or as many as leave every thread its registers."""
    resident = resident_blocks(threads, registers, shared_bytes, target)
    return affordable_blocks(resident, threads, registers)


def cover(extent: int, size: int) -> int:
    """How many tiles of `size` cover `extent`."""
    return -(-extent // size)


def round_up(value: int, multiple: int) -> int:
    return cover(value, multiple) * multiple


def gains_much(few: float, usual: float) -> bool:
    """Whether a plan for few rows (of cost `few`) replaces the usual one for many."""
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
