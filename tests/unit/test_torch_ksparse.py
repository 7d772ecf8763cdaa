"""kronop.torch.ksmm on the CPU: against finite differences, and against the formed product."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from torch.utils._python_dispatch import TorchDispatchMode  # noqa: E402

import kronop  # noqa: E402
import kronop.torch  # noqa: E402
from kronop.errors import ArgumentError, ElementTypeError  # noqa: E402
from kronop.families.ksparse.torch import computing as ksparse_operators  # noqa: E402
from kronop.torch.nn.algorithms import dense_product  # noqa: E402

_CHAINS = {
    "one": [(2, 3, 2, 1)],
    "two": [(2, 3, 2, 1), (1, 2, 3, 2)],
    "three": [(1, 2, 4, 2), (2, 2, 1, 2), (4, 1, 2, 1)],
}
_OPERATOR = torch.ops.kronop.ksmm.default


def _random(*shape: int, dtype: Any = torch.float64) -> Any:
    generator = torch.Generator().manual_seed(sum(shape) + 7 * len(shape))
    return torch.randn(*shape, dtype=torch.float64, generator=generator).to(dtype).requires_grad_()


def _operands(chain: Any, lead: Any, last: bool, dtype: Any = torch.float64) -> Any:
    """x, the weights, a bias and a Z."""
    (a, _, c, d), (e, f, _, h) = chain[0], chain[-1]
    x, z = ((*lead, size) if not last else (size, *lead) for size in (a * c * d, e * f * h))
    weights = [_random(*pattern, dtype=dtype) for pattern in chain]
    return (
        _random(*x, dtype=dtype),
        weights,
        _random(e * f * h, dtype=dtype),
        _random(*z, dtype=dtype),
    )


def _reference(x: Any, weights: Any, bias: Any, z: Any, last: bool) -> Any:
    """0.7 x K' - 0.3 z + bias, by the matrix formed."""
    matrix = dense_product(weights)
    if last:
        flat = 0.7 * matrix @ x.reshape(x.shape[0], -1) + bias[:, None]
        return flat.reshape(z.shape) - 0.3 * z
    return 0.7 * x @ matrix.T - 0.3 * z + bias


@pytest.mark.parametrize("last", [False, True])
@pytest.mark.parametrize(
    ("chain", "lead"), [("one", (3,)), ("two", (2, 2)), ("two", ()), ("three", (2,))]
)
def test_first_and_second_derivatives_are_those_of_finite_differences(
    chain: str, lead: Any, last: bool
) -> None:
    x, weights, bias, z = _operands(_CHAINS[chain], lead, last)

    def call(x: Any, bias: Any, z: Any, *weights: Any) -> Any:
        options = {"alpha": 0.7, "beta": -0.3, "z": z, "batch_last": last}
        return kronop.torch.ksmm(x, list(weights), bias=bias, **options)

    def operator(x: Any, bias: Any, z: Any, *weights: Any) -> Any:
        return _OPERATOR(x, list(weights), bias, z, 0.7, -0.3, last, None)

    tensors = (x, bias, z, *weights)
    exact = _reference(x, weights, bias, z, last)
    for product in (call, operator):
        torch.testing.assert_close(product(*tensors), exact)
        assert torch.autograd.gradcheck(product, tensors)
        assert torch.autograd.gradgradcheck(product, tensors)


@pytest.mark.parametrize("last", [False, True])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_gradients_in_other_types(dtype: Any, last: bool) -> None:
    operands = _operands(_CHAINS["two"], (40,), last, dtype)
    exactly = [
        [one.detach().double().requires_grad_() for one in item]
        if isinstance(item, list)
        else item.detach().double().requires_grad_()
        for item in operands
    ]

    def flat(operands: Any) -> Any:
        x, weights, bias, z = operands
        return [x, *weights, bias, z]

    x, weights, bias, z = operands
    options = {"alpha": 0.7, "beta": -0.3, "batch_last": last}
    result = kronop.torch.ksmm(x, weights, bias=bias, z=z, **options)
    exact = _reference(*exactly, last)
    ones = torch.linspace(-1, 2, result.numel()).reshape(result.shape)
    ours = torch.autograd.grad(result, flat(operands), ones.to(dtype))
    rights = torch.autograd.grad(exact, flat(exactly), ones.to(dtype).double())
    for item, right in zip(ours, rights, strict=True):
        assert item.dtype is dtype
        # What is between the factors, forwards and backwards, and the result are rounded.
        unit = 4 * torch.finfo(dtype).eps
        assert float((item.double() - right).norm() / right.norm()) < unit


