"""kronop.jax on a GPU, as far as doubles of XLA and of the driver go: what is launched, and how."""

from __future__ import annotations

import ctypes
import dataclasses
import functools
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from kronop import compiler
from kronop.artifacts import Language, Source
from kronop.core.operation import Operation
from kronop.target import Target
from tests.unit.gpu_double import Driver, gpu

jax = pytest.importorskip("jax")

import kronop.jax as kj  # noqa: E402
from kronop.jax import native, recording  # noqa: E402

__all__ = ["gpu"]
_SOURCE = Path(__file__).with_name("xla_double.cpp")


class _Launched(ctypes.Structure):
    _fields_ = (
        ("kernel", ctypes.c_int64),
        ("stream", ctypes.c_int64),
        ("grid", ctypes.c_int64 * 3),
        ("block", ctypes.c_int64 * 3),
        ("shared_bytes", ctypes.c_int64),
        ("overlaps", ctypes.c_int64),
        ("words", ctypes.c_uint64 * 128),
    )


class _Question(ctypes.Structure):
    _fields_ = (
        ("handler", ctypes.c_void_p),
        ("key", ctypes.c_int64),
        ("arguments", ctypes.c_int64),
        ("results", ctypes.c_int64),
        ("addresses", ctypes.c_void_p),
        ("sizes", ctypes.c_void_p),
        ("launcher", ctypes.c_void_p),
        ("launches", ctypes.c_int64),
        ("launched", ctypes.POINTER(_Launched)),
        ("message", ctypes.c_char_p),
        ("version", ctypes.c_int64),
    )


@dataclasses.dataclass
class _Kernel:
    """A kernel's double: its address is a number, and it notes for which GPUs that was asked."""

    step: int
    devices: list[int]
    entry: str = "double"

    def address(self, launch: Any, device: int) -> int:
        self.devices.append(device)
        return 1000 + self.step


@pytest.fixture
def double(monkeypatch: pytest.MonkeyPatch, gpu: Driver) -> Any:
    """The function that asks the double a `_Question`; `devices` are those that kernels were asked
    for."""
    if compiler.cuda_devices():
        pytest.skip("XLA itself calls the handler here, which must keep the real driver")
    target, folders = Target.parse("x86"), native.source("cuda").include_directories
    source = Source(
        entry="xla_double",
        text=_SOURCE.read_text(),
        language=Language.CXX,
        include_directories=folders,
    )
    binaries = compiler.compile_sources([source], target)
    _, (kernel,) = compiler.load_all(binaries, [source], target)
    ask = SimpleNamespace(function=kernel.function, devices=[])
    question = _Question()
    ask.function(ctypes.addressof(question), 0)

    def serve(operation: Any, plan: Any) -> Any:
        kernels = tuple(_Kernel(step, ask.devices) for step in range(len(plan.steps)))
        return SimpleNamespace(
            plan=plan,
            kernels=kernels,
            launches=operation.launches,
            workspace_bytes=plan.workspace_bytes,
        )

    monkeypatch.setattr(Operation, "serve", serve)
    monkeypatch.setattr(Operation, "plan_for", lambda self, rows, device=None: self.plan)
    monkeypatch.setattr(recording, "_gpus", lambda: (0, 1))
    monkeypatch.setattr(native, "_launch_address", lambda: question.launcher)
    return ask


def _lowered(function: Any, *operands: Any) -> Any:
    """The program that is registered when the function is compiled for GPUs, and its key."""
    before = set(native._registered)
    lowered = jax.jit(function).trace(*operands).lower(lowering_platforms=("cuda",))
    assert "custom_call @kronop" in lowered.as_text()
    ((platform, key),) = set(native._registered) - before
    assert platform == "cuda"
    return native._registered[platform, key][2], key


def _asked(double: Any, key: int, addresses: list[int], results: int, sizes: list[int]) -> Any:
    command, question = native._Command(driver=native._launch_address()), _Question()
    native._library("cuda")(ctypes.addressof(command), 0)
    places = (ctypes.c_uint64 * len(addresses))(*addresses)
    lengths = (ctypes.c_int64 * len(sizes))(*sizes)
    question.handler, question.key = command.handler, key
    question.arguments, question.results = len(addresses) - results, results
    question.addresses, question.sizes = ctypes.addressof(places), ctypes.addressof(lengths)
    double.function(ctypes.addressof(question), 0)
    return question


@pytest.mark.parametrize("is_chain", [False, True])
def test_what_is_launched_is_what_was_recorded_at_the_addresses_of_the_call(
    double: Any, is_chain: bool
) -> None:
    ones = functools.partial(np.ones, dtype="float32")
    if is_chain:
        weights = [ones((16, 64, 64, 1)), ones((1, 64, 64, 16))]
        program, key = _lowered(lambda x: kj.ksmm(x, weights), ones((256, 1024)))
    else:
        factors = [ones((16, 16))] * 4
        program, key = _lowered(lambda x: kj.gemkm(x, factors), ones((100, 16**4)))
    count = len(program.alignments)
    scratch = count - (4 if is_chain else 6)
    assert program.alignments == (16,) * (count - scratch) + (64,) * scratch
    addresses = [(at + 1) << 32 for at in range(count)]
    sizes = [len(record.launch.parameters) for record in program.records]
    question = _asked(double, key, addresses, 1 + scratch, sizes)
    assert question.message is None
    assert question.version > 0
    assert question.launches == len(program.records)
    assert set(double.devices) == {0, 1}
    for at, record in enumerate(program.records):
        found, launch = question.launched[at], record.launch
        assert (found.kernel, found.stream) == (1000 + launch.step, 77)
        assert (*found.grid, *found.block) == (*launch.grid, *launch.block)
        assert (found.shared_bytes, found.overlaps) == (launch.shared_bytes, launch.overlaps)
        words = np.frombuffer(launch.parameters, np.uint64).copy()
        assert record.patches
        for word, slot, displacement in record.patches:
            words[word] = addresses[slot] + displacement
        assert list(words) == found.words[: len(words)]


def test_calls_that_do_not_fit_launch_nothing_and_say_why(double: Any) -> None:
    factor = np.ones((4, 4), "float32")
    program, key = _lowered(lambda x: kj.gemkm(x, [factor, factor]), np.ones((8, 16), "float32"))
    count = len(program.alignments)
    addresses, results = [(at + 1) << 32 for at in range(count)], count - 3
    crooked = [addresses[0] + 4, *addresses[1:]]
    for message, asked in {
        "a program of this process": (key + 1, addresses, results),
        "at multiples of 16 bytes": (key, crooked, results),
        "as many buffers": (key, [*addresses, 1 << 40], results + 1),
    }.items():
        question = _asked(double, *asked, [0])
        assert message in question.message.decode()
        assert question.launches == 0
