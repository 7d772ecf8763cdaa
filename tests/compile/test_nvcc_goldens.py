"""Sources of the goldens go through nvcc, whose front end is stricter than NVRTC's."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from kronop.compiler.backend import include_flags
from kronop.compiler.nvcc_backend import NvccCompiler, find_cuda_tool
from kronop.target import Target
from tests.compile.units import unit
from tests.emit import cases

_TARGET = Target.parse("sm_90a")
# This test asks whether there is PTX at all: without the optimiser it is there sooner.
_LITTLE = ("-Xcicc", "-O0")
# One of every template: types and sizes are the same to a front end.
_SOURCES = {
    step.design.instantiation(operation.target).template: source
    for name, operation in cases.operations()
    for step, source in zip(operation.plan.steps, operation.sources, strict=True)
    if name.endswith("sm_90a")
}

pytestmark = pytest.mark.skipif(find_cuda_tool("nvcc") is None, reason="no nvcc here")


def test_sources_have_device_code(tmp_path: Path) -> None:
    # CUDA's own headers take half a second each time they are read.
    together = unit([*_SOURCES.values()])
    (tmp_path / "all.cu").write_text(together.text)
    # PTX is as far as the front end goes.
    command = [str(find_cuda_tool("nvcc")), "-ptx", *NvccCompiler().flags(_TARGET), *_LITTLE]
    done = subprocess.run(
        [*command, *include_flags(together), "all.cu", "-o", "all.ptx"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    found = (tmp_path / "all.ptx").read_text()
    missing = [name for name in _SOURCES if f".entry {_SOURCES[name].entry}(" not in found]
    assert not missing
