"""Every golden operation through the compiler of its target. No GPU and no driver is needed."""

from __future__ import annotations

import pytest

from kronop import compiler
from kronop.target import Target, detect_x86_arch
from tests.compile.units import unit
from tests.emit import cases

_OPERATIONS = dict(cases.operations())
_KERNELS = [name for name, operation in _OPERATIONS.items() if operation.target.backend == "cuda"]
_PROCESSORS = sorted(
    {operation.target.name for operation in _OPERATIONS.values()}
    - {_OPERATIONS[name].target.name for name in _KERNELS}
)
# Bytes that products by warp groups spill, at most: compilers give their threads the 168 registers
# of a launch, not the 240 that a team takes, and spill between tiles.
_SPILLS = {
    "conv2d_wgrad_f16_sm_90a": 64,
    "gemm_warp_group_e4m3_sm_90a": 200,
    "gemm_warp_group_f16_sm_90a": 300,
    "gemm_warp_group_s8_sm_90a": 200,
    "gemm_many_f16_sm_90a": 420,
    "gemm_tree_bf16_sm_90a": 400,
    "groups_of_matrix_products_sm_90a": 130,
    "matrix_products_sm_90a": 130,
}


# What NVRTC 12.4 spills besides; later ones spill nothing there.
_SPILLS_OF_CUDA_12 = {"kron_tree_f32_sm_90a": 8, "quantized_Kronecker_sm_90a": 8}


@pytest.mark.parametrize("name", _KERNELS)
def test_compiles_without_spills(name: str) -> None:
    for binary in _OPERATIONS[name].binaries:
        most = _SPILLS | (_SPILLS_OF_CUDA_12 if "release 12." in binary.compiler else {})
        assert binary.image
        assert binary.resources.registers is not None
        assert binary.resources.spill_bytes is not None
        assert binary.resources.spill_bytes <= most.get(name, 0)


@pytest.mark.parametrize("target", _PROCESSORS)
def test_sources_for_processors_compile(target: str) -> None:
    """Together: most of the time that one takes goes into the headers that all of them include."""
    sources = {
        source: None
        for operation in _OPERATIONS.values()
        if operation.target.name == target
        for source in operation.sources
    }
    (binary,) = compiler.compile_sources([unit([*sources])], Target.parse(target))
    assert binary.image


def test_the_detected_architecture_is_one_of_the_targets() -> None:
    assert f"x86-{detect_x86_arch()}" in _PROCESSORS
