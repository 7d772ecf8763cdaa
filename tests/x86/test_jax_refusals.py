"""What kronop.jax refuses, and which functions refuse JAX's arrays: by name, and saying why."""

from __future__ import annotations

import dataclasses
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import kronop
from kronop.args.view import CPU
from kronop.core.addressed import Symbols, plan_without_maps

jax = pytest.importorskip("jax")

import jax.numpy as jnp  # noqa: E402

import kronop.jax as kj  # noqa: E402
from kronop.jax import recording  # noqa: E402
from tests import support  # noqa: E402

_X, _F = np.ones((4, 6), "float32"), [np.ones((2, 3), "float32"), np.ones((3, 2), "float32")]
_W = np.ones((2, 3, 3, 1), "float32")
_WHOLE_X, _WHOLE_F = np.ones((4, 6), "int32"), [np.ones((6, 6), "int32")]


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: kj.gemkm([1.0], _F), kronop.ElementTypeError, "a JAX or NumPy array, got list"),
        (lambda: kj.gemkm(_X, _F[0]), kronop.ElementTypeError, "factors: expected a list"),
        (lambda: kj.gemkm(_X, []), kronop.ElementTypeError, "got an empty one"),
        (
            lambda: kj.gemkm(_X, [_F[0], _F[1].astype("float16")]),
            kronop.ElementTypeError,
            r"float32 of x and float16 of factors\[1\]",
        ),
        (
            lambda: kj.gemkm(_X.astype("complex64"), _F),
            kronop.ElementTypeError,
            "element type of x.*complex64",
        ),
        (
            lambda: kj.gemkm(_X, _F[:1]),
            kronop.ArgumentError,
            r"M, 2\), since 2 = 2, got \(4, 6\)",
        ),
        (
            lambda: kj.gekmm(_F, _X),
            kronop.ArgumentError,
            r"6, M\), since .* = 6, got \(4, 6\)",
        ),
        (
            lambda: kj.gemkm(np.stack([_X] * 2), [np.stack([_F[0]] * 3), _F[1]]),
            kronop.ArgumentError,
            r"leading dimensions of factors\[0\]",
        ),
        (lambda: kj.gemkm(_X, _F, z=_X), kronop.ArgumentError, "because Z is given"),
        (lambda: kj.gemkm(_X, _F, beta=1), kronop.ArgumentError, "0 without z"),
        (lambda: kj.gemkm(_X, _F, beta=1, z=_X[:2]), kronop.ArgumentError, "z: expected float32"),
        (lambda: kj.gemkm(_X, _F, beta=1e39, z=_X), kronop.ArgumentError, "beta.*finite float32"),
        (lambda: kj.gemkm(_X[:0], _F, alpha=np.nan), kronop.ArgumentError, "alpha.*finite float32"),
        (
            lambda: kj.gemkm(_WHOLE_X, _WHOLE_F, beta=0.5, z=_WHOLE_X),
            kronop.ArgumentError,
            "beta: expected a finite whole number within int32, got 0.5",
        ),
        (
            lambda: kj.ksmm(_WHOLE_X, _W.astype("int32"), activation="gelu"),
            kronop.DescriptionError,
            "activation gelu: expected float32 or float64",
        ),
        (
            lambda: jax.grad(lambda a: kj.gemkm(_X, _F, alpha=a).sum())(1.0),
            kronop.ElementTypeError,
            "alpha: expected a Python number, got .*Tracer",
        ),
        (lambda: kj.ksmm(_X, _W[0]), kronop.ArgumentError, r"shape of weights\[0\]"),
        (lambda: kj.ksmm(_X[:, :5], _W), kronop.ArgumentError, r"= 6 as last extent, got \(4, 5\)"),
        (lambda: kj.ksmm(_X, [_W, _W[:1]]), kronop.ArgumentError, r"weights\[1\].*outputs"),
        (lambda: kj.ksmm(_X, _W, activation="gleu"), kronop.ArgumentError, "one of relu"),
        (lambda: kj.ksmm(_X, _W, bias=_X[0, :3]), kronop.ArgumentError, "shape of bias"),
        (lambda: kj.ksmm(_X, _W, batch_last=1), kronop.ElementTypeError, "batch_last"),
    ],
)
def test_what_does_not_fit_is_refused_by_name(call, error, message) -> None:
    with pytest.raises(error, match=message):
        call()


