"""The first call of every public function and operator, amid signals and forks."""

from __future__ import annotations

import inspect
import os
import subprocess
import sys
from operator import attrgetter
from pathlib import Path

import pytest

import kronop

_SCRIPT = Path(__file__).parents[1] / "first_calls.py"


def _names(module: str) -> list[str]:
    """The public functions and operators of kronop or one of its modules."""
    found = attrgetter(module)(kronop) if module else kronop
    return [
        ".".join(filter(None, (module, name)))
        for name in dir(found)
        for value in [getattr(found, name)]
        if inspect.isfunction(value) or _is_operator(value)
    ]


def _is_operator(value: object) -> bool:
    return inspect.isclass(value) and value.__module__.startswith("kronop.operators.")


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this system")
@pytest.mark.parametrize(
    ("module", "packages"),
    [("", "numpy"), ("gemm", "numpy"), ("linalg", "numpy"), ("torch", "torch,torch._dynamo")],
)
def test_first_calls_meet_signals_and_forks(module: str, packages: str) -> None:
    """The packages are imported once for all: kronop.torch imports the last one, in seconds."""
    pytest.importorskip(packages.partition(",")[0])
    names = _names(module)
    if module == "torch":  # All of them import kronop.torch, which takes long.
        names = [",".join(names)]
    assert names
    done = subprocess.run(
        [sys.executable, _SCRIPT, packages, *names],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout) == (0, ""), done.stderr