@pytest.mark.parametrize("last", [False, True])
@pytest.mark.parametrize("pattern", [(3, 4, 5, 1), (1, 4, 5, 6), (2, 3, 1, 4)])
def test_on_a_cpu_products_are_of_some_rows_in_strides_that_libraries_take(
    pattern: Any, last: bool, monkeypatch
) -> None:
    """Lanes that are not apart in memory were copied one by one, each through the whole tensor."""
    a, b, c, d = pattern
    monkeypatch.setattr(ksparse_operators, "_PART_BYTES", 1 << 12)
    x, g = _random(100, a * c * d).detach(), _random(100, a * b * d).detach()
    wanted = torch.einsum("nikl,nijl->ijkl", x.view(-1, a, c, d), g.view(-1, a, b, d))
    if last:
        x, g = x.T.contiguous(), g.T.contiguous()

    class Seen(TorchDispatchMode):
        products = 0

        def __torch_dispatch__(self, call: Any, types: Any, given: Any, named: Any = None) -> Any:
            if "bmm" in str(call):
                self.products += 1
                assert all(1 in item.stride()[1:] or 1 in item.shape[1:] for item in given[-2:])
            return call(*given, **(named or {}))

    with Seen() as seen:
        found = ksparse_operators.compute_gradient(x, g, pattern, 2.0, last)
    torch.testing.assert_close(found, 2 * wanted)
    assert seen.products > 1


@pytest.mark.parametrize("last", [False, True])
def test_on_a_gpu_the_gradient_of_weights_is_the_kernel(last: bool, monkeypatch) -> None:
    def kernel(x: Any, g: Any, pattern: Any, *, batch_last: bool, alpha: float, out: Any) -> Any:
        a, b, c, d = pattern
        if batch_last:
            x, g = x.T, g.T
        x, g = x.reshape(-1, a, c, d), g.reshape(-1, a, b, d)
        return out.copy_(alpha * torch.einsum("nikl,nijl->ijkl", x, g))

    monkeypatch.setattr(ksparse_operators, "on_gpu", lambda item: True)
    monkeypatch.setattr(ksparse_operators, "weight_gradient", kernel)
    x, weights, bias, z = _operands(_CHAINS["two"], (2, 3), last)
    result = kronop.torch.ksmm(x, weights, bias=bias, alpha=0.7, beta=-0.3, z=z, batch_last=last)
    exact = _reference(x, weights, bias, z, last)
    ones = torch.linspace(-1, 2, result.numel(), dtype=torch.float64).reshape(result.shape)
    leaves = (x, *weights, bias, z)
    ours = torch.autograd.grad(result, leaves, ones)
    for item, right in zip(ours, torch.autograd.grad(exact, leaves, ones), strict=True):
        torch.testing.assert_close(item, right)


@pytest.mark.parametrize(
    "needs", [(1, 0, 0, 0, 0), (0, 1, 0, 0, 0), (0, 0, 1, 0, 0), (0, 0, 0, 1, 0), (1, 0, 1, 0, 1)]
)
def test_only_what_requires_a_gradient_gets_one(needs: Any) -> None:
    x, weights, bias, z = _operands(_CHAINS["two"], (3,), False)
    leaves = (x, *weights, bias, z)
    exact = torch.autograd.grad(_reference(x, weights, bias, z, False).sin().sum(), leaves)
    for product in (kronop.torch.ksmm, _by_operator):
        for item, need in zip(leaves, needs, strict=True):
            item.grad = None
            item.requires_grad_(bool(need))
        product(x, weights, bias=bias, alpha=0.7, beta=-0.3, z=z).sin().sum().backward()
        for item, need, right in zip(leaves, needs, exact, strict=True):
            assert (item.grad is not None) == bool(need)
            if need:
                torch.testing.assert_close(item.grad, right)


