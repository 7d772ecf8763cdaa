"""kronop's Kronecker products of linear_operator: values and gradients of the class that they
stand for, and who builds them."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch")
operators = pytest.importorskip("linear_operator.operators")

import linear_operator  # noqa: E402

from kronop import linear_operator as ours  # noqa: E402
from kronop.errors import installing  # noqa: E402
from kronop.linear_operator import dense, product  # noqa: E402

_TYPE = torch.float64
# Sums of at most 100 products of numbers near one, or solves of well-conditioned systems.
_NEAR = {"rtol": 1e-10, "atol": 1e-10}


@pytest.fixture(autouse=True)
def _seed() -> None:
    torch.manual_seed(0)


@pytest.fixture
def products(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The factors of every product that kronop was asked for."""
    seen: list[Any] = []
    given = product.gekmm

    def noted(factors: Any, x: Any) -> Any:
        seen.append(factors)
        return given(factors, x)

    monkeypatch.setattr(product, "gekmm", noted)
    return seen


def _rectangles(*batch: int) -> list[Any]:
    return [torch.randn(*batch, 3, 4, dtype=_TYPE), torch.randn(5, 2, dtype=_TYPE)]


def _toeplitz() -> list[Any]:
    return [torch.rand(3, dtype=_TYPE), torch.rand(3, 1, dtype=_TYPE), torch.rand(3, dtype=_TYPE)]


def _structured(column: Any, root: Any, diagonal: Any) -> list[Any]:
    """A Toeplitz matrix, and what GPyTorch's IndexKernel makes of tasks."""
    root, diagonal = operators.RootLinearOperator(root), operators.DiagLinearOperator(diagonal)
    tasks = operators.PsdSumLinearOperator(root, diagonal)
    return [operators.ToeplitzLinearOperator(column), tasks]


_MADE: dict[str, tuple[Callable[[], list[Any]], Callable[..., list[Any]]]] = {
    "rectangles": (_rectangles, lambda *tensors: list(tensors)),
    "batch": (lambda: _rectangles(2), lambda *tensors: list(tensors)),
    "structured": (_toeplitz, _structured),
}


def _both(name: str) -> tuple[Any, Any, list[Any], list[Any]]:
    """linear_operator's operator, kronop's, and the tensors that each was made from."""
    make, wrap = _MADE[name]
    tensors = make()
    theirs, own = ([item.clone().requires_grad_() for item in tensors] for _ in range(2))
    return (
        operators.KroneckerProductLinearOperator(*wrap(*theirs)),
        ours.KroneckerProductLinearOperator(*wrap(*own)),
        theirs,
        own,
    )


@pytest.mark.parametrize("name", list(_MADE))
@pytest.mark.parametrize("columns", [None, 3])
def test_products_are_the_parents(name: str, columns: int | None, products: list[Any]) -> None:
    plain, own, _, _ = _both(name)
    tail = () if columns is None else (columns,)
    if columns is None and plain.dim() > 2:
        pytest.skip("a batch of operators takes no vectors")
    for first, second in ((plain, own), (plain.mT, own.mT)):
        assert isinstance(second, ours.KroneckerProductLinearOperator)
        x = torch.randn(first.shape[-1], *tail, dtype=_TYPE)
        torch.testing.assert_close(second @ x, first @ x, **_NEAR)
        with torch.no_grad():
            torch.testing.assert_close(second @ x, first @ x, **_NEAR)
            with pytest.raises(RuntimeError, match=f"expected {first.shape[-1]} rows"):
                second @ x[1:]
    x = torch.randn(plain.shape[-2], *tail, dtype=_TYPE)
    torch.testing.assert_close(own._t_matmul(x), plain._t_matmul(x), **_NEAR)
    assert len(products) == 5
    torch.testing.assert_close(own.to_dense(), plain.to_dense(), **_NEAR)


