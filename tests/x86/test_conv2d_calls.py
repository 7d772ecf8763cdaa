"""Convolutions in one line, on a CPU: results, repeated calls, and what is refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import kronop
from kronop.families.conv2d.vocabulary import Operator
from tests.x86.test_conv2d_arguments import compile_nothing, drawn, sums_of


def _last(*shape: int, seed: int = 0) -> Any:
    """An array (N, C, H, W) whose channels are last in memory."""
    n, c, h, w = shape
    return drawn(n, h, w, c, seed=seed).transpose(0, 3, 1, 2)


_CALL = {"x": _last(2, 4, 5, 6), "w": _last(8, 4, 3, 3), "padding": 1}


@pytest.mark.parametrize(
    ("changed", "told"),
    [
        ({"x": drawn(2, 4, 5, 6)}, "memory of x: expected the channels last"),
        ({"w": drawn(8, 4, 3, 3)}, r"memory of w: .* of shape \(K, C .*layout='NCHW'"),
        ({"x": drawn(4, 5, 6)}, r"memory of x: .*x.transpose\(1, 2, 0\)\)"),
        ({"x": _last(2, 4, 5, 6)[0, 0]}, r"shape of x: expected \(N, C, H, W\)"),
        ({"w": _last(8, 4, 3, 3)[0]}, "shape of w"),
        ({"x": [1.0]}, "x: expected a tensor"),
        (
            {"w": _last(8, 3, 3, 3)},
            r"channels of x and w: .* got 4 of x, 3 of w, .*x is \(N",
        ),
        ({"w": _last(8, 1, 3, 3)}, "channels of x and w: .* pass groups=4"),
        ({"w": _last(8, 4, 7, 7), "padding": 0}, "extent along H: expected 1 to 5 pixels"),
        ({"dilation": 4}, r"extent along H: .* got 9 \(3 pixels, dilation 4\)"),
        ({"w": _last(8, 4, 3, 3).astype(np.float64)}, "element type of w"),
        ({"bias": np.zeros(8)}, "element type of bias"),
        ({"bias": drawn(7)}, "shape of bias"),
        ({"stride": 0}, "stride: expected an integer of at least 1"),
        ({"stride": (1, 2, 3)}, "stride: expected"),
        ({"stride": np.array([1, 2])}, "stride: expected"),
        ({"stride": 2**31}, r"stride: expected an integer of at least 1 and below 2\^31"),
        ({"padding": np.array([1, 2])}, "padding: expected"),
        ({"padding": -1}, "padding: expected an integer of at least 0"),
        ({"padding": "full"}, "padding: expected numbers, 'same' or 'valid'"),
        ({"padding": "same", "stride": 2}, "stride: expected 1, since padding is 'same'"),
        ({"dilation": 1.5}, "dilation: expected"),
        ({"groups": 3}, "groups: expected a divisor of 4 channels and 8 filters"),
        ({"groups": (1, 1)}, "groups: expected an integer of at least 1"),
        ({"activation": "swish"}, "activation: expected"),
        ({"layout": "CHWN"}, "layout: expected 'NHWC' or 'NCHW'"),
        ({"out": _last(2, 8, 5, 5)}, r"shape of out: expected \(2, 8, 5, 6\)"),
        ({"out": drawn(2, 8, 5, 6)}, "memory of out"),
        ({"out": _last(2, 8, 5, 6).astype(np.float64)}, "element type of out"),
    ],
)
def test_calls_that_are_refused(
    changed: dict[str, Any], told: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    compile_nothing(monkeypatch)
    with pytest.raises(kronop.KronopError, match=told):
        kronop.conv.conv2d(**{**_CALL, **changed})


def test_gradients_that_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    compile_nothing(monkeypatch)
    x, w, grad = _last(2, 4, 5, 6), _last(8, 4, 3, 3), _last(2, 8, 3, 4)
    wrong: Any = (
        ((2, 4, 5), grad, "input_size: expected four integers"),
        ((2, 4, 5, "6"), grad, "input_size: expected four integers"),
        (x, grad, r"input_size: .* got a tensor \(2, 4, 5, 6\); .* are input_size, w, grad"),
        ((2, 4, 5, 7), grad, r"shape of grad: expected \(2, 8, 3, 5\)"),
        ((2, 4, 5, 6), grad.astype(np.float64), "element type of w"),
    )
    for shape, gradient, told in wrong:
        with pytest.raises(kronop.KronopError, match=told):
            kronop.conv.conv2d_input(shape, w, gradient)
    with pytest.raises(kronop.KronopError, match="channels of x and w"):
        kronop.conv.conv2d_weight(x, (8, 3, 3, 3), grad)
    with pytest.raises(kronop.KronopError, match="arguments are x, weight_size, grad"):
        kronop.conv.conv2d_weight(w.shape, x, grad)
    with pytest.raises(kronop.KronopError, match=r"shape of out: expected \(2, 4, 5, 6\)"):
        kronop.conv.conv2d_input(x.shape, w, grad, out=w)
    with pytest.raises(kronop.DescriptionError, match="relu: expected tensors of float64"):
        kronop.conv.conv2d(x.astype(np.int32), w.astype(np.int32), activation="relu")


def test_calls_again_with_other_tensors() -> None:
    """The third call repeats launches that it has seen, with new tensors."""
    for seed in range(4):
        x, w, bias = _last(2, 4, 5, 6, seed=seed), _last(8, 4, 3, 3, seed=9), drawn(8, seed=seed)
        last = [item.transpose(0, 2, 3, 1) for item in (x, w)]
        expected = np.maximum(sums_of(Operator.fprop, *last) + bias, 0).transpose(0, 3, 1, 2)
        found = kronop.conv.conv2d(x, w, bias, padding=1, activation="relu")
        np.testing.assert_array_equal(found, expected)
        assert found.strides[1] == found.itemsize
        out = np.zeros_like(found)
        assert kronop.conv.conv2d(x, w, bias, padding=1, activation="relu", out=out) is out
        np.testing.assert_array_equal(out, expected)
        plain, filters = (np.ascontiguousarray(item) for item in (x, w))
        given: Any = {"bias": bias, "padding": 1, "activation": "relu", "layout": "NCHW"}
        converted = kronop.conv.conv2d(plain, filters, **given)
        assert converted.flags.c_contiguous
        np.testing.assert_array_equal(converted, expected)
        out = np.zeros(found.shape, np.float32)
        assert kronop.conv.conv2d(plain, filters, **given, out=out) is out
        np.testing.assert_array_equal(out, expected)


def test_numbers_are_refused_again() -> None:
    """Though they equal those of a call that is remembered."""
    x, w = _last(2, 4, 5, 6), _last(8, 4, 3, 3)
    for _ in range(3):
        found = kronop.conv.conv2d(x, w, stride=1, padding=(0, 0))
    wrong: Any = ({"stride": True}, {"stride": 1.0}, {"padding": (0, False)}, {"groups": True})
    for changed in wrong:
        with pytest.raises(kronop.ArgumentError, match=f"{min(changed)}: expected"):
            kronop.conv.conv2d(x, w, **changed)
    for stride in ([1, 1], np.int64(1), (np.int32(1), 1)):
        np.testing.assert_array_equal(kronop.conv.conv2d(x, w, stride=stride), found)


def test_gradients_of_calls() -> None:
    for seed in range(3):
        x, w, grad = (
            _last(*shape, seed=seed) for shape in ((2, 4, 5, 6), (8, 4, 3, 3), (2, 8, 5, 6))
        )
        last = {
            name: item.transpose(0, 2, 3, 1) for name, item in (("x", x), ("w", w), ("grad", grad))
        }
        found = kronop.conv.conv2d_input(x.shape, w, grad, padding=1)
        expected = sums_of(Operator.dgrad, last["grad"], last["w"])
        np.testing.assert_array_equal(found.transpose(0, 2, 3, 1), expected)
        found = kronop.conv.conv2d_weight(x, w.shape, grad, padding=1)
        expected = sums_of(Operator.wgrad, last["grad"], last["x"])
        np.testing.assert_array_equal(found.transpose(0, 2, 3, 1), expected)
        # Of tensors in C order, and into one; the memory of a channels-last result.
        plain_x, plain_w, plain_grad = (np.ascontiguousarray(item) for item in (x, w, grad))
        how: Any = {"padding": 1, "layout": "NCHW"}
        weights = kronop.conv.conv2d_weight(plain_x, w.shape, plain_grad, **how)
        assert weights.flags.c_contiguous
        np.testing.assert_array_equal(weights, found)
        images, out = np.zeros_like(plain_x), np.zeros_like(x)
        assert kronop.conv.conv2d_input(x.shape, plain_w, plain_grad, **how, out=images) is images
        assert kronop.conv.conv2d_input(x.shape, w, grad, padding=1, out=out) is out
        np.testing.assert_array_equal(images, out)
        np.testing.assert_array_equal(
            out.transpose(0, 2, 3, 1), sums_of(Operator.dgrad, last["grad"], last["w"])
        )
    nothing = kronop.conv.conv2d_weight(x[:0], w.shape, grad[:0], padding=1)
    assert nothing.shape == w.shape
    assert not nothing.any()


def test_one_image() -> None:
    """(C, H, W), as torch takes it, in both layouts and into a tensor."""
    x, w = _last(1, 4, 5, 6), _last(8, 4, 3, 3)
    expected = kronop.conv.conv2d(x, w, padding=(1,))[0]
    out = np.zeros_like(expected)
    assert kronop.conv.conv2d(x[0], w, padding=1, out=out) is out
    plain = kronop.conv.conv2d(np.ascontiguousarray(x[0]), w, padding=1, layout="NCHW")
    for found in (out, plain, kronop.conv.conv2d(x[0], w, padding=1)):
        np.testing.assert_array_equal(found, expected)


def test_names_that_are_not_there() -> None:
    with pytest.raises(AttributeError, match=r"kronop.conv has no attribute 'conv1d'; .* H = 1"):
        _ = kronop.conv.conv1d  # type: ignore[attr-defined]
    with pytest.raises(AttributeError, match=r"there is kronop\.conv\.conv2d"):
        _ = kronop.conv2d  # type: ignore[attr-defined]