def _by_operator(x: Any, weights: Any, *, bias: Any, alpha: float, beta: float, z: Any) -> Any:
    return _OPERATOR(x, weights, bias, z, alpha, beta, False, None)


_ACTIVATIONS = ["relu", "leaky_relu", "tanh", "sigmoid", "silu", "hardswish", "gelu"]


def test_activations_are_torchs_with_and_without_a_gradient() -> None:
    x, weights, _, _ = _operands(_CHAINS["one"], (3,), False)
    plain = kronop.torch.ksmm(x, weights)
    for name in _ACTIVATIONS:
        exact = getattr(torch.nn.functional, name)(plain)
        result = kronop.torch.ksmm(x, weights, activation=name)
        torch.testing.assert_close(result, exact)
        ours = torch.autograd.grad(result.sum(), weights)
        torch.testing.assert_close(
            ours, torch.autograd.grad(exact.sum(), weights, retain_graph=True)
        )
        with torch.no_grad():
            fused = kronop.torch.ksmm(x, weights, activation=name)
        torch.testing.assert_close(fused, exact.detach(), rtol=1e-6, atol=1e-6)


def test_torch_finds_nothing_wrong_with_the_operators() -> None:
    x, weights, bias, z = _operands(_CHAINS["two"], (3,), False)
    check = torch.library.opcheck
    check(_OPERATOR, (x, weights, bias, z, 0.7, -0.3, False, None))
    check(_OPERATOR, (x.T, weights, bias, None, 0.7, 0, True, None))
    g = torch.ones_like(kronop.torch.ksmm(x, weights[:1])).requires_grad_()
    gradient = torch.ops.kronop.ksmm_gradient.default
    check(gradient, (x, g, list(weights[0].shape), 0.7, False))
    check(gradient, (x.T, g.T, list(weights[0].shape), 0.7, True))
    check(torch.ops.kronop.sparse_product.default, (x, weights[0], False, True))


@pytest.mark.parametrize("last", [False, True])
def test_mapped_over_anything(last: bool) -> None:
    x, weights, bias, z = (
        [one.detach() for one in item] if isinstance(item, list) else item.detach()
        for item in _operands(_CHAINS["two"], (3,), last)
    )

    def call(x: Any, weights: Any, bias: Any, z: Any) -> Any:
        return kronop.torch.ksmm(x, weights, bias=bias, alpha=0.7, beta=-0.3, z=z, batch_last=last)

    def two(item: Any, dim: int | None) -> Any:
        return item if dim is None else torch.stack([item, -2 * item], dim)

    for dims in (
        (1, [None, None], None, None),
        (None, [None, None], None, -1),
        (None, [-1, None], None, None),
        (0, [0, 2], 1, 1),
        (None, [None, None], 0, None),
    ):
        operands = (
            two(x, dims[0]),
            [two(item, dim) for item, dim in zip(weights, dims[1], strict=True)],
            two(bias, dims[2]),
            two(z, dims[3]),
        )
        mapped = torch.vmap(call, in_dims=dims)(*operands)
        other = [
            item if dim is None else -2 * item
            for item, dim in zip(
                (x, *weights, bias, z), (dims[0], *dims[1], *dims[2:]), strict=True
            )
        ]
        alone = call(x, weights, bias, z), call(other[0], other[1:3], other[3], other[4])
        torch.testing.assert_close(mapped, torch.stack(alone))


