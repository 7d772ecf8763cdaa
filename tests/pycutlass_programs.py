"""What PyCUTLASS's programs describe: the 27 matrix products of its `run_all_example.sh`."""

# Kinds of operands are annotations that name no types.
# ruff: noqa: F821, UP037
# mypy: disable-error-code="name-defined"

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any

import kronop


class RowBroadcast(kronop.EpilogueVisitTree):
    def __call__(
        self, accum: "tensor", c: "tensor", vector: "row", alpha: "scalar", beta: "scalar"
    ):
        T = accum + vector
        scaled = alpha * T
        Z = kronop.relu(scaled + beta * c)
        return Z, T


class ColumnBroadcast(kronop.EpilogueVisitTree):
    def __call__(
        self, accum: "tensor", c: "tensor", vector: "column", alpha: "scalar", beta: "scalar"
    ):
        T = accum + vector
        scaled = kronop.leaky_relu(alpha * T, 0.2)
        Z = scaled + beta * c
        return Z, T


class RowReduction(kronop.EpilogueVisitTree):
    def __call__(self, accum: "tensor", c: "tensor", alpha: "scalar", beta: "scalar"):
        D = alpha * accum + kronop.tanh(beta * c)
        reduction = kronop.sum(D, axis="row")
        return D, reduction


class ColumnReduction(kronop.EpilogueVisitTree):
    def __call__(self, accum: "tensor", c: "tensor", alpha: "scalar", beta: "scalar"):
        D = alpha * accum + beta * c
        reduction = kronop.sum(D, axis="column")
        return D, reduction


@dataclass(frozen=True, kw_only=True)
class Program:
    """What a program is started with; `layouts` has R or C for each of A, B and C."""

    element: str
    output: str
    sums: str
    compute: str
    shape: tuple[int, int, int]
    tile: tuple[int, int, int]
    layouts: str
    alignments: tuple[int, int, int]
    operation: str = "multiply_add"
    opcode: str = "TensorOp"
    stages: int = 3
    warps: tuple[int, int, int] = (2, 2, 1)
    functor: str = "LinearCombination"
    swizzle: str = "IdentitySwizzle1"
    scalars: tuple[float, ...] = (1.0, 0.5)
    mode: str = "Gemm"
    slices: int = 1
    batch: int = 1
    bias: bool = False
    activation: str = ""
    tree: type | None = None
    grouped: str = ""

    def but(self, **changed: Any) -> Program:
        return dataclasses.replace(self, **changed)

    def description(self, target: Any) -> dict[str, Any]:
        """The arguments of its operation; CPUs have none of its tiles."""
        element, output, sums, compute = (
            getattr(kronop, name) for name in (self.element, self.output, self.sums, self.compute)
        )
        math = kronop.MathInstruction(
            self.shape,
            element,
            element,
            sums,
            getattr(kronop.OpClass, self.opcode),
            getattr(kronop.MathOperation, self.operation),
        )
        tile = kronop.TileDescription(self.tile, self.stages, self.warps, math)
        types = (element, element, output)
        names = {"R": kronop.RowMajor, "C": kronop.ColumnMajor}
        A, B, C = (
            kronop.TensorDescription(item, names[layout], alignment)
            for item, layout, alignment in zip(types, self.layouts, self.alignments, strict=True)
        )
        plain = (C.element, C.alignment, math.element_accumulator, compute)
        functor: Any = getattr(kronop, self.functor)(*plain)
        if self.activation and self.mode != "GemmSplitKParallel":
            activation = getattr(kronop, self.activation)(compute)
            functor = kronop.LinearCombinationGeneric(activation, *plain)
        if self.tree is not None:
            types = (math.element_accumulator, C.alignment, compute, C.element)
            functor = self.tree(functor, tile, *types)
            functor.initialize()
        return {
            "arch": target,
            "tile_description": None if target == "x86" else tile,
            "A": A,
            "B": B,
            "C": C,
            "epilogue_functor": functor,
            "swizzling_functor": getattr(kronop, self.swizzle),
        }


