"""kronop.jax on a CPU: values, both modes of derivatives, vmap, and what is refused."""

from __future__ import annotations

import functools
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest

import kronop
from kronop.families.kron import grouping

jax = pytest.importorskip("jax")

import jax.numpy as jnp  # noqa: E402

import kronop.jax as kj  # noqa: E402
from kronop.families.kron import jax as kron_jax  # noqa: E402

_RNG = np.random.default_rng(7)


@pytest.fixture
def wide():
    """float64 in JAX, for derivatives that are compared with those of formed products."""
    with jax.enable_x64(True):
        yield


def _random(*shape: int, dtype: Any = "float64") -> Any:
    return jnp.asarray(_RNG.standard_normal(shape).astype(dtype))


def _single(*shape: int) -> Any:
    return _random(*shape, dtype="float32")


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


def _same(actual: Any, expected: Any, eps: float = 2.0**-52) -> None:
    """Equal but for rounding. No result here sums more than 2^10 products, each of which is at
    most 2^5 times the largest result, so that 2^15 roundings bound the error, far from tightly."""
    for one, other in zip(jax.tree.leaves(actual), jax.tree.leaves(expected), strict=True):
        one, other = np.asarray(one, np.float64), np.asarray(other, np.float64)
        assert one.shape == other.shape
        scale = np.abs(other).max(initial=1.0)
        np.testing.assert_allclose(one, other, rtol=0, atol=2**15 * eps * scale)


def _cubes(function: Any) -> Any:
    """A scalar whose second derivatives are not constant."""
    return lambda *operands: (function(*operands) ** 3).sum()


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16", "int32", "int8"])
def test_products_of_every_type(dtype: str) -> None:
    whole = dtype.startswith("int")
    make = (lambda *s: jnp.asarray(_RNG.integers(-4, 5, s))) if whole else _single
    x, *factors = (make(*shape).astype(dtype) for shape in ((5, 6), (2, 4), (3, 2)))
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
    wide: None, monkeypatch, is_left: bool, is_merged: bool
) -> None:
    if not is_merged:
        monkeypatch.setattr(kron_jax, "groups", _apart)

    def ours(x: Any, a: Any, b: Any) -> Any:
        return kj.gekmm([a, b], x, alpha=1.5) if is_left else kj.gemkm(x, [a, b], alpha=1.5)

    def dense(x: Any, a: Any, b: Any) -> Any:
        return 1.5 * (jnp.kron(a, b) @ x if is_left else x @ jnp.kron(a, b))

    operands = _random(*((6, 4) if is_left else (4, 6))), _random(2, 3), _random(3, 2)
    tangents = tuple(_random(*item.shape) for item in operands)
    _same(*(_derived(item)(operands, tangents) for item in (ours, dense)))


def _apart(shapes: Any, wanted: Any, *others: Any) -> Any:
    return [grouping._group(shapes, wanted, at, at + 1) for at in range(len(shapes))]


def test_a_product_is_linear_in_a_factor_among_others(wide: None) -> None:
    x, first, second, g = _random(4, 4), _random(2, 2), _random(2, 2), _random(4, 4)
    ours, dense = (
        jax.linear_transpose(lambda item, f=function: f(x, first, item), second)(g)
        for function in (_pair, lambda x, a, b: x @ jnp.kron(a, b))
    )
    _same(ours, dense)


def test_batches_broadcast_and_their_gradients_are_summed(wide: None) -> None:
    x, factors = _random(2, 1, 4, 4), [_random(5, 2, 2), _random(2, 1, 2, 2)]
    dense = _cubes(lambda x, factors: x @ _formed(factors))
    _same(
        jax.value_and_grad(_cubes(kj.gemkm), (0, 1))(x, factors),
        jax.value_and_grad(dense, (0, 1))(x, factors),
    )


