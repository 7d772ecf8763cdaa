"""KronMatmulArguments against NumPy's broadcasting: the problem's addresses are what is tested."""

from __future__ import annotations

import dataclasses
import math
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kronop.args import host
from kronop.args.tensor import describe, view
from kronop.descriptions.datatype import ColumnMajor, float32, float64, int32
from kronop.descriptions.tensor import TensorDescription
from kronop.errors import ArgumentError, DeviceError, ElementTypeError
from kronop.families.kron.arguments import KronMatmulArguments
from kronop.families.kron.description import Side
from tests.unit.args_double import OperationDouble, kron

FACTORS = ((2, 3), (3, 1), (1, 2))


def _integers(random: np.random.Generator, shape: tuple[int, ...], dtype: str = "f8") -> Any:
    return random.integers(-4, 5, shape).astype(dtype)


def _run(
    description: Any, x: Any, factors: Any, z: Any = None, y: Any = None, scalars: Any = (1.0, 0.0)
) -> Any:
    operation = OperationDouble(description)
    arguments = KronMatmulArguments(
        operation=operation,
        X=x,
        factors=factors,
        Z=z,
        Y=y,
        output_op=operation.epilogue_type(*scalars),
    )
    assert arguments.launchers is None
    arguments.run(operation)
    arguments.sync()
    return arguments, operation


def _scrambled(random: np.random.Generator, shape: tuple[int, ...]) -> Any:
    """An array of this shape with permuted, padded and reversed memory."""
    order = random.permutation(len(shape))
    steps = random.integers(1, 3, len(shape))
    memory = np.full([shape[axis] * steps[axis] for axis in order], np.nan)
    view = memory.transpose(np.argsort(order))
    view = view[
        tuple(slice(None, None, int(step) * (1 if random.random() < 0.7 else -1)) for step in steps)
    ]
    view[...] = _integers(random, shape)
    return view


batches = st.lists(st.integers(1, 3), max_size=6)


@settings(max_examples=150, deadline=None)
@given(
    seed=st.integers(0, 2**32),
    batch=batches,
    side=st.sampled_from(Side),
    m=st.integers(1, 4),
    with_z=st.booleans(),
    given_y=st.booleans(),
    in_place=st.booleans(),
)
def test_every_broadcast_and_stride_reaches_the_right_elements(
    seed: int, batch: list[int], side: Side, m: int, with_z: bool, given_y: bool, in_place: bool
) -> None:
    random = np.random.default_rng(seed)
    description = kron(FACTORS, side)

    def lead() -> tuple[int, ...]:
        own = tuple(extent if random.random() < 0.6 else 1 for extent in batch)
        return own[int(random.integers(0, len(own) + 1)) :]

    x = _scrambled(random, (*lead(), *description.x_shape(m)))
    factors = [_scrambled(random, (*lead(), *shape)) for shape in FACTORS]
    product = description.reference(x, factors)
    z = _scrambled(random, product.shape) if with_z else None
    y = _scrambled(random, product.shape) if given_y else None
    if with_z and given_y and in_place:
        z = y
    scalars = (2.0, 3.0 if with_z else 0.0)
    expected = 2 * product + (3 * z if with_z else 0)
    arguments, operation = _run(description, x, factors, z, y, scalars)
    np.testing.assert_array_equal(arguments.Y, expected)
    assert operation.asked == [
        (m * int(np.prod(product.shape[:-2])), operation.problems[0].threads)
    ]
    if given_y:
        assert arguments.Y is y


