"""Descriptions, inputs and error bounds that several test files need."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import kronop
from kronop import compiler
from kronop.args.device import default_device, target_of_device
from kronop.compiler import tensor_maps
from kronop.descriptions.datatype import DataType, result_type
from kronop.descriptions.strided import Strided
from kronop.emit.plan import Plan
from kronop.families.kron.cuda import pass_choice
from kronop.families.ksparse.chains import Chain
from kronop.target import detect_x86_arch, name_of_cpu, runs
from kronop.tensor_map import TensorMap

ELEMENTS = (
    kronop.float32,
    kronop.float64,
    kronop.float16,
    kronop.bfloat16,
    kronop.int32,
    kronop.int64,
    kronop.int8,
)
# Only Kronecker-sparse products have operands of these types.
FLOAT8 = (kronop.float8_e4m3fn, kronop.float8_e5m2)
_UNIT = {
    kronop.float64: 2.0**-53,
    kronop.float32: 2.0**-24,
    kronop.float16: 2.0**-11,
    kronop.bfloat16: 2.0**-8,
}
_TINY = {
    kronop.float64: 2.0**-1074,
    kronop.float32: 2.0**-149,
    kronop.float16: 2.0**-24,
    kronop.bfloat16: 2.0**-133,
}
# The roundings of an activation: an exponential (two units), a sum and a division. Their errors are
# relative to its value, not to the sum that it is taken of: sigmoid(0) is 0.5.
ROUNDINGS_OF_ACTIVATIONS = 4


def forget_passes() -> None:
    """Clears the planner's memory of judged passes; for tests that change which tiles exist."""
    for judged in (pass_choice._ways, pass_choice._least, pass_choice._may):
        judged.cache_clear()


