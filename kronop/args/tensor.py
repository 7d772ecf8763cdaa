"""Tensors for the rest of kronop: views of them, their alignment and layout, and new tensors."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

import numpy as np

from kronop.args.frameworks import view as view
from kronop.args.host import empty_array
from kronop.args.view import CPU as CPU
from kronop.args.view import Device as Device
from kronop.args.view import TensorView as TensorView
from kronop.cuda_line import cuda_extra
from kronop.descriptions.datatype import AnyLayout, DataType, Layout, bfloat16
from kronop.descriptions.shared import check_memory
from kronop.descriptions.tensor import TensorDescription
from kronop.errors import ArgumentError, ElementTypeError, OutOfMemoryError, installing
from kronop.late import imported, spec_of
from kronop.tensors import Tensor

_MOST_BYTES = 16


def listed(value: object) -> Sequence[Tensor] | None:
    """The tensors of a list, a tuple or torch's ParameterList; None if `value` is none of these."""
    if isinstance(value, (list, tuple)):
        return value
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(value, torch.nn.ParameterList):
        return [*value]
    return None


def as_matrix(item: TensorView) -> TensorView:
    """A vector of n elements as a (1, n) matrix; others as they are."""
    if len(item.shape) != 1:
        return item
    extent, stride = item.shape[0], item.strides[0]
    return item.reshaped((1, extent), (extent * stride, stride))


def describe(item: TensorView, name: str) -> TensorDescription:
    """The description with the largest alignment that this tensor satisfies.

    Strides of dimensions of extent 1 are ignored; the strides of leading dimensions count. A vector
    gets alignment 1, because it may serve as a row or as a column. A tensor that is copied before
    kernels read it gets the description of its copy.

    Raises:
        ArgumentError: the tensor has no dimensions.
    """
    if not item.shape:
        hint = "reshape it to a vector or a matrix"
        raise ArgumentError(name, expected="at least one dimension", got="shape ()", hint=hint)
    if len(item.shape) == 1:
        return TensorDescription(item.element)
    row_major, column_major = (
        alignment_of(item, layout) for layout in (Layout.RowMajor, Layout.ColumnMajor)
    )
    if column_major > row_major or (column_major == row_major == 1 and _leans_to_columns(item)):
        return TensorDescription(item.element, Layout.ColumnMajor, column_major)
    return TensorDescription(item.element, Layout.RowMajor, row_major)


def _leans_to_columns(item: TensorView) -> bool:
    (rows, columns), (row, column) = item.shape[-2:], item.strides[-2:]
    return rows > 1 and columns > 1 and abs(row) < abs(column)


def alignment_of(item: TensorView, layout: AnyLayout) -> int:
    """The largest alignment that `check_promise` accepts for this layout, in elements."""
    alignment = _MOST_BYTES // item.element.bytes
    while alignment > 1 and _broken(item, layout, alignment):
        alignment //= 2
    return alignment


def _broken(item: TensorView, layout: AnyLayout, alignment: int) -> str:
    """What in the tensor's memory violates this layout and alignment; empty if nothing does."""
    if 0 in item.shape or not item.in_place or alignment == 1:
        return ""
    if item.pointer % (alignment * item.element.bytes):
        return f"pointer {item.pointer:#x}"
    unit = len(item.shape) - (2 if layout is Layout.ColumnMajor else 1)
    for axis, (extent, stride) in enumerate(zip(item.shape, item.strides, strict=True)):
        if extent > 1 and (stride != 1 if axis == unit else stride % alignment):
            return (
                f"stride {stride} of dimension {axis} (shape {item.shape}, strides {item.strides})"
            )
    return ""


def check_element(element: DataType, expected: DataType, name: str, told: str = "") -> None:
    """Raises ElementTypeError if a tensor has another element type than the expected one; `told`
    follows that in the message, and says why."""
    if element != expected:
        hint = "convert it to the type that is expected"
        if expected.kind == "int" and element.kind == "float":
            hint += f"; where that drops fractions, convert the other operands to {element!r}"
        raise ElementTypeError(
            f"element type of {name}", expected=f"{expected!r}{told}", got=repr(element), hint=hint
        )


