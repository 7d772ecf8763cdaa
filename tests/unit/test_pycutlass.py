"""Programs that call what PyCUTLASS's do, in its order and by its names: docs/pycutlass.md."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import kronop
from kronop.compiler import cutlass_headers as headers
from tests import support
from tests.pycutlass_programs import (
    PROGRAMS,
    ColumnReduction,
    Program,
    RowBroadcast,
    RowReduction,
)

# Of programs that differ in types and tiles alone, a CPU runs one; with --full all.
_FEW = ("basic", 3, 4, 5, 10, 13, 17, 18, 20, 22, 26, 27)


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "number" in metafunc.fixturenames:
        few = PROGRAMS if metafunc.config.getoption("--full") else _FEW
        cases: list[Any] = [(number, "x86") for number in few]
        cases += [pytest.param(it, "cuda", marks=pytest.mark.cuda) for it in PROGRAMS]
        metafunc.parametrize(("number", "target"), cases)


def test_programs(number: int | str, target: str) -> None:
    program = PROGRAMS[number]
    if target == "cuda":
        target = support.cuda_target()
        assert f"sm_{kronop.device_cc()}" in target
        kronop.get_memory_pool(init_pool_size=2**20, max_pool_size=2**32)
        if number == 13 and headers.missing():  # Whose stages are CUTLASS's alone.
            pytest.skip(headers.missing())
    _grouped(program, target) if program.grouped else _universal(program, target)


def _universal(program: Program, target: str) -> None:
    is_tree = program.tree is not None
    operation = kronop.GemmOperationUniversal(**program.description(target), visitor=is_tree)
    operations = [operation]
    reduction = None
    if program.mode == "GemmSplitKParallel":
        reduction = _reduction(program, operation.description.Y)
        operations.append(reduction)
    kronop.compiler.add_module(operations)
    data = Data(program, kronop.gemm.GemmCoord(96, 48, 64))
    arguments = kronop.GemmArguments(
        operation=operation,
        problem_size=data.size,
        A=data.A,
        B=data.B,
        C=data.C,
        D=data.D,
        output_op=data.output_op(operation),
        gemm_mode=getattr(kronop.gemm.Mode, program.mode),
        split_k_slices=program.slices,
        batch=program.batch,
    )
    assert arguments.bias is program.bias
    if reduction is None:
        operation.run(arguments)
        arguments.sync()
        data.check(operation)
        return
    reduced = kronop.ReductionArguments(
        operation=reduction,
        problem_size=[data.size.m(), data.size.n()],
        partitions=program.slices,
        workspace=arguments.ptr_D,
        destination=data.D,
        source=data.C,
        output_op=reduction.epilogue_type(*program.scalars),
        bias=arguments.bias,
    )
    operation.run(arguments)
    reduction.run(reduced)
    reduced.sync()
    data.check(reduction.product(operation))


def _reduction(program: Program, C: kronop.TensorDescription) -> kronop.ReductionOperation:
    sums, compute = getattr(kronop, program.sums), getattr(kronop, program.compute)
    functor: Any = kronop.LinearCombination(C.element, C.alignment, sums, compute)
    if program.activation:
        activation = getattr(kronop, program.activation)(compute)
        functor = kronop.LinearCombinationGeneric(activation, C.element, C.alignment, sums, compute)
    return kronop.ReductionOperation(
        shape=kronop.MatrixCoord(4, 32 * C.alignment),
        C=C,
        element_accumulator=sums,
        element_compute=compute,
        epilogue_functor=functor,
        count=C.alignment,
    )


def _grouped(program: Program, target: str) -> None:
    operation = kronop.GemmOperationGrouped(
        **program.description(target), precompute_mode=kronop.SchedulerMode[program.grouped]
    )
    kronop.compiler.add_module([operation])
    sizes = [(96, 48, 64), (32, 80, 16), (16, 16, 128)]
    each = [Data(program, kronop.gemm.GemmCoord(*size)) for size in sizes]
    arguments = kronop.GemmGroupedArguments(
        operation,
        [item.size for item in each],
        A=[item.A for item in each],
        B=[item.B for item in each],
        C=[item.C for item in each],
        D=[item.D for item in each],
        output_op=operation.epilogue_type(*program.scalars),
    )
    operation.run(arguments)
    arguments.sync()
    for item in each:
        item.check(operation.product)


class Data:
    """The flat arrays of a product, or of a batch; whole numbers, whose sums are exact."""

    def __init__(self, program: Program, size: kronop.gemm.GemmCoord) -> None:
        self.program, self.size = program, size
        self._random = np.random.default_rng(0)
        m, n, k = size.m(), size.n(), size.k()
        line = n if program.layouts[2] == "R" else m
        self.A = self._drawn(program.element, m * k)
        self.B = self._drawn(program.element, k * n)
        self.C = self._drawn(program.output, line if program.bias else m * n)
        self.D = self._poison(m * n, program.output)
        self._functor: Any = None

    def _drawn(self, element: str, *shape: int) -> Any:
        values = self._random.integers(-3, 4, (self.program.batch, *shape))
        return values.ravel().astype(support.numpy_type(getattr(kronop, element)))

    def _poison(self, count: int, element: str) -> Any:
        return support.poison(self.program.batch * count, getattr(kronop, element))

    def output_op(self, operation: Any) -> Any:
        """The scalars; of a tree its operands and results too."""
        program, m, n = self.program, self.size.m, self.size.n
        if program.tree is None:
            return operation.epilogue_type(*program.scalars)
        alpha, beta = program.scalars
        given = {"alpha": alpha, "beta": beta, "c": self.C, "problem_size": [m, n]}
        if program.tree in (RowReduction, ColumnReduction):
            line = m if program.tree is RowReduction else n
            self.aside = self._poison(line, program.compute)
            return operation.epilogue_type(D=self.D, reduction=self.aside, **given)
        shape = (1, n) if program.tree is RowBroadcast else (m, 1)
        self.vector = self._drawn(program.output, *shape).reshape(program.batch, *shape)
        self.aside = self._poison(m * n, program.output)
        return operation.epilogue_type(Z=self.D, T=self.aside, vector=self.vector, **given)

    def check(self, operation: Any) -> None:
        """Compares with the reference of the operation that had the epilogue."""
        program, lead = self.program, self.program.batch
        m, n, k = self.size.m, self.size.n, self.size.k
        a = _matrix(self.A, (lead, m, k), program.layouts[0])
        b = _matrix(self.B, (lead, k, n), program.layouts[1])
        line = (1, n) if program.layouts[2] == "R" else (m, 1)
        own = line if program.bias else (m, n)
        c = _matrix(self.C, (lead, *own), program.layouts[2])
        d = _matrix(self.D, (lead, m, n), program.layouts[2])
        if program.tree is None:
            scalars = operation.epilogue_type(*program.scalars)
            self._compare(d, operation.description.reference(a, b, c, scalars))
            return
        operands = {"c": c, **dict(zip(("alpha", "beta"), program.scalars, strict=True))}
        if hasattr(self, "vector"):
            operands["vector"] = self.vector.reshape(lead, -1)
        first, second = operation.description.epilogue.evaluate(a @ b, operands).values()
        self._compare(d, first)
        self._compare(self.aside.reshape(second.shape), second)

    def _compare(self, found: Any, expected: Any) -> None:
        """Sums are exact, or added up in another order; an activation rounds, then the result."""
        unit = support.unit(getattr(kronop, self.program.output))
        unit = max(unit, 2.0**-24 if self.program.compute == "float32" else 2.0**-53)
        size = np.abs(expected) + 1
        rounded = (support.ROUNDINGS_OF_ACTIVATIONS + 2) * unit * size
        summed = 256 * 2.0**-24 * size if self.program.tree else 0
        wrong = ~(np.abs(np.asarray(found, np.float64) - expected) <= rounded + summed)
        assert not wrong.any(), f"{wrong.sum()} of {wrong.size}, first {np.argwhere(wrong)[0]}"


def _matrix(flat: Any, shape: tuple[int, ...], layout: str) -> Any:
    lead, rows, columns = shape
    values = np.asarray(flat, np.float64)
    if layout == "R":
        return values.reshape(shape)
    return values.reshape(lead, columns, rows).swapaxes(-1, -2)


_SERVED_BY_CUTLASS = {13: "4 stages.*CUTLASS", "basic grouped": "318 registers.*CUTLASS"}


@pytest.mark.parametrize("target", ["sm_80", "sm_90a"])
def test_every_program_has_a_kernel_on_gpus(target: str) -> None:
    for number, program in PROGRAMS.items():
        described = program.description(target)
        if program.grouped:
            operation: Any = kronop.GemmOperationGrouped
        else:
            operation = kronop.GemmOperationUniversal
            described["visitor"] = program.tree is not None
        if number in _SERVED_BY_CUTLASS and headers.missing():
            with pytest.raises(kronop.DescriptionError, match=_SERVED_BY_CUTLASS[number]):
                operation(**described)
        else:
            assert operation(**described).plan.steps


_MATRIX = kronop.TensorDescription(kronop.float32)
_LINEAR = kronop.LinearCombination(kronop.float32, 1, kronop.float32, kronop.float32)
_PARALLEL = kronop.gemm.Mode.GemmSplitKParallel


@pytest.mark.parametrize("layout", [kronop.RowMajor, kronop.ColumnMajor])
@pytest.mark.parametrize(("m", "n"), [(5, 7), (6, 6)])
def test_a_flat_c_of_a_row_or_a_column_repeats(layout: Any, m: int, n: int) -> None:
    """The layout says which of the two it is, also where both have as many elements."""
    result = kronop.TensorDescription(kronop.float32, layout)
    operation = kronop.GemmOperationUniversal("x86", None, _MATRIX, _MATRIX, result, _LINEAR)
    random, k, batch = np.random.default_rng(1), 3, 2
    a, b = (random.integers(-9, 10, item).astype(np.float32) for item in ((2, m, k), (2, k, n)))
    by_rows = layout is kronop.RowMajor
    line, other = (n, m) if by_rows else (m, n)
    for count, shape in ((line, (1, line)), (batch * line, (batch, 1, line))):
        c = random.integers(-9, 10, count).astype(np.float32)
        arguments = kronop.GemmArguments(
            operation=operation,
            problem_size=kronop.gemm.GemmCoord(m, n, k),
            A=a.ravel(),
            B=b.ravel(),
            C=c,
            output_op=operation.epilogue_type(1.0, 2.0),
            gemm_mode=kronop.gemm.Mode.Batched,
            batch=batch,
        )
        assert arguments.bias
        operation.run(arguments)
        source = c.reshape(shape) if by_rows else c.reshape(shape).swapaxes(-1, -2)
        np.testing.assert_array_equal(arguments.D, a @ b + 2 * source)
    if line != other:
        with pytest.raises(kronop.ArgumentError, match=r"or those of one (row|column)"):
            kronop.GemmArguments(
                operation=operation,
                problem_size=kronop.gemm.GemmCoord(m, n, k),
                A=a[0],
                B=b[0],
                C=np.ones(other, np.float32),
                output_op=operation.epilogue_type(1.0, 2.0),
            )


class Parallel:
    """A product in two slices whose D is also its C, and the reduction that has the epilogue."""

    def __init__(self) -> None:
        relu = kronop.relu(kronop.float32)
        types = (kronop.float32, 1, kronop.float32, kronop.float32)
        self.operation = kronop.GemmOperationUniversal(
            "x86", None, _MATRIX, _MATRIX, _MATRIX, _LINEAR
        )
        self.reduction = kronop.ReductionOperation(
            kronop.MatrixCoord(4, 32),
            _MATRIX,
            kronop.float32,
            epilogue_functor=kronop.LinearCombinationGeneric(relu, *types),
        )
        random = np.random.default_rng(2)
        self.a, self.b, self.d = (
            random.integers(-9, 10, shape).astype(np.float32) for shape in ((4, 8), (8, 6), (4, 6))
        )
        self.arguments = self.product(gemm_mode=_PARALLEL, split_k_slices=2)

    def product(self, **mode: Any) -> kronop.GemmArguments:
        return kronop.GemmArguments(self.operation, A=self.a, B=self.b, D=self.d, **mode)

    def reduced(self, **changed: Any) -> kronop.ReductionArguments:
        given = {
            "operation": self.reduction,
            "problem_size": (4, 6),
            "partitions": 2,
            "workspace": self.arguments.ptr_D,
            "destination": self.d,
            "source": self.d,
            "output_op": self.reduction.epilogue_type(1.0, 3.0),
        }
        return kronop.ReductionArguments(**{**given, **changed})


def test_a_reduction_takes_the_product_over() -> None:
    made, compiled = Parallel(), kronop.compiler.add_module
    compiled([made.operation, made.reduction])
    c = made.d.copy()
    made.operation.run(made.arguments)  # As long as no reduction has taken it over, it runs.
    np.testing.assert_array_equal(made.d, made.a @ made.b)
    made.d[...] = c
    reduced = made.reduced()
    made.operation.run(made.arguments)
    made.arguments.sync()
    np.testing.assert_array_equal(made.d, c)
    made.reduction.run(reduced)
    np.testing.assert_array_equal(made.d, np.maximum(made.a @ made.b + 3 * c, 0))


def test_reductions_that_are_refused() -> None:
    made = Parallel()
    for changed, told in (
        ({"workspace": made.product().ptr_D}, "in the mode GemmSplitKParallel"),
        ({"workspace": made.d}, "in the mode GemmSplitKParallel"),
        ({"operation": made.operation}, "a ReductionOperation"),
        ({"problem_size": (6, 4)}, r"expected \[4, 6\], 2"),
        ({"partitions": 3}, r"expected \[4, 6\], 2"),
        ({"bias": True}, r"expected \[4, 6\], 2 and False"),
    ):
        with pytest.raises(kronop.KronopError, match=told):
            made.reduced(**changed)
    with pytest.raises(kronop.ElementTypeError, match="made for this operation"):
        Parallel().reduction.run(made.reduced())
    shape = kronop.MatrixCoord(4, 32)
    with pytest.raises(kronop.ElementTypeError, match="an epilogue"):
        kronop.ReductionOperation(shape, _MATRIX, kronop.float32)
    with pytest.raises(kronop.DescriptionError, match="types of epilogue_functor"):
        kronop.ReductionOperation(shape, _MATRIX, kronop.float64, epilogue_functor=_LINEAR)


def test_the_target_may_be_called_arch() -> None:
    given = {"tile_description": None, "A": _MATRIX, "B": _MATRIX, "C": _MATRIX}
    operation = kronop.GemmOperationUniversal(arch=80, **given, epilogue_functor=_LINEAR)
    assert operation.target.name == "sm_80"
    with pytest.raises(TypeError, match="arch"):
        kronop.GemmOperationUniversal(80, arch=80, **given, epilogue_functor=_LINEAR)
    with pytest.raises(TypeError, match="target"):
        kronop.GemmOperationUniversal(**given, epilogue_functor=_LINEAR)


def test_words_of_types_and_sizes() -> None:
    assert {kronop.float16: 16, kronop.tfloat32: 32, kronop.int8: 8}.items() <= (
        kronop.DataTypeSize.items()
    )
    size, tile = kronop.gemm.GemmCoord(np.int64(3), 4, 5), kronop.MatrixCoord(4, 32)
    assert (size.m(), size.n(), size.k()) == (size.m, size.n, size.k) == (3, 4, 5)
    assert (tile.row(), tile.column()) == (tile.row, tile.column) == (4, 32)
    assert type(size.m()) is int