@settings(max_examples=150, deadline=None)
@given(
    seed=st.integers(0, 2**32),
    batch=st.lists(st.integers(1, 3), max_size=3),
    side=st.sampled_from(Side),
    m=st.sampled_from([1, 2, 4]),
    sizes=st.sampled_from([((4, 4),), ((2, 4), (4, 2)), ((3, 4), (4, 1))]),
)
def test_what_describe_promises_is_accepted_and_stays_true(
    seed: int, batch: list[int], side: Side, m: int, sizes: tuple[tuple[int, int], ...]
) -> None:
    random = np.random.default_rng(seed)

    def make(shape: tuple[int, ...]) -> Any:
        order = random.permutation(len(shape))
        padded = [shape[axis] + int(random.choice([0, 0, 3, 4])) for axis in order]
        memory = np.zeros(padded, "f4").transpose(np.argsort(order))
        memory = memory[tuple(slice(extent) for extent in shape)]
        memory[...] = _integers(random, shape)
        return memory

    plain = kron(sizes, side, float32)
    x, y = make((*batch, *plain.x_shape(m))), make((*batch, *plain.y_shape(m)))
    factors = [make(shape) for shape in sizes]
    promises = [describe(view(item, "X"), "X") for item in (x, y)]
    arguments, operation = _run(
        kron(sizes, side, float32, X=promises[0], Y=promises[1]), x, factors, None, y
    )
    np.testing.assert_array_equal(arguments.Y, plain.reference(x, factors))
    problem = operation.problems[0]
    rows_last = side is Side.Left
    for item, promise, columns in (
        (problem.x, promises[0], plain.input_columns),
        (problem.y, promises[1], plain.output_columns),
    ):
        axes = [(problem.rows, item.row), (columns, item.column)]
        unit = (promise.layout is ColumnMajor) == rows_last
        strides = [(extent, stride, index == unit) for index, (extent, stride) in enumerate(axes)]
        strides += [
            (extent, stride, False)
            for extent, stride in zip(problem.batch, item.batch, strict=True)
        ]
        assert item.pointer % (4 * promise.alignment) == 0
        if promise.alignment > 1:
            assert all(
                stride == 1 if is_unit else stride % promise.alignment == 0
                for extent, stride, is_unit in strides
                if extent > 1
            )


@pytest.mark.parametrize("side", Side)
def test_a_vector_is_one_row_and_its_result_has_no_rows(side: Side) -> None:
    random = np.random.default_rng(1)
    description = kron(FACTORS, side)
    x = _integers(random, (description.input_columns * 2,))[::2]
    factors = [
        _integers(random, (5, *shape)) if index == 0 else _integers(random, shape)
        for index, shape in enumerate(FACTORS)
    ]
    z = _integers(random, (5, description.output_columns))
    arguments, _ = _run(description, x, factors, z, None, (1.0, 1.0))
    matrix = x[None] if side is Side.Right else x[:, None]
    expected = description.reference(matrix, factors).reshape(5, -1) + z
    np.testing.assert_array_equal(arguments.Y, expected)
    assert arguments.Y.shape == (5, description.output_columns)
    single, _ = _run(
        description, x, [factor[0] if factor.ndim == 3 else factor for factor in factors]
    )
    np.testing.assert_array_equal(single.Y, expected[0] - z[0])


def test_batches_fold_into_rows_where_factors_have_none() -> None:
    x = np.zeros((4, 5, 7, 6))
    _, operation = _run(kron(FACTORS), x, [np.zeros(shape) for shape in FACTORS])
    problem = operation.problems[0]
    assert (problem.rows, problem.batch) == (140, ())
    assert (problem.x.row, problem.x.column) == (6, 1)


def test_many_batch_dimensions_stay_four_or_are_copied() -> None:
    random = np.random.default_rng(2)
    shape = (2, 3, 2, 3, 2, 3)
    memory = np.zeros((*(2 * extent for extent in shape), 4, 12))
    x = memory[::2, ::2, ::2, ::2, ::2, ::2, ::2, ::2]
    x[...] = _integers(random, x.shape)
    factors = [
        _integers(random, (*shape, *FACTORS[0])),
        *(_integers(random, shape) for shape in FACTORS[1:]),
    ]
    arguments, operation = _run(kron(FACTORS), x, factors)
    assert operation.problems[0].batch == (216,)
    np.testing.assert_array_equal(arguments.Y, kron(FACTORS).reference(x, factors))
    x[...] = 1  # Copies are renewed by every run.
    arguments.run(operation)
    np.testing.assert_array_equal(arguments.Y, kron(FACTORS).reference(x, factors))


@pytest.mark.parametrize("shape", [(0, 6), (3, 0, 6), (0, 2, 6)])
def test_nothing_to_do_is_no_launch(shape: tuple[int, ...]) -> None:
    arguments, operation = _run(
        kron(FACTORS), np.zeros(shape), [np.zeros(item) for item in FACTORS]
    )
    assert arguments.launchers == ()
    assert operation.problems == []
    assert arguments.Y.shape == (*shape[:-1], 6)