def check_promise(item: TensorView, description: TensorDescription, name: str) -> None:
    """Checks a tensor against the description that its operation was compiled for.

    Raises:
        ElementTypeError: the tensor has another element type.
        ArgumentError: the description's alignment is above 1, and the tensor's pointer or a stride
            violates it.
    """
    check_element(item.element, description.element, name)
    broken = _broken(as_matrix(item), description.layout, description.alignment)
    if broken:
        raise ArgumentError(
            f"memory of {name}",
            got=broken,
            expected=f"{description.layout.value}, unit stride, pointer and other strides"
            f" multiples of {description.alignment} elements",
            hint="describe it with alignment 1, or pass a tensor that keeps the promise",
        )


def keeps_promise(item: TensorView, description: TensorDescription) -> bool:
    """Whether the memory satisfies layout and alignment; the element type is not compared."""
    return not _broken(item, description.layout, description.alignment)


def empty(like: TensorView, shape: tuple[int, ...], element: DataType) -> Tensor:
    """A new row-major tensor of the framework and on the device of `like`.

    If `like` is of another framework (read through DLPack), the result is a NumPy array on the
    host, and a CuPy or torch tensor on a GPU, whichever is installed.

    Raises:
        OutOfMemoryError: there is no memory for it.
        ArgumentError: neither CuPy nor torch is installed, and one of them is needed.
        ElementTypeError: a bfloat16 array needs the package ml_dtypes, which is not installed.
    """
    check_memory(f"a new tensor on {like.device}", shape, element)
    try:
        return _empty(like, shape, element)
    except (MemoryError, RuntimeError) as error:
        if isinstance(error, RuntimeError) and "memory" not in str(error):
            raise
        raise OutOfMemoryError(
            f"a new tensor on {like.device}",
            expected=f"room for {element.name} of shape {shape}",
            got=str(error),
            hint="free memory or take smaller tensors",
        ) from error


def _empty(like: TensorView, shape: tuple[int, ...], element: DataType) -> Tensor:
    framework = like.framework
    if framework == "dlpack":
        framework = "numpy" if like.device.is_host else device_framework()
    if framework == "numpy":
        return empty_array(shape, _numpy_type(like, element))
    if framework == "torch":
        torch = imported("torch")
        place = "cpu" if like.device.is_host else f"cuda:{like.device.index}"
        return torch.empty(shape, dtype=getattr(torch, element.name), device=place)
    cupy = imported("cupy")
    with cupy.cuda.Device(like.device.index):
        return cupy.empty(shape, _numpy_type(like, element))


def beside(array: Tensor, like: TensorView) -> Tensor:
    """The values of a NumPy array in a new tensor on the GPU of `like`: of torch if that is, else
    of CuPy."""
    if like.framework == "torch":
        torch = imported("torch")
        return torch.from_numpy(array).to(f"cuda:{like.device.index}")
    cupy = imported("cupy")
    with cupy.cuda.Device(like.device.index):
        return cupy.asarray(array)


def _numpy_type(like: TensorView, element: DataType) -> Any:
    if element != bfloat16:
        return np.dtype(element.name)
    own = getattr(like.owner, "dtype", None)
    if like.element == element and isinstance(own, np.dtype):
        return own
    try:
        ml_dtypes = imported("ml_dtypes")
    except ImportError as error:
        raise ElementTypeError(
            "a new bfloat16 array",
            expected="the package ml_dtypes",
            got="none",
            hint="pip install ml_dtypes, or pass Y",
        ) from error
    return np.dtype(ml_dtypes.bfloat16)


def device_framework() -> str:
    """A framework that can make and copy GPU tensors: "cupy" or "torch".

    Raises:
        ArgumentError: neither is installed.
    """
    for name in ("cupy", "torch"):
        if spec_of(name) is not None:
            return name
    raise ArgumentError(
        "a GPU tensor of another framework",
        expected="CuPy or torch, to make tensors and copies",
        got="neither",
        hint=f"{installing(cuda_extra())}, or pass contiguous tensors and Y",
    )
