"""Backwards that are repeated from addresses: on a CPU, with sums by a double of their kernels."""

from __future__ import annotations

import ctypes
import dataclasses
import struct
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

torch = pytest.importorskip("torch")

import kronop  # noqa: E402
import kronop.torch  # noqa: E402
from kronop.artifacts import Launch  # noqa: E402
from kronop.core import program  # noqa: E402
from kronop.descriptions.datatype import float64  # noqa: E402
from kronop.descriptions.epilogue import LinearCombination  # noqa: E402
from kronop.descriptions.math_instruction import MathInstruction  # noqa: E402
from kronop.descriptions.tensor import TensorDescription  # noqa: E402
from kronop.families.kron.torch import gradient, sums  # noqa: E402
from kronop.families.ksparse.gradient_arguments import KSparseGradientArguments  # noqa: E402
from kronop.families.ksparse.gradient_description import KSparseGradientDescription  # noqa: E402
from tests.unit.args_double import OperationDouble, run_gradient  # noqa: E402
from tests.unit.test_torch_gradients import _close, _product, _random, _reference  # noqa: E402


class _Operation(OperationDouble):
    """Gradients of weights by NumPy, from addresses that are packed as a kernel's are."""

    def plan_for(self, rows: int, device: int | None) -> Any:
        return None

    def serve(self, plan: Any) -> Any:
        signature = SimpleNamespace(pointers=tuple(range(32)))
        return SimpleNamespace(
            plan=SimpleNamespace(
                steps=[SimpleNamespace(design=SimpleNamespace(signature=signature))]
            ),
            kernels=(self,),
            launches=self.launches,
            workspace_bytes=self.workspace_bytes,
        )

    def run(self, arguments: Any) -> None:
        served = self.serve(None)
        arguments.run(served.kernels, None, served)

    def launches(self, problem: Any) -> tuple[Launch, ...]:
        super().launches(problem)
        z = 0 if problem.z is None else problem.z.pointer
        pointers = [problem.x.pointer, problem.g.pointer, problem.y.pointer, z, problem.workspace]
        pointers += [item.pointer for item in problem.factors]
        return (
            Launch(
                step=0, parameters=struct.pack("32Q", *pointers, *[0] * (27 - len(problem.factors)))
            ),
        )

    def bind_words(self, launch: Launch, device: int) -> Any:
        problem, what = self.problems[-1], self.description
        words = memoryview(bytearray(launch.parameters)).cast("Q")

        def at(item: Any, word: int) -> Any:
            return None if item is None else dataclasses.replace(item, pointer=words[word])

        def launcher(stream: int) -> None:
            # What the workspace holds is the kernels' own, from one end to the other.
            if problem.workspace:
                ctypes.memset(words[4], 255, self.workspace)
            moved = dataclasses.replace(
                problem,
                x=at(problem.x, 0),
                g=at(problem.g, 1),
                y=at(problem.y, 2),
                z=at(problem.z, 3),
                factors=tuple(at(item, 5 + i) for i, item in enumerate(problem.factors)),
            )
            run_gradient(moved, what)

        return launcher, words

    def bind(self, launch: Launch, device: int) -> Any:
        return self.bind_words(launch, device)[0]


def _arguments(x: Any, g: Any, pattern: Any, **options: Any) -> KSparseGradientArguments:
    plain = TensorDescription(float64)
    factors = options.pop("factors")
    description = KSparseGradientDescription(
        math=MathInstruction.simt(float64),
        tile=None,
        X=plain,
        G=plain,
        Y=plain,
        epilogue=LinearCombination(float64, 1, float64, float64),
        pattern=pattern,
        tied=options.pop("tied"),
        factors=tuple(tuple(item.shape) for item in factors),
    )
    operation = _Operation(description, workspace=1000)
    output_op = operation.epilogue_type(options["alpha"], options["beta"])
    return KSparseGradientArguments(
        operation=operation,
        X=x,
        G=g,
        Z=options["z"],
        Y=options["out"],
        output_op=output_op,
        factors=factors,
    )


def _weight_gradient(x: Any, g: Any, pattern: Any, **options: Any) -> None:
    arguments = _arguments(x, g, pattern, **options)
    arguments.operation.run(arguments)


def test_the_result_of_a_gradient_is_counted_as_changed() -> None:
    x, g, out = (_random(*shape).detach() for shape in ((5, 2), (5, 3), (2, 3)))
    options = {"tied": True, "alpha": 1.0, "beta": 0, "z": None, "factors": []}
    arguments = _arguments(x, g, (1, 3, 2, 1), out=out, **options)
    for count in (1, 2):
        arguments.operation.run(arguments)
        assert arguments.Y._version == count


class _Counter:
    repeated = 0