@pytest.mark.parametrize("name", list(_MADE))
@pytest.mark.parametrize("by_kernels", [False, True])
def test_gradients_are_the_parents(
    name: str, by_kernels: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dense, "is_derivative_faster", lambda factors, x: by_kernels)
    plain, own, theirs, mine = _both(name)
    x = torch.randn(plain.shape[-1], 3, dtype=_TYPE)
    found = []
    for operator, tensors in ((plain, theirs), (own, mine)):
        right = x.clone().requires_grad_()
        result = operator @ right
        loss = (result * torch.arange(result.numel(), dtype=_TYPE).view_as(result)).sum()
        found.append(torch.autograd.grad(loss, [right, *tensors]))
    torch.testing.assert_close(found[1], found[0], rtol=1e-10, atol=1e-8)


def test_only_what_needs_a_gradient_gets_one() -> None:
    first, second = _rectangles()
    operator = ours.KroneckerProductLinearOperator(first, second.requires_grad_())
    left, right = torch.randn(15, 1, dtype=_TYPE), torch.randn(8, 1, dtype=_TYPE)
    found = operator._bilinear_derivative(left, right)
    assert found[0] is None
    assert found[1].shape == second.shape


def test_operators_that_are_not_dense_keep_their_own_products(products: list[Any]) -> None:
    root = operators.RootLinearOperator(torch.randn(80, 1, dtype=_TYPE))
    diagonal = operators.DiagLinearOperator(torch.rand(3, dtype=_TYPE))
    square = torch.randn(3, 3, dtype=_TYPE)
    x = torch.randn(240, 2, dtype=_TYPE)
    for factors in ([root, square], [torch.randn(80, 80, dtype=_TYPE), diagonal]):
        plain = operators.KroneckerProductLinearOperator(*factors)
        own = ours.KroneckerProductLinearOperator(*factors)
        torch.testing.assert_close(own @ x, plain @ x, **_NEAR)
    assert not products


def test_large_products_of_matrices_that_are_no_tensors_are_the_parents(
    monkeypatch: pytest.MonkeyPatch, products: list[Any]
) -> None:
    monkeypatch.setattr(dense, "is_faster", lambda factors, x: False)
    plain, own, _, _ = _both("structured")
    for shape in ((9,), (9, 3)):
        x = torch.randn(*shape, dtype=_TYPE)
        torch.testing.assert_close(own @ x, plain @ x, **_NEAR)
        torch.testing.assert_close(own._t_matmul(x), plain._t_matmul(x), **_NEAR)
    assert not products


@pytest.mark.parametrize(
    ("sizes", "columns", "expected"),
    [((30, 30, 30), 11, True), ((500, 4), 1, True), ((500, 4), 11, False), ((8, 8), 64, True)],
)
def test_the_faster_product_is_chosen(sizes: Any, columns: int, expected: bool) -> None:
    factors = [torch.empty(size, size) for size in sizes]
    x = torch.empty(1, columns).expand(torch.Size(sizes).numel(), columns)
    assert dense.is_faster(factors, x) is expected
    assert not dense.is_faster(factors, x.double())  # The parent's message says what is wrong.


def _positive(size: int, *batch: int) -> Any:
    root = torch.randn(*batch, size, size, dtype=_TYPE)
    return root @ root.mT + torch.eye(size, dtype=_TYPE)