def strided(array: Any, own: int) -> Strided:
    """An array as a problem holds it; `own` of its axes are not those of a batch."""
    steps = tuple(step // array.itemsize for step in array.strides)
    at = array.ndim - own
    return Strided(pointer=array.ctypes.data, strides=steps[at:], batch=steps[:at])


def encode_maps(monkeypatch: pytest.MonkeyPatch, encoded: Callable[[Any, int], bytes]) -> None:
    """Has tensor maps encoded by a function of a map and an address, since only a driver can."""

    def mover(value: Any, place: memoryview) -> Callable[[int], None]:
        def move(address: int) -> None:
            place[:] = encoded(value, address)

        return move

    monkeypatch.setattr(tensor_maps, "_known", {})
    monkeypatch.setattr(tensor_maps, "_encoded", encoded)
    monkeypatch.setattr(tensor_maps, "_mover", mover)


def tensor_map(address: int = 16, extent: int = 1) -> TensorMap:
    """A tensor map of no tensor in particular."""
    return TensorMap(
        address=address,
        element="float64",
        element_bytes=8,
        extents=(extent, 1, 1),
        strides=(16, 16),
        box=(16, 1, 1),
    )


def cpu_targets() -> list[str]:
    """The targets that this machine's CPU runs; its own is the last one."""
    here = detect_x86_arch()
    every = ("generic", "avx2", "avx512", "amx", "arm64")
    return [name_of_cpu(arch) for arch in every if runs(arch, here)]


def cuda_target() -> str:
    """The name of the target of this machine's GPU, whatever card of it; without one, a target that
    only serves to name tests."""
    if not compiler.cuda_devices():
        return "sm_90a"
    return str(target_of_device(default_device()))


def numpy_type(element: DataType) -> np.dtype[Any]:
    return np.dtype(getattr(ml_dtypes, element.name, element.name))


def accumulator(element: DataType) -> DataType:
    return kronop.MathInstruction.simt(element).element_accumulator


def linear(element: DataType, alignment: int = 1) -> kronop.LinearCombination:
    """The plain epilogue for products of tensors of `element`."""
    compute, output = accumulator(element), result_type(element)
    return kronop.LinearCombination(output, _narrower(output, alignment), compute, compute)


def _narrower(output: DataType, alignment: int) -> int:
    """The alignment, but at most the elements of `output` that fit in an access of 16 bytes."""
    return min(alignment, 16 // output.bytes)


def _result(epilogue: Any, layout: Any, alignment: int) -> kronop.TensorDescription:
    output = epilogue.element_output
    return kronop.TensorDescription(output, layout, _narrower(output, alignment))


def templates(plan: Plan) -> list[str]:
    """The names of the kernels' templates, in the order of the steps."""
    return [step.design.instantiation(plan.target).template for step in plan.steps]


def kron_operation(
    target: object,
    element: DataType,
    factors: Any,
    *,
    side: Any = kronop.Side.Right,
    alignment: int = 1,
    layout: Any = kronop.RowMajor,
    y_layout: Any = None,
    epilogue: Any = None,
    tile: Any = None,
) -> kronop.KronMatmulOperation:
    matrix = kronop.TensorDescription(element, layout, alignment)
    plain = kronop.TensorDescription(element)
    epilogue = epilogue or linear(element, alignment)
    result = _result(epilogue, y_layout or layout, alignment)
    return kronop.KronMatmulOperation(target, tile, matrix, plain, result, epilogue, factors, side)


def ksparse_operation(
    target: object,
    element: DataType,
    pattern: Any,
    *,
    batch_last: bool = False,
    alignment: int = 1,
    layout: Any = kronop.RowMajor,
    y_layout: Any = None,
    epilogue: Any = None,
    tile: Any = None,
) -> kronop.KSparseOperation:
    matrix = kronop.TensorDescription(element, layout, alignment)
    plain = kronop.TensorDescription(element)
    epilogue = epilogue or linear(element, alignment)
    result = _result(epilogue, y_layout or layout, alignment)
    return kronop.KSparseOperation(
        target, tile, matrix, plain, result, epilogue, pattern, batch_last
    )


def weights_description(
    element: DataType, pattern: tuple[int, int, int, int], alignment: int
) -> kronop.TensorDescription:
    """The description of contiguous weights: aligned along d, or along c if d is 1."""
    *_, c, d = pattern
    if d > 1 or c == 1:
        alignment = alignment if d > 1 else 1
        return kronop.TensorDescription(element, kronop.RowMajor, alignment)
    return kronop.TensorDescription(element, kronop.ColumnMajor, alignment)


def chain_operation(
    target: object,
    element: DataType,
    patterns: Any,
    *,
    batch_last: bool = False,
    alignment: int = 1,
    layout: Any = kronop.RowMajor,
    y_layout: Any = None,
    epilogue: Any = None,
    tile: Any = None,
) -> kronop.KSparseChainOperation:
    matrix = kronop.TensorDescription(element, layout, alignment)
    plain = kronop.TensorDescription(element)
    epilogue = epilogue or linear(element, alignment)
    result = _result(epilogue, y_layout or layout, alignment)
    return kronop.KSparseChainOperation(
        target, tile, matrix, plain, result, epilogue, patterns, batch_last
    )


def chain_of(plan: Plan) -> Chain:
    """The pieces of a chain's plan."""
    assert isinstance(plan.pipeline, Chain)
    return plan.pipeline


def gradient_operation(
    target: object,
    element: DataType,
    pattern: Any,
    *,
    tied: bool = False,
    batch_last: bool = False,
    products: int | None = None,
    alignment: int = 1,
    layout: Any = kronop.RowMajor,
    output: DataType | None = None,
    tile: Any = None,
    factors: Any = (),
) -> kronop.KSparseGradientOperation:
    matrix = kronop.TensorDescription(element, layout, alignment)
    output = output or result_type(element)
    epilogue = kronop.LinearCombination(output, 1, accumulator(element), accumulator(element))
    return kronop.KSparseGradientOperation(
        target,
        tile,
        matrix,
        matrix,
        kronop.TensorDescription(output),
        epilogue,
        pattern,
        tied,
        batch_last,
        products,
        factors,
    )


def unit(element: DataType) -> float:
    """Half the distance from 1 to the next number; 0 for integers. Of 8-bit floats: what their
    products are rounded to."""
    return _UNIT.get(result_type(element), 0.0)


def random_array(random: np.random.Generator, shape: Any, element: DataType) -> Any:
    """Random values that are small enough for every element type."""
    if element.kind == "int":
        return random.integers(-9, 10, shape).astype(numpy_type(element))
    return random.standard_normal(shape).astype(numpy_type(element))


def poison(shape: Any, element: DataType) -> Any:
    """An output filled with a value that no result has, so that unwritten elements show."""
    value = np.nan if element.kind == "float" else np.iinfo(element.name).min + 7
    return np.full(shape, value, numpy_type(element))


def laid_out(matrix: Any, layout: Any) -> Any:
    """The same values, contiguous along their rows or along their columns."""
    if layout is kronop.RowMajor:
        return np.ascontiguousarray(matrix)
    return np.ascontiguousarray(matrix.swapaxes(-1, -2)).swapaxes(-1, -2)


@dataclass(frozen=True)
class Expected:
    """The float64 result and, for each element, the largest error that rounding explains."""

    value: Any
    bound: Any

    def check(self, actual: Any) -> None:
        actual = np.asarray(actual)
        assert actual.shape == self.value.shape
        wide = actual.astype(self.value.dtype)
        if self.value.dtype.kind == "i":
            np.testing.assert_array_equal(wide, self.value)
            return
        error = np.abs(wide - self.value)
        bad = ~(error <= self.bound)
        assert not bad.any(), (
            f"{bad.sum()} of {bad.size} elements beyond the bound, first {np.argwhere(bad)[0]}:"
            f" {wide[bad][0]} for {self.value[bad][0]},"
            f" allowed {np.broadcast_to(self.bound, bad.shape)[bad][0]}"
        )


def expected_kron(
    operation: kronop.KronMatmulOperation,
    x: Any,
    factors: Any,
    z: Any = None,
    output_op: Any = None,
) -> Expected:
    description = operation.description
    value = description.reference(x, factors, z, output_op)
    if value.dtype.kind == "i":
        return Expected(value, 0)
    # One rounding for each product and each sum of every factor, relative to the sum of magnitudes.
    steps = sum(size for size, _ in description.contractions) + len(factors)
    plain = magnitudes_of(description)
    magnitude = plain.reference(np.abs(_wide(x)), [np.abs(_wide(item)) for item in factors])
    bound = error_bound(description, value, magnitude, steps, z, None, output_op)
    math = description.math
    if math.opcode_class is kronop.OpClass.TensorOp and math.element_a.bytes == 2:
        # The intermediate results between factors are rounded to the operands' significand.
        scalars = output_op or description.epilogue.epilogue_type()
        bound = bound + 2 * len(factors) * _UNIT[math.element_a] * abs(scalars.alpha) * magnitude
    return Expected(value, bound)


def expected_ksparse(
    operation: kronop.KSparseOperation,
    x: Any,
    weights: Any,
    z: Any = None,
    bias: Any = None,
    output_op: Any = None,
) -> Expected:
    description = operation.description
    value = description.reference(x, weights, z, bias, output_op)
    if value.dtype.kind == "i":
        return Expected(value, 0)
    plain = magnitudes_of(description)
    magnitude = plain.reference(np.abs(_wide(x)), np.abs(_wide(weights)))
    if bias is not None and description.batch_last:
        bias = np.asarray(bias)[:, None]
    return Expected(
        value,
        error_bound(description, value, magnitude, description.pattern[2] + 1, z, bias, output_op),
    )


def expected_chain(
    operation: kronop.KSparseChainOperation,
    x: Any,
    weights: Any,
    z: Any = None,
    bias: Any = None,
    output_op: Any = None,
) -> Expected:
    description = operation.description
    value = description.reference(x, weights, z, bias, output_op)
    if value.dtype.kind == "i":
        return Expected(value, 0)
    plain = magnitudes_of(description)
    magnitude = plain.reference(np.abs(_wide(x)), [np.abs(_wide(item)) for item in weights])
    if bias is not None and description.batch_last:
        bias = np.asarray(bias)[:, None]
    steps = sum(pattern[2] for pattern in description.patterns) + 1
    bound = error_bound(description, value, magnitude, steps, z, bias, output_op)
    # Intermediate results between factors are rounded to the tensors' type. An activation at most
    # doubles errors, as in `error_bound`.
    scalars = output_op or description.epilogue.epilogue_type()
    unit = _UNIT[description.math.element_a]
    return Expected(value, bound + 2 * len(weights) * unit * abs(scalars.alpha) * magnitude)


def expected_gradient(
    operation: kronop.KSparseGradientOperation,
    x: Any,
    g: Any,
    z: Any = None,
    output_op: Any = None,
    factors: Any = (),
) -> Expected:
    description = operation.description
    wide = [_wide(item) for item in factors]
    value = description.reference(
        _wide(x), _wide(g), None if z is None else _wide(z), output_op, wide
    )
    plain = magnitudes_of(description)
    magnitude = plain.reference(
        np.abs(_wide(x)), np.abs(_wide(g)), factors=[np.abs(item) for item in wide]
    )
    # The bound of a long sum in any order. It covers the tensor cores, which truncate sums of 8 to
    # 32 products instead of rounding, and the additions of these partial sums.
    a, _, _, d = description.pattern
    rows = x.shape[-1 if description.batch_last else -2]
    steps = rows * (a * d if description.tied else 1) + 32
    # The gradient of a factor also sums over the product's elements, times the other factors'.
    steps += math.prod(description.pattern[1:3]) + len(factors) if factors else 0
    return Expected(value, error_bound(description, value, magnitude, steps, z, None, output_op))


def _wide(array: Any) -> Any:
    return np.asarray(array, np.float64)


def magnitudes_of(description: Any) -> Any:
    """The description with a plain epilogue, to compute sums of magnitudes with."""
    import dataclasses

    return dataclasses.replace(description, epilogue=linear(description.Y.element))


def error_bound(
    description: Any, value: Any, magnitude: Any, steps: int, z: Any, bias: Any, output_op: Any
) -> Any:
    """Standard forward error bound (Higham, section 3.1), the epilogue's operations on top.

    Activations are Lipschitz with a constant under 2, hence the factor 2.
    """
    scalars = output_op or description.epilogue.epilogue_type()
    total = abs(scalars.alpha) * magnitude
    if z is not None:
        total = total + abs(scalars.beta) * np.abs(_wide(z))
    if bias is not None:
        total = total + np.abs(_wide(bias))
    element = description.Y.element
    unit = _UNIT[description.math.element_accumulator]
    bound = 2 * (steps + 8) * unit * total + 2 * _UNIT[element] * np.abs(value) + 2 * _TINY[element]
    if isinstance(description.epilogue, kronop.LinearCombinationGeneric):
        bound = bound + ROUNDINGS_OF_ACTIVATIONS * unit * np.abs(value)
    return bound
