"""Kernels of every family for every GPU that the compiler at hand knows. No GPU is needed."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import kronop
from kronop.artifacts import BinaryFormat
from kronop.core.operation import Operation
from kronop.families import FAMILIES
from kronop.machine import GENERATIONS, Feature
from kronop.target import Target, every_target
from tests import support
from tests.families import samples
from tests.perf import other_cards

nvrtc = pytest.importorskip("cuda.bindings.nvrtc", reason="NVRTC is not installed")

_KNOWN = {f"sm_{number}" for number in nvrtc.nvrtcGetSupportedArchs()[1]}
_GPUS = [item for item in every_target() if item.backend == "cuda"]
_HERE = [item.name for item in _GPUS if item.name.rstrip("a") in _KNOWN]
# What lacks most; kernels of all others differ in few instructions.
_ROWS = [name for name in ("sm_50", "sm_70", "sm_75") if name in _HERE]
_FLOAT16, _FLOAT32, _BFLOAT16 = kronop.float16, kronop.float32, kronop.bfloat16
_FLOAT64 = kronop.float64
_SAMPLES = {kind.name: kind for kind in samples.kinds(FAMILIES) if "cuda" in kind.emitters}


def _sample(name: str, element: kronop.DataType) -> Callable[[str], Operation]:
    return lambda target: samples.operation(_SAMPLES[name], target, element)


_OPERATIONS: dict[str, Callable[[str], Operation]] = {
    "kron": lambda target: support.kron_operation(target, _FLOAT32, [(8, 8)] * 4, alignment=4),
    "kron f64": lambda target: support.kron_operation(
        target, _FLOAT64, [(16, 16)] * 2, alignment=2
    ),
    "kron f16": lambda target: support.kron_operation(target, _FLOAT16, [(2, 3), (5, 2)]),
    "ksparse f16": lambda target: support.ksparse_operation(
        target, _FLOAT16, (1, 192, 48, 2), alignment=8
    ),
    "ksparse e4m3": lambda target: support.ksparse_operation(
        target, kronop.float8_e4m3fn, (1, 192, 48, 2), alignment=16
    ),
    "gradient f32": lambda target: support.gradient_operation(target, _FLOAT32, (1, 64, 64, 1)),
    "gradient": _sample("gradient of weights", _BFLOAT16),
    "distances": _sample("distances", _FLOAT32),
    "products": _sample("products of kernel matrices", _FLOAT32),
    "quantized": _sample("quantized Kronecker", _BFLOAT16),
    "gemm f16": _sample("matrix products", _FLOAT16),
    "gemm s8": _sample("matrix products", kronop.int8),
    "gemm e4m3": _sample("matrix products", kronop.float8_e4m3fn),
}


# Bytes that kernels spill, at most. NVRTC 13.5 spills 68 and none, 13.0 and 12.9 these.
_SPILLS = {"distances": 140, "gradient": 182}
# What only some of the others have instructions for.
_OWN = [
    ("sm_89", "ksparse e4m3"),
    ("sm_90a", "gemm e4m3"),
    ("sm_100", "kron f64"),
    ("sm_120", "ksparse e4m3"),
]


def _cases(full: bool) -> Iterator[tuple[str, str]]:
    """Every operation where kernels differ; of the other targets one each, in turn, and those of
    `_OWN`."""
    others = [name for name in _HERE if name not in _ROWS]
    some = [*zip(others, itertools.cycle(_OPERATIONS), strict=False), *_OWN]
    chosen = itertools.product(_HERE, _OPERATIONS)
    for target, operation in chosen:
        if (full or target in _ROWS or (target, operation) in some) and (
            "e4m3" not in operation or Target.parse(target).has(Feature.float8)
        ):
            yield target, operation


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "operation" in metafunc.fixturenames:
        full = metafunc.config.getoption("--full")
        metafunc.parametrize(("target", "operation"), list(_cases(full)))


def test_it_compiles(target: str, operation: str) -> None:
    made = _OPERATIONS[operation](target)
    for step, binary in zip(made.plan.steps, made.binaries, strict=True):
        assert binary.image
        assert binary.resources.spill_bytes <= _SPILLS.get(operation, 0)
        assert step.design.shared_bytes <= made.target.shared_bytes


def test_what_is_newer_than_all_targets_gets_ptx() -> None:
    target = Target.of_capability(99, 0)
    if f"sm_{target.arch[3:]}" not in _KNOWN:
        pytest.skip(f"this NVRTC does not know {target}")
    (binary,) = support.kron_operation(target, _FLOAT32, [(2, 3), (5, 2)]).binaries
    assert binary.format is BinaryFormat.PTX
    text = kronop.compiler.disassemble(binary)
    assert f".target {target.arch}" in text
    assert f".entry {binary.entry}" in text


def test_the_page_has_every_target_and_its_card() -> None:
    page = (Path(__file__).parents[2] / "docs" / "gpus.md").read_text()
    lines = [line for line in page.splitlines() if line.startswith("| `sm_")]
    names = list(itertools.chain.from_iterable(re.findall(r"`(sm_\w+)`", it) for it in lines))
    assert names == list(GENERATIONS)
    for line in lines:
        cards = ", ".join(GENERATIONS[name].gpu.card for name in re.findall(r"`(sm_\w+)`", line))
        assert line.split("|")[2].strip() == cards


def test_the_page_tells_what_plans_expect() -> None:
    page = (Path(__file__).parents[2] / "docs" / "gpus.md").read_text()
    (line,) = (line for line in page.splitlines() if line.startswith("| float32, `1024:8^5`"))
    cells = [cell.strip() for cell in line.split("|")[2:-1]]
    for place, card in enumerate(other_cards._CARDS.values()):
        if place % 2:  # It takes time, and models of all cards change together.
            assert cells[place] == str(other_cards.kron("float32", [(8, 8)] * 5, 1024, card))


@pytest.mark.parametrize("target", _GPUS, ids=str)
def test_what_is_not_refused_is_planned_within_the_limits(target: Target) -> None:
    for name, make in _OPERATIONS.items():
        if "e4m3" in name and not target.has(Feature.float8):
            continue
        plan = make(target.name).plan
        # The text tells floors, which are reckoned from the target's figures.
        assert all(step.entry in str(plan) for step in plan.steps)
        for step in plan.steps:
            assert step.design.shared_bytes <= target.shared_bytes
            assert step.design.threads <= 1024
