"""Sizes that no int holds: text and code, since nothing of that size can be run in a test."""

from __future__ import annotations

import re
import subprocess

import pytest

import kronop
from tests import support

# What compilers warn of depends on what they optimise.
pytestmark = pytest.mark.optimised
_PATTERNS = [
    (2**32 + 1, 1, 1, 1),
    (1, 2**31 - 1, 1, 1),
    (1, 2**33, 3, 1),
    (1, 1, 1, 2**32 + 1),
    (2**20, 2**20, 2, 3),
]


@pytest.mark.spread(pattern=_PATTERNS, target=["x86-generic", "x86-avx512"])
def test_sparse_sizes_beyond_int_are_whole_and_compile_without_a_word(target, pattern) -> None:
    operation = support.ksparse_operation(target, kronop.float32, pattern)
    (source,), (binary,) = operation.sources, operation.binaries
    for name, size in zip("ABCD", pattern, strict=True):
        kind = "long long" if size >= 2**31 else "int"
        assert f"static constexpr {kind} k{name} = {size};" in _apart(source.text)
    assert binary.log == ""


def _apart(text: str) -> str:
    """With a declaration for every constant."""

    def each(found: re.Match[str]) -> str:
        items = re.findall(r"k\w+(?:\[\])? = (?:\{[^}]*\}|\w+)", found[2])
        return "\n".join(f"static constexpr {found[1]} {item};" for item in items)

    return re.sub(r"static constexpr ((?:long long|int|bool)) ([^;]*);", each, text)


def test_no_expression_of_a_kernel_narrows_a_size(tmp_path) -> None:
    """Headers are held to -Wconversion with sizes that are `long long`."""
    for operation in (
        support.ksparse_operation("x86-generic", kronop.float32, (2**32 + 1, 2**33, 3, 2)),
        support.kron_operation("x86-generic", kronop.float32, [(40, 36), (3, 2)]),
    ):
        (source,) = operation.sources
        # Every extent as if it were large; counts and heights of tiles stay int.
        text = re.sub(
            r"int (k(?:Contracted|Produced|Left|Right|RowTile)\b)",
            r"long long \1",
            _apart(source.text),
        )
        assert "long long k" in text
        path = tmp_path / "kernel.cpp"
        path.write_text(text)
        flags = ["-std=c++20", "-O1", "-Wall", "-Wextra", "-Wconversion", "-Wno-sign-conversion"]
        include = [f"-I{folder}" for folder in source.include_directories]
        done = subprocess.run(
            ["g++", *flags, "-Werror", "-fopenmp", *include, "-c", "-o", "/dev/null", str(path)],
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr
