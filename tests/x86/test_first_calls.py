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


def _groups(module: str) -> list[str]:
    """The public functions and operators of kronop or one of its modules, those of each family
    together."""
    found = attrgetter(module)(kronop) if module else kronop
    groups: dict[str, list[str]] = {}
    for name in dir(found):
        value = getattr(found, name)
        is_operator = inspect.isclass(value) and value.__module__.startswith("kronop.operators.")
        if inspect.isfunction(value) or is_operator:
            # Those of torch and JAX all import one module, which takes long.
            _, room, inner, *_ = value.__module__.split(".")
            family = module or (inner if room == "families" else room)
            groups.setdefault(family, []).append(".".join(filter(None, (module, name))))
    return [",".join(names) for names in groups.values()]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this system")
@pytest.mark.parametrize(
    ("module", "packages"),
    [
        ("", "numpy"),
        ("gemm", "numpy"),
        ("linalg", "numpy"),
        ("jax", "jax"),
        ("torch", "torch,torch._dynamo"),
    ],
)
def test_first_calls_meet_signals_and_forks(module: str, packages: str) -> None:
    """The packages are imported once for all: kronop.torch imports the last one, in seconds."""
    pytest.importorskip(packages.partition(",")[0])
    groups = _groups(module)
    assert groups
    done = subprocess.run(
        [sys.executable, _SCRIPT, packages, *groups],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout) == (0, ""), done.stderr
