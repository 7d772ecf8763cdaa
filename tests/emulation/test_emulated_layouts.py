"""Kronecker products on both sides of the planner's thresholds, in every pair of layouts.

What a pass leaves in the workspace is contiguous as X is, and so Y may be contiguous along another
index than the operands of the last pass.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from kronop.descriptions.datatype import ColumnMajor, RowMajor, float16, float32, float64, int32
from kronop.descriptions.math_instruction import MathInstruction
from kronop.families.kron.description import Side
from tests.covering import combinations
from tests.emulation.test_emulated_kernels import run_kron

_LAYOUTS = (RowMajor, ColumnMajor)
# Factors up to 64 share a pass, larger ones are contractions of their own: first, in the middle or
# last in the order of digits and of passes; sizes that vectors divide, and others.
_FACTORS = (
    [(4, 8), (40, 4), (2, 2)],
    [(64, 64), (4, 4)],
    [(65, 63), (3, 2)],
    [(100, 300), (4, 4)],
    [(8, 31), (130, 130)],
    [(3, 2), (127, 128), (4, 5)],
    [(257, 12)],
)
_CASES = combinations(
    factors=_FACTORS,
    element=(float32, float64, float16, int32),
    rows=(1, 3, 16, 100),
    side=tuple(Side),
    x=_LAYOUTS,
    f=_LAYOUTS,
    y=_LAYOUTS,
    aligned=(False, True),
    batch=((), (3, 1)),
    factor_batch=((), (3, 1)),
    source=(False, True),
    few=(False, True),
)


def _name(case: dict[str, Any]) -> str:
    sizes = "_".join(f"{p}x{q}" for p, q in case["factors"])
    layouts = "".join("r" if case[name] is RowMajor else "c" for name in "xfy")
    return f"{case['rows']}-{sizes}-{case['element'].short}-{case['side'].name}-{layouts}"


@pytest.mark.parametrize("case", _CASES, ids=_name)
def test_products(folder: Path, case: dict[str, Any]) -> None:
    element, batch = case["element"], case["batch"]
    is_float = element.kind == "float"
    run_kron(
        folder,
        case["factors"],
        case["rows"],
        element,
        side=case["side"],
        alignment=16 // element.bytes if case["aligned"] else 1,
        layouts=(case["x"], case["f"], case["y"]),
        batch=batch,
        factor_batch=case["factor_batch"] if batch else (),
        source=case["source"],
        few=case["few"],
        math_instruction=(MathInstruction.tensor_op if is_float else MathInstruction.simt)(element),
        intermediate=float16 if element is float16 else None,
    )
