"""What the documentation shows, runs; what it prints from the code, is what the code says."""

from __future__ import annotations

import codeop
import re
import runpy
import shlex
import sys
from pathlib import Path

import pytest

from kronop.__main__ import main
from kronop.commands.matrix import table
from tests import pages

_ROOT = pages.ROOT
_BESIDE = [_ROOT / "CONTRIBUTING.md", _ROOT / "SECURITY.md", _ROOT / "examples" / "README.md"]
_EXAMPLES = sorted((_ROOT / "examples").glob("*.py"))
# What makes an example short that takes many seconds.
_SHORT = {
    "transformer_with_few_weights": ["--steps", "2", "--seeds", "1", "--algo", "bmm"],
    "gaussian_process_on_a_grid": ["--grid", "40", "30"],
    "missing_observations": ["--grid", "24", "20", "--steps", "3"],
    "kernel_ridge_regression": ["--points", "500"],
    "poisson_over_ranks": ["--ranks", "1"],
    "walsh_hadamard": ["--rows", "16"],
    "steering_tiles": ["--rows", "16"],
}


def _need_jax(path: Path) -> None:
    """Skips what uses JAX where there is none."""
    if re.search(r"^import jax\b", path.read_text(), re.M):
        pytest.importorskip("jax")


@pytest.mark.parametrize("page", pages.PAGES, ids=pages.name)
def test_python_blocks_run(page: Path, tmp_path: Path, monkeypatch) -> None:
    _need_jax(page)
    monkeypatch.chdir(tmp_path)  # Some write files.
    pages.run(page, "python")


@pytest.mark.parametrize("page", pages.PAGES, ids=pages.name)
def test_blocks_can_be_pasted_at_python_s_prompt(page: Path) -> None:
    """Before Python 3.13 an empty line there ends an indented block, and nothing else does."""
    for block in re.findall(r"```py(?:thon)?\n(.*?)```", page.read_text(), re.S):
        compiler, pasted = codeop.CommandCompiler(), ""
        for line in [*block.splitlines(), ""]:
            pasted += f"{line}\n"
            if compiler(pasted.removesuffix("\n"), pages.name(page), "single") is not None:
                pasted = ""


@pytest.mark.parametrize("example", _EXAMPLES, ids=lambda example: example.stem)
def test_examples_run(example: Path, capsys, monkeypatch) -> None:
    for package in re.findall(r"^(?:import|from) (torch|sklearn|jax)\b", example.read_text(), re.M):
        pytest.importorskip(package)
    monkeypatch.setattr(sys, "argv", [str(example), *_SHORT.get(example.stem, ())])
    runpy.run_path(str(example), run_name="__main__")
    assert capsys.readouterr().out


def _shell_blocks() -> list[pytest.param]:
    return [
        pytest.param(block, id=f"{pages.name(page)}-{at}")
        for page in pages.PAGES
        for at, block in enumerate(re.findall(r"```sh\n(.*?)```", page.read_text(), re.S))
    ]


@pytest.mark.parametrize("block", _shell_blocks())
def test_shell_lines_that_call_kronop_run(block: str, tmp_path: Path, capsys, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    if "[torch]" in block:  # What a block installs first is what its lines may need.
        pytest.importorskip("torch")
    for line in block.splitlines():
        words = shlex.split(line, comments=True)
        calls = [at for at, word in enumerate(words) if Path(word).name == "kronop"]
        if calls and "pip" not in line:
            assert main(words[calls[0] + 1 :]) == 0, line
            assert capsys.readouterr().out


def test_a_page_prints_the_support_matrix() -> None:
    text = (_ROOT / "docs" / "support.md").read_text()
    printed = re.search(r"<!-- matrix -->\n(.*?)\n?<!-- end matrix -->", text, re.S)
    assert printed is not None
    assert printed[1] == table(), (
        "paste the output of `python -m kronop matrix` between the two marks"
    )


@pytest.mark.parametrize("page", pages.PAGES + _BESIDE, ids=pages.name)
def test_links_lead_somewhere(page: Path) -> None:
    for link in re.findall(r"\]\(([^)#]+)\)", page.read_text()):
        if "://" not in link:
            assert (page.parent / link).exists(), link


def test_the_readme_has_two_screens() -> None:
    lines = (_ROOT / "README.md").read_text().splitlines()
    assert len(lines) <= 110
    assert max(map(len, lines)) <= 240  # rows of tables cannot be broken


def test_every_example_is_listed() -> None:
    text = (_ROOT / "examples" / "README.md").read_text()
    assert not [path.name for path in _EXAMPLES if path.name not in text]


@pytest.mark.parametrize("file", ["main.cpp", "CMakeLists.txt"])
def test_the_page_on_deploying_shows_the_example_s_files(file: str) -> None:
    page = (_ROOT / "docs" / "tutorials" / "deploy-to-c++.md").read_text()
    assert (_ROOT / "examples" / "deploy" / file).read_text() in page
