"""Doubles of an operation and its kernel: problems run by NumPy, from addresses and strides."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from kronop.args.overlap import raw_array
from kronop.args.tensor import CPU, TensorView
from kronop.artifacts import Launch
from kronop.descriptions.datatype import DataType, float32, float64, int32, int64
from kronop.descriptions.epilogue import LinearCombination
from kronop.descriptions.math_instruction import MathInstruction, MathOperation, OpClass
from kronop.descriptions.tensor import TensorDescription
from kronop.families.kron.description import KronMatmulDescription, KronProblem, Side
from kronop.families.ksparse.description import KSparseDescription, KSparseProblem
from kronop.families.ksparse.gradient_description import (
    KSparseGradientDescription,
    KSparseGradientProblem,
)
from kronop.target import Target

_ACCUMULATOR = {"float64": float64, "int32": int32, "int64": int64}


def at(pointer: int, shape: tuple[int, ...], strides: tuple[int, ...], element: DataType) -> Any:
    """The array at an address."""
    item = TensorView(
        pointer=pointer,
        shape=shape,
        strides=strides,
        element=element,
        device=CPU,
        framework="numpy",
        writable=True,
        owner=None,
    )
    return raw_array(item).view(element.name)


def _parts(element: DataType) -> tuple[MathInstruction, LinearCombination]:
    accumulator = _ACCUMULATOR.get(element.name, float32)
    math = MathInstruction(
        [1, 1, 1], element, element, accumulator, OpClass.Simt, MathOperation.multiply_add
    )
    return math, LinearCombination(element, 1, accumulator, accumulator)


def kron(
    factors: tuple[tuple[int, int], ...],
    side: Side = Side.Right,
    element: DataType = float64,
    X: TensorDescription | None = None,
    F: TensorDescription | None = None,
    Y: TensorDescription | None = None,
) -> KronMatmulDescription:
    math, epilogue = _parts(element)
    plain = TensorDescription(element)
    return KronMatmulDescription(
        math=math,
        tile=None,
        X=X or plain,
        F=F or plain,
        Y=Y or plain,
        epilogue=epilogue,
        factors=factors,
        side=side,
    )


def ksparse(
    pattern: tuple[int, int, int, int],
    batch_last: bool = False,
    element: DataType = float64,
    X: TensorDescription | None = None,
    Y: TensorDescription | None = None,
) -> KSparseDescription:
    math, epilogue = _parts(element)
    plain = TensorDescription(element)
    return KSparseDescription(
        math=math,
        tile=None,
        X=X or plain,
        W=plain,
        Y=Y or plain,
        epilogue=epilogue,
        pattern=pattern,
        batch_last=batch_last,
    )


class OperationDouble:
    """Records what arguments ask of an operation; is its own list of kernels."""

    def __init__(self, description: Any, target: str = "x86", workspace: int = 0) -> None:
        self.description = description
        self.target = Target.parse(target)
        self.workspace = workspace
        self.problems: list[Any] = []
        self.asked: list[tuple[int, int]] = []
        self.streams: list[int] = []

    def epilogue_type(self, *scalars: float) -> Any:
        return self.description.epilogue.epilogue_type(*scalars)

    def workspace_bytes(self, rows: int, threads: int) -> int:
        self.asked.append((rows, threads))
        return self.workspace

    def launches(self, problem: Any) -> tuple[Launch, ...]:
        self.problems.append(problem)
        return (Launch(parameters=b""),)

    def bind(self, launch: Launch, device: int) -> Any:
        problem = self.problems[-1]
        run: Any = run_ksparse
        if not isinstance(problem, KSparseProblem):
            run = run_kron if isinstance(problem, KronProblem) else run_gradient

        def launcher(stream: int) -> None:
            self.streams.append(stream)
            run(problem, self.description)

        return launcher

    def __getitem__(self, step: int) -> OperationDouble:
        assert step == 0
        return self


def _finish(accumulated: Any, problem: Any, source: Any, bias: Any = 0) -> Any:
    alpha, beta = problem.scalars
    return alpha * accumulated + bias + (beta * source if source is not None else 0)


def run_kron(problem: KronProblem, what: KronMatmulDescription) -> None:
    assert len(problem.batch) <= 4
    assert 1 not in problem.batch
    element, output = what.X.element, what.Y.element
    for index in np.ndindex(problem.batch):

        def matrix(item: Any, shape: tuple[int, int], kind: DataType) -> Any:
            offset = sum(i * stride for i, stride in zip(index, item.batch, strict=True))  # noqa: B023
            return at(item.pointer + offset * kind.bytes, shape, (item.row, item.column), kind)

        sizes = what.contractions
        factors = [
            matrix(item, size, element) for item, size in zip(problem.factors, sizes, strict=True)
        ]
        x = matrix(problem.x, (problem.rows, what.input_columns), element)
        shape = (problem.rows, what.output_columns)
        source = None if problem.z is None else matrix(problem.z, shape, output)
        result = _finish(x @ functools.reduce(np.kron, factors), problem, source)
        matrix(problem.y, shape, output)[...] = result


def run_ksparse(problem: KSparseProblem, what: KSparseDescription) -> None:
    a, b, c, d = what.pattern
    element, output = what.X.element, what.Y.element
    x = at(problem.x.pointer, (problem.rows, a * c * d), (problem.x.row, problem.x.column), element)
    weights = at(problem.weights.pointer, what.pattern, problem.weights.strides, element)
    value = np.einsum("nikl,ijkl->nijl", x.reshape(-1, a, c, d), weights).reshape(problem.rows, -1)
    shape = value.shape
    source = bias = None
    if problem.z is not None:
        source = at(problem.z.pointer, shape, (problem.z.row, problem.z.column), output)
    if problem.bias.pointer:
        bias = at(problem.bias.pointer, (a * b * d,), problem.bias.strides[-1:], output)
    y = at(problem.y.pointer, shape, (problem.y.row, problem.y.column), output)
    y[...] = _finish(value, problem, source, 0 if bias is None else bias)


def run_gradient(problem: KSparseGradientProblem, what: KSparseGradientDescription) -> None:
    a, b, c, d = what.pattern
    element, output = what.X.element, what.Y.element
    count = what.products or 1

    def matrix(item: Any, own: int) -> Any:
        strides = (item.batch[0] if item.batch else 0, item.row, item.column)
        shape = (count, problem.rows, a * own * d)
        given = at(item.pointer, shape, strides, element).reshape(count, -1, a, own, d)
        return given.astype(what.math.element_accumulator.name)

    def weights(item: Any) -> Any:
        if what.factors:
            return at(item.pointer, what.y_shape(0), item.strides[-1:], output)
        outer = (1, 1) if what.tied else (a, d)
        return at(item.pointer, (count, *outer, b, c), item.strides, output)

    value: Any = 0
    if problem.rows:
        kind = "gniql,gnipl->gpq" if what.tied else "gniql,gnipl->gilpq"
        value = np.einsum(kind, matrix(problem.x, c), matrix(problem.g, b))
        value = value[:, None, None] if what.tied else value
    if what.factors:
        value = what._of_factors(
            value.reshape(b, c).T if problem.rows else np.zeros((c, b)),
            [
                at(item.pointer, shape, (item.row, item.column), element)
                for item, shape in zip(problem.factors, what.factors, strict=True)
            ],
        )
    source = None if problem.z is None else weights(problem.z)
    weights(problem.y)[...] = _finish(value, problem, source)
