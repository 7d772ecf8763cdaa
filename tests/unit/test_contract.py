"""What every design and pipeline promises: methods with the same parameters."""

from __future__ import annotations

import ast
import dataclasses
import importlib
import inspect
import json
import pkgutil
from collections.abc import Iterator
from pathlib import Path

import pytest

import kronop
import kronop.emit
import kronop.families
from kronop.emit import plan_text
from kronop.emit.design import Runnable

_PARAMETERS = {
    "launches": ["self", "problem", "target"],
    "seconds": ["self", "size", "target"],
    "workspace": ["self", "size", "target", "threads"],
}

# Files that still ask of which class a design is, and none besides.
_ASKING = {
    *("emit/choice.py", "emit/plan_text.py", "emit/cuda/contraction/choice.py"),
    *("families/distance/cuda/choice.py", "families/gemm/grouped_choice.py"),
    *(f"families/kron/cuda/{name}.py" for name in ("contract_choice", "pass_choice")),
    *(f"families/kron/cuda/{name}.py" for name in ("pass_cost", "passes")),
    "families/ksparse/cuda/product.py",
}


def _runnables(kind: type = Runnable) -> Iterator[type]:
    yield kind
    for child in kind.__subclasses__():
        yield from _runnables(child)


def test_all_have_the_same_methods() -> None:
    for room in (kronop.emit, kronop.families):
        for module in pkgutil.walk_packages(room.__path__, f"{room.__name__}."):
            if not {"torch", "jax"} & {*module.name.split(".")}:
                importlib.import_module(module.name)
    found = [*_runnables()]
    assert len(found) > 40
    for kind in found:
        for name, parameters in _PARAMETERS.items():
            if name in vars(kind):
                assert [*inspect.signature(vars(kind)[name]).parameters] == parameters, kind


def test_planners_ask_for_the_data_of_designs_and_not_for_their_classes() -> None:
    root = Path(kronop.__file__).parent
    classes = {kind.__name__ for kind in _runnables()}
    found = {
        str(path.relative_to(root))
        for path in (*root.glob("emit/**/*.py"), *root.glob("families/**/*.py"))
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "isinstance"
        if classes & {item.id for item in ast.walk(node.args[1]) if isinstance(item, ast.Name)}
    }
    assert found == _ASKING


def test_a_plan_has_the_steps_of_its_pipeline() -> None:
    matrix = kronop.TensorDescription(kronop.float32)
    sums = kronop.LinearCombination(kronop.float32, 1, kronop.float32, kronop.float32)
    what = [matrix, matrix, matrix, sums, [(64, 64)] * 3]
    operation = kronop.KronMatmulOperation("sm_80", None, *what)
    plan = operation.plan
    assert len(plan.steps) > 1
    assert plan.pipeline is not None
    for wrong in ({"pipeline": None}, {"steps": plan.steps[:1]}, {"steps": plan.steps[::-1]}):
        with pytest.raises(ValueError, match="not those of the steps"):
            dataclasses.replace(plan, **wrong)
    epilogue = operation.description.epilogue
    steps, rejected, _ = json.loads(plan_text.to_text(plan, epilogue))
    with pytest.raises(ValueError, match="not those of the steps"):
        plan_text.from_text(json.dumps([steps, rejected, None]), plan.target, epilogue)
