"""Gradients of kronop.torch on the CPU: against finite differences, and against torch.kron."""

from __future__ import annotations

import functools
from typing import Any

import pytest

torch = pytest.importorskip("torch")

import kronop  # noqa: E402
import kronop.torch  # noqa: E402
from kronop.core import program  # noqa: E402
from kronop.families.kron.runs import Run, permutes, runs  # noqa: E402
from kronop.families.kron.torch import gradient, sums  # noqa: E402
from kronop.families.kron.torch.sums import _split  # noqa: E402


def _random(*shape: int, dtype: Any = torch.float64) -> Any:
    generator = torch.Generator().manual_seed(sum(shape) + 7 * len(shape))
    tensor = torch.randn(*shape, dtype=torch.float64, generator=generator)
    return tensor.to(dtype).requires_grad_()


def _reference(x: Any, factors: Any, left: bool, alpha: float = 1.0) -> Any:
    """By the product formed, batch by batch."""

    def kron(a: Any, b: Any) -> Any:
        product = a[..., :, None, :, None] * b[..., None, :, None, :]
        rows, columns = a.shape[-2] * b.shape[-2], a.shape[-1] * b.shape[-1]
        return product.reshape(*product.shape[:-4], rows, columns)

    matrix = functools.reduce(kron, factors)
    return alpha * (matrix @ x if left else x @ matrix)


def _product(x: Any, factors: Any, left: bool, **scalars: Any) -> Any:
    if left:
        return kronop.torch.gekmm(list(factors), x, **scalars)
    return kronop.torch.gemkm(x, list(factors), **scalars)


# x, factors, z (or None), left
_CASES = {
    "ragged": ((3, 12), [(2, 3), (3, 1), (2, 2)], (3, 6), False),
    "one factor": ((2, 3), [(3, 4)], None, False),
    "vector": ((6,), [(2, 3), (3, 2)], (6,), False),
    "batched x": ((2, 2, 6), [(2, 3), (3, 2)], (2, 6), False),
    "batched factors": ((3, 6), [(2, 1, 2, 2), (2, 3, 1)], None, False),
    "z has a batch more": ((2, 4), [(2, 2), (2, 1)], (3, 2, 2), False),
    "left": ((4, 3), [(3, 2), (1, 2)], (3, 3), True),
    "left vector": ((4,), [(3, 2), (1, 2)], None, True),
    "left batched": ((2, 1, 6, 2), [(2, 3), (3, 2, 2)], None, True),
}


@pytest.mark.parametrize("case", _CASES.values(), ids=_CASES.keys())
def test_first_and_second_derivatives_are_those_of_finite_differences(case: Any) -> None:
    x_shape, factor_shapes, z_shape, left = case
    operands = [_random(*shape) for shape in (x_shape, *factor_shapes)]
    scalars: dict[str, Any] = {"alpha": 0.7}
    if z_shape is not None:
        operands.append(_random(*z_shape))

    def call(x: Any, *others: Any) -> Any:
        if z_shape is None:
            return _product(x, others, left, **scalars)
        return _product(x, others[:-1], left, **scalars, beta=-0.3, z=others[-1])

    assert torch.autograd.gradcheck(call, operands)
    assert torch.autograd.gradgradcheck(call, operands)


_SHAPES = {
    "many twos": ((5,), [(2, 2)] * 7),
    "ragged": ((4,), [(3, 5), (2, 1), (7, 4), (1, 3)]),
    "small last": ((3,), [(5, 4), (33, 31), (2, 3)]),
    "batched x": ((2, 3), [(4, 4)] * 3),
    "large": ((2,), [(40, 36), (17, 19)]),
}


