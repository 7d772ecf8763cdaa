"""PyCUTLASS's conv2d programs, which call what they call there, in its order and by its names."""

from __future__ import annotations

from typing import Any

import pytest

from tests import support
from tests.pycutlass_convolutions import PROGRAMS

# Of programs that differ in tiles and extents alone, a CPU runs one; with --full all.
_FEW = (2, 3, 4, 6, 10, 11, 12)


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "number" in metafunc.fixturenames:
        every = range(1, len(PROGRAMS) + 1)
        few = every if metafunc.config.getoption("--full") else _FEW
        cases: list[Any] = [(number, "x86") for number in few]
        cases += [pytest.param(it, "cuda", marks=pytest.mark.cuda) for it in every]
        metafunc.parametrize(("number", "target"), cases)


def test_programs(number: int, target: str) -> None:
    PROGRAMS[number - 1].run(support.cuda_target() if target == "cuda" else target)
