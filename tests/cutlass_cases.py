"""Matrix products that CUTLASS computes: every row of PyCUTLASS's tables."""

from __future__ import annotations

import dataclasses
from typing import Any

import kronop
from kronop.descriptions.datatype import AnyLayout, DataType
from kronop.descriptions.math_instruction import MathOperation, OpClass
from kronop.emit.plan import Plan
from kronop.families.gemm import panels
from kronop.families.gemm.cutlass import choice
from kronop.families.gemm.cutlass.design import CutlassGemm
from kronop.families.gemm.cutlass.hopper.design import CutlassHopper
from kronop.families.gemm.description import GemmDescription
from kronop.families.gemm.vocabulary import Swizzle
from kronop.target import Target

ROW, COLUMN = kronop.RowMajor, kronop.ColumnMajor


@dataclasses.dataclass(frozen=True, kw_only=True)
class Case:
    """One kernel: a row of the table of math instructions, and what tensors promise."""

    element: DataType
    sums: DataType
    output: DataType
    shape: tuple[int, int, int]
    operation: MathOperation = MathOperation.multiply_add
    opclass: OpClass = OpClass.TensorOp
    tile: tuple[int, int, int] = (128, 128, 32)
    warps: tuple[int, int, int] = (2, 2, 1)
    stages: int = 3
    layouts: tuple[AnyLayout, ...] = (ROW, COLUMN, ROW)
    alignments: tuple[int, int, int] = (8, 8, 8)
    functor: str = "linear"
    compute: DataType | None = None
    swizzle: Swizzle = Swizzle.IdentitySwizzle1
    # Of a kernel of CUTLASS 3.x, for sm_90a; None for one of 2.x.
    cluster: tuple[int, int, int] | None = None

    def epilogue(self) -> Any:
        width, compute = self.alignments[2], self.compute or self.sums
        given = (self.output, width, self.sums, compute)
        if self.functor == "linear":
            return kronop.LinearCombination(*given)
        if self.functor == "clamp":
            return kronop.LinearCombinationClamp(*given)
        if self.functor == "fastclamp":
            return kronop.FastLinearCombinationClamp(self.output, width)
        return kronop.LinearCombinationGeneric(getattr(kronop, self.functor)(compute), *given)

    def description(self) -> GemmDescription:
        instruction = kronop.MathInstruction(
            self.shape, self.element, self.element, self.sums, self.opclass, self.operation
        )
        elements = (self.element, self.element, self.output)
        a, b, c = map(kronop.TensorDescription, elements, self.layouts, self.alignments)
        return GemmDescription(
            math=instruction,
            tile=kronop.TileDescription(
                self.tile, self.stages, self.warps, instruction, self.cluster
            ),
            A=a,
            B=b,
            Y=c,
            epilogue=self.epilogue(),
            swizzling_functor=self.swizzle,
        )

    def design(self) -> CutlassGemm | CutlassHopper:
        found, *_ = choice.designs(self.description(), Target.parse("sm_80"))
        return found

    def plan(self, target: str) -> Plan:
        goal, design = Target.parse(target), self.design()
        status = design.status(goal)
        assert status, status.reason
        return Plan(target=goal, steps=(choice.step(self.description(), goal, design),))

    def but(self, **changes: Any) -> Case:
        return dataclasses.replace(self, **changes)


_F64, _F32, _F16, _BF16 = kronop.float64, kronop.float32, kronop.float16, kronop.bfloat16
_HALF = Case(element=_F16, sums=_F32, output=_F16, shape=(16, 8, 16))
_SINGLE = Case(
    element=_F32,
    sums=_F32,
    output=_F32,
    shape=(16, 8, 8),
    tile=(128, 128, 16),
    alignments=(4, 4, 4),
)
_BYTES = Case(
    element=kronop.int8,
    sums=kronop.int32,
    output=kronop.int8,
    shape=(16, 8, 32),
    operation=MathOperation.multiply_add_saturate,
    tile=(128, 128, 64),
    alignments=(16, 16, 16),
    functor="fastclamp",
    compute=_F32,
)
_SIMT = _SINGLE.but(
    opclass=OpClass.Simt,
    shape=(1, 1, 1),
    tile=(128, 128, 8),
    warps=(4, 2, 1),
    stages=4,
    alignments=(1, 1, 1),
)
_DOUBLE = {"element": _F64, "sums": _F64, "output": _F64, "alignments": (1, 1, 1)}

