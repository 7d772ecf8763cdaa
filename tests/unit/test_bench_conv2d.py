"""The benchmark of convolutions: a tiny run, its layers, and what it refuses."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from kronop.__main__ import main
from kronop.bench.conv2d import distinct_layers
from kronop.commands.bench_conv2d import size_of

pytest.importorskip("torch")

_TINY = ["bench", "conv2d", "--repeats", "1", "--batch", "3"]


def test_a_tiny_run_end_to_end(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    file = tmp_path / "times.json"
    command = [*_TINY, "--shapes", "9x9x4/4x3x3/2/2", "--activation", "none", "relu"]
    assert main([*command, "--json", str(file)]) == 0
    lines = capsys.readouterr().out.splitlines()[2:]
    cases = ["fprop float32 none", "fprop float32 relu", "dgrad float32 none", "wgrad float32 none"]
    assert [" ".join(line.split()[4:7]) for line in lines] == cases
    _, *told = map(json.loads, file.read_text().splitlines())
    for item in told:
        assert item["floor"]["ms"] > 0
        assert item["kronop"]["error"] < 1e-6
        assert item["peers"]["torch"]["error"] < 1e-6
        assert item["peers"]["fused"]["ms"] is None


def test_layers() -> None:
    """ResNet-50 has 53 convolutions, 23 of them distinct."""
    layers = [size_of(text, 1) for text in distinct_layers()]
    assert len(layers) == len(set(layers)) == 23
    assert layers[0].p == 112
    assert size_of("8x9x9x4/4x3x3", 1).n == 8
    assert {layer.p for layer in layers[1:]} == {56, 28, 14, 7}


@pytest.mark.parametrize(
    ("option", "message"),
    [
        (["--shapes", "9x8"], "H x W x C / K x R x S"),
        (["--shapes", "9x9x4/4x3x3/1/3"], "groups: expected a divisor"),
        (["--batch", "0"], "at least one image"),
        (["--repeats", "0"], "at least"),
        (["--kind", "dgrad", "--activation", "gelu"], "none for gradients"),
    ],
)
def test_refusals(option: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", "conv2d", *option]) != 0
    found = capsys.readouterr()
    assert message in found.err
    assert not found.out, "nothing is measured before"