def test_transforms_of_torch_func() -> None:
    x, weights, *_ = _operands(_CHAINS["two"], (3,), False)
    x, weights = x.detach(), [item.detach() for item in weights]

    def loss(weights: Any, row: Any) -> Any:
        return kronop.torch.ksmm(row, weights).sin().sum()

    each = torch.vmap(torch.func.grad(loss), in_dims=(None, 0))(weights, x)
    for row in range(3):
        for first, second in zip(each, torch.func.grad(loss)(weights, x[row]), strict=True):
            torch.testing.assert_close(first[row], second)
    hessian = torch.func.jacrev(torch.func.jacrev(loss))(weights, x)[0][1]
    exact = torch.autograd.functional.hessian(lambda *items: loss([*items], x), tuple(weights))
    torch.testing.assert_close(hessian, exact[0][1])


@pytest.mark.parametrize("batch_last", [False, True])
@pytest.mark.parametrize("of", [0, 1])
def test_jacobians_of_an_empty_batch_are_empty(batch_last: bool, of: int) -> None:
    x, weight = torch.randn(0, 16), torch.randn(2, 3, 4, 2)
    x = x.mT if batch_last else x

    def call(x: Any, weight: Any) -> Any:
        return kronop.torch.ksmm(x, weight, batch_last=batch_last)

    found = torch.func.jacrev(call, of)(x, weight)
    assert found.shape == (*call(x, weight).shape, *(x, weight)[of].shape)


def test_compiled_whole_it_gives_the_same() -> None:
    x, weights, bias, z = _operands(_CHAINS["two"], (3,), False)

    def loss(x: Any, weights: Any, bias: Any, z: Any) -> Any:
        return kronop.torch.ksmm(
            x, weights, bias=bias, alpha=0.7, beta=-0.3, z=z, activation="silu"
        ).sum()

    compiled = torch.compile(loss, fullgraph=True)
    leaves = (x, *weights, bias, z)
    ours = torch.autograd.grad(compiled(x, weights, bias, z), leaves)
    for item, right in zip(
        ours, torch.autograd.grad(loss(x, weights, bias, z), leaves), strict=True
    ):
        torch.testing.assert_close(item, right)


def test_a_vector_with_the_batch_last_and_an_empty_batch() -> None:
    w = np.arange(1.0, 25.0).reshape(2, 3, 4, 1)
    x = np.arange(8.0)
    right = np.einsum("ijkl,ikl->ijl", w, x.reshape(2, 4, 1)).reshape(-1)
    assert np.array_equal(kronop.ksmm(x, w, batch_last=True), right)
    weight = torch.tensor(w, requires_grad=True)
    empty = torch.zeros(0, 8, dtype=torch.float64, requires_grad=True)
    kronop.torch.ksmm(empty, weight).sum().backward()
    assert torch.equal(weight.grad, torch.zeros_like(weight))
    assert empty.grad.shape == (0, 8)


def test_integers_have_no_gradient_and_their_own_result() -> None:
    x = torch.arange(8, dtype=torch.int8).reshape(2, 4)
    weight = torch.ones(2, 3, 2, 1, dtype=torch.int8)
    exact = torch.einsum("nik,ijk->nij", x.int().view(2, 2, 2), weight.int()[..., 0]).reshape(2, 6)
    for call in (kronop.torch.ksmm, torch.compile(kronop.torch.ksmm, backend="aot_eager")):
        y = call(x, weight)
        assert y.dtype is torch.int32
        assert torch.equal(y, exact)


