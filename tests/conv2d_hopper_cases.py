"""Convolutions of CUTLASS 3.x: every kind, type and direction of clusters."""

from __future__ import annotations

from typing import Any

from tests.conv2d_cases import Case

_FPROP = Case(kind="fprop", iterator="", warps=(4, 1, 1), stages=4, cluster=(2, 1, 1))
_DGRAD, _WGRAD = _FPROP.but(kind="dgrad", strides="Unity"), _FPROP.but(kind="wgrad")
_ACROSS: dict[str, Any] = {"cluster": (1, 4, 1), "tile": (128, 64, 64)}
_HALF: dict[str, Any] = {"sums": "float16", "output": "float16", "alignments": (8, 8, 8)}
_BFLOAT: dict[str, Any] = {
    "element": "bfloat16",
    "output": "bfloat16",
    "alignments": (8, 8, 8),
    "cluster": (2, 2, 1),
}
HOPPER: dict[str, Case] = {
    "hopper fprop": _FPROP,
    "hopper fprop across": _FPROP.but(**_ACROSS, activation="silu"),
    "hopper fprop bf16": _FPROP.but(**_BFLOAT, tile=(64, 256, 64)),
    "hopper fprop f16 sums": _FPROP.but(**_HALF, cluster=(1, 1, 1)),
    "hopper fprop tf32": _FPROP.but(
        element="float32", shape=(16, 8, 8), tile=(128, 96, 32), alignments=(4, 4, 4)
    ),
    "hopper fprop s8": _FPROP.but(
        element="int8",
        sums="int32",
        output="int8",
        shape=(16, 8, 32),
        tile=(128, 128, 128),
        alignments=(16, 16, 16),
        functor="FastLinearCombinationClamp",
        operation="multiply_add_saturate",
    ),
    "hopper dgrad": _DGRAD,
    "hopper dgrad across": _DGRAD.but(**_ACROSS),
    "hopper dgrad bf16": _DGRAD.but(**_BFLOAT),
    "hopper wgrad": _WGRAD.but(cluster=(4, 2, 1), tile=(256, 64, 64)),
    "hopper wgrad across": _WGRAD.but(**_ACROSS),
    "hopper wgrad bf16": _WGRAD.but(**_BFLOAT),
    "hopper wgrad f16 sums": _WGRAD.but(**_HALF),
}
