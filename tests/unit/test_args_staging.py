"""Host tensors on a GPU operation: in at each run, back at sync; on a double of the driver."""

from __future__ import annotations

import gc
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kronop.args import device
from kronop.args.memory import get_allocated_size
from kronop.args.tensor import view
from kronop.descriptions.datatype import float32
from kronop.descriptions.tensor import TensorDescription
from kronop.errors import ArgumentError, DescriptionError, OutOfMemoryError
from kronop.families.kron.arguments import KronMatmulArguments
from kronop.families.kron.description import Side
from kronop.families.ksparse.arguments import KSparseArguments
from kronop.target import Target
from tests.unit.args_double import OperationDouble, kron, ksparse
from tests.unit.gpu_double import Driver, Pool, forget_gpus, gpu
from tests.unit.test_args_kron import FACTORS, _integers, _scrambled

__all__ = ["gpu"]


@pytest.fixture(scope="module", autouse=True)
def _what_others_left() -> None:
    """What tests before this file left is not looked through again by each collection here."""
    gc.collect()
    gc.freeze()


def _factors() -> list[Any]:
    return [np.ones(shape) for shape in FACTORS]


@settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    seed=st.integers(0, 2**32),
    batch=st.lists(st.integers(1, 3), max_size=5),
    side=st.sampled_from(Side),
    with_z=st.booleans(),
    in_place=st.booleans(),
    plain=st.booleans(),
)
def test_strided_host_tensors_come_and_go(
    gpu: Driver, seed: int, batch: list[int], side: Side, with_z: bool, in_place: bool, plain: bool
) -> None:
    random = np.random.default_rng(seed)
    make = _integers if plain else _scrambled
    description = kron(FACTORS, side)
    x = make(random, (*batch, *description.x_shape(3)))
    factors = [make(random, shape) for shape in FACTORS]
    expected = description.reference(x, factors)
    y = make(random, expected.shape)
    z = y if in_place else make(random, expected.shape)
    expected = expected + 2 * z if with_z else expected
    operation = OperationDouble(description, "sm_90a", workspace=100)
    arguments = KronMatmulArguments(
        operation=operation,
        X=x,
        factors=factors,
        Y=y,
        Z=z if with_z else None,
        output_op=operation.epilogue_type(1.0, 2.0 if with_z else 0.0),
    )
    before = y.copy()
    arguments.run(operation, stream=17)
    np.testing.assert_array_equal(y, before)
    arguments.sync()
    np.testing.assert_array_equal(y, expected)
    assert operation.streams == [17]
    del arguments, operation
    gc.collect()
    assert get_allocated_size() == 0


def test_inputs_are_copied_at_each_run(gpu: Driver) -> None:
    operation = OperationDouble(kron(FACTORS), "sm_90a")
    x, factors = np.ones((2, 6)), _factors()
    arguments = KronMatmulArguments(operation=operation, X=x, factors=factors)
    arguments.run(operation)
    arguments.sync()
    np.testing.assert_array_equal(arguments.Y, 6)
    x[...] = 2
    arguments.run(operation)
    arguments.sync()
    np.testing.assert_array_equal(arguments.Y, 12)
    assert [entry[1] for entry in gpu.log if entry[0] == "upload"] == [96, 48, 24, 16] * 2
    assert [entry[1] for entry in gpu.log if entry[0] == "download"] == [96] * 2


def test_a_second_run_without_sync_goes_on_from_the_first(gpu: Driver) -> None:
    operation = OperationDouble(kron(FACTORS), "sm_90a")
    y = np.ones((2, 6))
    arguments = KronMatmulArguments(
        operation=operation,
        X=np.ones((2, 6)),
        factors=_factors(),
        Y=y,
        Z=y,
        output_op=operation.epilogue_type(1.0, 1.0),
    )
    arguments.run(operation)
    arguments.run(operation)
    arguments.sync()
    np.testing.assert_array_equal(y, 13)
    arguments.sync()
    np.testing.assert_array_equal(y, 13)
    arguments.run(operation)
    arguments.sync()
    np.testing.assert_array_equal(y, 19)