# The table of math instructions.
INSTRUCTIONS = {
    "f64": _HALF.but(**_DOUBLE, shape=(8, 8, 4), tile=(64, 64, 16), stages=4),
    "tf32": _SINGLE,
    "3xtf32": _SINGLE.but(
        operation=MathOperation.multiply_add_fast_f32, tile=(128, 128, 16), warps=(4, 2, 1)
    ),
    "fast_f16": _SINGLE.but(operation=MathOperation.multiply_add_fast_f16),
    "fast_bf16": _SINGLE.but(operation=MathOperation.multiply_add_fast_bf16),
    "f16 by 8": _HALF.but(shape=(16, 8, 8)),
    "bf16 by 8": _HALF.but(shape=(16, 8, 8), element=_BF16, output=_BF16),
    "f16": _HALF,
    "f16 in f16": _HALF.but(sums=_F16, compute=_F16),
    "bf16": _HALF.but(element=_BF16, output=_BF16),
    "s8": _BYTES,
    "s8 to s32": _BYTES.but(
        output=kronop.int32, functor="clamp", compute=kronop.int32, alignments=(16, 16, 4)
    ),
    "simt f64": _SIMT.but(**_DOUBLE, tile=(64, 128, 8), warps=(2, 4, 1)),
    "simt f32": _SIMT,
}
# Layouts, alignments, functors, swizzles, tiles: those of the other tables.
_LAYOUTS = [(a, b, c) for a in (ROW, COLUMN) for b in (ROW, COLUMN) for c in (ROW, COLUMN)]
_LETTER = {ROW: "r", COLUMN: "c"}
OTHERS = {
    **{
        f"{name} {''.join(_LETTER[item] for item in layouts)}": case.but(layouts=layouts)
        for name, case in INSTRUCTIONS.items()
        if name in ("f16", "f64", "tf32", "simt f32")
        for layouts in _LAYOUTS
    },
    "s8 transposed": _BYTES.but(layouts=(ROW, COLUMN, COLUMN)),
    "s8 in s32": _BYTES.but(functor="linear", compute=kronop.int32),
    **{
        f"f16 alignment {item}": _HALF.but(alignments=(item, item, item), layouts=layouts)
        for item, layouts in ((4, (ROW, ROW, ROW)), (2, (COLUMN, COLUMN, ROW)))
    },
    "f16 two stages": _HALF.but(stages=2, alignments=(1, 1, 1)),
    "f16 clamp": _HALF.but(functor="clamp"),
    **{
        f"f16 {name}": _HALF.but(functor=name)
        for name in ("relu", "leaky_relu", "tanh", "sigmoid", "silu", "hardswish", "gelu")
    },
    "f16 to f32": _HALF.but(output=_F32, alignments=(8, 8, 4)),
    **{
        f"f16 {item.name}": _HALF.but(swizzle=item)
        for item in Swizzle
        if item is not Swizzle.IdentitySwizzle1
    },
    "f16 wide": _HALF.but(tile=(256, 128, 32), warps=(4, 2, 1)),
    "f16 tall c": _HALF.but(
        tile=(64, 256, 32), warps=(1, 4, 1), layouts=(ROW, COLUMN, COLUMN), stages=4
    ),
    "f16 warps along k": _HALF.but(tile=(64, 64, 64), warps=(1, 1, 2)),
    "simt f32 two stages": _SIMT.but(stages=2),
}
CASES = {**INSTRUCTIONS, **OTHERS}

_PANELS = tuple(panels.LAYOUTS.values())
INTERLEAVED = {
    "s8 interleaved": _BYTES.but(
        layouts=_PANELS, alignments=(16, 16, 8), operation=MathOperation.multiply_add
    ),
    "s8 interleaved to s32": INSTRUCTIONS["s8 to s32"].but(layouts=_PANELS, tile=(128, 64, 64)),
}

# CUTLASS 3.x: warp groups that take tiles in turn, or share them.
_IN_TURN = _HALF.but(tile=(128, 128, 64), warps=(4, 1, 1), stages=6, cluster=(2, 1, 1))
_SHARED = _IN_TURN.but(tile=(128, 256, 64), warps=(8, 1, 1), stages=4, cluster=(1, 1, 1))
_WIDE = {"tile": (128, 128, 128), "warps": (4, 1, 1), "stages": 6, "cluster": (2, 1, 1)}
HOPPER = {
    "hopper f16": _IN_TURN,
    "hopper f16 tall": _IN_TURN.but(tile=(64, 256, 64), stages=5, cluster=(4, 1, 1)),
    "hopper f16 sums": _SHARED.but(sums=_F16),
    "hopper bf16": _SHARED.but(element=_BF16, output=_BF16),
    "hopper gelu": _SHARED.but(functor="gelu"),
    "hopper f16 to f32": _SHARED.but(output=_F32, alignments=(8, 8, 4)),
    "hopper tf32": _SINGLE.but(tile=(128, 128, 32), warps=(8, 1, 1), stages=4, cluster=(2, 1, 1)),
    "hopper s8": _BYTES.but(**_WIDE),
    "hopper s8 to s32": INSTRUCTIONS["s8 to s32"].but(**_WIDE),
}
# Kernels over tensors of rows and columns; all kernels. Sums of 8-bit floats are less exact than
# those of float32.
DENSE = {**CASES, **HOPPER}
_FLOAT8 = _HALF.but(element=kronop.float8_e4m3fn, output=_BF16, shape=(16, 8, 32), **_WIDE)
EVERY = {**DENSE, **INTERLEAVED, "hopper e4m3": _FLOAT8.but(alignments=(16, 16, 8))}
