"""Kernels of CUTLASS through NVRTC, in each kind of math; neither a GPU nor nvcc is needed."""

from __future__ import annotations

from pathlib import Path

import pytest

from kronop import compiler, knobs
from kronop.compiler import cuda_headers
from kronop.compiler import cutlass_headers as headers
from kronop.compiler.nvrtc_backend import _nvrtc
from kronop.emit.render import render
from kronop.target import Target
from tests.cutlass_cases import EVERY, INSTRUCTIONS, INTERLEAVED

pytestmark = pytest.mark.skipif(bool(headers.missing()), reason=headers.missing())

# Operands in two parts each, single elements that pass through registers to shared memory, and
# bytes that are clamped beside 128 sums.
_SPILLING = {"3xtf32": 64, "f16 two stages": 600, "hopper s8": 300}
_MOST_REGISTERS = 255
# The kernel that is compiled where CUDA's headers are found in part, and then whole.
_AMID_INCOMPLETE_HEADERS = ("f16", "sm_80")
# A kernel takes three seconds, one of CUTLASS 3.x up to eighteen. By default, one of each main loop
# stands for all of them.
_FEW = {"sm_80": ("f16", "s8", "simt f32"), "sm_90a": ("hopper f16", "3xtf32", "s8 interleaved")}
_ALL = {"sm_80": (*INSTRUCTIONS, *INTERLEAVED), "sm_90a": (*EVERY,)}


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    chosen = _ALL if metafunc.config.getoption("--full") else _FEW
    cases = [(name, target) for target, names in chosen.items() for name in names]
    metafunc.parametrize(("name", "target"), cases)


def _find_incomplete_headers_first(monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    """As with PyTorch's packages beside a toolkit."""
    first, *others = map(Path, cuda_headers.whole_headers(_nvrtc().nvrtcVersion()[1]))
    packages, include = folder / "packages", folder / "toolkit/include"
    packages.mkdir()
    include.mkdir(parents=True)
    for item in first.iterdir():
        (include / item.name).symlink_to(item)
        if item.name not in ("crt", "cccl"):
            (packages / item.name).symlink_to(item)
    for other in others:  # Packages of CUDA 12 have a folder each.
        for item in other.glob("[!_]*") if first not in other.parents else ():
            (include / item.name).symlink_to(item)
    monkeypatch.setattr(cuda_headers, "_of_packages", lambda: str(packages))
    monkeypatch.setenv("CUDA_HOME", str(include.parent))


def test_kernels_compile_and_keep_sums_in_registers(
    name: str, target: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    if (name, target) == _AMID_INCOMPLETE_HEADERS:
        _find_incomplete_headers_first(monkeypatch, tmp_path)
    plan = EVERY[name].plan(target)
    with knobs.using(compiler="nvrtc"):
        (binary,) = compiler.compile_sources(render(plan), Target.parse(target))
    used = binary.resources
    assert used.registers in range(1, _MOST_REGISTERS + 1)
    assert used.spill_bytes in range(_SPILLING.get(name, 0) + 1)
    assert not used.static_shared_bytes
