"""Which algorithm a layer takes of itself: the kernel, or one dense product.

Both are modelled for many rows: the bytes that a row moves and its operations, which for the
kernel are those of the planner's steps, at the operations that the machine does while memory
moves one byte.
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
from kronop.families import KSparseOperation
from kronop.torch.ksparse_shapes import Pattern, inputs_of, outputs_of

AUTO = "auto"

# Operations while memory moves one byte: of the kernel, and of torch's matrix product.
# NOTE: two AVX-512 cores with AMX, 13 GB/s: 225, 92, 250 and 200 against 160, 80, 800 and 35
# GFLOP/s. An H200, 4.2 TB/s: 90, 57 and 300 against 51, 62 and 645 TFLOP/s.
_RATES = {
    "cpu": {
        "float32": (17.0, 12.0),
        "float64": (7.0, 6.0),
        "bfloat16": (19.0, 62.0),
        "float16": (15.0, 2.7),
    },
    "cuda": {
        "float32": (21.0, 12.0),
        "float64": (13.5, 15.0),
        "bfloat16": (71.0, 154.0),
        "float16": (71.0, 154.0),
    },
}


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
    try:
        target = target_of_device(device)
    except KronopError:
        return "kernel"
    steps = [
        step
        for pattern in patterns
        for step in _operation(target, name, pattern, batch_last).plan.steps
    ]
    kernel = sum(max(step.bytes_per_row, step.operations_per_row / of_kernel) for step in steps)
    inputs, outputs = inputs_of(patterns[0]), outputs_of(patterns[-1])
    moved = (inputs + outputs) * TENSOR_TYPES[name].bytes
    dense = max(moved, 2 * inputs * outputs / of_dense)
    return "kernel" if kernel <= dense else "dense"


def _operation(target: str, name: str, pattern: Pattern, batch_last: bool) -> KSparseOperation:
    """What is planned for contiguous tensors."""
    element = TENSOR_TYPES[name]
    tensor = TensorDescription(element, Layout.RowMajor, 1)
    accumulator = MathInstruction.simt(element).element_accumulator
    epilogue = LinearCombination(element, 1, accumulator, accumulator)
    weights = TensorDescription(element)
    return KSparseOperation(target, None, tensor, weights, tensor, epilogue, pattern, batch_last)