@pytest.mark.parametrize(
    ("call", "shapes"),
    [
        (lambda x, f: kj.gemkm(x, [f]), ("b, 6", "6, p")),
        (lambda x, f: kj.gekmm([f], x), ("6, b", "p, 6")),
        (lambda x, w: kj.ksmm(x, [w]), ("b, 6", "p, 3, 3, 2")),
        (lambda x, w: kj.ksmm(x, w, batch_last=True), ("6, b", "2, p, 3, 1")),
    ],
)
def test_symbolic_dimensions_are_refused_by_name(call, shapes) -> None:
    from jax import export

    symbolic = [export.symbolic_shape(shape) for shape in shapes]
    fixed = [tuple(extent if isinstance(extent, int) else 3 for extent in it) for it in symbolic]
    for at in range(2):
        given = [symbolic[place] if place == at else fixed[place] for place in range(2)]
        traced = export.export(jax.jit(call))
        with pytest.raises(kronop.ArgumentError, match=r"shape of .*extents that are numbers, got"):
            traced(*(jax.ShapeDtypeStruct(shape, "float32") for shape in given))


@pytest.mark.parametrize(
    ("call", "name"),
    [
        (lambda x: kronop.gemkm(x, _F), "X"),
        (lambda x: kronop.gemkm(_X, [x, _F[1]]), r"factors\[0\]"),
        (lambda x: kronop.gemkm(_X, _F, out=x), "Y"),
        (lambda x: kronop.gekmm(_F, x), "X"),
        (lambda x: kronop.ksmm(x, _W), "X"),
        (lambda x: kronop.cdist(x, _X), "X1"),
        (lambda x: kronop.linalg.eigh(x), ""),
    ],
)
def test_other_functions_refuse_jax_arrays_and_tracers_by_name(call, name) -> None:
    message = name + ".*expected NumPy, torch or CuPy, got a JAX array; use kronop.jax"
    array = jnp.ones((4, 6), "float32")
    for run in (call, jax.jit(call), lambda x: jax.jvp(call, (x,), (x,))):
        with pytest.raises(kronop.ElementTypeError, match=message):
            run(array)


def test_eight_bit_types_have_products_but_no_derivatives() -> None:
    x, weight = (jnp.ones(s, "float8_e4m3fn") for s in ((2, 4), (2, 2, 2, 1)))
    assert kj.ksmm(x, weight).dtype == "bfloat16"
    with pytest.raises(kronop.ElementTypeError, match="8-bit types have no derivatives"):
        jax.jvp(lambda x: kj.ksmm(x, weight), (x,), (x,))


def test_kernels_that_take_tensor_maps_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    given = recording.Product

    def with_maps(*arguments: Any) -> Any:
        product = given(*arguments)
        product.records = tuple(
            dataclasses.replace(
                item,
                launch=dataclasses.replace(item.launch, blocks=((0, 128, support.tensor_map()),)),
            )
            for item in product.records
        )
        return product

    monkeypatch.setattr(recording, "Product", with_maps)
    with pytest.raises(kronop.DescriptionError, match="8-byte words, got tensor maps"):
        kj.gemkm(_X, _F, alpha=3)  # No other test compiles it, whose function JAX would reuse.


def test_a_plan_without_tensor_maps_is_taken_if_there_is_one() -> None:
    maps = {"planned": True, "other": True, "bare": False, "slower": False}

    def taken(*plans: str) -> Any:
        operation = SimpleNamespace(
            plan_for=lambda size, device: plans[0], candidates=lambda count, size: plans
        )
        arguments: Any = SimpleNamespace(
            operation=operation,
            size=1,
            device=CPU,
            launches=lambda plan, symbols: [SimpleNamespace(blocks=(1,) * maps[plan])],
        )
        return plan_without_maps(arguments, Symbols({}, [], CPU))

    assert taken("planned", "other", "bare", "slower") == "bare"
    assert taken("bare", "slower") == "bare"
    assert taken("planned", "other") == "planned"