def test_strides_beyond_32_bits_are_exact() -> None:
    huge = 2**33 + 1
    seed = np.zeros(6)
    x = np.lib.stride_tricks.as_strided(seed, (3, 5, 6), (8 * huge * 7, 8 * huge, 8))
    operation = OperationDouble(kron(FACTORS))
    operation.bind = lambda launch, device: lambda stream: None  # type: ignore[method-assign]
    arguments = KronMatmulArguments(
        operation=operation, X=x, factors=[np.zeros(shape) for shape in FACTORS]
    )
    arguments.bind(operation)
    problem = operation.problems[0]
    assert problem.batch == (3,)
    assert (problem.x.batch, problem.x.row) == ((huge * 7,), huge)


@pytest.mark.parametrize("side", Side)
@pytest.mark.parametrize("layout", ["row-major", "column-major"])
def test_a_promise_of_unit_rows_survives_folding(side: Side, layout: str) -> None:
    promise = TensorDescription(
        float32, ColumnMajor if layout == "column-major" else TensorDescription(float32).layout, 4
    )
    description = kron(((4, 4),), side, float32, X=promise, Y=promise)
    shape = (3, *description.x_shape(1))
    rows_first = (promise.layout is ColumnMajor) == (side is Side.Right)
    # Four elements, contiguous or four apart, whichever keeps the promise where M is 1.
    step = 16 if rows_first else 4
    strides = (64, 4, step) if side is Side.Right else (64, step, 4)
    x, y = (
        np.lib.stride_tricks.as_strided(np.arange(48, dtype="f4"), shape, strides, writeable=True)
        for _ in "xy"
    )
    arguments, operation = _run(description, x, [np.eye(4, dtype="f4")], None, y)
    problem = operation.problems[0]
    np.testing.assert_array_equal(arguments.Y, x)
    if rows_first:
        assert problem.batch == (3,)
    else:
        assert problem.rows == 3


def test_beta_zero_never_reads_z() -> None:
    x, factors = np.ones((2, 6)), [np.ones(shape) for shape in FACTORS]
    z = np.full((2, 6), np.nan)
    arguments, operation = _run(kron(FACTORS), x, factors, z)
    assert operation.problems[0].z is None
    assert np.isfinite(arguments.Y).all()


def test_unreadable_inputs_are_copied_before_each_run() -> None:
    random = np.random.default_rng(3)
    description = kron(FACTORS)
    factors = [_integers(random, shape) for shape in FACTORS]
    swapped = _integers(random, (2, 4, 6)).astype(">f8")
    misaligned = np.zeros(6 * 8 * 8 + 1, np.uint8)[1:].view("f8").reshape(8, 6)
    misaligned[...] = 3
    odd = np.zeros(8, dtype=[("tag", "i1"), ("row", "f8", 6)])["row"]
    odd[...] = _integers(random, odd.shape)
    for x in (swapped, misaligned, odd):
        arguments, operation = _run(description, x, factors)
        np.testing.assert_array_equal(arguments.Y, description.reference(x, factors))
        x[...] = 1
        arguments.run(operation)
        np.testing.assert_array_equal(arguments.Y, description.reference(x, factors))


def test_a_new_result_takes_the_described_layout() -> None:
    description = kron(FACTORS, Y=TensorDescription(float64, ColumnMajor, 2))
    arguments, _ = _run(description, np.ones((3, 4, 6)), [np.ones(shape) for shape in FACTORS])
    assert arguments.Y.shape == (3, 4, 6)
    assert arguments.Y.strides == (192, 8, 32)
    np.testing.assert_array_equal(arguments.Y, 6)


def test_a_new_result_of_a_vector_beside_a_batch_has_no_columns() -> None:
    description = kron(FACTORS, Y=TensorDescription(float64, ColumnMajor))
    first, *others = FACTORS
    factors = [np.ones((3, *first)), *map(np.ones, others)]
    given = {"X": np.ones(math.prod(rows for rows, _ in FACTORS)), "factors": factors}
    y = KronMatmulArguments(operation=OperationDouble(description), **given).Y
    assert y.flags.c_contiguous
    assert y.shape[0] == 3


def _good() -> dict[str, Any]:
    return {"X": np.ones((4, 6)), "factors": [np.ones(shape) for shape in FACTORS]}


def _bad(**changes: Any) -> dict[str, Any]:
    return _good() | changes


_READ_ONLY = np.zeros((4, 6))
_READ_ONLY.flags.writeable = False


