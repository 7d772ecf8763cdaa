"""How matrix products are written on the command line."""

from __future__ import annotations

import argparse
import re
from typing import Any

import numpy as np
import pytest

import kronop
from kronop.__main__ import main
from kronop.families.gemm.command import COMMAND, size_of
from kronop.families.gemm.size import GemmSize


def _options(**given: Any) -> argparse.Namespace:
    return argparse.Namespace(**dict.fromkeys(("activation", "a_layout", "b_layout")) | given)


def test_a_size_is_m_n_k_behind_a_batch() -> None:
    assert size_of("1024x2048x64") == GemmSize(1024, 2048, 64)
    assert size_of("8x1024x2048x64") == GemmSize(1024, 2048, 64, 8)
    for text in ("1024x2048", "1x2x3x4x5", "0x1x2", "4^3"):
        with pytest.raises(kronop.ArgumentError, match="M x N x K"):
            size_of(text)


def test_arguments_are_those_of_the_one_line_function() -> None:
    options = _options(activation="gelu", b_layout="column")
    arguments = COMMAND.arguments(options, "3x5x4x2", None, lambda shape: np.ones(shape, "f4"))
    assert arguments.size == GemmSize(5, 4, 2, 3)
    what = arguments.operation.description
    assert (what.A.layout, what.B.layout) == (kronop.RowMajor, kronop.ColumnMajor)
    assert what.epilogue.name == "gelu"
    taller = COMMAND.arguments(_options(), "5x4x2", 7, lambda shape: np.ones(shape, "f4"))
    assert taller.size == GemmSize(7, 4, 2)


def test_show_prints_the_plan_of_a_size(capsys: pytest.CaptureFixture[str]) -> None:
    command = ["show", "gemm", "1024x2048x64", "--target", "sm_90a", "--dtype", "bfloat16"]
    assert main([*command, "--alignment", "8", "--b-layout", "column", "--activation", "relu"]) == 0
    printed = capsys.readouterr().out
    assert "relu" in printed
    assert "1024 x 2048 x 64" in printed


def test_operands_of_bytes_may_be_aligned_to_16_elements(
    capsys: pytest.CaptureFixture[str],
) -> None:
    command = ["show", "gemm", "4096x4096x4096", "--target", "sm_90a", "--dtype", "int8"]
    assert main([*command, "--alignment", "16", "--b-layout", "column"]) == 0
    assert "gemm_warp_group_s8" in capsys.readouterr().out


def test_tune_measures(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["tune", "gemm", "20x30x10", "--candidates", "2", "--quiet"]) == 0
    assert "20 x 30 x 10" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["64", "64", "64"], "join them by x: 64x64x64"),
        (["64x64x64", "8x8x8"], "one at a time"),
        (["64x64x64", "--a-layout", "diagonal"], "--a-layout: expected row or column"),
        (["64x64x64", "--activation", "swish"], "activation: expected None or one of relu"),
        (["64x64x64", "--activation", "relu", "--dtype", "int8"], "float16, bfloat16"),
        (["64x64x64", "--symmetric"], "flags of gemm"),
    ],
)
def test_refusals(arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["show", "gemm", *arguments]) != 0
    assert re.search(re.escape(message), capsys.readouterr().err)
