"""The benchmark of quantized products: a tiny run, and what it refuses."""

from __future__ import annotations

import pytest

from kronop.__main__ import main

pytest.importorskip("torch")


def test_a_tiny_run_end_to_end(capsys: pytest.CaptureFixture[str]) -> None:
    command = ["bench", "quantized", "--shapes", "9:4,6", "--dtype", "bfloat16", "--repeats", "1"]
    assert main(command) == 0
    lines = capsys.readouterr().out.splitlines()[2:]
    assert [line.split()[:3] for line in lines] == [["9:4,6", "bfloat16", bits] for bits in "48"]
    for line in lines:
        assert 0 < float(line.split()[7]) < 1.5
        assert line.count("x)") == 2


@pytest.mark.parametrize(
    ("option", "message"),
    [
        (["--shapes", "9:4^3"], "two factors"),
        (["--shapes", "9:4,6", "9:3,5"], "even number of columns for 4 bits"),
        (["--repeats", "0"], "at least"),
    ],
)
def test_refusals(option: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", "quantized", *option]) != 0
    found = capsys.readouterr()
    assert message in found.err
    assert not found.out, "nothing is measured before"
