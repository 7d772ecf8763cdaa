"""Chains that are repeated from addresses, forwards and backwards: on a CPU, with gradients by a
double of their kernels."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

torch = pytest.importorskip("torch")

import kronop.torch  # noqa: E402
from kronop.args.tensor import view  # noqa: E402
from kronop.core import program  # noqa: E402
from kronop.descriptions.epilogue import LinearCombination  # noqa: E402
from kronop.descriptions.math_instruction import MathInstruction  # noqa: E402
from kronop.descriptions.tensor import TensorDescription  # noqa: E402
from kronop.families.ksparse.gradient_arguments import KSparseGradientArguments  # noqa: E402
from kronop.families.ksparse.gradient_description import KSparseGradientDescription  # noqa: E402
from kronop.families.ksparse.torch import computing as ksparse_operators  # noqa: E402
from kronop.families.ksparse.torch import steps as ksparse_steps  # noqa: E402
from kronop.torch.nn import KSLinear  # noqa: E402
from kronop.torch.nn.algorithms import dense_product  # noqa: E402
from tests.unit.test_program import _Operation  # noqa: E402

_CHAINS = {
    "one": [(2, 3, 2, 1)],
    "two": [(2, 3, 2, 1), (1, 2, 3, 2)],
    "four": [(1, 2, 4, 2), (2, 2, 1, 2), (4, 1, 2, 1), (1, 3, 4, 1)],
}


def _arguments(
    x: Any, g: Any, pattern: Any, *, batch_last: bool, alpha: Any, out: Any
) -> KSparseGradientArguments:
    element, result = view(x, "X").element, view(out, "Y").element
    math = MathInstruction.simt(element)
    description = KSparseGradientDescription(
        math=math,
        tile=None,
        X=TensorDescription(element),
        G=TensorDescription(element),
        Y=TensorDescription(result),
        epilogue=LinearCombination(result, 1, math.element_accumulator, math.element_accumulator),
        pattern=pattern,
        batch_last=batch_last,
    )
    operation = _Operation(description, workspace=1000)
    output_op = operation.epilogue_type(alpha, 0.0)
    return KSparseGradientArguments(operation=operation, X=x, G=g, Y=out, output_op=output_op)


def _weight_gradient(*operands: Any, **options: Any) -> Any:
    arguments = _arguments(*operands, **options)
    arguments.operation.run(arguments)
    return arguments.Y


class _Counter:
    repeated = 0


@pytest.fixture
def counter(monkeypatch: pytest.MonkeyPatch) -> Iterator[_Counter]:
    """How many forwards and backwards were repeated."""
    counter, run = _Counter(), program.Program.run

    def counting(self: Any, *arguments: Any) -> Any:
        result = run(self, *arguments)
        counter.repeated += result is not None
        return result

    monkeypatch.setattr(program.Program, "run", counting)
    for module in (ksparse_steps, ksparse_operators):
        monkeypatch.setattr(module, "on_gpu", lambda item: True)
    monkeypatch.setattr(ksparse_operators, "weight_gradient", _weight_gradient)
    monkeypatch.setattr(ksparse_steps, "gradient_arguments", _arguments)
    program.forget()
    yield counter
    program.forget()


def _features(chain: Any) -> tuple[int, int]:
    (a, _, c, d), (e, f, _, h) = chain[0], chain[-1]
    return a * c * d, e * f * h


def _operands(chain: Any, lead: Any, last: bool, seed: int) -> list[Any]:
    """x, a bias and the weights."""
    generator = torch.Generator().manual_seed(seed)
    inputs, outputs = _features(chain)
    shapes = [(inputs, *lead) if last else (*lead, inputs), (outputs,), *chain]
    return [
        torch.randn(shape, dtype=torch.float64, generator=generator).requires_grad_()
        for shape in shapes
    ]


def _reference(x: Any, bias: Any, weights: Any, alpha: float, last: bool) -> Any:
    matrix = dense_product(weights)
    if last:
        flat = alpha * matrix @ x.reshape(x.shape[0], -1) + bias[:, None]
        return flat.reshape(len(matrix), *x.shape[1:])
    return alpha * x @ matrix.T + bias


def _check(operands: Any, grad: Any, asked: Any, last: bool, alpha: float = 0.7) -> list[Any]:
    for at, item in enumerate(operands):
        item.requires_grad_(at in asked)
    x, bias, *weights = operands
    result = kronop.torch.ksmm(x, weights, bias=bias, alpha=alpha, batch_last=last)
    exact = _reference(x, bias, weights, alpha, last)
    torch.testing.assert_close(result, exact, rtol=1e-12, atol=1e-12)
    chosen = [operands[at] for at in asked]
    found = torch.autograd.grad(result, chosen, grad)
    right = torch.autograd.grad(exact, chosen, grad)
    torch.testing.assert_close(found, right, rtol=1e-12, atol=1e-12)
    return [result, *found]


@pytest.mark.parametrize("last", [False, True])
@pytest.mark.parametrize("chain", _CHAINS.values(), ids=_CHAINS.keys())
def test_a_repeated_step_is_that_of_other_tensors(
    counter: _Counter, chain: Any, last: bool
) -> None:
    every, count = [], len(chain)
    some = {tuple(range(2 + count)), (2,), (0, 1 + count), tuple(range(1, 2 + count))}
    for asked in some:
        for seed in range(4):
            operands = _operands(chain, (2, 3), last, seed)
            shape = (_features(chain)[1], 2, 3) if last else (2, 3, _features(chain)[1])
            grad = torch.randn(shape, dtype=torch.float64)
            # So that no tensor is where an earlier one was.
            every.append((operands, grad, _check(operands, grad, asked, last)))
    # Forwards are one signature, whatever is asked for; for backwards the bias is nothing.
    backwards = {tuple(at for at in asked if at != 1) for asked in some}
    assert counter.repeated == 2 * 4 * len(some) - 2 - 2 * len(backwards)
    assert all(program._programs.values())


def test_gradients_that_are_not_contiguous(counter: _Counter) -> None:
    chain = _CHAINS["two"]
    for last in (False, True):
        for seed in range(4):
            operands = _operands(chain, (2, 3), last, seed)
            shape = (3, 2, 4) if not last else (2, 3, 4)
            grad = torch.randn(shape, dtype=torch.float64)
            grad = grad.permute(2, 0, 1) if last else grad.transpose(0, 1)
            assert not grad.is_contiguous()
            _check(operands, grad, range(4), last)
    assert counter.repeated == 8


def test_an_operand_that_is_not_contiguous(counter: _Counter) -> None:
    chain = _CHAINS["two"]
    for seed in range(4):
        x, *others = _operands(chain, (2, 3), False, seed)
        x = x.detach().transpose(0, 1)
        _check([x, *others], torch.randn(3, 2, 4, dtype=torch.float64), range(4), False)
    assert counter.repeated >= 2


def test_results_share_no_memory(counter: _Counter) -> None:
    for _ in range(4):
        operands = _operands(_CHAINS["four"], (5,), False, 0)
        found = _check(operands, torch.ones(5, 3, dtype=torch.float64), range(6), False)
        assert len({item.untyped_storage().data_ptr() for item in found}) == len(found)
    assert counter.repeated == 4


def test_an_empty_batch_and_a_scalar_of_zero_go_the_long_way(counter: _Counter) -> None:
    for _ in range(3):
        empty = _operands(_CHAINS["two"], (0,), False, 0)
        _check(empty, torch.ones(0, 4, dtype=torch.float64), range(4), False)
        operands = _operands(_CHAINS["two"], (3,), False, 0)
        _check(operands, torch.ones(3, 4, dtype=torch.float64), range(4), False, alpha=0.0)
    assert counter.repeated == 0


@pytest.mark.parametrize("last", [False, True])
def test_autocast_gives_gradients_of_the_parameters_own_type(counter: _Counter, last: bool) -> None:
    torch.manual_seed(0)
    layer = KSLinear(_CHAINS["two"], bs_last=last)
    eps = float(torch.finfo(torch.float16).eps)
    for _ in range(4):
        x = torch.randn((4, 50) if last else (50, 4), requires_grad=True)
        with torch.autocast("cpu", dtype=torch.float16):
            y = layer(x)
        assert y.dtype is torch.float16
        leaves = [x, *layer.parameters()]
        ones = torch.randn(y.shape).to(y.dtype)
        found = torch.autograd.grad(y, leaves, ones)
        exactly = [item.detach().double().requires_grad_() for item in leaves]
        operand, bias, *weights = exactly
        exact = _reference(operand, bias, weights, 1.0, last)
        for item, right in zip(
            found, torch.autograd.grad(exact, exactly, ones.double()), strict=True
        ):
            assert item.dtype is torch.float32
            # Operands, what is between the factors and its gradient are rounded.
            assert float((item.double() - right).norm() / right.norm()) < 4 * eps
        for item in found[1:]:
            assert not torch.equal(item, item.half().float())
    assert counter.repeated == 4


def test_second_derivatives_under_autocast() -> None:
    torch.manual_seed(0)
    layer = KSLinear(_CHAINS["two"])
    x = torch.randn(50, 4, requires_grad=True)
    leaves = [x, *layer.weights]
    with torch.autocast("cpu", dtype=torch.float16):
        y = layer(x)
    first = torch.autograd.grad(y.float().sin().sum(), leaves, create_graph=True)
    found = torch.autograd.grad(sum(item.sum() for item in first), leaves)
    exactly = [item.detach().double().requires_grad_() for item in leaves]
    exact = _reference(exactly[0], layer.bias.detach().double(), exactly[1:], 1.0, False)
    first = torch.autograd.grad(exact.sin().sum(), exactly, create_graph=True)
    right = torch.autograd.grad(sum(item.sum() for item in first), exactly)
    for item, other in zip(found, right, strict=True):
        assert item.dtype is torch.float32
        assert float((item.double() - other).norm() / other.norm()) < 0.05
