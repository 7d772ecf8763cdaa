"""The one-line forms on NumPy and torch tensors, and what they refuse."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import kronop
from kronop import kernels
from kronop.families.ksparse.api import weight_gradient
from tests import support


def _random(*shape: int) -> np.ndarray:
    return np.random.default_rng().standard_normal(shape).astype(np.float32)


def test_gemkm_is_the_kronecker_product() -> None:
    x, factors = _random(9, 30), [_random(2, 3), _random(5, 2), _random(3, 4)]
    product = functools.reduce(np.kron, [item.astype(np.float64) for item in factors])
    np.testing.assert_allclose(kronop.gemkm(x, factors), x @ product, rtol=0, atol=1e-4)
    y = _random(product.shape[1], 3)
    np.testing.assert_allclose(kronop.gekmm(factors, y), product @ y, rtol=0, atol=1e-4)


def test_a_vector_is_one_row_or_one_column() -> None:
    x, factors = _random(6), [_random(2, 3), _random(3, 4)]
    product = np.kron(*factors)
    np.testing.assert_allclose(kronop.gemkm(x, factors), x @ product, rtol=0, atol=1e-5)
    y = _random(12)
    np.testing.assert_allclose(kronop.gekmm(factors, y), product @ y, rtol=0, atol=1e-5)


def test_out_is_returned_and_z_may_be_out() -> None:
    x, factors = _random(4, 6), [_random(2, 3), _random(3, 4)]
    y = z = _random(4, 12)
    expected = 2 * x @ np.kron(*factors) - 0.5 * z
    assert kronop.gemkm(x, factors, alpha=2, beta=-0.5, z=z, out=y) is y
    np.testing.assert_allclose(y, expected, rtol=0, atol=1e-5)


def test_scalars_and_z_may_be_given_in_order_as_to_fastkron() -> None:
    x, factors = _random(4, 6), [_random(2, 3), _random(3, 4)]
    z = _random(4, 12)
    expected = 3 * x @ np.kron(*factors) - 0.5 * z
    np.testing.assert_allclose(kronop.gemkm(x, factors, 3.0, -0.5, z), expected, rtol=0, atol=1e-5)
    turned = [item.T for item in factors]
    actual = kronop.gekmm(turned, x.T, 3.0, -0.5, z.T)
    np.testing.assert_allclose(actual, expected.T, rtol=0, atol=1e-5)
    assert kronop.gemkm(x, factors, 3.0, 0.0).shape == (4, 12)


def _alternating(first: int, *inner: int) -> np.ndarray:
    """Six leading dimensions, every second of which is 1, so that two such operands repeat in turn
    and no stride is common to neighbouring dimensions."""
    lead = [2 if axis % 2 == first else 1 for axis in range(6)]
    return np.random.default_rng(first).integers(1, 5, (*lead, *inner)).astype("f8")


_MANY: dict[str, tuple[Callable[..., Any], list[np.ndarray]]] = {
    "matmul": (
        lambda a, b, c: kronop.gemm.matmul(a, b, c, beta=2, bias=np.arange(5.0)),
        [_alternating(0, 3, 4), _alternating(1, 4, 5), _alternating(0, 3, 5)],
    ),
    "in another byte order": (
        lambda a, b: kronop.gemm.matmul(a.astype(">f8"), b),
        [_alternating(0, 3, 4), _alternating(1, 4, 5)],
    ),
    "cdist": (kronop.cdist, [_alternating(0, 3, 4), _alternating(1, 5, 4), _alternating(1)]),
    "kernel_matrix": (
        lambda x, y, w, r: kronop.kernel_matrix(x, y, kernels.Gaussian(w), r),
        [_alternating(0, 3, 4), _alternating(1, 5, 4), _alternating(0, 4), _alternating(1)],
    ),
    "kernel_matmul": (
        lambda x, y, v: kronop.kernel_matmul(x, y, v, kernels.Linear()),
        [_alternating(0, 3, 4), _alternating(1, 5, 4), _alternating(0, 5, 2)],
    ),
    "cdist_grad": (
        kronop.cdist_grad,
        [_alternating(at % 2, *own) for at, own in enumerate([(3, 6), (2, 3), (4, 3), (2, 6), ()])],
    ),
    "gemkm": (
        lambda x, f, g: kronop.gemkm(x, [f, g]),
        [_alternating(0, 3, 4), _alternating(1, 2, 3), _alternating(0, 2, 2)],
    ),
}


@pytest.mark.parametrize("case", _MANY)
def test_leading_dimensions_need_no_common_stride(case: str) -> None:
    call, operands = _MANY[case]
    # The same as one batch, of which every operand has a copy.
    flat = [
        np.broadcast_to(item, (*[2] * 6, *item.shape[6:])).reshape(64, *item.shape[6:])
        for item in operands
    ]
    found, expected = call(*operands), call(*flat)
    np.testing.assert_array_equal(found, expected.reshape(found.shape))
    turned = np.full(found.shape, np.nan).transpose(5, 0, 4, 1, 3, 2, *range(6, found.ndim))
    if case in ("cdist", "cdist_grad"):  # Results are copied back.
        assert call(*operands, out=turned) is turned
        np.testing.assert_array_equal(turned, found)


def test_a_result_without_a_common_stride_is_read_and_written() -> None:
    a, b = _alternating(0, 3, 4), _alternating(1, 4, 5)
    out = np.ones((*[2] * 6, 3, 5)).transpose(5, 0, 4, 1, 3, 2, 6, 7)
    for at in range(2):
        kronop.gemm.matmul(a, b, out, beta=1, out=out)
        np.testing.assert_array_equal(out, 1 + (at + 1) * (a @ b))


def test_a_chain_applies_the_first_weights_first() -> None:
    patterns = [(6, 8, 8, 1), (1, 12, 24, 2)]
    weights = [_random(*pattern) for pattern in patterns]
    x, bias = _random(17, 48), _random(24)
    middle = kronop.ksmm(x, weights[0])
    expected = kronop.ksmm(middle, weights[1], bias=bias, activation="relu")
    actual = kronop.ksmm(x, weights, bias=bias, activation="relu")
    np.testing.assert_array_equal(actual, expected)
    assert (actual >= 0).all()
    last = kronop.ksmm(np.ascontiguousarray(x.T), weights, batch_last=True)
    np.testing.assert_allclose(last.T, kronop.ksmm(x, weights), rtol=0, atol=1e-4)


def test_bias_and_activation_of_every_name() -> None:
    x, weights, bias = _random(5, 8), _random(2, 3, 4, 1), _random(6)
    plain = kronop.ksmm(x, weights, bias=bias).astype(np.float64)
    for name in ("relu", "leaky_relu", "tanh", "sigmoid", "silu", "hardswish", "gelu"):
        epilogue = kronop.LinearCombinationGeneric(
            getattr(kronop, name)(kronop.float32), kronop.float32, 1, kronop.float32, kronop.float32
        )
        operation = support.ksparse_operation(
            "x86", kronop.float32, (2, 3, 4, 1), epilogue=epilogue
        )
        expected = operation.description.reference(x, weights, bias=bias)
        actual = kronop.ksmm(x, weights, bias=bias, activation=name)
        np.testing.assert_allclose(actual, expected, rtol=1e-5, atol=1e-5, err_msg=name)
        assert not np.array_equal(actual, plain)


@pytest.mark.parametrize("dtype", [item.name for item in support.ELEMENTS])
def test_torch_tensors_give_torch_tensors(dtype: str) -> None:
    torch = pytest.importorskip("torch")
    kind = getattr(torch, dtype)
    x = (torch.randn(3, 7, 8) * 4).to(kind)
    factors = [(torch.randn(2, 3) * 4).to(kind), (torch.randn(4, 5) * 4).to(kind)]
    y = kronop.gemkm(x, factors)
    assert y.dtype == (torch.int32 if dtype == "int8" else kind)
    assert y.shape == (3, 7, 15)
    wide = torch.float64 if kind.is_floating_point else torch.int64
    expected = x.to(wide) @ torch.kron(factors[0].to(wide), factors[1].to(wide))
    unit = {"float16": 2.0**-11, "bfloat16": 2.0**-8}.get(dtype, 2.0**-22)
    scale = float(expected.abs().max()) if kind.is_floating_point else 0.0
    assert float((y.to(wide) - expected).abs().max()) <= 4 * unit * scale


def test_gradients_are_refused_and_not_dropped() -> None:
    torch = pytest.importorskip("torch")
    x, factors = torch.randn(3, 4, requires_grad=True), [torch.randn(2, 2)] * 2
    with pytest.raises(kronop.KronopError, match="detach"):
        kronop.gemkm(x, factors)
    with torch.no_grad():
        assert kronop.gemkm(x, factors).shape == (3, 4)


def test_empty_inputs_give_empty_or_untouched_results() -> None:
    factors = [_random(2, 3), _random(3, 4)]
    assert kronop.gemkm(_random(0, 6), factors).shape == (0, 12)
    assert kronop.gekmm(factors, _random(12, 0)).shape == (6, 0)
    assert kronop.gemkm(_random(0, 5, 6), factors).shape == (0, 5, 12)
    assert kronop.ksmm(_random(0, 6), _random(1, 2, 3, 2)).shape == (0, 4)


_X, _F = _random(4, 6), [_random(2, 3), _random(3, 4)]
_REFUSED = {
    "wrong columns": (lambda: kronop.gemkm(_random(4, 5), _F), kronop.ArgumentError, "6"),
    "no factors": (lambda: kronop.gemkm(_X, []), kronop.KronopError, "factors"),
    "factors is a tensor": (lambda: kronop.gemkm(_X, _F[0]), kronop.ElementTypeError, "list"),
    "a factor is a vector": (
        lambda: kronop.gemkm(_X, [_random(6)]),
        kronop.ArgumentError,
        "factors",
    ),
    "mixed types": (
        lambda: kronop.gemkm(_X, [f.astype(np.float64) for f in _F]),
        kronop.ElementTypeError,
        "float32",
    ),
    "complex": (
        lambda: kronop.gemkm(_X.astype(np.complex64), _F),
        kronop.ElementTypeError,
        "complex",
    ),
    "a list": (lambda: kronop.gemkm([[1.0]], _F), kronop.ElementTypeError, "X"),
    "beta without z": (lambda: kronop.gemkm(_X, _F, beta=1.0), kronop.ArgumentError, "Z"),
    "z without beta": (
        lambda: kronop.gemkm(_X, _F, alpha=2, z=_random(4, 12)),
        kronop.ArgumentError,
        "beta: expected a number, because Z is given",
    ),
    "z without beta, from the left": (
        lambda: kronop.gekmm(_F, _random(12, 4), z=_random(6, 4), out=_random(6, 4)),
        kronop.ArgumentError,
        "beta: expected a number, because Z is given",
    ),
    "z without beta, sparse": (
        lambda: kronop.ksmm(_X, _random(1, 2, 6, 1), z=_random(4, 2)),
        kronop.ArgumentError,
        "beta: expected a number, because Z is given",
    ),
    "z without beta, a gradient": (
        lambda: weight_gradient(_X, _X, (1, 6, 6, 1), z=_random(1, 6, 6, 1)),
        kronop.ArgumentError,
        "beta: expected a number, because Z is given",
    ),
    "alpha is nan": (
        lambda: kronop.gemkm(_X, _F, alpha=float("nan")),
        kronop.ArgumentError,
        "finite",
    ),
    "z of another shape": (
        lambda: kronop.gemkm(_X, _F, beta=1.0, z=_random(4, 11)),
        kronop.ArgumentError,
        "12",
    ),
    "out of another shape": (
        lambda: kronop.gemkm(_X, _F, out=_random(3, 12)),
        kronop.ArgumentError,
        "12",
    ),
    "out of another type": (
        lambda: kronop.gemkm(_X, _F, out=np.empty((4, 12))),
        kronop.ElementTypeError,
        "float32",
    ),
    "batches that do not broadcast": (
        lambda: kronop.gemkm(_random(3, 4, 6), [_random(2, 2, 3), _F[1]]),
        kronop.ArgumentError,
        "broadcast",
    ),
    "a chain that does not chain": (
        lambda: kronop.ksmm(_X, [_random(1, 2, 3, 2), _random(1, 2, 3, 2)]),
        kronop.ArgumentError,
        "weights",
    ),
    "no weights": (lambda: kronop.ksmm(_X, []), kronop.ArgumentError, "weights"),
    "weights of three dimensions": (
        lambda: kronop.ksmm(_X, _random(2, 3, 1)),
        kronop.ArgumentError,
        "weights",
    ),
    "unknown activation": (
        lambda: kronop.ksmm(_X, _random(1, 2, 3, 2), activation="mish"),
        kronop.ArgumentError,
        "gelu",
    ),
    "a list of activations": (
        lambda: kronop.ksmm(_X, _random(1, 2, 3, 2), activation=["gelu", None]),
        kronop.ArgumentError,
        "gelu",
    ),
    "uint8": (
        lambda: kronop.gemkm(_X.astype(np.uint8), [f.astype(np.uint8) for f in _F]),
        kronop.ElementTypeError,
        "^element type of X: expected one of float64, [^\n]*, int32, int8, got uint8",
    ),
    "int8 in a chain": (
        lambda: kronop.ksmm(
            _X.astype(np.int8),
            [_random(1, 2, 3, 2).astype(np.int8), _random(1, 3, 2, 2).astype(np.int8)],
        ),
        kronop.ElementTypeError,
        "^element type of X in a chain: expected [^\n]*, got int8, of which results are int32",
    ),
    "a source of int8": (
        lambda: kronop.gemkm(
            _X.astype(np.int8), [f.astype(np.int8) for f in _F], beta=1, z=np.ones((4, 12), "i1")
        ),
        kronop.ElementTypeError,
        "^element type of Z: expected kronop.int32",
    ),
    "swapped arguments": (
        lambda: kronop.gekmm(_X, _F),
        kronop.ElementTypeError,
        r"gekmm\(factors, x\)",
    ),
    "bias of another size": (
        lambda: kronop.ksmm(_X, _random(1, 2, 3, 2), bias=_random(3)),
        kronop.ArgumentError,
        "bias",
    ),
}


@pytest.mark.parametrize("case", _REFUSED)
def test_what_is_refused_says_why(case: str) -> None:
    call, kind, message = _REFUSED[case]
    with pytest.raises(kind, match=message):
        call()


def test_out_that_overlaps_an_input_is_refused_and_nothing_is_written() -> None:
    buffer = _random(10, 6)
    before = buffer.copy()
    factors = [_random(2, 2), _random(3, 3)]
    with pytest.raises(kronop.ArgumentError, match="overlap"):
        kronop.gemkm(buffer[:6], factors, out=buffer[2:8])
    np.testing.assert_array_equal(buffer, before)
    kronop.gemkm(buffer[:5], factors, out=buffer[5:])
    np.testing.assert_array_equal(buffer[:5], before[:5])


def test_out_of_a_chain_is_apart_from_every_input() -> None:
    weights = [_random(1, 6, 6, 1) for _ in range(6)]
    buffer, bias = _random(10, 6), _random(6)
    before = buffer.copy()
    for out, name in (
        (buffer[:6], "X"),
        (buffer[2:8], "X"),
        (weights[3].reshape(6, 6), r"weights\[3\]"),
        (bias[None], "bias"),
    ):
        rows = buffer[: out.shape[0]]
        with pytest.raises(kronop.ArgumentError, match=f"Y and {name}: .*overlap"):
            kronop.ksmm(rows, weights, bias=bias, out=out)
    np.testing.assert_array_equal(buffer, before)
    y = z = _random(6, 6)
    expected = kronop.ksmm(buffer[:6], weights, beta=2.0, z=z.copy())
    assert kronop.ksmm(buffer[:6], weights, beta=2.0, z=z, out=y) is y
    np.testing.assert_array_equal(y, expected)


def test_half_precision_chains_round_between_factors() -> None:
    x = np.full((1, 1), 100, np.float16)
    weights = [np.full((1, 1, 1, 1), value, np.float16) for value in (1000, 1e-4)]
    assert np.isinf(kronop.ksmm(x, weights)).all()
    np.testing.assert_allclose(kronop.ksmm(x, weights[::-1]), 10, rtol=2**-7)


def test_scalars_may_be_arrays_or_tensors_without_dimensions() -> None:
    expected = kronop.gemkm(_X, _F, alpha=2.5)
    np.testing.assert_array_equal(kronop.gemkm(_X, _F, alpha=np.array(2.5)), expected)
    torch = pytest.importorskip("torch")
    np.testing.assert_array_equal(kronop.gemkm(_X, _F, alpha=torch.tensor(2.5)), expected)
    for wrong in (np.array([2.5]), torch.tensor([2.5]), torch.tensor(2.5, requires_grad=True)):
        with pytest.raises(kronop.ElementTypeError, match="0-d"):
            kronop.gemkm(_X, _F, alpha=wrong)


def _bytes(*shape: int):
    return np.random.default_rng(1).integers(-128, 128, shape).astype(np.int8)


def test_int8_gives_int32_or_saturates() -> None:
    x, factors = _bytes(5, 24), [_bytes(4, 3), _bytes(6, 5)]
    product = x.astype(np.int64) @ np.kron(*(item.astype(np.int64) for item in factors))
    y = kronop.gemkm(x, factors)
    assert y.dtype == np.int32
    np.testing.assert_array_equal(y, product)
    turned = kronop.gekmm([item.T for item in factors], np.ascontiguousarray(x.T))
    np.testing.assert_array_equal(turned, product.T)
    few = kronop.ksmm(x, _bytes(2, 5, 4, 3))
    np.testing.assert_array_equal(few, kronop.ksmm(x.astype("i4"), _bytes(2, 5, 4, 3).astype("i4")))
    # Values around both ends of int8, and the source in its place.
    x, factors = x // 16, [item // 16 for item in factors]
    product = x.astype(np.int64) @ np.kron(*(item.astype(np.int64) for item in factors))
    out = np.full((5, 15), 77, np.int8)
    assert kronop.gemkm(x, factors, out=out) is out
    assert product.min() < -128
    assert product.max() > 127
    np.testing.assert_array_equal(out, np.clip(product, -128, 127))
    kronop.gemkm(x, factors, alpha=-1, beta=2, z=out, out=out)
    expected = np.clip(2 * np.clip(product, -128, 127) - product, -128, 127)
    np.testing.assert_array_equal(out, expected)


def test_what_is_between_factors_of_int8_wraps_as_int32() -> None:
    factors = [np.full((16, 16), -128, np.int8)] * 3
    x = np.full((2, 16**3), -128, np.int8)
    x[1, ::3] = 127
    wide = [item.astype(np.int32) for item in factors]
    y = kronop.gemkm(x, factors)
    np.testing.assert_array_equal(y, kronop.gemkm(x.astype(np.int32), wide))
    product = x.astype(object).reshape(2, 16, 16, 16).sum((1, 2, 3)) * (-128) ** 3
    expected = [(int(item) + 2**31) % 2**32 - 2**31 for item in product]
    assert [sorted(set(row)) for row in y.tolist()] == [[item] for item in expected]
