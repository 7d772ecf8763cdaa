"""Fused pairs of Kronecker-sparse products, run on the CPU from the same headers."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from kronop.descriptions.activation import relu
from kronop.descriptions.datatype import (
    ColumnMajor,
    DataType,
    Layout,
    RowMajor,
    bfloat16,
    float16,
    float32,
    float64,
)
from kronop.descriptions.epilogue import LinearCombinationGeneric
from kronop.descriptions.math_instruction import MathInstruction
from kronop.descriptions.tensor import TensorDescription
from kronop.emit.plan import Plan
from kronop.families.ksparse import chains
from kronop.families.ksparse.cuda import chain_choice
from kronop.families.ksparse.cuda.chain_design import ChainMma
from kronop.families.ksparse.declaration import CHAIN
from kronop.families.ksparse.description import (
    KSparseChainDescription,
    KSparseChainProblem,
    Pattern,
)
from kronop.target import Target
from tests import support
from tests.emulation.emulator import Emulator
from tests.emulation.test_emulated_kernels import (
    _UNIT,
    linear,
    matrix,
    poisoned,
    stored,
    values,
    wide,
)

_TARGET = Target.parse("sm_90a")


def pair_of(plan: Plan) -> ChainMma | None:
    """The fused pair that a plan begins with; None where that is a product."""
    design = plan.steps[0].design
    return design if isinstance(design, ChainMma) else None


def fused(plan: Plan) -> bool:
    return pair_of(plan) is not None


def describe(
    patterns: list[Pattern],
    element: DataType,
    batch_last: bool,
    layout: Layout = RowMajor,
    activation: bool = False,
) -> KSparseChainDescription:
    tensor = TensorDescription(element, layout, 16 // element.bytes)
    math = MathInstruction.tensor_op(element)
    sums = math.element_accumulator
    epilogue = LinearCombinationGeneric(relu(sums), element, 1, sums, sums)
    return KSparseChainDescription(
        math=math,
        tile=None,
        X=tensor,
        W=TensorDescription(element),
        Y=tensor,
        epilogue=epilogue if activation else linear(element),
        patterns=tuple(patterns),
        batch_last=batch_last,
    )


def pick(description: KSparseChainDescription, wanted: Callable[[Plan], bool]) -> Plan:
    """The cheapest plan that is as wanted: all ways to cut a chain of two come first."""
    plans = CHAIN.emitters["cuda"].candidates(description, _TARGET, 3)
    return next(plan for plan in plans if wanted(plan))


def run(
    folder: Path, description: KSparseChainDescription, plan: Plan, rows: int, few: int = 0
) -> None:
    """Runs and compares; with `few` blocks at most, which go over several tiles of rows."""
    emulator = Emulator(plan, folder)
    if emulator.gathered:
        return
    random = np.random.default_rng(7)
    element, layout = description.X.element, description.X.layout
    last = description.batch_last
    x = stored(values(random, description.x_shape(rows), element), layout)
    z = stored(values(random, description.y_shape(rows), element), layout)
    weights = [stored(values(random, item, element), RowMajor) for item in description.patterns]
    bias = values(random, (description.output_columns,), element)
    y = poisoned(z.shape, element, layout)
    scalars = description.epilogue.epilogue_type(2, 3)
    workspace = np.full(plan.workspace_bytes(rows, 1) + 256, 255, np.uint8)
    problem = KSparseChainProblem(
        rows=rows,
        x=matrix(x, last),
        weights=tuple(support.strided(item, 4) for item in weights),
        z=matrix(z, last),
        bias=support.strided(bias, 1),
        y=matrix(y, last),
        scalars=scalars.scalars,
        workspace=workspace.ctypes.data + -workspace.ctypes.data % 256,
        threads=1,
    )
    launches = plan.launches(problem)
    if few:
        launches = tuple(
            dataclasses.replace(item, grid=(min(few, item.grid[0]), 1, 1)) for item in launches
        )
    emulator.run(launches)
    expected = description.reference(
        wide(x), [wide(item) for item in weights], wide(z), wide(bias), scalars
    )
    unit = _UNIT[element] if element.bytes == 2 else _UNIT[description.math.element_accumulator]
    # What is between is rounded once for each factor; sums of some hundred terms besides.
    bound = 64 * unit * len(description.patterns) * np.abs(expected).max(initial=1)
    assert np.abs(wide(y) - expected).max(initial=0) <= bound


_PAIRS: dict[str, list[Pattern]] = {
    "interleaved": [(2, 24, 32, 1), (1, 40, 24, 2)],
    "odd": [(3, 10, 17, 1), (1, 18, 10, 3)],
    "sections": [(4, 16, 24, 1), (2, 33, 32, 1)],
    "lanes": [(1, 16, 20, 4), (1, 24, 8, 8)],
    "parts": [(2, 20, 16, 3), (4, 16, 10, 3)],
    "plain": [(1, 31, 33, 1), (1, 17, 31, 1)],
}


@pytest.mark.covering(
    batch_last=[False, True],
    element=[float32, float64, float16, bfloat16],
    patterns=list(_PAIRS.values()),
)
def test_pairs(folder: Path, patterns: list[Pattern], element: DataType, batch_last: bool) -> None:
    description = describe(patterns, element, batch_last)
    plan = pick(description, fused)
    for rows in (1, 71):
        run(folder, description, plan, rows)
    design = pair_of(plan)
    assert design is not None
    run(folder, description, plan, 200, few=2 * design.parts)


@pytest.mark.covering(batch_last=[False, True], element=[float32, float16], resident=[True, False])
def test_weights_that_stay_and_weights_that_stream(
    folder: Path, element: DataType, batch_last: bool, resident: bool
) -> None:
    description = describe([(2, 20, 24, 3), (4, 33, 10, 3)], element, batch_last)
    one, two = (chains.product(description, index) for index in (0, 1))
    found = (item for _, item in chain_choice.candidates(one, two, _TARGET, None))
    design = next(item for item in found if item.resident is resident and item.stages == 3)
    step = chain_choice.chain_step(one, two, design, _TARGET)
    plan = Plan(target=_TARGET, steps=(step,))
    for rows in (7, 150):
        run(folder, description, plan, rows, few=design.parts)


@pytest.mark.parametrize("element", [float32, bfloat16])
def test_a_long_chain_with_an_activation(folder: Path, element: DataType) -> None:
    patterns: list[Pattern] = [(2, 16, 12, 2), (1, 24, 32, 2), (4, 10, 12, 1)]
    description = describe(patterns, element, False, activation=True)
    plans = CHAIN.emitters["cuda"].candidates(description, _TARGET, 3)
    cuts = [tuple(piece.factors for piece in support.chain_of(item).pieces) for item in plans]
    assert (1, 1, 1) in cuts
    assert any(2 in cut for cut in cuts)
    for plan in plans:
        run(folder, description, plan, 40)


@pytest.mark.parametrize("batch_last", [False, True], ids=["first", "last"])
def test_tensors_that_allow_no_vectors(folder: Path, batch_last: bool) -> None:
    patterns: list[Pattern] = [(2, 24, 32, 1), (1, 40, 24, 2)]
    for element, layout in ((float16, RowMajor), (float32, ColumnMajor)):
        description = describe(patterns, element, batch_last, layout)
        plan = pick(description, fused)
        run(folder, description, plan, 37)
