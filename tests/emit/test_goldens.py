"""Emitted text: as it was when it was last read by a person, and free of control flow."""

from __future__ import annotations

import re

import pytest

from tests.emit import cases

_OPERATIONS = dict(cases.operations())


@pytest.mark.parametrize("name", _OPERATIONS)
def test_emitted_text_is_the_golden_one(name: str, golden) -> None:
    operation = _OPERATIONS[name]
    suffix = operation.sources[0].language.value
    golden(f"{name}{suffix}", operation.emit())


@pytest.mark.parametrize("name", _OPERATIONS)
def test_emitted_text_has_no_control_flow(name: str) -> None:
    text = re.sub(r"//.*", "", _OPERATIONS[name].emit())
    assert not re.search(r"\b(for|while|if|goto|switch)\b|\?", text)