def test_what_is_derived_from_an_operator_is_kronops_too() -> None:
    operator = ours.KroneckerProductLinearOperator(_positive(3), _positive(4))
    triangular = operator.cholesky()
    assert type(triangular) is ours.KroneckerProductTriangularLinearOperator
    values, vectors = operator.diagonalization()
    added = operator.add_diagonal(torch.ones((), dtype=_TYPE))
    assert type(added) is ours.KroneckerProductAddedDiagLinearOperator
    with linear_operator.settings.max_cholesky_size(1):
        root = operator.root_decomposition().root
    left, _, right = operator.svd()
    for item in (vectors, root, left, right):
        assert type(item) is ours.KroneckerProductLinearOperator
    full = operator.to_dense()
    near = {"rtol": 1e-9, "atol": 1e-9}
    torch.testing.assert_close((triangular @ triangular.mT).to_dense(), full, **near)
    # linear_operator finds roots of large operators by Lanczos' method, with jitter.
    torch.testing.assert_close((root @ root.mT).to_dense(), full, rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(vectors.to_dense() * values @ vectors.to_dense().mT, full, **near)


def _diagonals(name: str) -> Any:
    """Diagonals (of 12 rows) that linear_operator has closed forms for."""
    if name == "constant":
        return operators.ConstantDiagLinearOperator(torch.full((1,), 0.3, dtype=_TYPE), 12)
    if name == "batch":
        return operators.ConstantDiagLinearOperator(torch.rand(2, 1, dtype=_TYPE) + 0.3, 12)
    tasks = operators.DiagLinearOperator(torch.rand(4, dtype=_TYPE) + 0.3)
    ones = operators.ConstantDiagLinearOperator(torch.ones(1, dtype=_TYPE), 3)
    return operators.KroneckerProductDiagLinearOperator(ones, tasks)


@pytest.mark.parametrize("name", ["constant", "batch", "tasks"])
@pytest.mark.parametrize("is_reduced", [True, False])
def test_a_likelihood_decomposes_once_and_is_the_parents(
    name: str, is_reduced: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    batch = (2,) if name == "batch" else ()
    tensors = [_positive(3, *batch), _positive(4), torch.randn(*batch, 12, 2, dtype=_TYPE)]
    diagonal, count, found = _diagonals(name), [], []
    given = torch.linalg.eigh
    monkeypatch.setattr(torch.linalg, "eigh", lambda item: count.append(item) or given(item))
    for kind in (operators, ours):
        first, second, rhs = leaves = [item.clone().requires_grad_() for item in tensors]
        noise = diagonal.clone().requires_grad_(True)
        sum_of = kind.KroneckerProductLinearOperator(first, second) + noise
        assert isinstance(sum_of, kind.KroneckerProductAddedDiagLinearOperator)
        count.clear()
        with linear_operator.settings.max_cholesky_size(1):
            quadratic, logdet = sum_of.inv_quad_logdet(rhs, True, is_reduced)
        leaves += [item for item in noise.representation() if item.requires_grad]
        gradients = torch.autograd.grad(quadratic.sum() + 2 * logdet.sum(), leaves)
        found.append((quadratic, logdet, gradients))
    assert len(count) == 2  # One for each factor.
    torch.testing.assert_close(found[1], found[0], rtol=1e-8, atol=1e-8)


def _likelihood(kind: Any, noise: float) -> tuple[Any, Any]:
    """The inverse quadratic form and the determinant of a product plus noise, and the factor."""
    first = torch.tensor([0.0, 1.0, 3.0], dtype=_TYPE).diag().requires_grad_()
    diagonal = operators.ConstantDiagLinearOperator(torch.full((1,), noise, dtype=_TYPE), 12)
    sum_of = kind.KroneckerProductLinearOperator(first, torch.eye(4, dtype=_TYPE)) + diagonal
    with linear_operator.settings.max_cholesky_size(1):
        return sum_of.inv_quad_logdet(torch.ones(12, 1, dtype=_TYPE), True), first


@pytest.mark.parametrize("kind", [operators, ours])
def test_a_likelihood_of_what_is_not_positive_definite_is_not_a_number(kind: Any) -> None:
    assert all(item.isnan() for item in _likelihood(kind, -2.0)[0])


def test_second_derivatives_of_a_quadratic_form_are_refused_and_first_ones_kept() -> None:
    (quadratic, logdet), first = _likelihood(ours, 1.0)
    # The factor is F = diag(0, 1, 3), and the operator A has each element of F + 1 four times. So
    # 1^T A^-1 1 has the gradient -4 v v^T with v = 1 / (F + 1), and log |A| has 4 diag(v).
    inverse = torch.tensor([1, 0.5, 0.25], dtype=_TYPE)
    (found,) = torch.autograd.grad(quadratic, first, create_graph=True)
    torch.testing.assert_close(found, -4 * inverse.outer(inverse), **_NEAR)
    with pytest.raises(NotImplementedError, match=r"second ones.*to_dense"):
        found.sum().backward()
    (found,) = torch.autograd.grad(logdet, first, create_graph=True)
    (again,) = torch.autograd.grad(found.trace(), first)
    torch.testing.assert_close(again, -4 * (inverse**2).diag(), **_NEAR)


def test_factors_that_change_in_place_are_written_down_anew(products: list[Any]) -> None:
    tensors = _toeplitz()
    operator = ours.KroneckerProductLinearOperator(*_structured(*tensors))
    x = torch.randn(9, 1, dtype=_TYPE)
    for change in (lambda item: item, lambda item: item.mul_(2)):
        for item in tensors:
            change(item)
        plain = operators.KroneckerProductLinearOperator(*_structured(*tensors))
        with torch.no_grad():
            for _ in range(2):
                torch.testing.assert_close(operator @ x, plain @ x, **_NEAR)
        assert products[-1] is products[-2]  # Written down once.


def test_other_sums_and_small_ones_are_the_parents() -> None:
    rhs = torch.randn(12, 1, dtype=_TYPE)
    factors = [_positive(3), _positive(4)]
    for diagonal in (_diagonals("tasks"), operators.DiagLinearOperator(torch.rand(12).double())):
        found = [
            (kind.KroneckerProductLinearOperator(*factors) + diagonal).inv_quad_logdet(rhs, True)
            for kind in (operators, ours)
        ]
        torch.testing.assert_close(found[1], found[0], **_NEAR)


def _built() -> type:
    first, second = torch.eye(2), torch.eye(3)
    return type(operators.KroneckerProductLinearOperator(first, second))


def test_blocks_are_nested_and_end() -> None:
    own, plain = ours.KroneckerProductLinearOperator, operators.KroneckerProductLinearOperator
    with ours.accelerated():
        with ours.accelerated():
            assert _built() is own
        assert _built() is own
        seen: list[type] = []
        thread = threading.Thread(target=lambda: seen.append(_built()))
        thread.start()
        thread.join()
        assert seen == [plain]  # A block is its thread's own.
    assert _built() is plain
    with pytest.raises(ZeroDivisionError), ours.accelerated():
        1 / 0  # noqa: B018
    assert _built() is plain
    assert ours.accelerated()(_built)() is own


def test_a_whole_program_is_accelerated_until_it_says_otherwise() -> None:
    ours.accelerate()
    try:
        with ours.accelerated():
            pass
        seen: list[type] = []
        thread = threading.Thread(target=lambda: seen.append(_built()))
        thread.start()
        thread.join()
        assert seen == [_built()] == [ours.KroneckerProductLinearOperator]
    finally:
        ours.accelerate(False)
    assert _built() is operators.KroneckerProductLinearOperator


def test_classes_of_others_are_left_alone() -> None:
    class Own(operators.KroneckerProductLinearOperator):  # type: ignore[misc]
        pass

    with ours.accelerated():
        assert type(Own(torch.eye(2))) is Own
        diagonal = operators.KroneckerProductDiagLinearOperator(
            operators.DiagLinearOperator(torch.ones(2))
        )
    assert type(diagonal) is operators.KroneckerProductDiagLinearOperator


def test_without_linear_operator_the_error_names_the_extra() -> None:
    code = "import sys; sys.modules['linear_operator'] = None; import kronop.linear_operator"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert installing("gpytorch") in found.stderr


@pytest.mark.cuda
@pytest.mark.parametrize("name", list(_MADE))
def test_products_and_gradients_on_a_gpu(name: str, products: list[Any]) -> None:
    make, wrap = _MADE[name]
    given, found = make(), []
    x = torch.randn(wrap(*given)[0].shape[-1] * wrap(*given)[1].shape[-1], 70, dtype=_TYPE)
    for device, kind in (("cpu", operators), ("cuda", ours)):
        leaves = [item.to(device).requires_grad_() for item in (x.clone(), *given)]
        result = kind.KroneckerProductLinearOperator(*wrap(*leaves[1:])) @ leaves[0]
        gradients = torch.autograd.grad(result.square().sum(), leaves)
        found.append([item.cpu() for item in (result, *gradients)])
    assert products
    torch.testing.assert_close(found[1], found[0], rtol=1e-9, atol=1e-8)
