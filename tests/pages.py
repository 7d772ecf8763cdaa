"""Runs the blocks of code of a page, and compares what they print with what the page says."""

from __future__ import annotations

import contextlib
import doctest
import io
import re
from pathlib import Path

import numpy as np

import kronop
from tests import support

ROOT = Path(__file__).resolve().parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
_FLAGS = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE


def name(page: Path) -> str:
    """Its path in the checkout."""
    return str(page.relative_to(ROOT))


def run(page: Path, language: str) -> None:
    """Runs the blocks of a language, a pattern: `python` is for NumPy alone, `py` may need torch.

    They continue each other. A block of `text` right behind one is what it prints, where `...`
    stands for anything.
    """
    # Fragments may speak of "the operation" and its arguments: here is one.
    operation = support.kron_operation("x86", kronop.float32, [(8, 8)] * 4)
    names = {"kronop": kronop, "np": np, "operation": operation}
    pattern = rf"```(?:{language})\n(.*?)```(?:\n\n```text\n(.*?)```)?"
    for code, output in re.findall(pattern, page.read_text(), re.S):
        with contextlib.redirect_stdout(io.StringIO()) as printed:
            exec(compile(code, str(page), "exec"), names)
        said = printed.getvalue()
        assert not output or doctest.OutputChecker().check_output(output, said, _FLAGS), (
            f"{page.name} says that\n{code}\nprints\n{output}\nbut it prints\n{said}"
        )
