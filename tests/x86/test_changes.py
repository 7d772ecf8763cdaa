"""torch knows of what kernels write: a backward through a tensor that has changed is an error."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch")

import kronop  # noqa: E402
import kronop.torch  # noqa: E402
from kronop.core import prepared  # noqa: E402

_X, _WIDE = torch.randn(4, 6), torch.randn(4, 12)
_FACTORS = [torch.randn(2, 2), torch.randn(3, 3)]
_WEIGHTS = [torch.randn(1, 6, 6, 1), torch.randn(2, 3, 3, 1)]


def _arguments(out: Any) -> Any:
    """Built once, run as often as it is called."""
    matrix = kronop.TensorDescription(kronop.float32)
    epilogue = kronop.LinearCombination(kronop.float32, 1, kronop.float32, kronop.float32)
    operation = kronop.KronMatmulOperation(
        "x86", None, matrix, matrix, matrix, epilogue, [(2, 2), (3, 3)]
    )
    made = kronop.KronMatmulArguments(operation=operation, X=_X, factors=_FACTORS, Y=out)
    return lambda out: operation.run(made)


_WAYS: dict[str, Callable[[Any], Any]] = {
    "gemkm": lambda out: kronop.gemkm(_X, _FACTORS, out=out),
    "gekmm": lambda out: kronop.gekmm(_FACTORS, _X.mT, out=out.mT),
    "onto itself": lambda out: kronop.gemkm(_X, _FACTORS, beta=1.0, z=out, out=out),
    "row by row": lambda out: [kronop.gemkm(_X[at], _FACTORS, out=out[at]) for at in range(4)],
    "of NumPy's arrays": lambda out: kronop.gemkm(
        _X.numpy(), [item.numpy() for item in _FACTORS], out=out
    ),
    "ksmm": lambda out: kronop.ksmm(_X, _WEIGHTS[0], out=out),
    "ksmm of a chain": lambda out: kronop.ksmm(_X, _WEIGHTS, out=out),
    "ksmm, batch last": lambda out: kronop.ksmm(_X.mT, _WEIGHTS, batch_last=True, out=out.mT),
    "with a copy": lambda out: kronop.ksmm(_WIDE[:, ::2], _WEIGHTS[0], out=out),
}


@pytest.mark.parametrize("way", [*_WAYS, "arguments"])
def test_a_backward_through_a_result_that_was_written_since_is_an_error(way: str) -> None:
    """However the result is given, in the first calls and in those that are repeated."""
    prepared.forget()
    a, out = torch.randn(4, 6, requires_grad=True), torch.zeros(4, 6)
    write = _arguments(out) if way == "arguments" else _WAYS[way]
    for _ in range(4):
        product = (a * out).sum()
        write(out)
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            product.backward()
    (a * out).sum().backward()
    assert torch.equal(a.grad, out)


def test_what_an_operator_of_torch_has_kept_is_known_to_have_changed() -> None:
    x, factor = torch.randn(4, 6, requires_grad=True), torch.randn(2, 2)
    weight = torch.randn(1, 6, 6, 1)
    for _ in range(4):
        for product, kept in (
            (lambda: kronop.torch.gemkm(x, [factor, _FACTORS[1]]), factor),
            (lambda: kronop.torch.ksmm(x, weight), weight[0, ..., 0]),
        ):
            result = product().sum()
            kronop.gemkm(kept.clone(), [torch.eye(len(kept))], out=kept)
            with pytest.raises(RuntimeError, match="modified by an inplace operation"):
                result.backward()


def test_results_that_require_gradients_are_counted_as_torch_counts_them() -> None:
    out, expected = (torch.nn.Parameter(torch.zeros(4, 6)) for _ in range(2))
    for _ in range(4):
        with pytest.raises(kronop.ArgumentError, match="requires_grad"):
            kronop.gemkm(_X, _FACTORS, out=out)
        with torch.no_grad():
            kronop.gemkm(_X, _FACTORS, out=out)
            torch.mm(_X, torch.kron(*_FACTORS), out=expected)
        assert out._version == expected._version


@pytest.mark.filterwarnings("ignore:Dynamo does not know")
def test_around_graphs_of_torch_compile_results_are_counted_too() -> None:
    out = torch.zeros(4, 6)
    compiled = torch.compile(lambda x: kronop.gemkm(x * 2, _FACTORS, out=out) + 1, backend="eager")
    for count in range(1, 5):
        compiled(_X)
        assert out._version == count


def test_tensors_of_inference_mode_have_no_count() -> None:
    out = torch.zeros(4, 6)
    with torch.inference_mode():
        kept = torch.zeros(4, 6)
        for _ in range(4):
            kronop.gemkm(_X, _FACTORS, out=kept)
            kronop.gemkm(_X, _FACTORS, out=out)
    kronop.gemkm(_X, _FACTORS, out=kept)
    assert torch.equal(kept, out)
    assert out._version == 4
