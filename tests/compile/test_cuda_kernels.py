"""CUDA plans over many shapes through NVRTC: no spills, both architectures. No GPU is needed."""

from __future__ import annotations

import re
from typing import Any

import pytest

from kronop.artifacts import Source
from kronop.compiler.cache import Cache
from kronop.compiler.nvrtc_backend import NvrtcCompiler
from kronop.descriptions.activation import gelu
from kronop.descriptions.datatype import (
    ColumnMajor,
    DataType,
    RowMajor,
    bfloat16,
    float8_e4m3fn,
    float8_e5m2,
    float16,
    float32,
    float64,
    int8,
    int32,
    int64,
    result_type,
)
from kronop.descriptions.epilogue import (
    Epilogue,
    LinearCombination,
    LinearCombinationClamp,
    LinearCombinationGeneric,
)
from kronop.descriptions.math_instruction import MathInstruction
from kronop.descriptions.tensor import TensorDescription
from kronop.emit.plan import Plan
from kronop.emit.render import render
from kronop.errors import DescriptionError
from kronop.families.kron.cuda import tiles
from kronop.families.kron.cuda.kron_mma import KronMma
from kronop.families.kron.declaration import MATMUL
from kronop.families.kron.description import KronMatmulDescription, Side
from kronop.families.ksparse.declaration import PRODUCT
from kronop.families.ksparse.description import KSparseDescription
from kronop.families.quantized.description import EPILOGUE, Y
from kronop.families.quantized.operation import QuantizedKronOperation
from kronop.target import Target
from tests import support

pytest.importorskip("cuda.bindings.nvrtc", reason="NVRTC is not installed")

TARGETS = ["sm_80", "sm_90a"]
_KRON, _KSPARSE = MATMUL.emitters["cuda"], PRODUCT.emitters["cuda"]


def resources(source: Source, target: Target) -> tuple[int, int]:
    """(registers, bytes of spills and stack) of a kernel, as ptxas says."""
    compiler = NvrtcCompiler(Cache)
    log = compiler.compile(source, compiler.flags(target)).log
    assert "warning" not in log, log
    used = re.search(r"Used (\d+) registers", log)
    assert used is not None, log
    return int(used[1]), sum(
        int(item) for item in re.findall(r"(\d+) bytes (?:stack frame|spill)", log)
    )


def check(plan: Plan, spills: int = 0) -> None:
    """Asserts that a plan's kernels fit, and take at most so many bytes of spills and stack."""
    for source, step in zip(render(plan), plan.steps, strict=True):
        registers, spilled = resources(source, plan.target)
        assert spilled <= spills, step
        # A block of this many threads has to find its registers on a multiprocessor.
        assert registers * step.design.threads <= 65536, step


def kron(
    factors: list[tuple[int, int]],
    element: DataType,
    side: Side,
    alignment: int,
    *,
    by_columns: bool = False,
    epilogue: Epilogue | None = None,
    tensor_op: bool = False,
) -> KronMatmulDescription:
    instruction = (MathInstruction.tensor_op if tensor_op else MathInstruction.simt)(element)
    accumulator = instruction.element_accumulator
    layout = ColumnMajor if by_columns else RowMajor
    output = result_type(element)
    epilogue = epilogue or LinearCombination(output, alignment, accumulator, accumulator)
    y_alignment = epilogue.epilogue_vector_length
    return KronMatmulDescription(
        math=instruction,
        tile=None,
        X=TensorDescription(element, layout, alignment),
        F=TensorDescription(element),
        Y=TensorDescription(epilogue.element_output, layout, y_alignment),
        factors=tuple(factors),
        side=side,
        epilogue=epilogue,
    )


KRON = [
    ([(8, 8)] * 5, float32, Side.Right, 4),
    ([(8, 8)] * 5, float64, Side.Right, 2),
    ([(8, 8)] * 8, int64, Side.Left, 2),
    ([(8, 8)] * 3, bfloat16, Side.Left, 8),
    ([(16, 16)] * 4, float32, Side.Left, 1),
    ([(32, 32)] * 3, int32, Side.Right, 4),
    ([(32, 32)] * 3, float64, Side.Left, 2),
    ([(9, 9)] * 4, float32, Side.Left, 4),
    ([(11, 13)] * 3, float32, Side.Left, 2),
    ([(12, 12)] * 3, float16, Side.Left, 1),
    ([(3, 50)] * 2, float16, Side.Left, 8),
    ([(24, 17)] * 2, float32, Side.Right, 2),
    ([(3, 50)] * 2, int32, Side.Left, 1),
    ([(4, 4)] * 6, int64, Side.Right, 1),
    ([(2, 2)] * 14, float16, Side.Right, 2),
    ([(1, 1)] * 70, float32, Side.Right, 1),
    ([(127, 31)], float16, Side.Right, 1),
    ([(505, 3)], float64, Side.Right, 1),
    ([(128, 128)] * 2, int64, Side.Right, 1),
    ([(20000, 20000)], bfloat16, Side.Left, 8),
    ([(8, 8)] * 5, int8, Side.Right, 4),
    ([(127, 31)], int8, Side.Left, 1),
]


