"""kronop.jax on a GPU: values, derivatives, streams of several compiled functions."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
import pytest

pytestmark = pytest.mark.cuda
_RNG = np.random.default_rng(11)


@pytest.fixture
def jax() -> Any:
    jax = pytest.importorskip("jax")
    try:
        jax.devices("cuda")
    except RuntimeError as error:
        pytest.skip(f"JAX has no GPU: {error}")
    return jax


def _random(*shape: int, dtype: str = "float32") -> Any:
    return _RNG.standard_normal(shape).astype(dtype)


def _close(actual: Any, expected: Any, eps: float) -> bool:
    """Results sum at most 2^12 products in float32, and are rounded to their type, as is what is
    between factors: 2^12 roundings of the one and 2^5 of the other bound the error."""
    actual, expected = np.asarray(actual, np.float64), np.asarray(expected, np.float64)
    bound = (2**12 * 2.0**-23 + 2**5 * eps) * np.abs(expected).max()
    return bool(np.abs(actual - expected).max() <= bound)


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
@pytest.mark.parametrize("sizes", [(8, 8, 8), (64, 64)])
def test_products_and_gradients(jax: Any, dtype: str, sizes: tuple[int, ...]) -> None:
    import kronop.jax as kj

    x = jax.numpy.asarray(_random(100, int(np.prod(sizes)))).astype(dtype)
    factors = [jax.numpy.asarray(_random(n, n)).astype(dtype) / n for n in sizes]
    eps = float(jax.numpy.finfo(dtype).eps)
    wide = [np.asarray(item, np.float64) for item in (x, *factors)]
    assert _close(jax.jit(kj.gemkm)(x, factors), wide[0] @ functools.reduce(np.kron, wide[1:]), eps)

    def loss(x: Any, factors: Any) -> Any:
        return (kj.gemkm(x, factors).astype("float32") ** 2).sum()

    def dense(x: Any, factors: Any) -> Any:
        with jax.default_matmul_precision("highest"):
            return ((x @ functools.reduce(jax.numpy.kron, factors)) ** 2).sum()

    exact = jax.grad(dense, (0, 1))(*jax.tree.map(lambda i: i.astype("float32"), (x, factors)))
    found = jax.jit(jax.grad(loss, (0, 1)))(x, factors)
    for one, other in zip(jax.tree.leaves(found), jax.tree.leaves(exact), strict=True):
        assert _close(one, other, eps)


def test_chains_under_vmap_and_scan(jax: Any) -> None:
    import kronop.jax as kj

    weights = [_random(4, 16, 16, 4), _random(1, 16, 16, 16)]
    x = jax.numpy.asarray(_random(3, 50, 256))
    one = jax.jit(jax.vmap(lambda item: kj.ksmm(item, weights)))(x)
    assert _close(one, kj.ksmm(x, weights), 2.0**-23)

    def body(carry: Any, _: Any) -> Any:
        made = kj.ksmm(carry, weights) / 256
        return made, made.sum()

    last, sums = jax.jit(lambda x: jax.lax.scan(body, x, None, 4))(x)
    expected = x
    for _ in range(4):
        expected = kj.ksmm(expected, weights) / 256
    assert _close(last, expected, 2.0**-23)
    assert np.isfinite(np.asarray(sums)).all()


def test_arrays_on_a_gpu_are_refused_elsewhere_by_name(jax: Any) -> None:
    import kronop

    x = jax.numpy.ones((4, 4), "float32")
    with pytest.raises(kronop.ElementTypeError, match=r"got a JAX array; use kronop\.jax"):
        kronop.gemkm(x, [x])
