"""The command line, called in this process."""

from __future__ import annotations

import pytest

from kronop.__main__ import main
from kronop.commands.matrix import table


def test_demo_runs_the_whole_chain(capsys) -> None:
    assert main(["demo", "--rows", "17"]) == 0
    printed = capsys.readouterr().out
    assert "plan for x86" in printed
    error = float(printed.split("float64: ")[1].split()[0])
    assert error < 1e-6


def test_show_prints_every_view(capsys) -> None:
    expected = {
        "plan": "step",
        "source": "#include",
        "resources": "bytes",
        "assembly": "ret",
        "machine": "ret",
    }
    for view, text in expected.items():
        assert main(["show", "kron", "4x4,4x4", "--target", "x86-generic", "--view", view]) == 0
        assert text in capsys.readouterr().out
    assert (
        main(
            [
                "show",
                "ksparse",
                "2,3,4,5",
                "--target",
                "sm_80",
                "--view",
                "assembly",
                "--batch-last",
            ]
        )
        == 0
    )
    assert ".target sm_80" in capsys.readouterr().out


def test_the_cache_is_listed_shown_and_cleared(capsys) -> None:
    assert main(["show", "kron", "4x4", "--target", "sm_90a", "--view", "resources"]) == 0
    capsys.readouterr()
    assert main(["cache", "list"]) == 0
    lines = capsys.readouterr().out.splitlines()
    (line,) = [line for line in lines if "kron_f32_4x4" in line and "sm_90a" in line]
    assert main(["cache", "show", line.split()[0]]) == 0
    shown = capsys.readouterr().out
    assert "registers:" in shown
    assert "#include" in shown
    assert main(["cache", "clear"]) == 0
    assert "removed" in capsys.readouterr().out
    assert main(["cache", "list"]) == 0
    assert "0 kernels" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("command", "message"),
    [
        (["show", "kron", "4y4"], "expected integers"),
        (["show", "kron", "4x0"], "positive"),
        (["show", "kron", "4x4", "--target", "sm_20"], "sm_90a"),
        (["cache", "show", "none"], "cache list"),
    ],
)
def test_errors_are_one_line_and_an_exit_status(capsys, command, message) -> None:
    assert main(command) == 1
    captured = capsys.readouterr()
    assert captured.out == ""
    assert message in captured.err
    assert captured.err.startswith("kronop: ")


def test_the_matrix_has_every_cell() -> None:
    rows = table().splitlines()[2:]
    assert len(rows) == 2 * 5
    assert all("float32, float16, bfloat16" in row for row in rows)