@pytest.mark.parametrize(
    ("arguments", "error", "words"),
    [
        (_bad(X=np.ones((4, 7))), ArgumentError, ["X", "2 x 3 x 1 = 6", "(4, 7)"]),
        (_bad(X=np.float64(3)), ElementTypeError, ["X", "float64"]),
        (_bad(X=np.array(3.0)), ArgumentError, ["X", "at least 2 dimensions"]),
        (_bad(X=[[1.0] * 6]), ElementTypeError, ["X", "list", "numpy.asarray"]),
        (
            _bad(X=np.ones((4, 6), "f4")),
            ElementTypeError,
            ["X", "kronop.float64", "kronop.float32"],
        ),
        (_bad(X=np.ones((4, 6), "c16")), ElementTypeError, ["X", "complex128"]),
        (_bad(X=np.ones((4, 6), bool)), ElementTypeError, ["X", "bool"]),
        (_bad(X=np.ma.ones((4, 6))), ArgumentError, ["X", "masked"]),
        (_bad(factors=np.ones((3, 2, 2))), ElementTypeError, ["factors", "list or tuple"]),
        (_bad(factors=_good()["factors"][:2]), ArgumentError, ["factors", "3 tensors", "got 2"]),
        (
            _bad(factors=[np.ones((3, 2)), *_good()["factors"][1:]]),
            ArgumentError,
            ["factors[0]", "2, 3", "(3, 2)"],
        ),
        (
            _bad(factors=[np.ones((5, 2, 3)), *_good()["factors"][1:]], X=np.ones((4, 3, 6))),
            ArgumentError,
            ["leading dimensions of factors[0]", "4 or 1", "(from X)"],
        ),
        (_bad(Y=np.ones((3, 6))), ArgumentError, ["Y", "4, 6", "(3, 6)"]),
        (_bad(Y=np.ones((1, 4, 6))), ArgumentError, ["Y", "(4, 6)", "(1, 4, 6)"]),
        (_bad(Y=_READ_ONLY), ArgumentError, ["Y", "read-only"]),
        (_bad(Y=np.zeros((4, 6), ">f8")), ArgumentError, ["Y", "byte order"]),
        (_bad(Y=np.broadcast_to(np.zeros((1, 6)), (4, 6))), ArgumentError, ["Y"]),
        (_bad(Z=np.ones((4, 5))), ArgumentError, ["Z", "4, 6", "(4, 5)"]),
        (_bad(output_op=(1.0, 0.0)), ElementTypeError, ["output_op", "epilogue_type"]),
    ],
)
def test_what_does_not_fit_is_named(
    arguments: dict[str, Any], error: type, words: list[str]
) -> None:
    operation = OperationDouble(kron(FACTORS))
    if "Z" in arguments:
        arguments = arguments | {"output_op": operation.epilogue_type(1.0, 0.0)}
    with pytest.raises(error) as caught:
        KronMatmulArguments(operation=operation, **arguments)
    for word in words:
        assert word in str(caught.value)
    assert operation.problems == []


def test_beta_needs_z() -> None:
    operation = OperationDouble(kron(FACTORS))
    with pytest.raises(ArgumentError, match=r"Z: expected a tensor, because beta is 0\.5"):
        KronMatmulArguments(
            operation=operation, **_good(), output_op=operation.epilogue_type(1.0, 0.5)
        )


def test_z_needs_beta() -> None:
    operation = OperationDouble(kron(FACTORS))
    z = np.ones((4, 6))
    for scalars in (None, operation.epilogue_type(), operation.epilogue_type(2.0)):
        with pytest.raises(ArgumentError, match="beta: expected a number, because Z is given"):
            KronMatmulArguments(operation=operation, **_good(), Z=z, output_op=scalars)
        with pytest.raises(ArgumentError, match="beta: expected a number, because Z is given"):
            operation.description.reference(*_good().values(), z, scalars)
    without = operation.epilogue_type(2.0, 0.0)
    arguments = KronMatmulArguments(operation=operation, **_good(), Z=z * np.nan, output_op=without)
    arguments.run(operation)
    np.testing.assert_array_equal(arguments.Y, 12)
    expected = operation.description.reference(*_good().values(), z * np.nan, without)
    np.testing.assert_array_equal(arguments.Y, expected)


