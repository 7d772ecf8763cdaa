"""The wheel holds all that is needed: installed elsewhere, it compiles for both backends. What
completes in its modules is public."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from operator import attrgetter
from pathlib import Path

import pytest

import kronop
from tests.public import MODULES

_CODE = """
import kronop, pathlib
assert pathlib.Path(kronop.__file__).is_relative_to({folder!r}), kronop.__file__
matrix = kronop.TensorDescription(kronop.float32)
epilogue = kronop.LinearCombination(kronop.float32, 1, kronop.float32, kronop.float32)
operands = matrix, matrix, matrix, epilogue, [(3, 4), (5, 2)]
operations = [kronop.KronMatmulOperation(target, None, *operands) for target in ("sm_90a", "x86")]
kronop.compiler.add_module(operations)
print(*(len(binary.image) > 0 for operation in operations for binary in operation.binaries))
"""


def test_the_wheel_compiles_kernels_elsewhere(tmp_path: Path) -> None:
    root = Path(__file__).resolve().parents[2]
    subprocess.run(
        [
            sys.executable,
            "-m",
            "pip",
            "wheel",
            "-q",
            "--no-deps",
            "--no-build-isolation",
            "-w",
            tmp_path,
            root,
        ],
        check=True,
    )
    (wheel,) = tmp_path.glob("kronop-*.whl")
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
        archive.extractall(tmp_path / "installed")
    assert any(name.endswith(".cuh") for name in names)
    assert any(name.endswith(".hpp") for name in names)
    assert "kronop/py.typed" in names
    folder = str(tmp_path / "installed")
    environment = os.environ | {"PYTHONPATH": folder, "KRONOP_CACHE_DIR": str(tmp_path / "cache")}
    result = subprocess.run(
        [sys.executable, "-c", _CODE.format(folder=folder)],
        capture_output=True,
        text=True,
        env=environment,
        cwd=tmp_path,
        check=False,
    )
    assert result.stdout.split() == ["True", "True"], result.stderr
    assert kronop.__version__ in wheel.name


@pytest.mark.parametrize("name", MODULES)
def test_what_completes_is_public(name: str) -> None:
    if MODULES[name] is not None:
        pytest.importorskip(MODULES[name])
    module = attrgetter(name)(kronop)
    completing = [item for item in dir(module) if not item.startswith("__")]
    assert completing == sorted(module.__all__)
    assert all(hasattr(module, item) for item in completing)


def test_what_completes_of_kronop_is_public() -> None:
    # `from kronop import *` leaves Python's own `sum` as it is.
    assert {*dir(kronop)} == {*kronop.__all__, "sum"}