@pytest.mark.spread(case=KRON, target=TARGETS)
def test_kron(case: tuple[list[tuple[int, int]], DataType, Side, int], target: str) -> None:
    factors, element, side, alignment = case
    check(_KRON.plan(kron(factors, element, side, alignment), Target.parse(target)))


# Elements and planes of their bytes stand beside each other for a while. In this order, those that
# have the fewest registers to spare meet the choices that take the most: 32 x 32 has 94 of 96.
BYTES = [
    ([(8, 8)] * 5, Side.Right, 16),
    ([(32, 32)] * 2, Side.Right, 16),
    ([(16, 16)] * 4, Side.Right, 16),
    ([(32, 32), (2, 2)], Side.Left, 16),
    ([(64, 64)] * 3, Side.Left, 1),
    ([(16, 16), (2, 2)], Side.Left, 16),
    ([(128, 128)], Side.Right, 16),
    ([(6, 7), (31, 86)], Side.Right, 2),
]


@pytest.mark.spread(case=BYTES, target=TARGETS, saturates=[False, True])
def test_bytes(
    monkeypatch: pytest.MonkeyPatch,
    case: tuple[list[tuple[int, int]], Side, int],
    target: str,
    saturates: bool,
) -> None:
    factors, side, alignment = case
    # Ordinary cores may be the planner's choice; this is about the tensor cores.
    monkeypatch.setattr(tiles, "simt_tiles", lambda *_: [])
    support.forget_passes()
    epilogue: Epilogue = LinearCombination(int32, min(4, alignment), int32, int32)
    if saturates:
        epilogue = LinearCombinationClamp(int8, alignment, int32, int32)
    description = kron(factors, int8, side, alignment, epilogue=epilogue, tensor_op=True)
    plan = _KRON.plan(description, Target.parse(target))
    assert {type(step.design) for step in plan.steps} == {KronMma}
    check(plan)
    support.forget_passes()


@pytest.mark.parametrize("target", TARGETS)
def test_transposed_operands(target: str) -> None:
    description = kron([(8, 8), (40, 8)], float32, Side.Right, 4, by_columns=True)
    check(_KRON.plan(description, Target.parse(target)))


@pytest.mark.spread(
    output=[float16, bfloat16, float32, float64],
    element=[int32, int64],
    kind=[LinearCombination, LinearCombinationClamp],
)
def test_integer_sums_become_floats(output: DataType, element: DataType, kind: Any) -> None:
    epilogue = kind(output, 1, element, element)
    description = kron([(2, 3)], element, Side.Right, 1, epilogue=epilogue)
    check(_KRON.plan(description, Target.parse("sm_90a")))


# Digits whose chunk of outputs has a remainder: ptxas once moved their products behind the tests
# of single outputs, and spilled what that kept alive.
SPILLED = [
    ("sm_90a", [(17, 17), (13, 17)], int32, Side.Left, 1, "linear"),
    ("sm_90a", [(8, 6), (17, 16)], bfloat16, Side.Left, 1, "linear"),
    ("sm_90a", [(9, 16), (33, 5)], float16, Side.Left, 1, "linear"),
    ("sm_90a", [(16, 33)] * 2, int32, Side.Right, 1, "linear"),
    ("sm_90a", [(33, 17)], float16, Side.Left, 1, "linear"),
    ("sm_90a", [(17, 17)], float32, Side.Left, 1, "clamp"),
    ("sm_90a", [(32, 24), (16, 10)], float32, Side.Right, 2, "linear"),
    ("sm_90a", [(31, 9), (12, 10), (11, 102)], int32, Side.Right, 4, "clamp"),
    ("sm_90a", [(31, 10)], float32, Side.Right, 4, "linear"),
    ("sm_90a", [(29, 10)], int32, Side.Right, 4, "clamp"),
    ("sm_80", [(16, 65)], float32, Side.Right, 1, "linear"),
    ("sm_80", [(17, 17)] * 2, float32, Side.Right, 4, "linear"),
    ("sm_80", [(9, 16)], float16, Side.Left, 1, "linear"),
    ("sm_80", [(10, 32), (48, 4)], bfloat16, Side.Left, 1, "clamp"),
]


