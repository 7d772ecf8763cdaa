"""Kernels of both families built with ASan and UBSan, over ragged shapes and strides.

The test runs this file again with ASan's runtime loaded first, which guards NumPy's memory too.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

import kronop
from kronop.emit.x86 import planning
from tests.x86.test_x86_kernels import WIDE, run_chain, run_kron, run_ksparse

# NOTE: the checks left out double GCC's time for a kernel; ASan sees what they are about. The last
# -O counts: at -O1 kernels take five times as long to build, and hide no access less.
_CXX = """#!/bin/sh
exec g++ "$@" -O0 -fsanitize=address,undefined -fno-sanitize=null,pointer-overflow,object-size \\
    -fno-sanitize-recover=all
"""
_ROWS = (1, 7, 133)


def _runtime() -> str:
    """ASan's shared object; empty where there is no g++, or none comes with it."""
    if shutil.which("g++") is None:
        return ""
    command = ["g++", "-print-file-name=libasan.so"]
    found = subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    return found if Path(found).is_file() else ""


@pytest.mark.skipif(not _runtime(), reason="g++ has no address sanitizer here")
def test_no_access_out_of_bounds_and_no_undefined_behaviour(tmp_path) -> None:
    compiler = tmp_path / "sanitizing-g++"
    compiler.write_text(_CXX)
    compiler.chmod(0o755)
    environment = {
        **os.environ,
        "CXX": str(compiler),
        "KRONOP_CACHE_DIR": str(tmp_path),
        "LD_PRELOAD": _runtime(),
        "ASAN_OPTIONS": "detect_leaks=0",
        "OMP_NUM_THREADS": "2",
    }
    done = subprocess.run(
        [sys.executable, "-m", __name__], env=environment, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr[-4000:]


def _cases(rows: int) -> list[Callable[[], object]]:
    chain = ((2, 13, 9, 5), (13, 4, 10, 1))
    return [
        lambda: run_kron([(5, 5), (3, 4), (4, 2)], rows),
        lambda: run_kron([(5, 4), (3, 2)], rows, side=kronop.Side.Left),
        lambda: run_kron([(8, 8)] * 3, rows, candidate=3, offset=0),
        lambda: run_kron([(6, 8), (3, 4), (16, 8)], rows, arch=WIDE, offset=0),
        lambda: run_kron([(8, 8)] * 5, rows // 7 + 1, arch=WIDE),
        lambda: run_kron([(8, 8)] * 4, rows // 7 + 1, element=kronop.float64),
        lambda: run_chain(((2, 16, 9, 6), (6, 32, 32, 1)), rows, 1, arch=WIDE, offset=0),
        lambda: run_ksparse((3, 48, 13, 1), rows, arch=WIDE, offset=0),
        lambda: run_chain(chain, rows, 1, bias=True, element=kronop.float16),
        lambda: run_ksparse((3, 21, 13, 1), rows, bias=True),
        lambda: run_ksparse((2, 9, 13, 3), rows, last=True, scalars=(0.5, 2)),
        lambda: run_ksparse((1, 3, 400, 48), rows),
        lambda: run_ksparse((3, 21, 13, 1), rows, views=("negative",) * 3),
        lambda: run_ksparse(
            (2, 24, 13, 2), rows, element=kronop.bfloat16, bias=True, scalars=(2, 3), in_place=True
        ),
    ]


def _main() -> None:
    # Rows that threads share, and results past the caches, at sizes that take no time.
    planning.OPERATIONS_PER_THREAD, planning._FAR = 1, 0
    planning._PASSING = planning._PASSING_IN_PARTS = 0
    with ThreadPoolExecutor(2) as pool:  # builds take most of the time
        for rows in _ROWS:
            for done in [pool.submit(case) for case in _cases(rows)]:
                done.result()


if __name__ == "__main__":
    _main()
