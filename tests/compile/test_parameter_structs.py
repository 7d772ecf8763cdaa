"""Every parameter struct of a backend's headers in one translation unit, against its signature."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import kronop
from kronop import compiler
from kronop.commands import matrix
from kronop.descriptions.datatype import float32, int64
from kronop.emit.plan import Plan
from kronop.families import FAMILIES
from kronop.families.distance.x86 import select_design
from tests import abi
from tests.emit import cases
from tests.families.scaled import declaration as scaled

# Those whose compilers take all headers of a backend.
_TARGETS = {"cuda": "sm_90a", "x86": "x86-amx"}
_ENTRY = {
    "cuda": 'extern "C" __global__ void abi() {}',
    "x86": 'extern "C" int abi(const void*, int) { return 0; }',
}


def _plans(backend: str) -> Iterator[Plan]:
    """Small ones of every family, whose scalars are floats and integers, and those of goldens."""
    target = kronop.Target.parse(_TARGETS[backend])
    for kind in (kind for family in (*FAMILIES, scaled.FAMILY) for kind in family.kinds):
        for element in (float32, int64):
            if description := matrix.sample(kind, element, target):
                yield kind.emitter(target).plan(description, target)
    if backend == "x86":  # Of no operation.
        yield select_design.plan(float32, target)
    for _, operation in cases.operations():
        if operation.target.backend == backend:
            yield operation.plan
    yield from cases.plans_of_convolutions(_TARGETS[backend])


@pytest.mark.parametrize("backend", _TARGETS)
def test_structs_are_what_their_signatures_say(backend: str) -> None:
    source = abi.unit(_plans(backend), _ENTRY[backend])
    known = set().union(*(abi.structs(Path(folder)) for folder in source.include_directories))
    missing = {name for name in known if f"::{name}" not in source.text}
    assert not missing, "no plan here has these parameters: add one to the goldens"
    compiler.compile_sources((source,), kronop.Target.parse(_TARGETS[backend]))
