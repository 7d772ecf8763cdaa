"""Kernels of CUTLASS through NVRTC, in each kind of math; neither a GPU nor nvcc is needed."""

from __future__ import annotations

import pytest

from kronop import compiler, knobs
from kronop.emit.render import render
from kronop.families.gemm.cutlass import headers
from kronop.target import Target
from tests.cutlass_cases import EVERY, INSTRUCTIONS, INTERLEAVED

pytestmark = pytest.mark.skipif(bool(headers.missing()), reason=headers.missing())

# Operands in two parts each, single elements that pass through registers to shared memory, and
# bytes that are clamped beside 128 sums.
_SPILLING = {"3xtf32": 64, "f16 two stages": 600, "hopper s8": 300}
_MOST_REGISTERS = 255
# A kernel takes three seconds, one of CUTLASS 3.x up to eighteen. By default, one of each main loop
# stands for all of them.
_FEW = {"sm_80": ("f16", "s8", "simt f32"), "sm_90a": ("hopper f16", "3xtf32", "s8 interleaved")}
_ALL = {"sm_80": (*INSTRUCTIONS, *INTERLEAVED), "sm_90a": (*EVERY,)}


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    chosen = _ALL if metafunc.config.getoption("--full") else _FEW
    cases = [(name, target) for target, names in chosen.items() for name in names]
    metafunc.parametrize(("name", "target"), cases)


def test_kernels_compile_and_keep_sums_in_registers(name: str, target: str) -> None:
    plan = EVERY[name].plan(target)
    with knobs.using(compiler="nvrtc"):
        (binary,) = compiler.compile_sources(render(plan), Target.parse(target))
    used = binary.resources
    assert used.registers in range(1, _MOST_REGISTERS + 1)
    assert used.spill_bytes in range(_SPILLING.get(name, 0) + 1)
    assert not used.static_shared_bytes