@pytest.mark.parametrize("axes", [(0, None, None), (None, 2, None), (1, 2, 0)])
def test_vmap_of_products_and_of_their_gradients(wide: None, axes) -> None:
    operands = _mapped(((4, 4), (2, 2), (2, 2)), axes)
    _same(*(_mappings(f, axes)(*operands) for f in (_pair, lambda x, a, b: x @ jnp.kron(a, b))))


def _pair(x: Any, a: Any, b: Any) -> Any:
    return kj.gemkm(x, [a, b])


def _mapped(shapes: Any, axes: Any) -> list[Any]:
    every = zip(shapes, axes, strict=True)
    return [_random(*(s if at is None else (*s[:at], 3, *s[at:]))) for s, at in every]


def _mappings(function: Any, axes: Any) -> Any:
    """The mapped function, its mapped gradients, and its gradients as a mapped one."""
    every = jax.vmap(function, axes)
    inner = jax.vmap(jax.grad(_cubes(function), (0, 1, 2)), axes)
    outer = jax.grad(_cubes(every), (0, 1, 2))
    return jax.jit(lambda *operands: [item(*operands) for item in (every, inner, outer)])


@pytest.mark.parametrize("batch_last", [False, True])
def test_sparse_chains_and_all_that_jax_makes_of_them(wide: None, batch_last: bool) -> None:
    def ours(x: Any, a: Any, b: Any) -> Any:
        return kj.ksmm(x, [a, b], batch_last=batch_last, alpha=0.5)

    def dense(x: Any, a: Any, b: Any) -> Any:
        matrix = 0.5 * _dense(a) @ _dense(b)
        return matrix.T @ x if batch_last else x @ matrix

    shapes = (4, 5) if batch_last else (5, 4), (2, 2, 2, 1), (1, 3, 2, 2)
    operands = tuple(_random(*item) for item in shapes)
    tangents = tuple(_random(*item) for item in shapes)
    _same(*(_derived(item)(operands, tangents) for item in (ours, dense)))
    axes = (0, 2, None) if batch_last else (1, None, None)
    mapped = _mapped(shapes, axes)
    _same(*(_mappings(item, axes)(*mapped) for item in (ours, dense)))


@pytest.mark.parametrize("batch_last", [False, True])
@pytest.mark.parametrize("activation", [None, "gelu"])
def test_what_xla_does_behind_a_product_is_what_kronop_does(activation, batch_last) -> None:
    x = np.asarray(_single(2, 3, 8))
    x = np.moveaxis(x, -1, 0) if batch_last else x
    weight = np.asarray(_single(2, 3, 2, 2))
    z = np.ones((12, 2, 3) if batch_last else (2, 3, 12), "float32")
    bias = np.arange(12, dtype="float32") / 8 - 1
    options = {"bias": bias, "z": z, "beta": -0.5, "alpha": 2}
    options |= {"batch_last": batch_last, "activation": activation}
    expected = kronop.ksmm(np.ascontiguousarray(x), weight, **options)
    _same(kj.ksmm(x, weight, **options), expected, eps=2.0**-23)


def test_one_row_no_rows_and_a_source() -> None:
    factors = [_single(2, 3), _single(3, 2)]
    x, matrix = _single(6), jnp.kron(*factors)
    _same(kj.gemkm(x, factors, beta=2, z=x), x @ matrix + 2 * x, eps=2.0**-23)
    _same(kj.gekmm(factors, x), matrix @ x, eps=2.0**-23)
    none = jnp.zeros((0, 6), "float32")
    assert kj.gemkm(none, factors).shape == (0, 6)
    gradients = jax.grad(lambda f: kj.gemkm(none, f).sum())(factors)
    assert not any(item.any() for item in gradients)
    weight = _single(1, 2, 3, 2)
    assert not jax.grad(lambda w: kj.ksmm(none, w).sum())(weight).any()