def test_overlaps_are_refused_and_neighbours_accepted() -> None:
    operation = OperationDouble(kron(FACTORS))
    memory = np.zeros((8, 12))
    factors = _good()["factors"]
    x, beside = memory[:4, :6], memory[:4, 6:]
    KronMatmulArguments(operation=operation, X=x, factors=factors, Y=beside)
    with pytest.raises(ArgumentError, match="Y and X"):
        KronMatmulArguments(operation=operation, X=x, factors=factors, Y=memory[2:6, 4:10])
    with pytest.raises(ArgumentError, match=r"Y and factors\[0\]"):
        KronMatmulArguments(
            operation=operation,
            X=np.ones((4, 6)),
            Y=memory[:4, :6],
            factors=[memory[3:5, 5:8], *factors[1:]],
        )
    scale = operation.epilogue_type(1.0, 1.0)
    with pytest.raises(ArgumentError, match="Y and Z"):
        KronMatmulArguments(
            operation=operation,
            X=np.ones((4, 6)),
            factors=factors,
            Y=memory[:4, :6],
            Z=memory[1:5, :6],
            output_op=scale,
        )
    y = np.lib.stride_tricks.as_strided(memory, (4, 6), (8, 8))
    with pytest.raises(ArgumentError, match="distinct"):
        KronMatmulArguments(operation=operation, X=np.ones((4, 6)), factors=factors, Y=y)


def test_a_broken_alignment_is_refused() -> None:
    promise = TensorDescription(float64, alignment=2)
    operation = OperationDouble(kron(FACTORS, X=promise))
    memory = np.zeros((4, 8))
    factors = _good()["factors"]
    KronMatmulArguments(operation=operation, X=memory[:, :6], factors=factors)
    for x in (memory[:, 1:7], np.zeros((4, 7))[:, :6], np.zeros((6, 4)).T):
        with pytest.raises(ArgumentError, match="memory of X"):
            KronMatmulArguments(operation=operation, X=x, factors=factors)
    KronMatmulArguments(operation=operation, X=np.zeros((4, 7))[:1, :6], factors=factors)


def test_gpu_tensors_are_refused_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    from kronop.args import operands as module
    from kronop.args.view import Device

    real = module.view

    def fake(tensor: Any, name: str, differentiable: str) -> Any:
        item = real(tensor, name, differentiable)
        return dataclasses.replace(item, device=Device("cuda", 1)) if name == "factors[1]" else item

    monkeypatch.setattr(module, "view", fake)
    for target in ("x86", "sm_90a"):
        operation = OperationDouble(kron(FACTORS), target)
        with pytest.raises(
            ArgumentError, match=r"X on cpu, factors\[0\] on cpu, factors\[1\] on cuda:1"
        ):
            KronMatmulArguments(operation=operation, **_good())


def test_workspace_is_aligned_and_kept() -> None:
    operation = OperationDouble(kron(FACTORS), workspace=1000)
    arguments = KronMatmulArguments(operation=operation, **_good())
    arguments.run(operation)
    assert operation.problems[0].workspace % 64 == 0
    assert operation.problems[0].workspace
    arguments.run(operation)
    assert len(operation.problems) == 1


def _odd_vectors(length: int) -> list[Any]:
    """Vectors that are copied before they are read: swapped, misaligned, with odd steps."""
    misaligned = np.zeros(8 * length + 1, np.uint8)[1:].view("f8")
    odd = np.zeros(length, dtype=[("tag", "i1"), ("row", "f8")])["row"]
    return [np.zeros(length, ">f8"), misaligned, odd, np.zeros(2 * length, ">f8")[::-2]]


@pytest.mark.parametrize("side", Side)
def test_unreadable_vectors_are_copied_before_each_run(side: Side) -> None:
    random = np.random.default_rng(5)
    description = kron(FACTORS, side)
    factors = [_integers(random, shape) for shape in FACTORS]
    columns, result = description.input_columns, description.output_columns
    for x, z in zip(_odd_vectors(columns), _odd_vectors(result), strict=True):
        x[...], z[...] = _integers(random, (columns,)), _integers(random, (result,))
        arguments, operation = _run(description, x, factors, z, None, (1.0, 2.0))
        for _ in range(2):
            matrix = x[None] if side is Side.Right else x[:, None]
            expected = description.reference(matrix, factors).reshape(-1) + 2 * z
            np.testing.assert_array_equal(arguments.Y, expected)
            x[...], z[...] = 1, 3
            arguments.run(operation)


