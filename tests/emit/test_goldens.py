"""Emitted text: as a person last read it, free of control flow, and all of it read by headers."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from kronop.artifacts import Source
from kronop.compiler.keys import header_digests
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


@pytest.mark.parametrize("name", _OPERATIONS)
def test_all_that_is_emitted_is_read(name: str) -> None:
    for source in _OPERATIONS[name].sources:
        text = "\n".join([source.text, *_headers(source)])
        for constant in re.findall(r"\b(k[A-Z]\w*)(?:\[\])? =", source.text):
            assert re.search(rf"\b(Step|Decided|Chain)::{constant}\b", text), constant


def _headers(source: Source) -> Iterator[str]:
    """Texts of the headers that a unit reaches."""
    reached = {Path(name).name for name, _ in header_digests(source)}
    for folder in map(Path, source.include_directories):
        for path in folder.rglob("*.[ch]*"):
            if path.name in reached:
                yield path.read_text()
