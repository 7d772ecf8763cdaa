"""The multiply-add on a GPU where none is given: rules that emitters name as their `default`."""

from __future__ import annotations

from kronop.descriptions.datatype import DataType, float32
from kronop.descriptions.math_instruction import MathInstruction
from kronop.emit.cuda import operands
from kronop.emit.cuda.machine import PRODUCTS_OF_SPLIT, ordinary_products, warp_products
from kronop.target import Target


def tensor_cores(element: DataType, target: Target) -> MathInstruction:
    """The tensor cores for floats, as accurate as SIMT, and for int8, with the same results."""
    return operands.fastest(element, target)


def tensor_cores_for_floats(element: DataType, target: Target) -> MathInstruction:
    """Tensor cores for floats, with the accuracy of SIMT; SIMT for integers, because their sums
    wrap around."""
    if element.kind == "int":
        return MathInstruction.simt(element)
    return operands.fastest(element, target, halves=True)


def tensor_cores_where_faster(element: DataType, target: Target) -> MathInstruction:
    """Tensor cores, as accurate as ordinary ones, where they are faster for such elements: on GPUs
    of sm_86, 89, 120 and 121 three TF32 products take longer than one of float32."""
    split = warp_products(target, 4) / PRODUCTS_OF_SPLIT
    if element is float32 and split < ordinary_products(target, "float", 4):
        return MathInstruction.simt(element)
    return operands.fastest(element, target, halves=True)


def every_tensor_core(element: DataType, target: Target) -> MathInstruction:
    """Tensor cores for floats, whether the target has them or not; SIMT for integers."""
    if element.kind == "int":
        return MathInstruction.simt(element)
    return MathInstruction.tensor_op(element)