def _weight_gradient(
    x: Any,
    g: Any,
    pattern: Any,
    *,
    tied: bool,
    alpha: float,
    beta: float,
    z: Any,
    out: Any,
    factors: Any = (),
) -> None:
    """What the kernels of a GPU compute, by torch."""
    _, b, c, d = pattern
    assert tied
    assert z is out or not beta
    sums = torch.einsum(
        "...kql,...kpl->...qp", x.unflatten(-1, (c, d)).to(out), g.unflatten(-1, (b, d)).to(out)
    )
    if factors:
        sums = torch.cat([item.reshape(-1) for item in _split(sums, factors)])
    out.copy_(alpha * sums if beta == 0 else alpha * sums + beta * z)


@pytest.fixture
def as_on_a_gpu(monkeypatch) -> None:
    for module in (gradient, sums):
        monkeypatch.setattr(module, "on_gpu", lambda item: True)
    monkeypatch.setattr(sums, "weight_gradient", _weight_gradient)
    monkeypatch.setattr(program, "repeat", lambda *arguments: (None, None))


def _close(ours: Any, exact: Any, unit: float) -> None:
    assert len(ours) == len(exact)
    for found, right in zip(ours, exact, strict=True):
        assert found.shape == right.shape
        assert found.is_contiguous()
        assert float((found.double() - right).norm() / right.norm()) < unit


@pytest.mark.parametrize("part_bytes", [1, 2**23])
@pytest.mark.parametrize("left", [False, True])
@pytest.mark.parametrize("case", _SHAPES.values(), ids=_SHAPES.keys())
def test_every_cut_into_runs_and_part_gives_the_gradients_of_the_formed_product(
    case: Any, left: bool, part_bytes: int, monkeypatch
) -> None:
    monkeypatch.setitem(gradient._PART_BYTES, "cpu", part_bytes)
    lead, shapes = case
    factors = [_random(*(shape[::-1] if left else shape)) for shape in shapes]
    columns = 1
    for rows, _ in shapes:
        columns *= rows
    x = _random(*lead[:-1], columns, lead[-1]) if left else _random(*lead, columns)
    result, exact = _product(x, factors, left, alpha=1.5), _reference(x, factors, left, 1.5)
    weights = torch.linspace(-1, 2, result.numel(), dtype=torch.float64).reshape(result.shape)
    operands = (x, *factors)
    ours = torch.autograd.grad(result, operands, weights, retain_graph=True)
    _close(ours, torch.autograd.grad(exact, operands, weights, retain_graph=True), 1e-13)
    for asked in ([x], [factors[0]], [factors[-1]], [x, factors[1]]):
        ours = torch.autograd.grad(result, asked, weights, retain_graph=True)
        exactly = torch.autograd.grad(exact, asked, weights, retain_graph=True)
        _close(ours, exactly, 1e-13)


@pytest.mark.parametrize("part_bytes", [1, 2**23])
@pytest.mark.parametrize("left", [False, True])
@pytest.mark.parametrize("case", _SHAPES.values(), ids=_SHAPES.keys())
@pytest.mark.usefixtures("as_on_a_gpu")
def test_sums_of_kernels_are_those_of_matmul(
    case: Any, left: bool, part_bytes: int, monkeypatch
) -> None:
    test_every_cut_into_runs_and_part_gives_the_gradients_of_the_formed_product(
        case, left, part_bytes, monkeypatch
    )


@pytest.mark.parametrize("case", ["batched factors", "left batched", "batched x"])
@pytest.mark.usefixtures("as_on_a_gpu")
def test_factors_with_a_batch_have_sums_of_their_own(case: str) -> None:
    test_first_and_second_derivatives_are_those_of_finite_differences(_CASES[case])


@pytest.mark.usefixtures("as_on_a_gpu")
def test_sums_of_16_bit_operands_are_wider() -> None:
    for dtype in (torch.float16, torch.bfloat16):
        test_gradients_in_other_types(dtype, False)


