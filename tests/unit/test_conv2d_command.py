"""How convolutions are written on the command line: the same words are the same operation."""

from __future__ import annotations

import argparse
import functools
from typing import Any

import numpy as np
import pytest

import kronop
from kronop.__main__ import main
from kronop.commands import family_options
from kronop.families.conv2d.command import COMMAND

_NAMES = ("kind", "stride", "padding", "dilation", "groups", "activation", "alignment")


@pytest.mark.parametrize(
    ("shape", "given"),
    [
        ("2x7x7x8/8x3x3", {"activation": "relu"}),
        ("2x7x7x3/6x3x3", {}),
        ("2x7x7x6/4x3x3", {"kind": "dgrad"}),
        ("2x7x7x6/4x3x3", {"kind": "wgrad"}),
        ("2x7x7x8/8x3x3", {"groups": "8"}),
        ("2x7x7x16/8x3x3", {"dtype": "int8"}),
    ],
)
def test_what_is_shown_is_what_is_tuned(shape: str, given: dict[str, Any]) -> None:
    plain: dict[str, Any] = {"target": "x86", "dtype": "float32", "shape": [shape]}
    options = argparse.Namespace(**dict.fromkeys(_NAMES) | plain | given)
    tensor = functools.partial(np.zeros, dtype=options.dtype)
    tuned = COMMAND.arguments(options, shape, None, tensor)
    plain_operation = family_options.operation_of(options, COMMAND)
    shown = family_options.aligned(plain_operation, options, COMMAND, [tuned.size])
    assert shown.description == tuned.operation.description
    asked = argparse.Namespace(**vars(options) | {"alignment": 1})
    description: Any = family_options.operation_of(asked, COMMAND).description
    assert (description.A.alignment, description.Y.alignment) == (1, 1)


def test_numbers_of_a_shown_plan_are_of_its_size(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["show", "conv2d", "64x56x56x64/64x3x3", "--target", "x86-avx2"]) == 0
    printed = capsys.readouterr().out
    assert "rejected" in printed
    assert "for 4 images" not in printed


def test_padding_may_be_same(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["show", "conv2d", "4x8x8x8/8x3x3", "--padding", "full"]) == 1
    assert "a number, or two, or same" in capsys.readouterr().err
    with pytest.raises(kronop.ArgumentError, match="expected a number, or two, got"):
        COMMAND.size(
            argparse.Namespace(**dict.fromkeys(_NAMES) | {"stride": "x"}), ["1x1x1x1/1x1x1"]
        )
