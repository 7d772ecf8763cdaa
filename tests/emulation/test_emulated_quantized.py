"""Kernels of quantized Kronecker products on the CPU, bit for bit as their definition says."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import kronop
from kronop.descriptions.strided import Strided
from kronop.families.kron.description import KronProblem
from kronop.families.quantized.description import EPILOGUE, QuantizedKronProblem, Y
from tests.emulation.emulator import Emulator

_NUMPY = {"bfloat16": ml_dtypes.bfloat16, "float16": np.float16, "float32": np.float32}
# Factors, bits, type, rows, batch, how X lies.
_CASES = [
    ([(64, 64), (64, 64)], 4, "bfloat16", (14,), "rows"),
    ([(64, 64), (128, 128)], 8, "float16", (9,), "rows"),
    ([(16, 16), (16, 16)], 4, "float16", (49,), "columns"),
    ([(3, 5), (7, 4)], 4, "bfloat16", (2, 27), "rows"),
    ([(5, 2), (6, 7)], 8, "float16", (6,), "columns"),
    ([(5, 6), (24, 3)], 4, "float16", (5,), "rows"),
    ([(2, 3), (3, 2), (4, 6)], 4, "bfloat16", (2, 5), "rows"),
    ([(128, 128), (96, 112)], 4, "bfloat16", (3,), "rows"),
    ([(128, 128), (192, 192)], 4, "float16", (3,), "rows"),
    ([(1, 2), (9, 33)], 8, "bfloat16", (19,), "odd"),
]


def operation(factors: Any, bits: int, name: str) -> Any:
    element = getattr(kronop, name)
    tensor = kronop.TensorDescription(element)
    return kronop.QuantizedKronOperation(
        "sm_90a", None, tensor, tensor, Y, EPILOGUE, factors, bits=bits
    )


def laid(values: Any, how: str, kind: Any) -> Any:
    """The values in memory that starts at 16 bytes, or is `odd`."""
    shape = values.shape[::-1] if how == "columns" else values.shape
    memory = np.empty(values.size * 2 + 32, np.uint8)
    start = -memory.ctypes.data % 16 + (2 if how == "odd" else 0)
    place = memory[start : start + 2 * values.size].view(kind).reshape(shape)
    place = place.T if how == "columns" else place
    place[...] = values.astype(kind)
    return place


def matrix(array: Any, batch: int) -> Strided:
    strides = tuple(step // array.itemsize for step in array.strides)
    lead = (0,) * (batch - (array.ndim - 2)) + strides[:-2]
    return Strided(pointer=array.ctypes.data, strides=(strides[-2], strides[-1]), batch=lead)


def check(made: Any, x: Any, factors: list[Any], clip: float, folder: Path) -> None:
    what, batch = made.description, x.ndim - 2
    q = np.full((*x.shape[:-1], what.row_bytes), 77, np.int8)
    scales = np.full((*x.shape[:-1], 1), -7, np.float32)
    size = made.workspace_bytes(math.prod(x.shape[:-1]), 1)
    workspace = np.zeros(size + 256, np.uint8)
    product = KronProblem(
        rows=x.shape[-2],
        batch=x.shape[:-2],
        x=matrix(x, batch),
        factors=tuple(matrix(item, batch) for item in factors),
        z=None,
        y=matrix(q, batch),
        scalars=(1.0, 0.0),
        workspace=workspace.ctypes.data + -workspace.ctypes.data % 256,
        threads=1,
    )
    problem = QuantizedKronProblem(product=product, scales=scales.ctypes.data, clip=clip)
    # With a single multiprocessor, blocks take several rows after each other.
    plan = replace(made.plan, target=replace(made.target, cores=1))
    Emulator(plan, folder).run(plan.launches(problem))
    want, wanted_scales = what.quantized(what.product.reference(x, factors), clip)
    assert np.array_equal(scales, wanted_scales, equal_nan=True)
    assert np.array_equal(q, want)


@pytest.mark.parametrize(("factors", "bits", "name", "shape", "how"), _CASES)
def test_rows_and_scales(
    factors: Any, bits: int, name: str, shape: Any, how: str, folder: Path
) -> None:
    """Products are small integers, so that they are exact, with ties, zeros, infinity and NaN."""
    random, kind = np.random.default_rng(len(shape)), _NUMPY[name]
    columns = math.prod(rows for rows, _ in factors)
    values = random.integers(-1, 2, (*shape, columns)) * (random.random((*shape, columns)) < 0.2)
    x = laid(values.astype(np.float32), how, kind)
    x[..., 0, :] = 0
    x[..., -1, columns // 2] = np.inf
    matrices = [random.integers(-1, 2, item).astype(kind) for item in factors]
    if len(shape) == 2:
        matrices[0] = random.integers(-1, 2, (shape[0], *factors[0])).astype(kind)
    made = operation(factors, bits, name)
    assert "pair" in made.plan.steps[0].entry, made.plan.rejected
    for clip in (1.0, 0.7):
        check(made, x, matrices, clip, folder)


@pytest.mark.parametrize("name", ["float16", "bfloat16"])
def test_quotients_are_those_of_a_division(name: str, folder: Path) -> None:
    """Numbers of all significands, over as many scales: the product is X itself."""
    random, kind = np.random.default_rng(3), _NUMPY[name]
    x = laid(
        random.standard_normal((64, 256)) * 2.0 ** random.integers(-9, 9, (64, 1)), "rows", kind
    )
    identity = np.eye(16).astype(kind)
    check(operation([(16, 16)] * 2, 8, name), x, [identity, identity], 0.9, folder)


def test_products_of_factors_that_overflow_are_left_to_gemkm() -> None:
    made = operation([(8, 8)] * 4, 8, "float16")
    assert "rows" in made.plan.steps[-1].entry
    assert "overflow" in made.plan.explain()
    assert "pair" in operation([(8, 8)] * 4, 8, "bfloat16").plan.steps[0].entry


@pytest.mark.parametrize(
    ("factors", "bits", "name", "rows"),
    [
        ([(6, 20)], 4, "float16", 67),
        ([(3, 2112)], 8, "float16", 18),
        ([(5, 2070)], 4, "bfloat16", 18),
        ([(4, 24)], 4, "float32", 9),
        ([(4, 7)], 8, "float32", 9),
    ],
)
def test_products_in_memory(factors: Any, bits: int, name: str, rows: int, folder: Path) -> None:
    """Kernels of other plans: the product's own, and one for its rows."""
    random, kind = np.random.default_rng(rows), _NUMPY[name]
    x = random.integers(-2, 3, (rows, factors[0][0])).astype(kind)
    x[0], x[-1, 0] = 0, np.nan
    made = operation(factors, bits, name)
    assert "rows" in made.plan.steps[-1].entry
    check(made, x, [random.integers(-2, 3, item).astype(kind) for item in factors], 1.0, folder)