def test_torch_is_told_of_results_when_they_reach_the_host(gpu: Driver) -> None:
    torch = pytest.importorskip("torch")
    y = torch.zeros(6, 2, dtype=torch.float64).mT
    operation = OperationDouble(kron(FACTORS), "sm_90a")
    arguments = KronMatmulArguments(operation=operation, X=np.ones((2, 6)), factors=_factors(), Y=y)
    arguments.run(operation)
    saved = y._version
    arguments.sync()
    assert float(y[0, 0]) == 6
    assert y._version > saved


@pytest.mark.parametrize("framework", ["numpy", "torch"])
def test_shared_factors_are_staged_once(gpu: Driver, framework: str) -> None:
    operation = OperationDouble(kron(((2, 2),) * 3), "sm_90a")
    make = pytest.importorskip(framework).ones
    factor = make((2, 2), dtype=pytest.importorskip(framework).float64)
    x = make((1, 8), dtype=factor.dtype)
    arguments = KronMatmulArguments(operation=operation, X=x, factors=[factor] * 3)
    arguments.run(operation)
    assert len([entry for entry in gpu.log if entry[0] == "upload"]) == 2
    assert len({item.pointer for item in operation.problems[0].factors}) == 1


def test_staged_copies_keep_promises(gpu: Driver) -> None:
    promise = TensorDescription(float32, alignment=4)
    operation = OperationDouble(kron(((6, 6),), element=float32, X=promise), "sm_90a")
    memory = np.arange(64, dtype="f4").reshape(8, 8)
    x = memory[::2, :6] if memory.ctypes.data % 16 == 0 else None
    if x is None:
        pytest.skip("NumPy did not align this array")
    arguments = KronMatmulArguments(operation=operation, X=x, factors=[np.eye(6, dtype="f4")])
    arguments.run(operation)
    arguments.sync()
    assert operation.problems[0].x.row == 8
    np.testing.assert_array_equal(arguments.Y, x)


def test_foreign_byte_order_and_nothing_to_do(gpu: Driver) -> None:
    operation = OperationDouble(kron(FACTORS), "sm_90a")
    arguments = KronMatmulArguments(
        operation=operation, X=np.ones((2, 6), ">f8"), factors=_factors()
    )
    arguments.run(operation)
    arguments.sync()
    np.testing.assert_array_equal(arguments.Y, 6)
    nothing = KronMatmulArguments(operation=operation, X=np.ones((0, 6)), factors=_factors())
    nothing.run(operation)
    nothing.sync()
    assert nothing.Y.shape == (0, 6)


def test_sparse_operands_are_staged(gpu: Driver) -> None:
    random = np.random.default_rng(4)
    description = ksparse((2, 3, 4, 2))
    operation = OperationDouble(description, "sm_90a")
    x = _scrambled(random, (3, 2, 16))
    weights, bias = _scrambled(random, (2, 3, 4, 2)), _integers(random, (24,))[::2]
    y = _scrambled(random, (3, 2, 12))
    arguments = KSparseArguments(operation=operation, X=x, W=weights, bias=bias, Y=y)
    arguments.run(operation)
    arguments.sync()
    expected = description.reference(x.reshape(6, 16), weights, bias=bias)
    np.testing.assert_array_equal(y, expected.reshape(3, 2, 12))


def test_running_out_leaves_arguments_usable(gpu: Driver, monkeypatch: pytest.MonkeyPatch) -> None:
    operation = OperationDouble(kron(FACTORS), "sm_90a", workspace=5000)
    arguments = KronMatmulArguments(operation=operation, X=np.ones((2, 6)), factors=_factors())
    with monkeypatch.context() as patch:
        patch.setattr(Pool, "limit", 4000)
        with pytest.raises(OutOfMemoryError, match="5000 bytes"):
            arguments.run(operation)
    gc.collect()
    assert get_allocated_size() == 0
    arguments.run(operation)
    arguments.sync()
    np.testing.assert_array_equal(arguments.Y, 6)


def test_another_generation_is_refused(gpu: Driver) -> None:
    operation = OperationDouble(kron(FACTORS), "sm_80")
    with pytest.raises(ArgumentError, match="sm_80, got sm_90a"):
        KronMatmulArguments(operation=operation, X=np.ones((2, 6)), factors=_factors())
    gpu.abilities = (12, 0, 99 * 1024)
    forget_gpus()
    with pytest.raises(ArgumentError, match="sm_80, got sm_120"):
        KronMatmulArguments(operation=operation, X=np.ones((2, 6)), factors=_factors())
    for major, minor in ((3, 7), (7, 2)):  # The latter a Jetson.
        gpu.abilities = (major, minor, 48 * 1024)
        forget_gpus()
        with pytest.raises(DescriptionError, match=rf"5\.0 or later, .*, got {major}\.{minor}"):
            device.target_of_device(device.default_device())


