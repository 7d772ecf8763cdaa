"""Visitor trees of results whose rows have several axes, as those of convolutions have."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import kronop
from kronop import compiler
from kronop.args import visited
from kronop.args.staging import Placement
from kronop.args.tensor import view
from kronop.args.treed import Treed
from kronop.args.view import Device
from kronop.descriptions.tensor import TensorDescription
from kronop.emit.plan import Plan, Step
from kronop.emit.render import render
from kronop.emit.x86.visit_sums import HostVisitSums
from kronop.target import Target
from tests import support
from tests.trees import several

F32 = kronop.float32
EPILOGUE = several(F32, 1, F32, F32)
CPU = Device("cpu", 0)
# Leading dimensions, then N, P, Q and K of a convolution.
SHAPE = (2, 3, 4, 5, 6)


def _tensors(shape: tuple[int, ...]) -> dict[str, Any]:
    random, found = np.random.default_rng(3), {}
    for item in EPILOGUE.tree.operands:
        own = () if item.kind == "scalar" else visited.own_shape(item.kind, shape, 3)
        found[item.name] = support.random_array(random, own, F32) if own else 0.5
    for item in EPILOGUE.tree.results:
        element = EPILOGUE.element_of(item)
        found[item.name] = support.poison(visited.own_shape(item.kind, shape, 3), element)
    return found


def _treed(tensors: dict[str, Any]) -> Treed:
    first = EPILOGUE.tree.results[0].name
    output_op = EPILOGUE.epilogue_type(**tensors, problem_size=[60, 6])
    y, described = view(tensors[first], "D"), TensorDescription(F32)
    return Treed.of(EPILOGUE, output_op, y, described, {}, CPU, rows=3)


def test_all_rows_of_an_image_are_reduced() -> None:
    tensors = _tensors(SHAPE)
    treed, target = _treed(tensors), Target.parse("x86")
    memory = np.full(treed.own_bytes + 256, 255, np.uint8)
    start = -memory.ctypes.data % 256
    pitch = treed.sums.strides[-2]
    sums = (
        memory[start : start + 2 * 60 * pitch * 4].view(np.float32).reshape(2, 60, pitch)[..., :6]
    )
    sums[...] = np.random.default_rng(4).normal(size=sums.shape)
    design = HostVisitSums(sums=F32, along_rows=True, epilogue=EPILOGUE)
    step = Step(entry="tree_over_rows", design=design, note="")
    plan = Plan(target=target, steps=(step,))
    (binary,) = compiler.compile_sources(render(plan), target)
    problem = treed.problem(Placement(CPU), memory.ctypes.data + start, 1)
    assert (problem.m, problem.n, problem.batch) == (60, 6, (2,))
    for launch in plan.launches(problem):
        compiler.load(binary, target).bind(launch)(0)

    def flat(kind: str, value: Any) -> Any:
        return np.reshape(value, visited.own_shape(kind, (2, 60, 6)))

    operands = {
        item.name: tensors[item.name]
        if item.kind == "scalar"
        else flat(item.kind, tensors[item.name])
        for item in EPILOGUE.tree.operands
    }
    expected = EPILOGUE.evaluate(sums, operands)
    for item in EPILOGUE.tree.results:
        got = flat(item.kind, tensors[item.name])
        np.testing.assert_allclose(got, expected[item.name], rtol=1e-4, atol=1e-4)


def test_rows_that_no_stride_reaches_are_refused() -> None:
    tensors = _tensors(SHAPE)
    name = next(item.name for item in EPILOGUE.tree.operands if item.kind == "column")
    tensors[name] = tensors[name][..., :1]
    with pytest.raises(kronop.ArgumentError, match=rf"strides of {name}: .*\(3, 4, 5\)"):
        _treed(tensors)
