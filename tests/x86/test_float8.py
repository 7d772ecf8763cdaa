"""8-bit floats in `ksmm`: results of a wider type, exact products, and what is refused."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

import kronop
from tests import support

_PATTERN = (2, 5, 7, 3)
_ELEMENTS = pytest.mark.parametrize("element", support.FLOAT8, ids=lambda item: item.name)


def _operands(element: kronop.DataType, rows: int = 19) -> tuple[Any, Any, Any]:
    """x, weights, and their product in float64."""
    random = np.random.default_rng(3)
    x = support.random_array(random, (rows, 42), element)
    weights = support.random_array(random, _PATTERN, element)
    wide = x.astype(np.float64).reshape(rows, 2, 7, 3), weights.astype(np.float64)
    return x, weights, np.einsum("nikl,ijkl->nijl", *wide).reshape(rows, -1)


@_ELEMENTS
def test_every_value_is_read_exactly(element: kronop.DataType) -> None:
    every = np.arange(256, dtype=np.uint8).view(support.numpy_type(element))[:, None]
    one = np.ones((1, 1, 1, 1), every.dtype)
    y = kronop.ksmm(every, one, out=np.full((256, 1), 7, np.float32))
    np.testing.assert_array_equal(y, every.astype(np.float32))


@_ELEMENTS
def test_results_are_bfloat16_or_what_out_is_of(element: kronop.DataType) -> None:
    x, weights, expected = _operands(element)
    bias = np.linspace(-1, 1, 30)
    for kind, unit in ((None, 2.0**-8), (np.float16, 2.0**-11), (np.float32, 2.0**-22)):
        out = None if kind is None else np.full(expected.shape, np.nan, kind)
        shift = bias.astype(kind or ml_dtypes.bfloat16)
        for _ in range(4):  # Of which the last ones are recognised.
            y = kronop.ksmm(x, weights, alpha=0.25, bias=shift, out=out)
            assert y.dtype == (kind or ml_dtypes.bfloat16)
            error = np.abs(y.astype(np.float64) - (expected / 4 + shift.astype(np.float64)))
            assert error.max() <= unit * np.abs(expected).max()


@_ELEMENTS
def test_torch_tensors_give_torch_tensors(element: kronop.DataType) -> None:
    torch = pytest.importorskip("torch")
    x, weights, expected = _operands(element)
    kind = getattr(torch, element.name)
    there = [torch.from_numpy(item.view(np.uint8)).view(kind) for item in (x, weights)]
    y = kronop.ksmm(*there)
    assert y.dtype == torch.bfloat16
    np.testing.assert_array_equal(y.double().numpy(), kronop.ksmm(x, weights).astype(np.float64))
    single = kronop.ksmm(*there, out=torch.empty(expected.shape))
    assert np.abs(single.numpy() - expected).max() <= 2.0**-20 * np.abs(expected).max()
    turned = kronop.ksmm(there[0].T, there[1], batch_last=True, out=torch.empty(expected.shape).T)
    np.testing.assert_array_equal(turned.T.numpy(), single.numpy())


def test_capsules_tell_their_type() -> None:
    torch = pytest.importorskip("torch")
    from kronop.args.frameworks import view

    class Exporter:
        def __init__(self, tensor: Any) -> None:
            self.tensor = tensor

        def __dlpack__(self, **options: Any) -> Any:
            return self.tensor.__dlpack__(**options)

        def __dlpack_device__(self) -> Any:
            return self.tensor.__dlpack_device__()

    for element in support.FLOAT8:
        tensor = torch.zeros(3, 4, dtype=getattr(torch, element.name))
        assert view(Exporter(tensor), "X").element == element


@_ELEMENTS
def test_what_has_no_kernel_is_refused(element: kronop.DataType) -> None:
    x, weights, expected = _operands(element)
    narrow = np.empty(expected.shape, x.dtype)
    with pytest.raises(kronop.ElementTypeError, match="element type of Y: expected one of float64"):
        kronop.ksmm(x, weights, out=narrow)
    with pytest.raises(kronop.ElementTypeError, match="results are bfloat16"):
        kronop.ksmm(x, [weights, np.ones((2, 3, 5, 3), x.dtype)])
    with pytest.raises(kronop.ElementTypeError, match="Kronecker product: expected a float of at"):
        kronop.gemkm(x, [weights[0, :, :, 0].T])
    with pytest.raises(kronop.ElementTypeError, match="gradient of weights: expected a float of"):
        support.gradient_operation("sm_90a", element, _PATTERN)
    with pytest.raises(kronop.DescriptionError, match="elements of X and W: expected one type"):
        kronop.KSparseOperation(
            "x86",
            None,
            kronop.TensorDescription(element),
            kronop.TensorDescription(kronop.float16),
            kronop.TensorDescription(kronop.bfloat16),
            support.linear(element),
            _PATTERN,
        )