@pytest.mark.parametrize(
    ("abilities", "target"),
    [
        ((8, 0, 163), "sm_80"),
        ((8, 6, 99), "sm_86"),
        ((8, 8, 163), "sm_87"),
        ((12, 2, 99), "sm_121"),
    ],
)
def test_a_gpu_is_served_by_its_generation(
    gpu: Driver, abilities: tuple[int, int, int], target: str
) -> None:
    gpu.abilities = (*abilities[:2], abilities[2] * 1024)
    assert device.target_of_device(device.default_device()) == target


def test_what_is_newer_than_all_targets_takes_ptx_of_the_last_one(gpu: Driver) -> None:
    gpu.abilities = (15, 0, 227 * 1024)
    with pytest.warns(RuntimeWarning, match=r"GPU 0 has compute capability 15\.0, newer than all"):
        served = device.target_of_device(device.default_device())
    assert isinstance(served, Target)
    assert (served.arch, served.compiled_for) == ("sm_121", "compute_121")
    assert device.runs_on(served, 0)
    assert not device.runs_on(Target.parse("sm_121"), 0)


def test_the_driver_fills_in_the_card(gpu: Driver) -> None:
    """An L4: a plan for it is not that of the table's RTX 4090."""
    gpu.abilities, gpu.card = (8, 9, 99 * 1024), (58, 2040000, 192, 6251000, 48 << 20)
    card = device.target_of_device(device.default_device())
    assert isinstance(card, Target)
    assert card.gpu is not None
    assert (card.name, card.cores, card.gpu.card) == ("sm_89", 58, "A card")
    assert card.gpu.bandwidth == pytest.approx(0.87 * 300e9, rel=0.01)
    known = Target.parse("sm_89")
    assert card != known
    assert Target.parse("cuda") == card
    assert all(device.runs_on(item, 0) for item in (card, known, Target.parse("sm_86")))
    assert not any(device.runs_on(Target.parse(name), 0) for name in ("sm_80", "sm_75", "sm_90a"))


class Exporter:
    """Device memory that another library exports with its stream."""

    def __init__(self, array: Any, stream: Any) -> None:
        self.array = array
        self.__cuda_array_interface__ = {
            "shape": array.shape,
            "typestr": array.dtype.str,
            "data": (array.ctypes.data, False),
            "version": 3,
            "stream": stream,
        }


def test_the_work_of_the_exporter_is_waited_for(gpu: Driver) -> None:
    array = np.ones((2, 6))
    for stream in (1, 2, 77):
        gpu.log.clear()
        item = view(Exporter(array, stream), "X")
        assert (item.pointer, item.device.index) == (array.ctypes.data, 0)
        assert gpu.log == [("sync", stream)]
    gpu.log.clear()
    view(Exporter(array, None), "X")
    assert gpu.log == []
    for stream in (0, -1, "1", True):
        with pytest.raises(ArgumentError, match=r"stream in the CUDA array.* of W.*forbids"):
            view(Exporter(array, stream), "W")
    assert gpu.log == []


def test_scratch_on_two_streams_is_used_in_turn(gpu: Driver) -> None:
    operation = OperationDouble(kron(FACTORS), "sm_90a", workspace=100)
    arrays = [Exporter(item, None) for item in (np.ones((2, 6)), *_factors(), np.zeros((2, 6)))]
    arguments = KronMatmulArguments(
        operation=operation, X=arrays[0], factors=arrays[1:4], Y=arrays[4]
    )
    for stream in (5, 5, 6, 6, 5):
        arguments.run(operation, stream=stream)
    assert gpu.log == [
        ("wait", 5, 901),
        ("record", 1, 5),
        ("record", 1, 5),
        ("wait", 6, 1),
        ("record", 2, 6),
        ("record", 2, 6),
        ("wait", 5, 2),
        ("record", 1, 5),
    ]
