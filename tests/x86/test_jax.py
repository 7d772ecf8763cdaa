"""kronop.jax on a CPU: values, both modes of derivatives, vmap, and what is refused."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest

import kronop
from kronop.families.kron import runs
from tests.support import ROUNDINGS_OF_ACTIVATIONS

jax = pytest.importorskip("jax")

import jax.numpy as jnp  # noqa: E402

import kronop.jax as kj  # noqa: E402
from kronop.families.kron import jax as kron_jax  # noqa: E402

_RNG = np.random.default_rng(7)


@pytest.fixture(autouse=True, scope="module")
def quick() -> Iterator[None]:
    """XLA compiles without its optimizations, which no test here is about."""
    jax.config.update("jax_disable_most_optimizations", True)
    yield
    jax.config.update("jax_disable_most_optimizations", False)


def _units(*shape: int) -> Any:
    """-1, 0 and 1 in float32, of which kernels and XLA make the very same results: products, their
    cubes and the derivatives of these are far below 2^24 times the powers of two in alpha."""
    return _RNG.integers(-1, 2, shape).astype("float32")


def _formed(factors: Any) -> Any:
    """The Kronecker product itself, of factors with leading dimensions."""

    def pair(a: Any, b: Any) -> Any:
        made = a[..., :, None, :, None] * b[..., None, :, None, :]
        return made.reshape(*made.shape[:-4], a.shape[-2] * b.shape[-2], -1)

    return functools.reduce(pair, factors)


def _dense(weight: Any) -> Any:
    """K' of Kronecker-sparse weights, which rows are multiplied by."""
    a, b, c, d = weight.shape
    made = jnp.einsum("ijkl,ip,lq->iklpjq", weight, jnp.eye(a), jnp.eye(d))
    return made.reshape(a * c * d, a * b * d)


def _same(actual: Any, expected: Any) -> None:
    jax.tree.map(np.testing.assert_array_equal, actual, expected)


def _cubes(function: Any) -> Any:
    """A scalar whose second derivatives are not constant."""
    return lambda *operands: (function(*operands) ** 3).sum()


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16", "int32", "int8", "float64"])
def test_products_of_every_type(dtype: str) -> None:
    with jax.enable_x64(dtype == "float64"):
        _check_product(dtype)


def _check_product(dtype: str) -> None:
    # Whole numbers that float32 would round, and float64 does not.
    most = {"float64": 2**15}.get(dtype, 4)
    whole = dtype.startswith("int") or dtype == "float64"
    draw = functools.partial(_RNG.integers, -most, most + 1) if whole else _RNG.standard_normal
    shapes = (4, 6), (2, 3), (3, 2)
    x, *factors = (draw(size=shape).astype(jnp.dtype(dtype)) for shape in shapes)
    wide_x, *wide_factors = (np.asarray(item, np.float64) for item in (x, *factors))
    exact = 2 * wide_x @ np.kron(*wide_factors)
    # Six products of two factors are summed in float32 or exactly, and rounded between the factors
    # and at the end: eight roundings of terms that sum up to this.
    bound = 2 * np.abs(wide_x) @ np.kron(*map(np.abs, wide_factors))
    eps = 0 if whole else float(jnp.finfo(dtype).eps)
    for run in (kj.gemkm, jax.jit(kj.gemkm, static_argnames="alpha")):
        found = run(x, factors, alpha=2)
        assert found.dtype == ("int32" if dtype == "int8" else dtype)
        assert (np.abs(np.asarray(found, np.float64) - exact) <= 8 * eps * bound).all()


def _derived(function: Any) -> Any:
    """The result, its gradients, its tangent, and the tangent of the gradients, in one program."""
    gradients = jax.grad(_cubes(function), (0, 1, 2))

    def every(operands: Any, tangents: Any) -> Any:
        pairs = (jax.jvp(item, operands, tangents) for item in (function, gradients))
        return tuple(pairs)

    return jax.jit(every)


@pytest.mark.parametrize(("is_left", "is_merged"), [(False, True), (True, False)])
def test_derivatives_are_those_of_the_formed_product(
    monkeypatch, is_left: bool, is_merged: bool
) -> None:
    if not is_merged:
        monkeypatch.setattr(kron_jax, "runs", _apart)

    def ours(x: Any, a: Any, b: Any) -> Any:
        return kj.gekmm([a, b], x, alpha=1.5) if is_left else kj.gemkm(x, [a, b], alpha=1.5)

    def dense(x: Any, a: Any, b: Any) -> Any:
        return 1.5 * (jnp.kron(a, b) @ x if is_left else x @ jnp.kron(a, b))

    operands = _units(*((6, 4) if is_left else (4, 6))), _units(2, 3), _units(3, 2)
    tangents = tuple(_units(*item.shape) for item in operands)
    _same(*(_derived(item)(operands, tangents) for item in (ours, dense)))