@pytest.mark.parametrize(("target", "factors", "element", "side", "alignment", "epilogue"), SPILLED)
def test_chunks_with_a_remainder(
    target: str,
    factors: list[tuple[int, int]],
    element: DataType,
    side: Side,
    alignment: int,
    epilogue: str,
) -> None:
    kind = {"linear": LinearCombination, "clamp": LinearCombinationClamp}[epilogue]
    accumulator = MathInstruction.simt(element).element_accumulator
    functor = kind(element, alignment, accumulator, accumulator)
    description = kron(factors, element, side, alignment, epilogue=functor)
    check(_KRON.plan(description, Target.parse(target)))


KSPARSE = [
    ((1, 192, 48, 2), float32, False, 4),
    ((4, 256, 256, 4), float16, False, 8),
    ((1, 1024, 256, 8), float32, False, 4),
    ((64, 96, 96, 4), float32, True, 4),
    ((6, 64, 64, 1), int64, True, 2),
    ((1, 5, 7, 5), bfloat16, True, 1),
    ((2, 33, 17, 3), float64, False, 1),
    ((3, 2, 2, 64), float32, False, 4),
]


@pytest.mark.spread(case=KSPARSE, target=TARGETS)
def test_ksparse(case: tuple[tuple[int, int, int, int], DataType, bool, int], target: str) -> None:
    pattern, element, batch_last, alignment = case
    instruction = MathInstruction.simt(element)
    check(_ksparse(instruction, pattern, batch_last, alignment, target))


FLOAT8_PATTERNS = [
    (6, 64, 64, 1),
    (1, 768, 192, 2),
    (1, 128, 128, 3),
    (2, 48, 192, 4),
    (1, 48, 48, 6),
    (1, 96, 96, 16),
    (1, 128, 128, 64),
    (3, 5, 7, 5),
]


@pytest.mark.spread(
    pattern=FLOAT8_PATTERNS,
    batch_last=[False, True],
    element=[float8_e4m3fn, float8_e5m2],
    alignment=[16, 1],
)
def test_8_bit_floats(
    pattern: tuple[int, int, int, int], batch_last: bool, element: DataType, alignment: int
) -> None:
    instruction = MathInstruction.tensor_op(element)
    check(_ksparse(instruction, pattern, batch_last, alignment, "sm_90a"))


def test_8_bit_floats_are_for_gpus_that_convert_them() -> None:
    with pytest.raises(DescriptionError, match="float8_e5m2, which sm_80 cannot convert; use a"):
        _ksparse(MathInstruction.simt(float8_e5m2), (2, 3, 5, 1), False, 1, "sm_80")


def _ksparse(
    instruction: MathInstruction,
    pattern: tuple[int, int, int, int],
    batch_last: bool,
    alignment: int,
    target: str,
) -> Plan:
    """The plan, with the heaviest of epilogues."""
    element, accumulator = instruction.element_a, instruction.element_accumulator
    output = result_type(element)
    tensor = TensorDescription(element, RowMajor, alignment)
    epilogue = (
        LinearCombinationGeneric(gelu(accumulator), output, 1, accumulator, accumulator)
        if element.kind == "float"
        else LinearCombination(output, 1, accumulator, accumulator)
    )
    description = KSparseDescription(
        math=instruction,
        tile=None,
        X=tensor,
        W=support.weights_description(element, pattern, alignment),
        Y=TensorDescription(output, RowMajor, min(alignment, 16 // output.bytes)),
        epilogue=epilogue,
        pattern=pattern,
        batch_last=batch_last,
    )
    return _KSPARSE.plan(description, Target.parse(target))


# In this order the two that have the fewest registers to spare meet the choices that take the most.
QUANTIZED = [
    [(64, 64), (64, 64)],
    [(128, 128), (112, 112)],
    [(64, 64), (128, 128)],
    [(60, 33), (7, 26)],
    [(4096, 65)],
    [(8, 8)] * 4,
]


@pytest.mark.spread(factors=QUANTIZED, target=TARGETS, bits=[8, 4])
def test_quantized(factors: list[tuple[int, int]], target: str, bits: int) -> None:
    if bits == 4 and factors[0][1] % 2:
        pytest.skip("numbers of 4 bits come in pairs")
    tensor = TensorDescription(bfloat16)
    check(
        QuantizedKronOperation(target, None, tensor, tensor, Y, EPILOGUE, factors, bits=bits).plan
    )
