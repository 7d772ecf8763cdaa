"""Copies by tensor maps are instructions that the assembler knows, for every number of axes."""

from __future__ import annotations

import re

from kronop import compiler
from kronop.target import Target
from tests.tensor_map_cases import SOURCE


def test_copies_compile() -> None:
    target = Target.parse("sm_90a")
    (binary,) = compiler.compile_sources((SOURCE,), target)
    assert binary.image
    text = compiler.assembly(SOURCE, target)
    found = re.findall(r"cp\.async\.bulk\.tensor\.(\d)d\.\S*?global(\.im2col|)\.", text)
    boxes, pixels = "12345", "345"
    assert sorted(found) == sorted(
        [*((axes, "") for axes in boxes), *((axes, ".im2col") for axes in pixels)]
    )