def _apart(shapes: Any, wanted: Any, *others: Any) -> Any:
    return [runs._run(shapes, wanted, at, at + 1) for at in range(len(shapes))]


def test_a_product_is_linear_in_a_factor_among_others() -> None:
    x, first, second, g = _units(4, 4), _units(2, 2), _units(2, 2), _units(4, 4)
    ours, dense = (
        jax.linear_transpose(lambda item, f=function: f(x, first, item), second)(g)
        for function in (_pair, lambda x, a, b: x @ jnp.kron(a, b))
    )
    _same(ours, dense)


def test_batches_broadcast_and_their_gradients_are_summed() -> None:
    x, factors = _units(2, 1, 4, 4), [_units(5, 2, 2), _units(2, 1, 2, 2)]
    every = (_cubes(product) for product in (kj.gemkm, lambda x, factors: x @ _formed(factors)))
    _same(*(jax.jit(jax.value_and_grad(item, (0, 1)))(x, factors) for item in every))


@pytest.mark.parametrize("axes", [(0, None, None), (None, 2, None), (1, 2, 0)])
def test_vmap_of_products_and_of_their_gradients(axes) -> None:
    operands = _mapped(((4, 4), (2, 2), (2, 2)), axes)
    _same(*(_mappings(f, axes)(*operands) for f in (_pair, lambda x, a, b: x @ jnp.kron(a, b))))


def _pair(x: Any, a: Any, b: Any) -> Any:
    return kj.gemkm(x, [a, b])


def _mapped(shapes: Any, axes: Any) -> list[Any]:
    every = zip(shapes, axes, strict=True)
    return [_units(*(s if at is None else (*s[:at], 3, *s[at:]))) for s, at in every]


def _mappings(function: Any, axes: Any) -> Any:
    """The mapped function, its mapped gradients, and its gradients as a mapped one."""
    every = jax.vmap(function, axes)
    inner = jax.vmap(jax.grad(_cubes(function), (0, 1, 2)), axes)
    outer = jax.grad(_cubes(every), (0, 1, 2))
    return jax.jit(lambda *operands: [item(*operands) for item in (every, inner, outer)])


@pytest.mark.parametrize("batch_last", [False, True])
def test_sparse_chains_and_all_that_jax_makes_of_them(batch_last: bool) -> None:
    def ours(x: Any, a: Any, b: Any) -> Any:
        return kj.ksmm(x, [a, b], batch_last=batch_last, alpha=0.5)

    def dense(x: Any, a: Any, b: Any) -> Any:
        matrix = 0.5 * _dense(a) @ _dense(b)
        return matrix.T @ x if batch_last else x @ matrix

    shapes = (4, 5) if batch_last else (5, 4), (2, 2, 2, 1), (1, 3, 2, 2)
    operands = tuple(_units(*item) for item in shapes)
    tangents = tuple(_units(*item) for item in shapes)
    _same(*(_derived(item)(operands, tangents) for item in (ours, dense)))
    axes = (0, 2, None) if batch_last else (1, None, None)
    mapped = _mapped(shapes, axes)
    _same(*(_mappings(item, axes)(*mapped) for item in (ours, dense)))


@pytest.mark.parametrize("batch_last", [False, True])
@pytest.mark.parametrize("activation", [None, "gelu"])
def test_what_xla_does_behind_a_product_is_what_kronop_does(activation, batch_last) -> None:
    x = np.moveaxis(_units(2, 3, 8), -1, 0) if batch_last else _units(2, 3, 8)
    weight = _units(2, 3, 2, 2)
    z = np.ones((12, 2, 3) if batch_last else (2, 3, 12), "float32")
    bias = np.arange(12, dtype="float32") / 8 - 1
    options = {"bias": bias, "z": z, "beta": -0.5, "alpha": 2}
    options |= {"batch_last": batch_last}
    plain = kronop.ksmm(np.ascontiguousarray(x), weight, **options)
    expected = kronop.ksmm(np.ascontiguousarray(x), weight, activation=activation, **options)
    found = kj.ksmm(x, weight, activation=activation, **options)
    # The sums are exact. GELU is x (1 + erf) / 2: either side makes a few roundings of at most x.
    roundings = 0 if activation is None else 2 * ROUNDINGS_OF_ACTIVATIONS
    assert (np.abs(found - expected) <= roundings * 2.0**-24 * np.abs(plain)).all()


