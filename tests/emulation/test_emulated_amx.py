"""The sweeps of amx.hpp: on emulated tiles, and on the machine's own where it has them."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.emulation.emulator import host_compiler

_HERE = Path(__file__).parent
_INCLUDE = _HERE.parent.parent / "kronop" / "emit" / "x86" / "include"
_NATIVE = (
    *("-mavx512f", "-mavx512bw", "-mavx512dq", "-mavx512vl", "-mavx512bf16"),
    *("-mamx-tile", "-mamx-bf16", "-mamx-int8"),
)
_NEEDED = {"avx512bw", "avx512_bf16", "amx_tile", "amx_bf16", "amx_int8"}


def _machine_has_tiles() -> bool:
    try:
        return set(Path("/proc/cpuinfo").read_text().split()) >= _NEEDED
    except OSError:
        return False


@pytest.mark.skipif(host_compiler() is None, reason="no g++ to build the emulation with")
@pytest.mark.parametrize(
    "flags",
    [
        pytest.param(("-DKRONOP_EMULATED_TILES", "-fsanitize=address"), id="emulated"),
        pytest.param(
            _NATIVE,
            id="native",
            marks=pytest.mark.skipif(not _machine_has_tiles(), reason="no AMX here"),
        ),
    ],
)
def test_sweeps_give_the_products(flags: tuple[str, ...], tmp_path: Path) -> None:
    # Emulated: values, tile sizes, and bounds: every array ends with its last number or line.
    program = tmp_path / "values"
    compiler = host_compiler()
    assert compiler is not None
    command = [compiler, "-std=c++20", "-O1", "-g1", "-w", *flags, f"-I{_INCLUDE}", f"-I{_HERE}"]
    subprocess.run([*command, str(_HERE / "amx_values.cpp"), "-o", str(program)], check=True)
    result = subprocess.run([str(program)], capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stdout + result.stderr
