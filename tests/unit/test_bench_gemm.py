"""The benchmark of matrix products: a tiny run, and what it refuses."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from kronop.__main__ import main

pytest.importorskip("torch")

_TINY = ["bench", "gemm", "--repeats", "1"]


def test_a_tiny_run_end_to_end(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    file = tmp_path / "times.json"
    command = [*_TINY, "--shapes", "9x8x7", "2x5x4x3", "--dtype", "float32", "int8"]
    assert main([*command, "--activation", "none", "bias", "gelu", "--json", str(file)]) == 0
    lines = capsys.readouterr().out.splitlines()[2:]
    cases = [line.split()[:3] for line in lines[:10]]
    assert cases == [
        [shape, *rest]
        for shape in ("9x8x7", "2x5x4x3")
        for rest in (
            *(("float32", item) for item in ("none", "bias", "gelu")),
            *(("int8", item) for item in ("none", "bias")),
        )
    ]
    assert lines[10:] == ["torch: no batches of 8-bit types (2x5x4x3 int8 none, 2x5x4x3 int8 bias)"]
    _, *told = map(json.loads, file.read_text().splitlines())
    for item in told:
        assert item["floor"]["ms"] > 0
        assert item["kronop"]["error"] < (1e-6 if item["dtype"] == "float32" else 1e-300)
        for peer in item["peers"].values():
            assert peer["ms"] is None or peer["error"] < 1e-6
    assert [item["peers"]["fused"]["ms"] is not None for item in told].count(True) == 1


def test_a_layout_along_k_is_that_of_8_bit_operands(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*_TINY, "--shapes", "9x8x7", "--dtype", "float8_e4m3fn"]) == 0
    assert "torch: 8-bit floats on GPUs alone" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("option", "message"),
    [
        (["--shapes", "9x8"], "M x N x K"),
        (["--repeats", "0"], "at least"),
        (["--dtype", "int8", "--activation", "gelu"], "none or bias for int8"),
    ],
)
def test_refusals(option: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", "gemm", *option]) != 0
    found = capsys.readouterr()
    assert message in found.err
    assert not found.out, "nothing is measured before"
