"""Which algorithm a layer takes of itself: the kernel, or one dense product.

Both are modelled for many rows: the bytes that a row moves or its operations, which for the
kernel are those of the planner's steps, at the operations that the machine does while memory
moves one byte; and a fixed cost of each launch. That the matrix is formed counts for nothing there.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

from kronop.args.device import target_of_device
from kronop.args.view import Device
from kronop.descriptions.datatype import TENSOR_TYPES, Layout
from kronop.descriptions.epilogue import LinearCombination
from kronop.descriptions.math_instruction import MathInstruction
from kronop.descriptions.tensor import TensorDescription
from kronop.errors import KronopError
from kronop.families.ksparse.operation import KSparseOperation
from kronop.families.ksparse.torch.shapes import Pattern, inputs_of, outputs_of

AUTO = "auto"

# Operations while memory moves one byte: of the kernel, and of torch's matrix product.
# NOTE: two AVX-512 cores with AMX, 13 GB/s: 225, 92, 250 and 200 against 160, 80, 800 and 35
# GFLOP/s. On an H200 float64 is 57 against 62 TFLOP/s; the others were fitted, with the fixed
# costs, to 60 patterns in both layouts, 25088 rows: right in 226 of 240 cases of 16 bits and in 119
# of 120 in float32 (always the kernel: 182 and 117), 1 % of the time lost in the mean.
_RATES = {
    "cpu": {
        "float32": (17.0, 12.0),
        "float64": (7.0, 6.0),
        "bfloat16": (19.0, 62.0),
        "float16": (15.0, 2.7),
    },
    "cuda": {
        "float32": (33.0, 13.0),
        "float64": (13.5, 15.0),
        "bfloat16": (125.0, 215.0),
        "float16": (125.0, 215.0),
    },
}
# What a launch of either costs besides, as bytes of each of so many rows: 10 and 6 microseconds.
_LAUNCHES = {"cpu": (0.0, 0.0), "cuda": (1600.0, 1000.0)}


def choose(patterns: Sequence[Pattern], dtype: Any, device: Any, batch_last: bool) -> str:
    """The name of the faster algorithm for this chain there; the kernel where there is no telling:
    on "meta", or on a GPU that is not here.

    Args:
        patterns: the right-most factor first.
        dtype, device: torch's, of the parameters.
    """
    if device.type not in _RATES:
        return "kernel"
    index = device.index or 0
    name = str(dtype).removeprefix("torch.")
    return _choose(tuple(patterns), name, Device(device.type, index), batch_last)


@functools.lru_cache(maxsize=512)
def _choose(patterns: tuple[Pattern, ...], name: str, device: Device, batch_last: bool) -> str:
    of_kernel, of_dense = _RATES[device.kind][name]
    launch, dense_launch = _LAUNCHES[device.kind]
    try:
        target = target_of_device(device)
    except KronopError:
        return "kernel"
    steps = [
        step
        for pattern in patterns
        for step in _operation(target, name, pattern, batch_last).plan.steps
    ]
    kernel = sum(
        launch + max(step.bytes_per_row, step.operations_per_row / of_kernel)
        for step in steps
        if step.bytes_per_row  # Weights are packed once for all rows; there is seldom a Z.
    )
    inputs, outputs = inputs_of(patterns[0]), outputs_of(patterns[-1])
    moved = (inputs + outputs) * TENSOR_TYPES[name].bytes
    dense = dense_launch + max(moved, 2 * inputs * outputs / of_dense)
    return "kernel" if kernel <= dense else "dense"


def _operation(target: str, name: str, pattern: Pattern, batch_last: bool) -> KSparseOperation:
    """What is planned for contiguous tensors."""
    element = TENSOR_TYPES[name]
    tensor = TensorDescription(element, Layout.RowMajor, 1)
    accumulator = MathInstruction.simt(element).element_accumulator
    epilogue = LinearCombination(element, 1, accumulator, accumulator)
    weights = TensorDescription(element)
    return KSparseOperation(target, None, tensor, weights, tensor, epilogue, pattern, batch_last)