@pytest.mark.parametrize("needs", [(True, False, True), (False, True, False), (False, False, True)])
def test_only_what_requires_a_gradient_gets_one(needs: tuple[bool, ...]) -> None:
    tensors = [_random(3, 6), _random(2, 3), _random(3, 4)]
    for item, need in zip(tensors, needs, strict=True):
        item.requires_grad_(need)
    kronop.torch.gemkm(tensors[0], tensors[1:]).sum().backward()
    assert [item.grad is not None for item in tensors] == list(needs)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
@pytest.mark.parametrize("left", [False, True])
def test_gradients_in_other_types(dtype: Any, left: bool) -> None:
    operands = [_random(*((64, 5) if left else (5, 64)), dtype=dtype)]
    operands += [_random(4, 4, dtype=dtype) for _ in range(3)]
    result = _product(operands[0], operands[1:], left)
    weights = _random(*result.shape, dtype=dtype).detach()
    ours = torch.autograd.grad(result, operands, weights)
    assert {item.dtype for item in ours} == {dtype}
    exactly = [item.detach().double().requires_grad_() for item in operands]
    exact = _reference(exactly[0], exactly[1:], left)
    # Two products of three factors, and what is between the runs, are rounded to the type.
    unit = 8 * torch.finfo(dtype).eps
    _close(ours, torch.autograd.grad(exact, exactly, weights.double()), unit)


@pytest.mark.parametrize("left", [False, True])
def test_no_rows_give_gradients_of_zero(left: bool) -> None:
    x, factors = _random(*((6, 0) if left else (0, 6))), [_random(3, 2), _random(2, 3)]
    if left:
        factors.reverse()
    _product(x, factors, left).sum().backward()
    assert x.grad.shape == x.shape
    assert all(torch.equal(item.grad, torch.zeros_like(item)) for item in factors)


def test_strided_operands_and_an_expanded_gradient() -> None:
    x, first, second = operands = (_random(12, 5), _random(5, 3), _random(4, 6))
    strided = x.T, [first[1:4], second[:, ::3]]
    ours = torch.autograd.grad(_product(*strided, False).sum(), operands, retain_graph=True)
    exact = torch.autograd.grad(_reference(*strided, False).sum(), operands)
    for found, right in zip(ours, exact, strict=True):
        torch.testing.assert_close(found, right)


def test_runs_save_passes_where_contractions_stay_cheap() -> None:
    def cut(shapes: Any, inner: int = 1, wanted: Any = None, wants_x: bool = True) -> Any:
        found = runs(tuple(shapes), wanted or (True,) * len(shapes), wants_x, inner, 4, False)
        return [(run.start, run.stop) for run in found]

    assert len(cut([(8, 8)] * 5)) == 3
    assert len(cut([(64, 64)] * 3)) == 3
    assert len(cut([(2, 2)] * 12)) <= 3
    # What needs no gradient is never alone: it is applied together with neighbours.
    assert cut([(8, 8)] * 5, wanted=(True, False, False, False, False), wants_x=False)[1:] == [
        (1, 5)
    ]
    for shapes in ([(3, 7)] * 6, [(128, 4), (2, 90), (16, 16)]):
        found = cut(shapes, inner=3)
        assert [start for start, _ in found] == [0, *(stop for _, stop in found[:-1])]
        assert found[-1][1] == len(shapes)


def test_on_a_gpu_no_copies_are_counted() -> None:
    # Two digits of 16 in one sum: the copies of a CPU would cost more than the pass they save.
    shapes, wanted = ((2, 2),) * 12, (True,) * 12
    found = runs(shapes, wanted, True, 1, 4, True)
    assert [(run.start, run.stop) for run in found] == [(0, 6), (6, 12)]


def test_digits_behind_decide_whether_copies_pay() -> None:
    shape = {"start": 0, "stop": 1, "before": 4, "rows": 64, "columns": 64, "wanted": True}
    assert [permutes(Run(**shape, behind=size), 1) for size in (1, 2, 512)] == [
        False,
        True,
        False,
    ]
    assert not permutes(Run(**shape, behind=2), 256)