F64 = Program(
    element="float64",
    output="float64",
    sums="float64",
    compute="float64",
    shape=(8, 8, 4),
    tile=(32, 32, 16),
    stages=4,
    layouts="CRR",
    alignments=(1, 1, 1),
)
F64_WIDE = F64.but(tile=(64, 64, 16), layouts="RCR", slices=2)
F32 = F64.but(
    element="float32",
    output="float32",
    sums="float32",
    compute="float32",
    shape=(16, 8, 8),
    tile=(128, 128, 32),
    stages=3,
    layouts="CCR",
    alignments=(4, 4, 4),
)
FAST = F32.but(operation="multiply_add_fast_bf16", layouts="RCR")
HALF = F32.but(element="float16", shape=(16, 8, 16), layouts="CRC", alignments=(8, 8, 4))
BASIC = HALF.but(alignments=(8, 8, 8), stages=2, scalars=(1.0, 0.0))
BRAIN = HALF.but(
    element="bfloat16",
    tile=(64, 128, 64),
    layouts="CCR",
    swizzle="IdentitySwizzle2",
    mode="GemmSplitKParallel",
    slices=5,
)
BATCHED = {"swizzle": "BatchedIdentitySwizzle", "mode": "Batched", "batch": 3}
PROGRAMS: dict[int | str, Program] = {
    "basic": BASIC,
    "basic grouped": BASIC.but(alignments=(1, 1, 1), grouped="Device"),
    1: F64,
    2: F64_WIDE,
    3: FAST,
    4: F32.but(mode="GemmSplitKParallel", slices=2),
    5: F32.but(operation="multiply_add_fast_f32", tile=(64, 64, 32), slices=4),
    6: HALF.but(swizzle="IdentitySwizzle4"),
    7: HALF.but(
        output="float16", tile=(128, 128, 64), layouts="CCR", alignments=(8, 8, 8), slices=2
    ),
    8: HALF.but(
        tile=(256, 128, 64), warps=(4, 2, 1), layouts="CCR", mode="GemmSplitKParallel", slices=3
    ),
    9: BRAIN,
    10: F32.but(
        element="int8",
        output="int8",
        sums="int32",
        shape=(16, 8, 32),
        tile=(128, 128, 128),
        layouts="RCR",
        alignments=(16, 16, 16),
        functor="FastLinearCombinationClamp",
        scalars=(1.0, 0.0),
    ),
    11: HALF.but(layouts="CCC", scalars=(1.0, 0.0), grouped="Device"),
    12: F64_WIDE.but(layouts="RRC", scalars=(1.0, 1.0), slices=1, grouped="Host"),
    13: F32.but(
        shape=(1, 1, 1),
        opcode="Simt",
        tile=(128, 64, 8),
        stages=4,
        layouts="RRR",
        alignments=(1, 1, 1),
        scalars=(2.0, 1.0),
        grouped="Device",
    ),
    14: HALF.but(layouts="CCC", scalars=(2.0, 1.0), grouped="Device"),
    15: F64.but(bias=True, activation="relu"),
    16: F64_WIDE.but(bias=True, activation="leaky_relu", scalars=(1.0, 0.5, 0.2)),
    17: F32.but(mode="GemmSplitKParallel", slices=2, bias=True, activation="tanh"),
    18: F64_WIDE.but(
        layouts="RRC",
        scalars=(0.0, 0.5),
        slices=1,
        bias=True,
        activation="sigmoid",
        grouped="Host",
    ),
    19: BRAIN.but(scalars=(0.0, 0.5), bias=True, activation="gelu"),
    20: FAST.but(**BATCHED),
    21: HALF.but(swizzle="IdentitySwizzle4", mode="Array", batch=2),
    22: FAST.but(tree=RowBroadcast),
    23: F64.but(tree=ColumnBroadcast),
    24: HALF.but(layouts="CRR", swizzle="IdentitySwizzle4", tree=RowReduction),
    25: BRAIN.but(mode="Gemm", slices=1, tree=ColumnReduction),
    26: FAST.but(**BATCHED, tree=RowReduction),
    27: FAST.but(**{**BATCHED, "mode": "Array"}, tree=ColumnBroadcast),
}
