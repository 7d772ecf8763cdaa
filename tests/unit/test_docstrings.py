"""Every public name is in the reference, with an example, and what the example says is so."""

from __future__ import annotations

import doctest
import importlib
import inspect
import re
import types
from pathlib import Path

import numpy as np
import pytest

import kronop
from tests.public import MODULES

_FLAGS = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE


_REFERENCE = Path(__file__).resolve().parents[2] / "docs" / "reference"
_DESCRIBED = {
    name
    for page in _REFERENCE.glob("*.rst")
    for name in re.findall(r"^\.\. (?:auto|py:)\w+:: (\S+)", page.read_text(), re.M)
}


def _module(name: str) -> types.ModuleType:
    """A public module, or a skipped test where what it needs is missing."""
    needed = MODULES[name]
    if needed is not None:
        pytest.importorskip(needed)
    if name in ("gemm", "kernels"):  # namespaces, no modules to import
        found: types.ModuleType = getattr(kronop, name)
        return found
    return importlib.import_module(f"kronop.{name}")


def _check(name: str, value: object) -> None:
    """Runs the examples of one docstring. Values (`kronop.float32`) have those of their class."""
    if not (inspect.isclass(value) or callable(value) or inspect.ismodule(value)):
        value = type(value)
        if value.__module__ == "builtins":
            return
    text = inspect.getdoc(value) or ""
    assert ">>> " in text, f"{name}: its docstring has no example"
    assert name in _DESCRIBED, f"{name} is not in docs/reference"
    for package in re.findall(r">>> (?:import|from) (torch|jax|scipy|gpytorch)\b", text):
        pytest.importorskip(package)
    test = doctest.DocTestParser().get_doctest(text, {"np": np, "kronop": kronop}, name, None, None)
    said: list[str] = []
    doctest.DocTestRunner(optionflags=_FLAGS).run(test, out=said.append)
    assert not said, "".join(said)


@pytest.mark.parametrize("name", sorted(kronop.__dir__()))
def test_examples_of_kronop(name: str) -> None:
    _check(f"kronop.{name}", getattr(kronop, name))


@pytest.mark.parametrize("name", MODULES)
def test_examples_of_modules(name: str) -> None:
    module = _module(name)
    for inner in module.__all__:
        _check(f"kronop.{name}.{inner}", getattr(module, inner))
