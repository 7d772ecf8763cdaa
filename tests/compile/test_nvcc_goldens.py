"""Sources of the goldens go through nvcc, whose front end is stricter than NVRTC's."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from kronop.compiler.backend import include_flags
from kronop.compiler.nvcc_backend import NvccCompiler, find_cuda_tool
from kronop.target import Target
from tests.emit import cases

_TARGET = Target.parse("sm_90a")
# These tests ask whether there is PTX at all: without most of the optimiser it is there sooner.
_LITTLE = ("-Xcicc", "-O1")
# One of every template: types and sizes are the same to a front end.
_SOURCES = {
    step.design.instantiation(operation.target).template: source
    for name, operation in cases.operations()
    for step, source in zip(operation.plan.steps, operation.sources, strict=True)
    if name.endswith("sm_90a")
}

pytestmark = pytest.mark.skipif(find_cuda_tool("nvcc") is None, reason="no nvcc here")


@pytest.mark.parametrize("template", _SOURCES)
def test_source_has_device_code(template: str, tmp_path: Path) -> None:
    source = _SOURCES[template]
    (tmp_path / "step.cu").write_text(source.text)
    # PTX is as far as the front end goes.
    command = [str(find_cuda_tool("nvcc")), "-ptx", *NvccCompiler().flags(_TARGET), *_LITTLE]
    done = subprocess.run(
        [*command, *include_flags(source), "step.cu", "-o", "step.ptx"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert f".entry {source.entry}(" in (tmp_path / "step.ptx").read_text()
