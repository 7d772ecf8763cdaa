"""PyCUTLASS's programs and tests of convolutions: what they call, in its order and by its names."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import kronop
from kronop.families.conv2d.description import convolved, shape_in_memory
from kronop.families.conv2d.size import Conv2dSize, shapes_of
from tests import support
from tests.conv2d_cases import BYTES, CASES, DOUBLES, PROGRAMS, Case, Program

_EVERY = {**CASES, **DOUBLES, **BYTES}
# Of those that differ in tiles, alignments and extents alone, a CPU runs one; with --full all.
_FEW_PROGRAMS = ("fprop tf32, 2", "fprop simt", "wgrad tf32", "dgrad tf32", "silu")
_FEW_CASES = ("fprop tf32, 2", "dgrad tf32", "wgrad tf32, 1", "s8 panels")
_FEW_SIZES = 4
_FOUR, _TWO = kronop.Tensor4DCoord, kronop.MatrixCoord


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    full = metafunc.config.getoption("--full")
    for name, every, few in (
        ("program", PROGRAMS, _FEW_PROGRAMS),
        ("case", _EVERY, _FEW_CASES),
    ):
        if name in metafunc.fixturenames:
            cases: list[Any] = [(item, "x86") for item in (every if full else few)]
            cases += [pytest.param(item, "cuda", marks=pytest.mark.cuda) for item in every]
            metafunc.parametrize((name, "target"), cases)


def _target(name: str) -> str:
    return support.cuda_target() if name == "cuda" else name


def problem_of(size: Conv2dSize) -> kronop.conv.Conv2dProblemSize:
    """The same size in CUTLASS's words."""
    found = kronop.conv.Conv2dProblemSize(
        _FOUR(size.n, size.h, size.w, size.c),
        _FOUR(size.k, size.r, size.s, size.c),
        _FOUR(size.pad_h, size.pad_h, size.pad_w, size.pad_w),
        _TWO(size.stride_h, size.stride_w),
        _TWO(size.dilation_h, size.dilation_w),
        kronop.conv.Mode.cross_correlation,
        size.slices,
        1,
    )
    # Some sizes have other results than the formula's.
    return found if found.size == size else kronop.conv.Conv2dProblemSize.of(size)


class Data:
    """The flat arrays of a convolution; small whole numbers."""

    def __init__(self, operation: Any, size: Conv2dSize, *, bias: bool = False) -> None:
        self._what, self.size = operation.description, size
        self.problem, kind = problem_of(size), self._what.conv_kind
        self._shapes = [shapes_of(size)[name] for name in kind.tensors]
        random = np.random.default_rng(0)
        described = (self._what.A, self._what.B, self._what.Y)
        shapes = (*self._shapes[:2], self._shapes[2][3:] if bias else self._shapes[2])
        self._tensors = [
            random.integers(-2, 3, shape).astype(support.numpy_type(item.element))
            for shape, item in zip(shapes, described, strict=True)
        ]
        self.A, self.B, self.C = (
            tensor.ravel() if tensor.ndim == 1 else _in_memory(tensor, item.layout).ravel()
            for tensor, item in zip(self._tensors, described, strict=True)
        )
        self.D = support.poison(math.prod(self._shapes[2]), self._what.Y.element)

    def check(self, operation: Any, *scalars: float) -> None:
        """Compares D with the reference of an operation."""
        what, (a, b, c), kind = operation.description, self._tensors, self._what.conv_kind
        output_op = what.epilogue.epilogue_type(*scalars)
        value = what.reference(a, b, c, output_op, None, self.size)
        found = _plain(self.D, self._shapes[2], what.Y.layout)
        if value.dtype.kind == "i":
            support.Expected(value, 0).check(found)
            return
        wide_a, wide_b = (np.abs(item.astype(np.float64)) for item in (a, b))
        magnitude = convolved(kind, wide_a, wide_b, self.size)
        steps = kind.extents(self.size)[2] + 1
        bound = support.error_bound(what, value, magnitude, steps, c, None, output_op)
        support.Expected(value, bound).check(found)


