"""Operators of torch tensors: gradients in float64, beside differences."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import kronop
from kronop.errors import ArgumentError
from tests.unit.operator_cases import definite

torch = pytest.importorskip("torch")


def _tensor(*shape: int, seed: int = 0) -> Any:
    made = torch.from_numpy(np.random.default_rng(seed).standard_normal(shape))
    return made.requires_grad_()


def _definite(g: Any) -> Any:
    """A symmetric positive definite matrix that depends on every element of g."""
    return g @ g.mT / 2 + torch.eye(g.shape[-1], dtype=g.dtype)


def _kron(a: Any, b: Any) -> Any:
    return kronop.KroneckerOperator([_definite(a), _definite(b)])


def _sum(a: Any, b: Any) -> Any:
    return kronop.KroneckerSum([_definite(a), _definite(b)])


def _two(a: Any, b: Any) -> Any:
    return _kron(a, b) + 0.1 * kronop.KroneckerOperator([a + a.mT, b + b.mT])


_MAKERS = pytest.mark.parametrize("make", [_kron, _sum, _two])
_A, _B, _X, _S = _tensor(3, 3), _tensor(2, 2, seed=1), _tensor(6, 2, seed=2), _tensor(1)[0]
_SIGMA2 = (_S.detach() ** 2 + 0.1).requires_grad_()


def _shift(make: Any, sigma2: Any) -> tuple[Any, ...]:
    """The sigma2 of a solution: a sum of products takes none."""
    return () if make is _two else (sigma2,)


@_MAKERS
def test_products(make: Callable[..., Any]) -> None:
    assert torch.autograd.gradcheck(lambda a, b, x: make(a, b) @ x, (_A, _B, _X))
    rows = _X.detach().mT.contiguous().requires_grad_()
    assert torch.autograd.gradcheck(lambda a, b, x: x @ make(a, b), (_A, _B, rows))
    assert torch.autograd.gradcheck(lambda a, b: make(a, b).diagonal(), (_A, _B))


@_MAKERS
def test_solutions(make: Callable[..., Any]) -> None:
    def solved(a: Any, b: Any, x: Any, s: Any) -> Any:
        return make(a, b).solve(x, *_shift(make, s))

    assert torch.autograd.gradcheck(solved, (_A, _B, _X, _SIGMA2))
    if make is not _two:  # Its second derivatives go the same way, in twice as many steps.
        assert torch.autograd.gradgradcheck(solved, (_A, _B, _X, _SIGMA2), fast_mode=True)


@_MAKERS
def test_determinants(make: Callable[..., Any]) -> None:
    def logdet(a: Any, b: Any, s: Any) -> Any:
        return make(a, b).logdet(*_shift(make, s))

    assert torch.autograd.gradcheck(logdet, (_A, _B, _SIGMA2))


def test_batches() -> None:
    """Gradients are summed over what was broadcast."""
    a, s = _tensor(2, 3, 3, seed=3), torch.tensor([0.5, 2.0], dtype=torch.float64).requires_grad_()
    vector = _X.detach()[:, 0].clone().requires_grad_()
    for x in (_X, vector):
        inputs = (a, _B, x, s)
        assert torch.autograd.gradcheck(lambda a, b, x, s: _kron(a, b).solve(x, s), inputs)
    assert torch.autograd.gradcheck(lambda a, b, s: _kron(a, b).logdet(s), (a, _B, s))


def test_scales() -> None:
    """A tensor that operators are multiplied by has gradients through all that they do."""
    for function in (
        lambda k, x, s: (s * k) @ x,
        lambda k, x, s: (k / s).solve(x, 0.3),
        lambda k, x, s: (s * k).logdet(0.3),
        lambda k, x, s: (s * k).eigh().solve(x, 0.3),
        lambda k, x, s: (s * k).T.diagonal() + (s * k).trace(),
    ):
        for make in (_kron, _sum):
            assert torch.autograd.gradcheck(
                lambda a, s, make=make, function=function: function(make(a, _B.detach()), _X, s),
                (_A, _SIGMA2),
                fast_mode=True,
            )
    for function in (
        lambda k, x, s: (s * k).solve(x),
        lambda k, x, s: (s * k).logdet(),
        lambda k, x, s: ((s * k).cholesky() @ x, ((s * k) ** -2) @ x),
        lambda k, x, s: (s * k + s**2 * k).solve(x),
        lambda k, x, s: (s * k + s**2 * k).logdet(),
    ):
        assert torch.autograd.gradcheck(
            lambda a, s, function=function: function(_kron(a, _B.detach()), _X, s),
            (_A, _SIGMA2),
            fast_mode=True,
        )


def test_kept_decompositions_leave_gradients_as_they_are() -> None:
    """An operator that outlives a backward, and is used with and without gradients in turn."""
    inputs = [_definite(item).detach().requires_grad_() for item in (_A, _B)]
    for make in (kronop.KroneckerOperator, kronop.KroneckerSum):
        operator, b = make(inputs), _X.detach()
        wanted = None
        for _ in range(2):
            with torch.inference_mode():
                x = operator.solve(b, 0.3)
            with torch.no_grad():
                assert torch.equal(operator.eigh().solve(b, 0.3), x)
            loss = (operator.solve(b, 0.3) * x.clone()).sum() + operator.logdet(0.3)
            loss = loss + (operator.sqrt() @ b).sum()
            found = torch.autograd.grad(loss, inputs)
            wanted = found if wanted is None else wanted
            assert all(map(torch.equal, found, wanted))
        fresh = make([item.detach().clone().requires_grad_() for item in inputs])
        loss = (fresh.solve(b, 0.3) * x.clone()).sum() + fresh.logdet(0.3)
        loss = loss + (fresh.sqrt() @ b).sum()
        for found, expected in zip(wanted, torch.autograd.grad(loss, fresh.factors), strict=True):
            torch.testing.assert_close(found, expected)
        gradient = torch.func.grad(lambda b, make=operator: (make.solve(b, 0.3) ** 2).sum())(b)
        (expected,) = torch.autograd.grad((operator.solve(_X, 0.3) ** 2).sum(), _X)
        torch.testing.assert_close(gradient, expected)
        with torch.autograd.forward_ad.dual_level():  # Kept or not, tangents are not lost.
            dual = torch.autograd.forward_ad.make_dual(
                inputs[0].detach(), torch.ones(3, 3).double()
            )
            values = make([dual, inputs[1].detach()]).eigvalsh()
            assert torch.autograd.forward_ad.unpack_dual(values).tangent is not None
        with torch.no_grad():
            inputs[1].mul_(2)
        torch.testing.assert_close(operator.solve(b, 0.3), make(inputs).solve(b, 0.3))
        with torch.no_grad():
            inputs[1].div_(2)


_MASK = np.asarray([True, True, False, True, False, True])
_MASKS = pytest.mark.parametrize("mask", [_MASK, _MASK ^ (np.arange(6) < 4)], ids=["most", "few"])


@_MAKERS
@_MASKS
def test_parts(make: Callable[..., Any], mask: Any) -> None:
    """Of either block, dense ones also to second order."""
    x = _X.detach()[: int(mask.sum())].requires_grad_()

    def part(a: Any, b: Any, method: str) -> Any:
        return make(a, b).masked(mask, method=method, rtol=1e-13)

    for function in (
        lambda a, b, s, x: part(a, b, "dense").solve(x, s),
        lambda a, b, s, x: part(a, b, "iterative").solve(x, s),
        lambda a, b, s, x: part(a, b, "dense").logdet(s),
        lambda a, b, s, x: part(a, b, "dense") @ x,
    ):
        assert torch.autograd.gradcheck(function, (_A, _B, _SIGMA2, x), fast_mode=True)
    assert torch.autograd.gradgradcheck(
        lambda a, s: part(a, _B.detach(), "dense").logdet(s), (_A, _SIGMA2), fast_mode=True
    )


@_MAKERS
@_MASKS
def test_gradients_of_estimates_are_by_the_same_vectors(make: Any, mask: Any) -> None:
    """z^T M^-1 dM z for each of these, beside the gradient of that form of a dense matrix."""
    part = make(_A, _B).masked(mask, method="iterative", probes=3, seed=5, rtol=1e-13)
    found = torch.autograd.grad(part.logdet(_SIGMA2), (_A, _B, _SIGMA2))
    matrix = make(_A, _B).to_dense() + _SIGMA2 * torch.eye(6, dtype=torch.float64)
    total, block = 0.0, matrix[mask][:, mask]
    if make is not _two:
        total, block = matrix.logdet(), torch.linalg.inv(matrix)[~mask][:, ~mask]
    z = torch.from_numpy(np.random.default_rng(5).integers(0, 2, (len(block), 3)) * 2.0 - 1)
    form = (torch.linalg.solve(block.detach(), z) * (block @ z)).sum() / 3
    torch.testing.assert_close(found, torch.autograd.grad(total + form, (_A, _B, _SIGMA2)))


def test_functional_gradients_of_parts() -> None:
    def loss(a: Any) -> Any:
        part, b = _kron(a, _B.detach()).masked(_MASK), _X.detach()[:4]
        x, _ = part.cg(b, sigma2=0.3, rtol=1e-13)
        return (part.solve(b, 0.3) * x).sum() + part.logdet(0.3)

    (wanted,) = torch.autograd.grad(loss(_A), _A)
    torch.testing.assert_close(torch.func.grad(loss)(_A.detach()), wanted)


def test_a_grid_with_missing_points_is_a_dense_process() -> None:
    """Solutions, the marginal likelihood, and its gradients by all hyperparameters."""
    order, points = 36, torch.linspace(0, 1, 36, dtype=torch.float64)
    mask = np.random.default_rng(0).uniform(size=(order, order)) > 0.3
    squares = (points[:, None] - points) ** 2
    truth = torch.sin(6 * points[:, None]) * torch.cos(4 * points)
    noise = np.random.default_rng(1).standard_normal((order, order))
    y = (truth + 0.1 * torch.from_numpy(noise))[torch.from_numpy(mask)]
    hyper = [torch.tensor(v).double().requires_grad_() for v in (0.2, 0.3, 1.5, 0.01)]
    first, second, size, sigma2 = hyper

    kernel = [torch.exp(-squares / (2 * width**2)) for width in (first, second)]
    part = (size * kronop.KroneckerOperator(kernel)).masked(mask)
    x = part.solve(y, sigma2)
    log_likelihood = -0.5 * (y @ x + part.logdet(sigma2))
    found = torch.autograd.grad(log_likelihood, hyper)

    rows = torch.from_numpy(np.stack(np.nonzero(mask)))
    one, other = (
        -squares[at][:, at] / (2 * width**2) for at, width in ((rows[0], 0.2), (rows[1], 0.3))
    )
    with torch.no_grad():
        dense = size * torch.exp(one + other)
        root = torch.linalg.cholesky(dense + sigma2 * torch.eye(len(y), dtype=dense.dtype))
        wanted = torch.cholesky_solve(y[:, None], root)
        value = -0.5 * (y @ wanted[:, 0] + 2 * root.diagonal().log().sum())
        # d log p = tr((x x^T - A^-1) dA) / 2 (Rasmussen and Williams, equation 5.9).
        sides = 0.5 * (wanted @ wanted.mT - torch.cholesky_inverse(root))
        trace = sides.trace()
        sides *= dense
        gradients = [
            -2 * (one * sides).sum() / first,
            -2 * (other * sides).sum() / second,
            sides.sum() / size,
            trace,
        ]
    torch.testing.assert_close(x, wanted[:, 0], rtol=1e-6, atol=1e-6 * float(abs(wanted).max()))
    torch.testing.assert_close(log_likelihood.detach(), value, rtol=1e-6, atol=0)
    torch.testing.assert_close(list(found), gradients, rtol=1e-6, atol=0)

    iterative = (size * kronop.KroneckerOperator(kernel)).masked(mask, method="iterative", probes=8)
    with torch.no_grad():
        x = iterative.solve(y, sigma2)
        estimate, error = iterative.estimate_logdet(sigma2)
    torch.testing.assert_close(x, wanted[:, 0], rtol=1e-6, atol=1e-6 * float(abs(wanted).max()))
    assert abs(estimate - 2 * root.diagonal().log().sum()) < 4 * error
    assert error < 1e-3 * abs(estimate)


def test_repeated_eigenvalues_have_gradients() -> None:
    """The eigenvectors of an identity are not differentiable; solutions and determinants are."""
    a, b = (torch.eye(n, dtype=torch.float64).requires_grad_() for n in (3, 2))
    operator = kronop.KroneckerOperator([a, b])
    x = operator.solve(_X.detach(), 1.0)
    wanted = -(x.detach() / 2).reshape(3, 2, 2)
    (found,) = torch.autograd.grad(x.sum(), a)
    assert torch.allclose(found, (wanted.sum((1, 2)) * 1.0).expand(3, 3), atol=1e-14)
    (found,) = torch.autograd.grad(operator.logdet(1.0), a)
    assert torch.allclose(found, torch.eye(3, dtype=torch.float64))


def test_functions_of_operators() -> None:
    for function in (
        lambda a, b: _kron(a, b).sqrt() @ _X.detach(),
        lambda a, b: (_kron(a, b) ** -0.5) @ _X.detach(),
        lambda a, b: kronop.KroneckerSum([a, b]).exp() @ _X.detach(),
        lambda a, b: _kron(a, b).eigh().solve(_X.detach(), 0.5),
        lambda a, b: _kron(a, b).cholesky() @ _X.detach(),
    ):
        assert torch.autograd.gradcheck(function, (_A, _B))


def test_functional_gradients_are_those_of_autograd() -> None:
    def loss(a: Any) -> Any:
        return (_kron(a, _B.detach()).solve(_X.detach(), 0.3) ** 2).sum()

    (wanted,) = torch.autograd.grad(loss(_A), _A)
    assert torch.allclose(torch.func.grad(loss)(_A.detach()), wanted)


def test_compiled() -> None:
    """Operators break the graph, and the result is the same."""
    a, b = (_definite(item).detach() for item in (_A, _B))

    def product(a: Any, b: Any) -> Any:
        return kronop.KroneckerOperator([a, b]) @ _X.detach()

    assert torch.allclose(torch.compile(product, backend="eager")(a, b), product(a, b))


def test_conjugate_gradients() -> None:
    def solved(a: Any, b: Any, x: Any, s: Any) -> Any:
        return kronop.cg(_two(a, b), x, sigma2=s, rtol=1e-12)[0]

    assert torch.autograd.gradcheck(solved, (_A, _B, _X, _SIGMA2))
    assert torch.autograd.gradgradcheck(solved, (_A, _B, _X, _SIGMA2), fast_mode=True)


def test_conjugate_gradients_of_matrices_and_functions() -> None:
    def solved(a: Any, x: Any) -> Any:
        return kronop.cg(_definite(a), x, rtol=1e-12)[0]

    assert torch.autograd.gradcheck(solved, (_tensor(6, 6), _X))
    matrix = _definite(_tensor(6, 6))
    with pytest.raises(ArgumentError, match=r"gradient.*MaskedOperator.*torch.no_grad\(\)"):
        kronop.cg(lambda x: matrix @ x, _X)
    with torch.no_grad():
        x, _ = kronop.cg(lambda x: matrix @ x, _X, rtol=1e-12)
        assert torch.allclose(matrix @ x, _X)


def test_autocast_leaves_solutions_as_they_are() -> None:
    factors = [torch.from_numpy(item) for item in definite([(4, 4), (3, 3)], "float32")]
    operator, b = kronop.KroneckerOperator(factors), torch.ones(12, 2, requires_grad=True)
    for solve in (
        lambda: operator.solve(b),
        lambda: operator.solve(b, 0.5),
        lambda: kronop.cg(operator, b, sigma2=0.5)[0],
    ):
        plain = solve()
        (expected,) = torch.autograd.grad(plain.sum(), b)
        with torch.autocast("cpu", torch.bfloat16):
            found = solve()
            (gradient,) = torch.autograd.grad(found.sum(), b)
        for one, other in ((found, plain), (gradient, expected)):
            torch.testing.assert_close(one, other, rtol=1e-5, atol=1e-6)


def test_transforms_that_are_out_say_so() -> None:
    """What the documentation lists as missing is an error, never a wrong number."""
    operator, vector = _kron(_A.detach(), _B.detach()), _X.detach()[:, 0]

    def solved(b: Any) -> Any:
        return operator.solve(b, 0.5)

    with pytest.raises(RuntimeError, match="vmap"):
        torch.vmap(solved)(vector.expand(3, 6))
    with pytest.raises(RuntimeError, match="vmap"):
        torch.func.jacrev(solved)(vector)
    with pytest.raises(NotImplementedError, match="jvp"):
        torch.func.jvp(solved, (vector,), (vector,))
