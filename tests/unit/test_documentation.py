"""What the documentation shows, runs; what it prints from the code, is what the code says."""

from __future__ import annotations

import contextlib
import io
import re
import runpy
import shlex
import sys
from pathlib import Path

import numpy as np
import pytest

import kronop
from kronop.__main__ import main
from kronop.commands.matrix import table
from tests import support

_ROOT = Path(__file__).resolve().parents[2]
_PAGES = [_ROOT / "README.md", *sorted((_ROOT / "docs").rglob("*.md"))]
_EXAMPLES = sorted((_ROOT / "examples").glob("*.py"))
# What makes an example short that takes minutes.
_SHORT = {"transformer_with_few_weights": ["--steps", "2", "--seeds", "1", "--algo", "bmm"]}


def _need_jax(path: Path) -> None:
    """Skips what uses JAX where there is none."""
    if re.search(r"^import jax\b", path.read_text(), re.M):
        pytest.importorskip("jax")


@pytest.mark.parametrize("page", _PAGES, ids=lambda page: page.name)
def test_python_blocks_run(page: Path) -> None:
    # Fragments may speak of "the operation" and its arguments: here is one.
    operation = support.kron_operation("x86", kronop.float32, [(8, 8)] * 4)
    names = {"kronop": kronop, "np": np, "operation": operation}
    _need_jax(page)
    for block in re.findall(r"```python\n(.*?)```", page.read_text(), re.S):
        with contextlib.redirect_stdout(io.StringIO()):
            exec(compile(block, str(page), "exec"), names)


@pytest.mark.parametrize("example", _EXAMPLES, ids=lambda example: example.stem)
def test_examples_run(example: Path, capsys, monkeypatch) -> None:
    for package in re.findall(r"^(?:import|from) (torch|sklearn|jax)\b", example.read_text(), re.M):
        pytest.importorskip(package)
    monkeypatch.setattr(sys, "argv", [str(example), *_SHORT.get(example.stem, ())])
    runpy.run_path(str(example), run_name="__main__")
    assert capsys.readouterr().out


def _shell_blocks() -> list[pytest.param]:
    return [
        pytest.param(block, id=f"{page.name}-{at}")
        for page in _PAGES
        for at, block in enumerate(re.findall(r"```sh\n(.*?)```", page.read_text(), re.S))
    ]


@pytest.mark.parametrize("block", _shell_blocks())
def test_shell_lines_that_call_kronop_run(block: str, capsys) -> None:
    if "[torch]" in block:  # What a block installs first is what its lines may need.
        pytest.importorskip("torch")
    for line in block.splitlines():
        words = shlex.split(line)
        if "kronop" in words and "pip" not in line:
            assert main(words[words.index("kronop") + 1 :]) == 0, line
            assert capsys.readouterr().out


def test_the_readme_prints_the_support_matrix() -> None:
    text = (_ROOT / "README.md").read_text()
    printed = re.search(r"<!-- matrix -->\n(.*?)\n?<!-- end matrix -->", text, re.S)
    assert printed is not None
    assert printed[1] == table(), (
        "paste the output of `python -m kronop matrix` between the two marks"
    )


@pytest.mark.parametrize("page", _PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page: Path) -> None:
    for link in re.findall(r"\]\(([^)#]+)\)", page.read_text()):
        if "://" not in link:
            assert (page.parent / link).exists(), link