def _in_memory(tensor: Any, layout: Any) -> Any:
    """A tensor, channels last, as it lies in memory."""
    if layout is kronop.TensorNHWC:
        return tensor
    n, h, w, c = tensor.shape
    order = (0, 3, 1, 2, 4) if layout is kronop.TensorNC32HW32 else (3, 1, 2, 0, 4)
    return tensor.reshape(n, h, w, c // 32, 32).transpose(order)


def _plain(flat: Any, shape: tuple[int, ...], layout: Any) -> Any:
    """A flat result with its channels last."""
    found = flat.reshape(shape_in_memory(shape, layout))
    return found if layout is kronop.TensorNHWC else found.transpose(0, 2, 3, 1, 4).reshape(shape)


def test_programs(program: str, target: str) -> None:
    _run(PROGRAMS[program], _target(target))


def _run(program: Program, target: str) -> None:
    case = program.case
    operation = case.but(activation="").made(target) if program.parallel else case.made(target)
    data = Data(operation, program.size, bias=program.bias)
    kind, problem, what = operation.description.conv_kind, data.problem, operation.description
    operations: list[Any] = [operation]
    reduction = None
    if program.parallel:
        f32 = kronop.float32
        reduction = kronop.ReductionOperation(
            shape=kronop.MatrixCoord(4, 32 * what.Y.alignment),
            C=what.Y,
            element_accumulator=f32,
            element_compute=f32,
            epilogue_functor=case.words()["epilogue"],
            count=what.Y.alignment,
        )
        operations.append(reduction)
    kronop.compiler.add_module(operations)
    modes = kronop.conv.SplitKMode
    arguments = kronop.Conv2dArguments(
        operation=operation,
        problem_size=problem,
        A=data.A,
        B=data.B,
        C=data.C,
        D=data.D,
        output_op=operation.epilogue_type(*program.scalars),
        split_k_mode=modes.Parallel if program.parallel else modes.Serial,
        split_k_slices=problem.split_k_slices,
    )
    assert data.D.size == kronop.conv.implicit_gemm_tensor_c_size(kind, arguments.problem_size)
    assert arguments.bias is (data.C.size < data.D.size)
    ended = operation
    if reduction is None:
        operation.run(arguments)
        arguments.sync()
    else:
        size = kronop.conv.implicit_gemm_problem_size(kind, arguments.problem_size)
        reduced = kronop.ReductionArguments(
            operation=reduction,
            problem_size=[size.m(), size.n()],
            partitions=problem.split_k_slices,
            workspace=arguments.ptr_D,
            destination=data.D,
            source=data.C,
            output_op=reduction.epilogue_type(*program.scalars),
            bias=arguments.bias,
        )
        operation.run(arguments)
        reduction.run(reduced)
        reduced.sync()
        ended = reduction.product(operation)
    data.check(ended, *program.scalars)


def test_cases(case: str, target: str, request: pytest.FixtureRequest) -> None:
    is_short = target == "x86" and not request.config.getoption("--full")
    operation = _EVERY[case].made(_target(target))
    for size, alpha, beta in _runs(_EVERY[case], short=is_short):
        data = Data(operation, size)
        slices = kronop.conv.SplitKMode.Serial
        output_op = operation.epilogue_type(alpha, beta)
        arguments = kronop.Conv2dArguments(
            operation, data.problem, data.A, data.B, data.C, data.D, output_op, slices, size.slices
        )
        operation.run(arguments)
        arguments.sync()
        data.check(operation, alpha, beta)


def _runs(case: Case, *, short: bool) -> Iterator[tuple[Conv2dSize, float, float]]:
    """The sizes of a case; the first ones, its own and one in slices of a short test."""
    every = list(case.runs())
    if not short:
        yield from every
        return
    yield from every[:_FEW_SIZES]
    yield from [item for item in every[_FEW_SIZES:] if item[0].slices == 2 or item[0] in case.sizes]
