"""Sources of the goldens go through nvcc, whose front end is stricter than NVRTC's."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from kronop.compiler.backend import include_flags
from kronop.compiler.nvcc_backend import find_cuda_tool
from tests.emit import cases

_SOURCES = {
    source.entry: source
    for name, operation in cases.operations()
    for source in operation.sources
    if name.startswith("kron") and name.endswith("sm_90a")
}

pytestmark = pytest.mark.skipif(find_cuda_tool("nvcc") is None, reason="no nvcc here")


@pytest.mark.parametrize("entry", _SOURCES)
def test_source_has_device_code(entry: str, tmp_path: Path) -> None:
    (tmp_path / "step.cu").write_text(_SOURCES[entry].text)
    # PTX is as far as the front end goes.
    command = [str(find_cuda_tool("nvcc")), "-ptx", "-arch=sm_90a", "-std=c++20"]
    done = subprocess.run(
        [*command, *include_flags(_SOURCES[entry]), "step.cu", "-o", "step.ptx"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert f".entry {entry}(" in (tmp_path / "step.ptx").read_text()