def test_one_row_no_rows_and_a_source() -> None:
    factors = [_units(2, 3), _units(3, 2)]
    x, matrix = _units(6), np.kron(*factors)
    _same(kj.gemkm(x, factors, beta=2, z=x), x @ matrix + 2 * x)
    _same(kj.gemkm(x, factors, 2, 2, x), 2 * x @ matrix + 2 * x)  # FastKron's order.
    _same(kj.gekmm(factors, x), matrix @ x)
    none = np.zeros((0, 6), "float32")
    assert kj.gemkm(none, factors).shape == (0, 6)
    gradients = jax.grad(lambda f: kj.gemkm(none, f).sum())(factors)
    assert not any(item.any() for item in gradients)
    weight = _units(1, 2, 3, 2)
    assert not jax.grad(lambda w: kj.ksmm(none, w).sum())(weight).any()


def test_compiled_functions_call_kernels_and_no_python() -> None:
    factors = [_units(2, 3), _units(3, 2)]
    x = _units(4, 6)
    function = jax.jit(lambda x: jax.lax.scan(lambda c, _: (kj.gemkm(c, factors), 0), x, None, 3))
    text = function.lower(x).as_text()
    assert "custom_call @kronop" in text
    assert "callback" not in text
    _same(function(x)[0], x @ np.linalg.matrix_power(np.kron(*factors), 3))


def test_threads_may_run_one_program_at_once() -> None:
    factors = [_units(8, 8), _units(8, 8)]
    x = _units(64, 64)
    function, exact = jax.jit(lambda x: kj.gemkm(x, factors)), x @ np.kron(*factors)
    function(x)

    def run(scale: int) -> None:
        for _ in range(20):
            _same(function(x * scale), exact * scale)

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(run, range(1, 9)))


def test_small_numbers_are_not_flushed_to_zero_on_some_threads() -> None:
    x = np.full((4, 4), 1e-41, "float32")
    eye = np.eye(2, dtype="float32")
    _same(kj.gemkm(x, [eye, eye]), x)


def test_equal_products_share_a_program_and_unknown_ones_are_refused() -> None:
    from kronop.jax import native

    x, factors = _units(4, 6), [_units(2, 3), _units(3, 2)]
    first = jax.jit(lambda x: kj.gemkm(x, factors)).lower(x).as_text()
    count = len(native._registered)
    again = jax.jit(lambda x: kj.gemkm(x, factors)).lower(x).as_text()
    assert len(native._registered) == count
    assert first == again
    alien = jax.ffi.ffi_call("kronop", jax.ShapeDtypeStruct((2,), "float32"))
    with pytest.raises(Exception, match="expected a program of this process"):
        jax.block_until_ready(alien(x, program=np.int64(12345)))


def test_products_and_gradients_run_without_jit() -> None:
    x, factors = _units(4, 6), [_units(2, 3), _units(3, 2)]

    def every() -> Any:
        return jax.value_and_grad(lambda x: kj.gemkm(x, factors).sum())(x)

    expected = every()
    with jax.disable_jit():
        _same(every(), expected)


def test_gradients_over_more_dimensions_than_the_alphabet_has_letters() -> None:
    x, factor = _units(2, *[1] * 27, 3, 4, 4), _units(2, *[1] * 28, 4, 4)
    every = (jax.jit(jax.grad(_cubes(item), (0, 1))) for item in (_single, jnp.matmul))
    _same(*(item(x, factor) for item in every))


def _single(x: Any, factor: Any) -> Any:
    return kj.gemkm(x, [factor])


@pytest.mark.parametrize("dtype", ["float16", "float64"])
def test_gradients_are_summed_in_a_wide_type_and_scaled_before_they_are_rounded(dtype: str) -> None:
    """Sums of float16 beyond its largest number, which alpha or further terms bring back, and sums
    of float64 that float32 would round."""
    with jax.enable_x64(dtype == "float64"):
        large = {"float16": 2.0**15, "float64": 1 + 2.0**-40}[dtype]
        full = functools.partial(np.full, dtype=dtype)
        signs = np.array([1, 1, 1, -1, -1], dtype).reshape(5, 1, 1)
        factors = [full((5, 4, 4), 1) * signs]
        for product, given, ct, expected in (
            (lambda w: kj.gemkm(full((8, 4), 1), [w], alpha=0.125), (4, 4), (8, 4), large),
            (lambda w: kj.ksmm(full((8, 4), 1), w, alpha=0.125), (1, 4, 4, 1), (8, 4), large),
            (lambda x: kj.gemkm(x, factors, alpha=0.25), (8, 4), (5, 8, 4), large),
        ):
            (found,) = jax.linear_transpose(product, full(given, 1))(full(ct, large))
            _same(found, full(given, expected))
