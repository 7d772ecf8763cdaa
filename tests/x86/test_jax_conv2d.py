"""Convolutions of JAX arrays: values, both modes of derivatives, vmap, and what is refused."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import kronop

jax = pytest.importorskip("jax")

import jax.numpy as jnp  # noqa: E402

import kronop.jax as kj  # noqa: E402

_RNG = np.random.default_rng(7)
_SHAPES = ((2, 5, 6, 4), (6, 3, 2, 2), (6,))  # Of x, w and the bias.
_ORDER = ("NHWC", "OHWI", "NHWC")


@pytest.fixture(autouse=True, scope="module")
def quick() -> Iterator[None]:
    """XLA compiles without its optimizations, which no test here is about."""
    jax.config.update("jax_disable_most_optimizations", True)
    yield
    jax.config.update("jax_disable_most_optimizations", False)


def _units(*shape: int) -> Any:
    """-1, 0 and 1 in float32, of which kernels and XLA make the very same results."""
    return _RNG.integers(-1, 2, shape).astype("float32")


def _ours(x: Any, w: Any, bias: Any) -> Any:
    how = {"stride": (2, 1), "padding": (1, 2), "dilation": (1, 2), "groups": 2}
    return kj.conv2d(x, w, bias, **how)


def _theirs(x: Any, w: Any, bias: Any) -> Any:
    pads = [(1, 1), (2, 2)]
    how = {"rhs_dilation": (1, 2), "dimension_numbers": _ORDER, "feature_group_count": 2}
    return jax.lax.conv_general_dilated(x, w, (2, 1), pads, **how) + bias


def _same(actual: Any, expected: Any) -> None:
    jax.tree.map(np.testing.assert_array_equal, actual, expected)


def _cubes(function: Any) -> Any:
    """A scalar whose second derivatives are not constant."""
    return lambda *operands: (function(*operands) ** 3).sum()


def _derived(function: Any) -> Any:
    """The result, its gradients, its tangent, and the tangent of the gradients, in one program."""
    gradients = jax.grad(_cubes(function), (0, 1, 2))

    def every(operands: Any, tangents: Any) -> Any:
        return tuple(jax.jvp(item, operands, tangents) for item in (function, gradients))

    return jax.jit(every)


def test_derivatives_are_xlas() -> None:
    operands, tangents = (tuple(_units(*shape) for shape in _SHAPES) for _ in range(2))
    _same(*(_derived(item)(operands, tangents) for item in (_ours, _theirs)))


@pytest.mark.parametrize("axes", [(0, None, None), (None, 2, None), (1, 4, 0)])
def test_vmap_of_convolutions_and_of_their_gradients(axes: Any) -> None:
    pairs = zip(_SHAPES, axes, strict=True)
    mapped = [_units(*(s if at is None else (*s[:at], 3, *s[at:]))) for s, at in pairs]
    _same(*(_mappings(item, axes)(*mapped) for item in (_ours, _theirs)))


def _mappings(function: Any, axes: Any) -> Any:
    """The mapped function, its mapped gradients, and its gradients as a mapped one."""
    every = jax.vmap(function, axes)
    inner = jax.vmap(jax.grad(_cubes(function), (0, 1, 2)), axes)
    outer = jax.grad(_cubes(every), (0, 1, 2))
    return jax.jit(lambda *operands: [item(*operands) for item in (every, inner, outer)])


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "int8", "float64"])
def test_every_type(dtype: str) -> None:
    with jax.enable_x64(dtype == "float64"):
        x, w = (_units(*shape).astype(jnp.dtype(dtype)) for shape in ((2, 5, 5, 3), (4, 2, 2, 3)))
        found = kj.conv2d(x, w, padding="same", stride=1)
    assert found.dtype == ("int32" if dtype == "int8" else dtype)
    pads = [(0, 1), (0, 1)]
    wide = (item.astype("float32") for item in (x, w))
    wanted = jax.lax.conv_general_dilated(*wide, (1, 1), pads, dimension_numbers=_ORDER)
    _same(np.asarray(found, np.float32), wanted)


def test_an_activation_and_no_images() -> None:
    x, w, bias = _units(1, 3, 3, 2), _units(2, 2, 2, 2), _units(2)
    plain = kj.conv2d(x, w, bias)
    np.testing.assert_array_equal(kj.conv2d(x, w, bias, activation="relu"), jnp.maximum(plain, 0))
    none = np.zeros((0, 3, 3, 2), "float32")
    assert kj.conv2d(none, w).shape == (0, 2, 2, 2)
    assert not jax.grad(lambda w: kj.conv2d(none, w).sum())(w).any()


@pytest.mark.parametrize(
    ("message", "changes"),
    [
        ("shape of x: expected", {"x": _units(3, 3, 2)}),
        (r"channels of x and w: .*x is \(N, H, W, C\)", {"w": _units(2, 2, 2, 3)}),
        ("extent along H", {"w": _units(2, 4, 2, 2)}),
        ("shape of bias", {"bias": _units(3)}),
        ("padding: expected", {"padding": -1}),
        ("activation: expected", {"activation": "swish"}),
    ],
)
def test_refusals(message: str, changes: dict[str, Any]) -> None:
    given = {"x": _units(1, 3, 3, 2), "w": _units(2, 2, 2, 2), **changes}
    with pytest.raises(kronop.ArgumentError, match=message):
        kj.conv2d(**given)
