"""What a user's type checker knows of results: NumPy in, NumPy out, torch in, torch out."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("torch")
pytest.importorskip("mypy")

_PROGRAM = """
import numpy as np, torch
import kronop, kronop.distributed, kronop.torch

x = np.zeros((4, 16), np.float32)
f = [np.zeros((4, 4), np.float32)] * 2
t, g = torch.zeros(4, 16), [torch.zeros(4, 4)] * 2
reveal_type(kronop.gemkm(x, f))  # ndarray
reveal_type(kronop.gekmm(f, x.T))  # ndarray
reveal_type(kronop.ksmm(x, np.zeros((4, 4, 4, 1))))  # ndarray
reveal_type(kronop.cdist(x, x))  # ndarray
reveal_type(kronop.gemm.matmul(x, x.T, activation="gelu"))  # ndarray
reveal_type(kronop.gemkm(t, g))  # Tensor
reveal_type(kronop.torch.gemkm(t, g))  # Tensor
reveal_type(kronop.torch.ksmm(t, torch.zeros(4, 4, 4, 1), activation="gelu"))  # Tensor
reveal_type(kronop.torch.matmul(t, t.mT))  # Tensor
reveal_type(kronop.torch.nn.KSLinear([(4, 4, 4, 1)])(t))  # Tensor
reveal_type(kronop.distributed.gemkm(t, g))  # Tensor
kronop.torch.ksmm(t, torch.zeros(4, 4, 4, 1), activation="gleu")  # error: Argument "activation"
kronop.gemm.matmul(x, x.T, activation="gleu")  # error: Argument "activation"
"""


def test_a_users_checker_knows_the_kinds_of_results(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(_PROGRAM)
    command = [sys.executable, "-m", "mypy", "--strict", "--cache-dir", str(tmp_path), str(program)]
    told = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path).stdout
    lines = {int(at): text for at, text in re.findall(r"program\.py:(\d+): (.*)", told)}
    expected = {
        number: line.partition("  # ")[2]
        for number, line in enumerate(_PROGRAM.splitlines(), 1)
        if "  # " in line
    }
    assert set(lines) == set(expected), told
    for number, text in expected.items():
        assert text in lines[number]