@pytest.fixture
def counter(monkeypatch: pytest.MonkeyPatch) -> Iterator[_Counter]:
    """How many backwards were repeated."""
    counter, run = _Counter(), program.Program.run

    def counting(self: Any, *arguments: Any) -> Any:
        result = run(self, *arguments)
        counter.repeated += result is not None
        return result

    monkeypatch.setattr(program.Program, "run", counting)
    for module in (gradient, sums):
        monkeypatch.setattr(module, "on_gpu", lambda item: True)
    monkeypatch.setattr(sums, "weight_gradient", _weight_gradient)
    monkeypatch.setattr(sums, "gradient_arguments", _arguments)
    program.forget()
    yield counter
    program.forget()


def _check(operands: Any, left: bool, asked: Any) -> None:
    x, *factors = operands
    result, exact = _product(x, factors, left, alpha=1.5), _reference(x, factors, left, 1.5)
    weights = torch.randn_like(result)
    chosen = [operands[at] for at in asked]
    found = torch.autograd.grad(result, chosen, weights)
    _close(found, torch.autograd.grad(exact, chosen, weights), 1e-13)


_SHAPES = {
    "twos": [(2, 2)] * 7,
    "eights": [(8, 8)] * 4,
    "ragged": [(3, 5), (2, 1), (7, 4), (1, 3)],
    "one": [(6, 4)],
}


@pytest.mark.parametrize("left", [False, True])
@pytest.mark.parametrize("part_bytes", [300, 2**23])
@pytest.mark.parametrize("shapes", _SHAPES.values(), ids=_SHAPES.keys())
def test_a_repeated_backward_is_that_of_other_tensors(
    counter: _Counter, shapes: Any, part_bytes: int, left: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(gradient._PART_BYTES, "cpu", part_bytes)
    columns = 1
    for rows, _ in shapes:
        columns *= rows
    every, count = [], len(shapes) + 1
    some = {tuple(range(count)), (1,), tuple(range(1, count))}
    for asked in some:
        for step in range(4):
            generator = torch.Generator().manual_seed(step)
            sizes = [(columns, 3) if left else (3, columns)]
            sizes += [shape[::-1] if left else shape for shape in shapes]
            operands = [
                torch.randn(*size, dtype=torch.float64, generator=generator) for size in sizes
            ]
            for at in asked:
                operands[at].requires_grad_()
            _check(operands, left, asked)
            every.append(operands)  # So that no tensor is where an earlier one was.
    if part_bytes > 300:
        assert counter.repeated == 2 * len(some)
        assert all(program._programs.values())


def test_what_decides_a_backward_is_told_apart(counter: _Counter) -> None:
    x, one, two = _random(5, 16), _random(4, 4), _random(4, 4).detach().clone().requires_grad_()
    with torch.no_grad():
        two *= 3
    for factors in ([one, two], [one, one], [two, one], [one, two.T], [two, two]):
        for alpha in (1.5, -2.0):
            for _ in range(3):
                _check_tied(x, factors, alpha)
    assert counter.repeated > 5


def _check_tied(x: Any, factors: Any, alpha: float) -> None:
    result = kronop.torch.gemkm(x, factors, alpha=alpha)
    exact = _reference(x, factors, False, alpha)
    leaves = list({id(item): item for item in (x, *factors) if item.is_leaf}.values())
    weights = torch.randn_like(result)
    found = torch.autograd.grad(result, leaves, weights)
    _close(found, torch.autograd.grad(exact, leaves, weights), 1e-13)


def test_results_share_no_memory(counter: _Counter) -> None:
    operands = [_random(3, 64), *(_random(4, 4) for _ in range(3))]
    for _ in range(4):
        result = kronop.torch.gemkm(operands[0], operands[1:])
        found = torch.autograd.grad(result.sum(), operands)
        assert len({item.untyped_storage().data_ptr() for item in found}) == len(found)
    assert counter.repeated == 2


def test_a_scalar_of_zero_goes_the_long_way(counter: _Counter) -> None:
    operands = [_random(3, 16), _random(4, 4), _random(4, 4)]
    for _ in range(3):
        result = kronop.torch.gemkm(operands[0], operands[1:], alpha=0.0)
        assert not any(item.any() for item in torch.autograd.grad(result.sum(), operands))
    assert counter.repeated == 0


def test_overlapping_tensors_are_not_learned(counter: _Counter) -> None:
    memory = torch.randn(4, 8, dtype=torch.float64).requires_grad_()
    x = _random(3, 16)
    for _ in range(4):
        _check_tied(x, [memory[:, ::2], memory[:, 1::2]], 1.0)
    assert counter.repeated == 0


def test_what_is_learned_is_bounded(counter: _Counter, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(program, "_MOST_PROGRAMS", 3)
    for rows in range(1, 9):
        for _ in range(3):
            _check([_random(rows, 4), _random(2, 2), _random(2, 2)], False, range(3))
        assert len(program._programs) <= 3
        assert len(program._seen) <= 3
    assert counter.repeated == 8
