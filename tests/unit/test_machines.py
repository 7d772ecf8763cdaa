"""Figures and names of machines stand in one table."""

from __future__ import annotations

import ast
import dataclasses
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import kronop
from kronop.machine import CPUS, GENERATIONS, Feature
from kronop.target import every_target

_ROOT = Path(kronop.__file__).parent
# The table, and what reads the names of its lines from users and from the system.
_NAMING = ("machine.py", "target.py")
_NAMES = {*GENERATIONS, *CPUS, *(target.name for target in every_target())}
_NAME = re.compile("|".join(map(re.escape, sorted(_NAMES))) + r"|(sm|compute)_\d+[af]?")
# Of a machine, not of a kernel, in the names of constants.
_FIGURE = re.compile(r"(^|_)(HERTZ|GHZ|BANDWIDTH|CLOCK)(_|$)")


def _named(tree: ast.AST) -> Iterator[str]:
    """Strings that are names of architectures, and constants that are figures of machines."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            if _NAME.fullmatch(node.value):
                yield f"{node.lineno}: {node.value!r}"
        elif (
            isinstance(node, ast.Name)
            and _FIGURE.search(node.id)
            and isinstance(node.ctx, ast.Store)
        ):
            yield f"{node.lineno}: {node.id}"


@pytest.mark.parametrize(
    "path", sorted(_ROOT.rglob("*.py")), ids=lambda path: path.relative_to(_ROOT).as_posix()
)
def test_no_other_file_names_an_architecture(path: Path) -> None:
    if path.relative_to(_ROOT).as_posix() not in _NAMING:
        assert not [*_named(ast.parse(path.read_text()))], "ask for a Feature, or a figure"


@pytest.mark.parametrize(
    "line",
    [
        'target.arch == "sm_90a"',
        'target.arch in ("amx", "avx512")',
        'GENERATIONS["sm_80"]',
        'Target.parse("x86-avx2")',
        'flag == "compute_75"',
        "_HERTZ = 3e9",
        "_LOADS, CORE_BANDWIDTH = 2, 4",
    ],
)
def test_names_and_figures_are_seen(line: str) -> None:
    assert [*_named(ast.parse(line))]


def test_prose_and_other_constants_are_no_names() -> None:
    lines = ('"a trial kernel for sm_90a took"', "_COLUMNS = 1024", "hertz(target) + _LAUNCH")
    assert not [*_named(ast.parse("\n".join(lines)))]


def test_every_target_is_a_line_of_the_table() -> None:
    for target in every_target():
        assert (target.gpu is None) != (target.cpu is None)
        line = GENERATIONS.get(target.arch) or CPUS[target.arch]
        assert (target.gpu or target.cpu) in (line, getattr(line, "gpu", None))
    for cpu in CPUS.values():
        figures = dataclasses.asdict(cpu)
        assert all(figures[name] > 0 for name in ("hertz", "bandwidth", "arithmetic", "loads"))
        assert bool(cpu.tile_cycles) == (Feature.tiles in cpu.features)
