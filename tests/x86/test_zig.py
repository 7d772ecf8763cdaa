"""The compiler of last resort, zig of the ziglang wheel: every target, results and instructions."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import kronop
from kronop.compiler import host_backend
from kronop.target import Target, detect_x86_arch, runs
from tests import support

pytestmark = [
    pytest.mark.skipif(
        importlib.util.find_spec("ziglang") is None, reason="ziglang, a wheel, is not installed"
    ),
    pytest.mark.usefixtures("zig"),
    pytest.mark.optimised,
]
# Together they have every builtin and intrinsic of the headers. Where this machine lacks the
# instructions, some of them have to stand in the assembly.
_KRON = {
    "x86-generic": (kronop.float32, {"mulps"}),
    "x86-avx2": (kronop.float16, {"vcvtph2ps", "vcvtps2ph"}),
    "x86-avx512": (kronop.float16, {"vcvtph2ps", "vcvtps2ph", "zmm"}),
    "x86-amx": (kronop.bfloat16, {"tdpbf16ps", "vcvtne2ps2bf16", "ldtilecfg"}),
}
_KSPARSE = {
    "x86-generic": (kronop.float32, {"mulps"}),
    "x86-avx2": (kronop.float32, {"vfmadd", "ymm"}),
    "x86-avx512": (kronop.float32, {"vfmadd", "zmm", "vmovnt", "sfence"}),
    "x86-amx": (kronop.int8, {"tdpbssd", "prefetch"}),
}
_FACTORS, _PATTERN, _ROWS = [(16, 16)] * 3, (2, 48, 64, 1), 19


@pytest.fixture
def zig(own_cache: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """As on a machine that has no other compiler."""
    monkeypatch.delenv("CXX", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    host_backend._find.cache_clear()
    assert host_backend._is_zig(host_backend._command())
    yield
    host_backend._find.cache_clear()


@pytest.mark.parametrize("target", _KRON)
def test_kron(target: str) -> None:
    element, instructions = _KRON[target]
    operation = support.kron_operation(target, element, _FACTORS)
    if not _runs(target):
        _check_instructions(operation, instructions)
        return
    random = np.random.default_rng(5)
    x = support.random_array(random, (_ROWS, 4096), element)
    factors = [support.random_array(random, shape, element) for shape in _FACTORS]
    y = support.poison((_ROWS, 4096), element)
    arguments = kronop.KronMatmulArguments(operation=operation, X=x, factors=factors, Y=y)
    operation.run(arguments)
    support.expected_kron(operation, x, factors).check(y)


@pytest.mark.parametrize("target", _KSPARSE)
def test_ksparse(target: str) -> None:
    element, instructions = _KSPARSE[target]
    operation = support.ksparse_operation(target, element, _PATTERN)
    if not _runs(target):
        _check_instructions(operation, instructions)
        return
    random = np.random.default_rng(6)
    x = support.random_array(random, (_ROWS, 128), element)
    weights = support.random_array(random, _PATTERN, element)
    y = support.poison((_ROWS, 96), operation.description.Y.element)
    arguments = kronop.KSparseArguments(operation=operation, X=x, W=weights, Y=y)
    operation.run(arguments)
    support.expected_ksparse(operation, x, weights).check(y)


def _runs(target: str) -> bool:
    return runs(Target.parse(target).arch, detect_x86_arch())


def _check_instructions(operation: kronop.Operation, expected: set[str]) -> None:
    compiler = host_backend.HostCompiler()
    text = compiler.assembly(operation.sources[0], compiler.flags(operation.target))
    assert {name for name in expected if name in text} == expected
