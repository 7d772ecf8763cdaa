"""Tensor-core kernels for int8 run on the CPU from the same headers: every result exact."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from kronop.descriptions.datatype import Layout, RowMajor, int8, int32
from kronop.descriptions.epilogue import LinearCombinationClamp
from kronop.descriptions.math_instruction import MathInstruction
from kronop.emit.cuda.contraction import choice
from kronop.emit.plan import Step
from kronop.families.kron.cuda import tiles
from kronop.families.kron.description import Side
from tests import support
from tests.emulation import test_emulated_kernels
from tests.emulation.test_emulated_kernels import run_kron


@pytest.fixture(autouse=True)
def only_tensor_cores(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """No SIMT kernel stands in; and values from both ends of int8, so that sums wrap."""

    def values(random: np.random.Generator, shape: Any, element: Any) -> Any:
        bounds = np.iinfo(element.name)
        drawn = random.integers(bounds.min, bounds.max, shape, element.name, endpoint=True)
        return np.where(random.random(shape) < 0.2, bounds.min, drawn).astype(element.name)

    monkeypatch.setattr(test_emulated_kernels, "values", values)
    monkeypatch.setattr(tiles, "simt_tiles", lambda *_: [])
    monkeypatch.setattr(choice, "candidates", lambda *_: ([], []))
    support.forget_passes()
    yield
    support.forget_passes()


def run(
    folder: Path, factors: list[tuple[int, int]], rows: int, **options: Any
) -> tuple[Step, ...]:
    instruction = MathInstruction.tensor_op(int8)
    return run_kron(folder, factors, rows, int8, math_instruction=instruction, **options)


@pytest.mark.parametrize(
    "factors",
    [
        [(32, 32)],
        [(8, 8)] * 3,
        [(16, 16)] * 3,
        [(128, 128)],
        [(127, 31)],
        [(1, 7), (3, 1)],
        [(32, 32)] * 2,
        [(64, 16), (8, 64)],
        [(52, 50), (65, 20)],
        [(6, 7), (5, 5), (9, 4), (3, 3)],
    ],
)
def test_shapes(folder: Path, factors: list[tuple[int, int]]) -> None:
    run(folder, factors, 3, source=True)
    run(folder, factors, 37, side=Side.Left, alignment=16)
    run(folder, factors, 5, alignment=16)


@pytest.mark.covering(side=list(Side), x=list(Layout), f=list(Layout), y=list(Layout))
def test_every_layout(folder: Path, side: Side, x: Layout, f: Layout, y: Layout) -> None:
    run(folder, [(4, 8), (40, 4)], 4, side=side, layouts=(x, f, y), alignment=4)


@pytest.mark.parametrize("factor_batch", [(), (3,), (2, 1)])
def test_batches(folder: Path, factor_batch: tuple[int, ...]) -> None:
    run(folder, [(32, 3), (5, 16)], 3, batch=(2, 3), factor_batch=factor_batch)
    run(folder, [(16, 16)], 50, batch=(2, 3), factor_batch=factor_batch, side=Side.Left)


def test_results_of_8_bits_saturate(folder: Path) -> None:
    clamp = LinearCombinationClamp(int8, 1, int32, int32)
    run(folder, [(16, 16)] * 2, 5, epilogue=clamp, source=True)
    run(folder, [(16, 16)] * 2, 5, epilogue=clamp, layouts=(RowMajor,) * 3, alignment=16)


def test_later_passes_take_all_bytes(folder: Path) -> None:
    assert len(run(folder, [(64, 64)] * 3, 1, alignment=16)) > 1
