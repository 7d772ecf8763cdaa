"""Tiles of matrix products on GPUs: those that no kernel has, and the choice among the others."""

from __future__ import annotations

from typing import Any

import pytest

import kronop
from kronop.descriptions.datatype import float8_e5m2, float16, float32, int8, int64
from kronop.descriptions.epilogue import LinearCombination
from kronop.descriptions.math_instruction import MathInstruction
from kronop.families.gemm.cuda.emitter import CudaEmitter
from kronop.families.gemm.cutlass import headers
from kronop.families.gemm.description import GemmDescription
from kronop.families.gemm.size import GemmSize
from kronop.target import Target

_TENSOR_OP, _SIMT = MathInstruction.tensor_op, MathInstruction.simt
_MATH = {"f16": _TENSOR_OP(float16), "simt f32": _SIMT(float32)}


@pytest.mark.parametrize(
    ("shape", "stages", "warps", "name", "said"),
    [
        ((128, 128, 32), 12, (2, 2, 1), "f16", "12 stages x (128 x 32 + 32 x 128) x 2 = 196608"),
        ((128, 128, 32), 1, (2, 2, 1), "f16", "1 stage"),
        ((128, 128, 32), 3, (2, 2, 2), "f16", "2 warps along K"),
        ((128, 120, 32), 3, (2, 2, 1), "f16", "64 x 60"),
        ((128, 128, 8), 3, (2, 2, 1), "f16", "multiple of 16"),
        ((256, 256, 32), 3, (2, 2, 1), "f16", "registers of 255"),
        ((256, 256, 32), 2, (8, 8, 1), "f16", "2048 threads"),
        ((128, 128, 8), 4, (4, 2, 1), "simt f32", "4 stages"),
        ((128, 96, 8), 2, (4, 4, 1), "simt f32", "multiple of 64 x 128"),
        ((128, 128, 12), 2, (4, 2, 1), "simt f32", "evenly"),
    ],
)
def test_tiles_that_no_kernel_of_kronop_s_has(
    monkeypatch: pytest.MonkeyPatch, shape: Any, stages: int, warps: Any, name: str, said: str
) -> None:
    monkeypatch.setattr(headers, "missing", lambda: "not installed")
    math = _MATH[name]
    tile = kronop.TileDescription(list(shape), stages, list(warps), math)
    a = kronop.TensorDescription(math.element_a)
    sums = math.element_accumulator
    what = GemmDescription(
        math=math,
        tile=tile,
        A=a,
        B=a,
        Y=a,
        epilogue=LinearCombination(math.element_a, 1, sums, sums),
    )
    status = CudaEmitter().supports(what, Target.parse("sm_80"))
    assert not status
    assert said in status.reason


def test_choice() -> None:
    """Small products get small tiles."""
    target = Target.parse("sm_80")
    a = kronop.TensorDescription(float16, alignment=8)
    what = GemmDescription(
        math=_TENSOR_OP(float16),
        tile=None,
        A=a,
        B=a,
        Y=a,
        epilogue=LinearCombination(float16, 8, float32, float32),
    )

    def best(*size: int) -> Any:
        plans = CudaEmitter().candidates(what, target, 99, GemmSize(*size))
        assert "us for" in plans[0].explain()
        return plans[0].steps[0].design

    large, small = best(8192), best(96)
    assert large.tile_m * large.tile_n >= 128 * 128
    assert small.tile_m * small.tile_n < 64 * 128
    assert CudaEmitter().instruction(int64, target) == _SIMT(int64)
    assert CudaEmitter().instruction(int8, target) == _TENSOR_OP(int8)
    assert CudaEmitter().instruction(float8_e5m2, target) == _TENSOR_OP(float8_e5m2)


@pytest.mark.parametrize("math", [_SIMT(float8_e5m2), _TENSOR_OP(float8_e5m2)])
def test_8_bit_floats_need_a_gpu_that_converts_them(math: MathInstruction) -> None:
    result = kronop.TensorDescription(float16)
    what = GemmDescription(
        math=math,
        tile=None,
        A=kronop.TensorDescription(float8_e5m2),
        B=kronop.TensorDescription(float8_e5m2),
        Y=result,
        epilogue=LinearCombination(float16, 1, float32, float32),
    )
    assert "sm_80 cannot convert" in CudaEmitter().supports(what, Target.parse("sm_80")).reason
    assert CudaEmitter().supports(what, Target.parse("sm_90a"))
