"""JAX arrays are refused where tensors of other frameworks are read, with or without JAX here."""

from __future__ import annotations

import sys
from types import ModuleType
from typing import Any

import numpy as np
import pytest

import kronop
from kronop.args.tensor import view


class _Array:
    """As JAX's: it could be read through DLPack, and NumPy can read it."""

    def __init__(self) -> None:
        self._values = np.ones((4, 4), "float32")

    def __dlpack__(self, **options: Any) -> Any:
        return self._values.__dlpack__(**options)

    def __dlpack_device__(self) -> Any:
        return self._values.__dlpack_device__()

    def __array__(self, *options: Any) -> Any:
        return self._values


@pytest.fixture
def jax(monkeypatch) -> ModuleType:
    module = ModuleType("jax")
    monkeypatch.setitem(sys.modules, "jax", module)
    return module


@pytest.mark.parametrize(
    "call",
    [
        lambda x, y: kronop.gemkm(x, [y]),
        lambda x, y: kronop.gemkm(y, [x]),
        lambda x, y: kronop.gekmm([y], x),
        lambda x, y: kronop.gemkm(y, [y], out=x),
        lambda x, y: kronop.ksmm(x, y.reshape(2, 2, 2, 2)),
        lambda x, y: kronop.cdist(x, y),
        lambda x, y: kronop.linalg.eigh(x),
    ],
)
def test_an_array_of_jax_is_refused_by_name(jax: Any, call: Any) -> None:
    jax.Array = _Array
    other = np.ones((4, 4), "float32")
    with pytest.raises(kronop.ElementTypeError) as caught:
        call(_Array(), other)
    expected = "expected NumPy, torch or CuPy, got a JAX array; use kronop.jax"
    assert expected in str(caught.value)


def test_others_with_dlpack_are_read_while_jax_is_there_and_while_it_is_imported(jax: Any) -> None:
    array = _Array()
    assert view(array, "X").shape == (4, 4)  # `jax.Array` is not there yet.
    jax.Array = ModuleType
    assert view(array, "X").framework == "dlpack"