def test_what_does_not_fit_is_refused() -> None:
    x, weight = torch.ones(3, 8), torch.ones(2, 3, 4, 1)
    ksmm = kronop.torch.ksmm
    grad = torch.ones(2, 3, 4, 1, requires_grad=True)
    cases = [
        (lambda: ksmm(np.ones((3, 8)), weight), kronop.ElementTypeError, "torch tensor"),
        (lambda: ksmm(None, weight), kronop.ElementTypeError, "torch tensor"),
        (lambda: ksmm(x, []), kronop.ArgumentError, "at least one"),
        (lambda: ksmm(x.to("meta"), []), kronop.ArgumentError, "at least one"),
        (lambda: ksmm(x[:, :7], weight), kronop.ArgumentError, "8"),
        (lambda: ksmm(x, [weight, weight]), kronop.ArgumentError, "6"),
        (lambda: ksmm(x, grad, beta=1.0), kronop.ArgumentError, "Z"),
        (lambda: ksmm(x, grad, z=x[:, :6]), kronop.ArgumentError, "beta: .* Z is given"),
        (lambda: ksmm(x, weight, z=x[:, :6]), kronop.ArgumentError, "beta: .* Z is given"),
        (
            lambda: ksmm(x.to("meta"), weight.to("meta"), z=x[:, :6].to("meta")),
            kronop.ArgumentError,
            "beta: .* Z is given",
        ),
        (lambda: ksmm(x, grad, alpha=torch.ones(())), kronop.ElementTypeError, "no gradient"),
        (lambda: ksmm(x.double(), weight), kronop.ElementTypeError, "X and weights.*float64 of X"),
        (
            lambda: ksmm(x.double().to("meta"), weight.to("meta")),
            kronop.ElementTypeError,
            "of X and",
        ),
        (lambda: ksmm(x, {}), kronop.ElementTypeError, "weights: .*got dict"),
        (lambda: ksmm(x, [weight, [1.0]]), kronop.ElementTypeError, r"weights\[1\].*got list"),
        (lambda: ksmm(x, grad, activation="celu"), kronop.ArgumentError, "gelu"),
        (lambda: ksmm(x, weight, activation="celu"), kronop.ArgumentError, "gelu"),
        (lambda: ksmm(x.to("meta"), weight.to("meta")[0]), kronop.ArgumentError, "4 dimensions"),
        (lambda: ksmm(x[0, :7].to("meta"), weight.to("meta")), kronop.ArgumentError, "8"),
        (
            lambda: _OPERATOR(x, [grad], None, None, 1, 0, False, "relu"),
            kronop.ArgumentError,
            "kronop.torch.ksmm",
        ),
    ]
    for call, error, word in cases:
        with pytest.raises(error, match=word):
            call()


def test_a_chain_with_gradients_is_checked_before_its_first_factor() -> None:
    x, first = torch.randn(5, 32), torch.randn(4, 8, 8, 1)
    second = torch.nn.Parameter(torch.randn(1, 32, 16, 2))
    with pytest.raises(ArgumentError, match=r"weights\[1\]"):
        kronop.torch.ksmm(x, [second, first])
    good = torch.nn.ParameterList([first, torch.randn(1, 32, 16, 2)])
    assert kronop.torch.ksmm(x, good).shape == (5, 64)
    bytes_of = x.to(torch.float8_e4m3fn)
    weight = first.to(torch.float8_e4m3fn).requires_grad_()
    with pytest.raises(ElementTypeError, match="gradients"):
        kronop.torch.ksmm(bytes_of, weight)


def test_operators_expect_the_types_that_products_have() -> None:
    x, weight = torch.randn(5, 32).to(torch.float8_e4m3fn), torch.randn(4, 8, 8, 1)
    weight = weight.to(torch.float8_e4m3fn)
    arguments = (None, None, 1, 0, False, None)
    real = torch.ops.kronop.ksmm(x, [weight], *arguments)
    with torch._subclasses.FakeTensorMode() as mode:
        fakes = mode.from_tensor(x), [mode.from_tensor(weight)]
        fake = torch.ops.kronop.ksmm(*fakes, *arguments)
    assert fake.dtype is real.dtype is torch.bfloat16


@pytest.mark.parametrize("needs", [False, True])
def test_mixed_operands_are_refused_in_the_same_words_each_time(needs: bool) -> None:
    weights = [torch.ones(2, 3, 4, 1, requires_grad=needs), torch.ones(1, 5, 6, 1)]
    for _ in range(3):  # The long way, noted, and repeated.
        with pytest.raises(ElementTypeError, match=r"of X and weights\[0\]: expected one type"):
            kronop.torch.ksmm(torch.ones(7, 8, dtype=torch.float64), weights)
        with pytest.raises(ArgumentError, match=r"of X and weights\[0\]: expected one device"):
            kronop.torch.ksmm(torch.ones(7, 8, device="meta"), weights)
