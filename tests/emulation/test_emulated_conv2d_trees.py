"""Visitor trees behind convolutions by warp groups, run on the CPU from the same headers."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from kronop.descriptions.datatype import (
    RowMajor,
    float16,
    float32,
)
from kronop.descriptions.strided import Strided
from kronop.emit.plan import Plan
from kronop.families.conv2d.cuda import warp_group_choice
from kronop.families.conv2d.cuda.warp_group_design import Conv2dWarpGroup
from kronop.families.conv2d.description import Conv2dProblem, convolved
from kronop.families.conv2d.size import Conv2dSize, shapes_of
from kronop.families.conv2d.vocabulary import Operator
from tests.emulation.emulator import Emulator
from tests.emulation.test_emulated_conv2d_warp_group import (
    TARGET,
    description,
    has_tile,
    in_memory,
)
from tests.emulation.test_emulated_kernels import agree, stored, values, wide
from tests.emulation.test_emulated_visitor import operands_of, results_of, strided
from tests.trees import several


@pytest.mark.parametrize("kind", [Operator.fprop, Operator.dgrad])
def test_visitor_trees(folder: Path, kind: Operator) -> None:
    """With reductions."""
    size = Conv2dSize(2, 9, 7, 64, 72, 3, 3, pad_h=1, pad_w=1)
    random = np.random.default_rng(5)
    epilogue = several(float16, 1, float32, float32)
    what = description(kind, float16, epilogue, unity=True)
    design = next(
        it for it in warp_group_choice.designs(what, TARGET) if has_tile(it, (128, 128, False), 1)
    )
    assert isinstance(design, Conv2dWarpGroup)
    plan = Plan(target=TARGET, steps=warp_group_choice.steps(what, TARGET, design))
    emulator = Emulator(plan, folder)
    if emulator.gathered:
        return
    shapes = shapes_of(size)
    a, b = (stored(values(random, shapes[of], float16), RowMajor) for of in kind.tensors[:2])
    m, n, _ = kind.extents(size)
    given = operands_of(epilogue, random, (m, n))
    results = results_of(epilogue, (m, n), RowMajor)
    tree = epilogue.tree
    tensors = [_visited(item.kind, given[item.name]) for item in tree.tensors]
    written = [_visited(item.kind, results[item.name]) for item in tree.results]
    workspace = np.full(plan.workspace_bytes(size, 1) + 256, 255, np.uint8)
    shape = shapes[kind.tensors[2]]
    problem = Conv2dProblem(
        kind=kind,
        size=size,
        a=in_memory(a),
        b=in_memory(b),
        y=in_memory(results[tree.results[0].name].reshape(shape)),
        z=None,
        bias=None,
        visited=(*tensors, *written[1:]),
        scalars=tuple(given[name] for name in tree.scalars),
        threads=1,
        workspace=workspace.ctypes.data + -workspace.ctypes.data % 256,
    )
    emulator.run(plan.launches(problem))
    sums = convolved(kind, wide(a), wide(b), size).reshape(m, n)
    inputs = {name: item if np.ndim(item) == 0 else wide(item) for name, item in given.items()}
    expected = epilogue.evaluate(sums, inputs)
    for item in tree.results:
        agree(results[item.name], expected[item.name], epilogue.element_of(item), float32)


def _visited(kind: str, array: Any) -> Strided:
    """A tensor, a row or a column of one group."""
    found = strided(kind, array, ())
    return replace(found, batch=(0,))