def test_compiled_functions_call_kernels_and_no_python() -> None:
    factors = [_single(2, 3), _single(3, 2)]
    x = _single(4, 6)
    function = jax.jit(lambda x: jax.lax.scan(lambda c, _: (kj.gemkm(c, factors), 0), x, None, 3))
    text = function.lower(x).as_text()
    assert "custom_call @kronop" in text
    assert "callback" not in text
    _same(function(x)[0], x @ jnp.linalg.matrix_power(jnp.kron(*factors), 3), eps=2.0**-23)


def test_threads_may_run_one_program_at_once() -> None:
    factors = [_single(8, 8), _single(8, 8)]
    x, matrix = _single(64, 64), jnp.kron(*factors)
    function, exact = jax.jit(lambda x: kj.gemkm(x, factors)), np.asarray(x @ matrix)
    function(x)

    def run(scale: int) -> None:
        for _ in range(20):
            _same(function(x * scale), exact * scale, eps=2.0**-23)

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(run, range(1, 9)))


def test_small_numbers_are_not_flushed_to_zero_on_some_threads() -> None:
    x = np.full((4, 4), 1e-41, "float32")
    eye = np.eye(2, dtype="float32")
    found = np.asarray(kj.gemkm(x, [eye, eye]))
    assert (found == x).all()


def test_equal_products_share_a_program_and_unknown_ones_are_refused() -> None:
    from kronop.jax import native

    x, factors = _single(4, 6), [_single(6, 5)]
    first = jax.jit(lambda x: kj.gemkm(x, factors)).lower(x).as_text()
    count = len(native._registered)
    again = jax.jit(lambda x: kj.gemkm(x, factors)).lower(x).as_text()
    assert len(native._registered) == count
    assert first == again
    alien = jax.ffi.ffi_call("kronop", jax.ShapeDtypeStruct((2,), "float32"))
    with pytest.raises(Exception, match="expected a program of this process"):
        jax.block_until_ready(alien(x, program=np.int64(12345)))


_X, _F = np.ones((4, 6), "float32"), [np.ones((2, 3), "float32"), np.ones((3, 2), "float32")]
_W = np.ones((2, 3, 3, 1), "float32")


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
        (lambda: kj.gemkm(_X, _F[:1]), kronop.ArgumentError, r"\(..., M, 2\), got \(4, 6\)"),
        (lambda: kj.gekmm(_F, _X), kronop.ArgumentError, r"\(..., 6, M\), got \(4, 6\)"),
        (
            lambda: kj.gemkm(np.stack([_X] * 2), [np.stack([_F[0]] * 3), _F[1]]),
            kronop.ArgumentError,
            "leading dimensions of x and factors",
        ),
        (lambda: kj.gemkm(_X, _F, z=_X), kronop.ArgumentError, "because Z is given"),
        (lambda: kj.gemkm(_X, _F, beta=1), kronop.ArgumentError, "0 without z"),
        (lambda: kj.gemkm(_X, _F, beta=1, z=_X[:2]), kronop.ArgumentError, "z: expected float32"),
        (
            lambda: jax.grad(lambda a: kj.gemkm(_X, _F, alpha=a).sum())(1.0),
            kronop.ElementTypeError,
            "alpha: expected a Python number, got .*Tracer",
        ),
        (lambda: kj.ksmm(_X, _W[0]), kronop.ArgumentError, r"shape of weights\[0\]"),
        (lambda: kj.ksmm(_X[:, :5], _W), kronop.ArgumentError, r"\(..., 6\), got \(4, 5\)"),
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


def test_gradients_are_scaled_before_they_are_rounded() -> None:
    """Sums beyond float16's largest number, times an alpha that brings them back."""
    many, one, weight = (jnp.full(s, 4, "float16") for s in ((10000, 4), (4, 4), (1, 4, 4, 1)))
    for product, given in (
        (lambda w: kj.gemkm(many, [w], alpha=1e-4), one),
        (lambda w: kj.ksmm(many, w, alpha=1e-4), weight),
    ):
        (found,) = jax.vjp(product, given)[1](many)
        np.testing.assert_allclose(np.float32(found), 16, rtol=1e-3)