def test_threads_that_share_arguments_take_turns() -> None:
    inside: list[int] = []
    most: list[int] = []

    class Watched(OperationDouble):
        def bind(self, launch: Any, device: int) -> Any:
            def launcher(stream: int) -> None:
                inside.append(1)
                time.sleep(1e-3)
                most.append(len(inside))
                inside.pop()

            return launcher

    operation = Watched(kron(FACTORS), workspace=100)
    arguments = KronMatmulArguments(operation=operation, **_good())
    with ThreadPoolExecutor(4) as pool:
        for run in [pool.submit(arguments.run, operation) for _ in range(16)]:
            run.result()
    assert most == [1] * 16
    assert len(operation.problems) == 1


def test_torch_memory_lives_while_the_tensor_moves_away() -> None:
    torch = pytest.importorskip("torch")
    x = torch.ones(4, 6, dtype=torch.float64)
    factors = [torch.ones(shape, dtype=torch.float64) for shape in FACTORS]
    operation = OperationDouble(kron(FACTORS))
    arguments = KronMatmulArguments(operation=operation, X=x, factors=factors)
    item = view(x, "X")
    x.data = torch.full((4, 6), torch.nan, dtype=torch.float64)
    assert item.owner.data_ptr() == item.pointer != x.data_ptr()
    arguments.run(operation)
    np.testing.assert_array_equal(arguments.Y, 6)


def test_scalars_are_held_to_the_operation() -> None:
    whole = OperationDouble(kron(FACTORS, element=int32))
    single = OperationDouble(kron(FACTORS, element=float32))
    double = OperationDouble(kron(FACTORS))
    ones = [np.ones(shape) for shape in ((4, 6), *FACTORS)]
    for operation, dtype, scalars in (
        (whole, "i4", single.epilogue_type(0.5)),
        (single, "f4", double.epilogue_type(1e300)),
    ):
        x, *factors = [item.astype(dtype) for item in ones]
        with pytest.raises(ArgumentError, match="alpha: expected a finite"):
            KronMatmulArguments(operation=operation, X=x, factors=factors, output_op=scalars)
    x, *factors = [item.astype("i4") for item in ones]
    arguments = KronMatmulArguments(
        operation=whole, X=x, factors=factors, output_op=single.epilogue_type(3.0)
    )
    assert arguments.output_op == whole.epilogue_type(3)
    assert [type(value) for value in arguments.output_op.scalars] == [int, int]


def test_a_run_in_the_middle_of_a_run_by_its_own_thread_is_refused() -> None:
    """As of a signal's handler, which would wait for what it interrupts."""
    operation = OperationDouble(kron(((2, 2),)))
    x, factor = np.ones((3, 2)), 2 * np.eye(2)
    arguments = KronMatmulArguments(operation=operation, X=x, factors=[factor])
    calls = (
        lambda: arguments.run(operation),
        lambda: arguments.bind(operation),
        lambda: arguments.unbound().run(operation),
    )
    computed: list[str] = []

    def handler(stream: int) -> None:
        for call in calls:
            try:
                call()
                computed.append("yes")
            except DeviceError as error:
                computed.append(str(error))

    def run() -> None:
        arguments.bind(operation)
        assert arguments._steps is not None
        arguments._steps = (handler, *arguments._steps)
        arguments.run(operation)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(20)
    assert ["in the middle of another one" in text for text in computed] == [True, True, False]
    assert np.array_equal(arguments.Y, 2 * x)
    arguments.bind(operation)
    arguments.run(operation)


def test_scratch_is_asked_for_as_many_threads_as_a_run_takes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    torch = pytest.importorskip("torch")
    operation = OperationDouble(kron(FACTORS))
    monkeypatch.setattr(host, "thread_count", lambda: 3)
    for threads in (2, 5):
        monkeypatch.setattr(torch, "get_num_threads", lambda threads=threads: threads)
        assert host.most_threads() == max(threads, 3)
        for convert, expected in ((np.asarray, 3), (torch.asarray, threads)):
            good = _good()
            KronMatmulArguments(
                operation=operation,
                X=convert(good["X"]),
                factors=[convert(factor) for factor in good["factors"]],
            ).run(operation)
            assert operation.asked[-1] == (4, expected)
            assert operation.problems[-1].threads == expected
