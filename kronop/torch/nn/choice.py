"""The algorithm "auto" of a layer: chooses kronop's kernel or one dense product by a model.

The model gives a cost for each row of many, in bytes: the larger of the bytes that a row moves and
its operations, converted by the number of operations that the machine does while memory moves one
byte; plus a fixed cost of each launch. The kernel's bytes and operations are those of the planner's
steps. The cost of forming the dense matrix is neglected, since many rows share it.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence

import torch

from kronop.args.device import target_of_device
from kronop.args.view import Device
from kronop.descriptions.datatype import TENSOR_TYPES, Layout
from kronop.descriptions.epilogue import LinearCombination
from kronop.descriptions.math_instruction import MathInstruction
from kronop.descriptions.tensor import TensorDescription
from kronop.errors import KronopError
from kronop.families.ksparse.description import Pattern, inputs_of, outputs_of
from kronop.families.ksparse.operation import KSparseOperation
from kronop.target import Target

AUTO = "auto"

# (of the kernel, of torch's matrix product): operations done while memory moves one byte.
# NOTE: "cpu" was measured on two AVX-512 cores with AMX at 13 GB/s: in the order of the table, the
# kernel reaches 225, 92, 250 and 200 GFLOP/s, torch 160, 80, 800 and 35. Of "cuda", float64 was
# measured on an H200 (57 and 62 TFLOP/s). The others were fitted, with the fixed costs, to 60
# patterns in both layouts with 25088 rows: the model is right in 226 of 240 cases of 16 bits and in
# 119 of 120 of float32 (the kernel is faster in 182 and 117); it loses 1 % of the time on average.
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
# (of the kernel, of torch's matrix product): the fixed cost of a launch, spread over the 25088
# rows of the fit as bytes per row; about 10 and 6 microseconds.
_LAUNCHES = {"cpu": (0.0, 0.0), "cuda": (1600.0, 1000.0)}


def choose(
    patterns: Sequence[Pattern], dtype: torch.dtype, device: torch.device, batch_last: bool
) -> str:
    """The name of the faster algorithm for this chain on this device.

    It is "kernel" if the model does not know the device: "meta", or a GPU that is not here.

    Args:
        patterns: the patterns, the right-most factor first.
        dtype, device: the torch type and device of the parameters.
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
        launch + max(work.bytes, work.operations / of_kernel)
        for work in (step.per_row for step in steps)
        if work  # All rows share the other steps, which pack weights.
    )
    inputs, outputs = inputs_of(patterns[0]), outputs_of(patterns[-1])
    moved = (inputs + outputs) * TENSOR_TYPES[name].bytes
    dense = dense_launch + max(moved, 2 * inputs * outputs / of_dense)
    return "kernel" if kernel <= dense else "dense"


def _operation(
    target: str | Target, name: str, pattern: Pattern, batch_last: bool
) -> KSparseOperation:
    """The operation for contiguous tensors."""
    element = TENSOR_TYPES[name]
    tensor = TensorDescription(element, Layout.RowMajor, 1)
    accumulator = MathInstruction.simt(element).element_accumulator
    epilogue = LinearCombination(element, 1, accumulator, accumulator)
    weights = TensorDescription(element)
    return KSparseOperation(target, None, tensor, weights, tensor, epilogue, pattern, batch_last)
