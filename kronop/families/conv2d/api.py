"""Convolutions in one line, on plain tensors in torch's shapes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Literal

from kronop.args.device import target_of
from kronop.args.tensor import alignment_of, check_element
from kronop.args.view import TensorView
from kronop.core import prepared
from kronop.core.calls import (
    check_activation,
    describe_output,
    epilogue_of,
    finish,
    operand_of,
    operation_of,
)
from kronop.descriptions.activation import ActivationName
from kronop.descriptions.shared import Array
from kronop.descriptions.tensor import TensorDescription
from kronop.descriptions.tile import whole
from kronop.errors import ArgumentError, ElementTypeError
from kronop.families.conv2d.arguments import Conv2dArguments
from kronop.families.conv2d.bilinear import Form
from kronop.families.conv2d.geometry import Extents, Geometry, Padding, Shape
from kronop.families.conv2d.operation import Conv2dOperation
from kronop.families.conv2d.size import Conv2dSize, shapes_of
from kronop.families.conv2d.vocabulary import Operator, TensorNHWC
from kronop.tensors import Tensor

_DIFFERENTIABLE = Conv2dArguments.differentiable
# The orders of axes with the channels last and behind the images, by the number of axes.
_LAST, _FIRST = {4: (0, 2, 3, 1), 3: (1, 2, 0)}, {4: (0, 3, 1, 2), 3: (2, 0, 1)}
_ARRAYS = {"numpy": "np", "cupy": "cupy"}
_AXES = {"w": "(K, C / groups, R, S)", "grad": "(N, K, P, Q)", "out": "that of the result"}
Layout = Literal["NHWC", "NCHW"] | None


def conv2d(
    x: Array,
    w: Tensor,
    bias: Tensor = None,
    stride: Extents = 1,
    padding: Padding = 0,
    dilation: Extents = 1,
    groups: int = 1,
    activation: ActivationName | None = None,
    layout: Layout = None,
    out: Tensor = None,
) -> Array:
    """A convolution of images with filters, `activation(x * w + bias)`, as one operation.

    The results are those of torch.nn.functional.conv2d: filters are not flipped.

    Args:
        x: (N, C, H, W), of NumPy, torch or CuPy, in float64, 32 or 16, bfloat16, a float of 8 bits,
            or integers of 64, 32 or 8 bits; in memory the channels are last. (C, H, W) is one
            image.
        w: (K, C / groups, R, S), of the same type, likewise.
        bias: (K), of the result's type.
        stride, dilation: one number, or a pair (along H, along W).
        padding: likewise, zeros on both sides; or "same", or "valid" for none.
        groups: the channels and filters are divided in so many groups.
        activation: "relu", "leaky_relu", "tanh", "sigmoid", "silu", "hardswish", "gelu" or None.
        layout: how tensors lie in memory; shapes are those above. "NHWC" or None: the channels are
            last, and others are refused. "NCHW": others are converted, the result is in C order.
        out: where to write the result; a new tensor like `x` if None. int8 gives int32, or int8
            where `out` has that; floats of 8 bits give bfloat16, or the type of `out`.

    Returns:
        (N, K, P, Q), or (K, P, Q) of one image, of x's kind and device; in memory the channels are
        last, or as `layout` says.

    Raises:
        ArgumentError: shapes, devices, numbers, memory or overlaps that do not fit.
        ElementTypeError: no tensor, or element types that do not fit.
        DescriptionError: this device has no kernel for these types.
        CompileError, DeviceError: no compiler, or a kernel that does not load or run here.
        OutOfMemoryError: no room for the result.

    Example:
        >>> x = np.ones((1, 4, 4, 2), np.float32).transpose(0, 3, 1, 2)
        >>> w = np.ones((3, 3, 3, 2), np.float32).transpose(0, 3, 1, 2)
        >>> y = kronop.conv.conv2d(x, w, np.array([0, 1, -20], np.float32), activation="relu")
        >>> y[0, :, 0, 0].tolist()
        [18.0, 19.0, 0.0]
    """
    check_activation(activation)
    if converts(layout):
        x, w, last = _with_channels_last(x), _with_channels_last(w), _with_channels_last(out)
        how = (bias, stride, padding, dilation, groups, activation)
        return _restored(conv2d(x, w, *how, out=last), out)
    # Numbers as text: True is not 1, and a list has no hash.
    form = ("conv2d", repr((stride, padding, dilation, groups)), activation)
    result, lesson = prepared.repeat(form, 1.0, 0.0, [x, w, bias, None, out])
    if result is None:
        if len(_shape(x, "x")) == len("CHW"):
            _channels_last(x, "x")  # Refused in its own shape.
            how = (bias, stride, padding, dilation, groups, activation)
            found = conv2d(x[None], w, *how, out=None if out is None else out[None])
            return found[0] if out is None else out
        geometry = Geometry.of(stride, padding, dilation, groups)
        size = geometry.size(_shape(x, "x"), _shape(w, "w"))
        if out is not None:
            _check_results("out", out, size)
        given = {"x": x, "w": w, "out": out}
        arguments = _arguments(Operator.fprop, given, size, bias, activation)
        result = finish(arguments, lesson)
    return out if out is not None else _permuted(result, _FIRST)


def conv2d_input(
    input_size: Sequence[int],
    w: Array,
    grad: Tensor,
    stride: Extents = 1,
    padding: Padding = 0,
    dilation: Extents = 1,
    groups: int = 1,
    layout: Layout = None,
    out: Tensor = None,
) -> Array:
    """The gradient of `conv2d` in its images, as torch.nn.grad.conv2d_input has it.

    Args:
        input_size: (N, C, H, W), the shape of the images.
        w: (K, C / groups, R, S), the filters, in memory with the channels last.
        grad: (N, K, P, Q), the gradient of the results, likewise.
        stride, padding, dilation, groups: those of the convolution.
        layout, out: as of `conv2d`.

    Returns:
        (N, C, H, W), of grad's kind and device; in memory as of `conv2d`.

    Raises:
        As of `conv2d`.

    Example:
        >>> w = np.ones((3, 3, 3, 2), np.float32).transpose(0, 3, 1, 2)
        >>> grad = np.ones((1, 2, 2, 3), np.float32).transpose(0, 3, 1, 2)
        >>> kronop.conv.conv2d_input((1, 2, 4, 4), w, grad)[0, 0].tolist()[1]
        [6.0, 12.0, 12.0, 6.0]
    """
    geometry = Geometry.of(stride, padding, dilation, groups)
    size = geometry.size(_extents("input_size", input_size), _shape(w, "w"))
    return _gradient(Operator.dgrad, {"grad": grad, "w": w, "out": out}, size, layout)


def conv2d_weight(
    x: Array,
    weight_size: Sequence[int],
    grad: Tensor,
    stride: Extents = 1,
    padding: Padding = 0,
    dilation: Extents = 1,
    groups: int = 1,
    layout: Layout = None,
    out: Tensor = None,
) -> Array:
    """The gradient of `conv2d` in its filters, as torch.nn.grad.conv2d_weight has it.

    Args:
        x: (N, C, H, W), the images, in memory with the channels last.
        weight_size: (K, C / groups, R, S), the shape of the filters.
        grad: (N, K, P, Q), the gradient of the results, likewise.
        stride, padding, dilation, groups: those of the convolution.
        layout, out: as of `conv2d`.

    Returns:
        (K, C / groups, R, S), of grad's kind and device; in memory as of `conv2d`.

    Raises:
        As of `conv2d`.

    Example:
        >>> x = np.ones((1, 4, 4, 2), np.float32).transpose(0, 3, 1, 2)
        >>> grad = np.ones((1, 2, 2, 3), np.float32).transpose(0, 3, 1, 2)
        >>> kronop.conv.conv2d_weight(x, (3, 2, 3, 3), grad)[0, 0].tolist()[0]
        [4.0, 4.0, 4.0]
    """
    geometry = Geometry.of(stride, padding, dilation, groups)
    extents = _extents("weight_size", weight_size)
    size = geometry.size(_shape(x, "x"), extents)
    return _gradient(Operator.wgrad, {"grad": grad, "x": x, "out": out}, size, layout)


def _gradient(kind: Operator, given: dict[str, Any], size: Conv2dSize, layout: Layout) -> Any:
    a, b, out = given.values()
    _check_results("grad", a, size)
    if converts(layout):
        last = {name: _with_channels_last(item) for name, item in given.items()}
        return _restored(_gradient(kind, last, size, None), out)
    result, lesson = prepared.repeat((kind, size), 1.0, 0.0, [a, b, None, None, out])
    if result is None:
        if out is not None:
            first, *pixels, last_axis = shapes_of(size)[kind.tensors[2]]
            _check_shape("out", out, (first, last_axis, *pixels))
        result = finish(_arguments(kind, given, size), lesson)
    return out if out is not None else _permuted(result, _FIRST)


def convolve(form: Form, a: Tensor, b: Tensor, bias: Tensor, out: Tensor) -> None:
    """Computes a convolution, or a gradient of one, into `out`; all in torch's shapes, with the
    channels last in memory."""
    result, lesson = prepared.repeat(form, 1.0, 0.0, [a, b, bias, None, out])
    if result is not None:
        return
    size, names = form.size(_shape(a, "A"), _shape(b, "B")), form.called
    given = {names[0]: a, names[1]: b, "out": out}
    finish(_arguments(form.operator, given, size, bias, form.activation), lesson)


def known_call(form: Form, a: Tensor, b: Tensor, bias: Tensor, out: Tensor) -> prepared.Call | None:
    """The repeatable call that equals this `convolve`, if there was one before; else None. Its
    tensors are a, b, bias, None and out, in this order."""
    return prepared.find(form, 1.0, 0.0, [a, b, bias, None, out])


def _arguments(
    kind: Operator,
    given: dict[str, Tensor],
    size: Conv2dSize,
    bias: Tensor = None,
    activation: str | None = None,
) -> Conv2dArguments:
    """The arguments of a convolution of A and B, and maybe a result, by their names."""
    (a_name, a), (b_name, b), (_, out) = given.items()
    D = None if out is None else _channels_last(out, "out")
    a, b = _channels_last(a, a_name), _channels_last(b, b_name)
    return arguments_of(kind, a, b, size, bias, activation, D, (a_name, b_name))


def arguments_of(
    kind: Operator,
    a: Tensor,
    b: Tensor,
    size: Conv2dSize,
    bias: Tensor = None,
    activation: str | None = None,
    out: Tensor = None,
    called: Sequence[str] = ("A", "B"),
) -> Conv2dArguments:
    """The arguments of a convolution of tensors in shapes with the channels last, with their
    operation; `called` are the names of the operands."""
    (first, A), (_, B) = (_described(*item) for item in zip((a, b), called, strict=True))
    check_element(B.element, A.element, called[1], f", the type of {called[0]}")
    columns = shapes_of(size)[kind.tensors[2]][-1]
    names = {"Z": "C", "Y": "out"}
    result = describe_output(first.element, columns, None, out, names, _DIFFERENTIABLE).element
    alignment = math.gcd(columns, 16 // result.bytes)
    if out is not None:
        alignment = _described(out, "out")[1].alignment
    C = TensorDescription(result, TensorNHWC, alignment)
    epilogue = epilogue_of(first.element, C, activation)
    words = (kind, None, A, B, C, None, epilogue)
    operation = operation_of(Conv2dOperation, target_of(first), *words)
    return Conv2dArguments(operation, size, a, b, D=out, bias=bias)


def _described(tensor: Tensor, name: str) -> tuple[TensorView, TensorDescription]:
    item = operand_of(tensor, name, _DIFFERENTIABLE)
    return item, TensorDescription(item.element, TensorNHWC, alignment_of(item, TensorNHWC))


def _channels_last(tensor: Tensor, name: str) -> Tensor:
    """The tensor as (N, H, W, C).

    Raises:
        ArgumentError: the channels are not last in memory.
    """
    found = _permuted(tensor, _LAST)
    item = operand_of(found, name, _DIFFERENTIABLE)
    if item.in_place and item.size and item.shape[-1] > 1 and item.strides[-1] != 1:
        raise misplaced(name, _shape(tensor, name), item.strides[-1], item.framework)
    return found


def misplaced(
    name: str, shape: Shape, apart: int, framework: str | None = "torch"
) -> ArgumentError:
    """What refuses a tensor whose channels are not last in memory."""
    last, first = _LAST[len(shape)], _FIRST[len(shape)]
    if framework in _ARRAYS:
        array = f"{_ARRAYS[framework]}.ascontiguousarray({name}.transpose{last})"
        told = f"{array}.transpose{first}"
    elif len(shape) == len("CHW"):
        told = f"{name}.permute{last}.contiguous().permute{first}"
    else:
        told = f"{name}.to(memory_format=torch.channels_last), outside vmap"
    axes = "(C, H, W)" if len(shape) == len("CHW") else _AXES.get(name, "(N, C, H, W)")
    return ArgumentError(
        f"memory of {name}",
        expected=f"the channels last, of shape {axes}",
        got=f"a tensor {shape} whose channels are {apart} apart",
        hint=f"{told}; or pass layout='NCHW'",
    )


def _shape(tensor: Tensor, name: str) -> Shape:
    return operand_of(tensor, name, _DIFFERENTIABLE).shape


def _extents(name: str, shape: Sequence[int]) -> tuple[int, ...]:
    order = {
        "input_size": "as x.shape; the arguments are input_size, w, grad",
        "weight_size": "as w.shape; the arguments are x, weight_size, grad",
    }
    found: tuple[Any, ...] = tuple(map(whole, shape)) if isinstance(shape, Sequence) else ()
    if len(found) != len("NCHW") or any(type(item) is not int or item < 0 for item in found):
        raise ArgumentError(
            name,
            expected="four integers of at least 0",
            got=f"a tensor {tuple(of)}" if (of := getattr(shape, "shape", ())) else repr(shape),
            hint=order[name],
        )
    return found


def _check_results(name: str, tensor: Tensor, size: Conv2dSize) -> None:
    _check_shape(name, tensor, (size.n, size.k, size.p, size.q))


def _check_shape(name: str, tensor: Tensor, expected: Shape) -> None:
    if (shape := _shape(tensor, name)) != expected:
        raise ArgumentError(
            f"shape of {name}",
            expected=expected,
            got=shape,
            hint="shapes are those of one convolution",
        )


def converts(layout: object) -> bool:
    """Whether this layout of one-line calls has tensors converted.

    Raises:
        ArgumentError: there is no such layout.
    """
    if layout not in (None, "NHWC", "NCHW"):
        raise ArgumentError(
            "layout",
            expected="'NHWC' or 'NCHW', or None for the former",
            got=repr(layout),
            hint="shapes are (N, C, H, W) in both; 'NHWC' has the channels last in memory",
        )
    return layout == "NCHW"


def _permuted(tensor: Tensor, orders: dict[int, tuple[int, ...]]) -> Any:
    """The tensor with its axes in the order that is given for so many."""
    permute = getattr(tensor, "permute", None) or getattr(tensor, "transpose", None)
    if permute is None:
        raise ElementTypeError(
            "a tensor of a convolution",
            expected="NumPy's, torch's or CuPy's",
            got=type(tensor).__name__,
            hint="convert it, as with torch.from_dlpack",
        )
    order = orders.get(len(getattr(tensor, "shape", ())))
    return tensor if order is None else permute(order)  # Other shapes are refused with a name.


def _with_channels_last(tensor: Tensor) -> Any:
    """The tensor itself, or a copy whose channels are last in memory; None of None."""
    if tensor is None or len(getattr(tensor, "shape", ())) not in _LAST:
        return tensor  # Refused with its name.
    return _permuted(_contiguous(_permuted(tensor, _LAST)), _FIRST)


def _restored(found: Any, out: Any) -> Any:
    """A converted result in C order, or written into `out`."""
    if out is None:
        return _contiguous(found)
    out[...] = found
    return out


def _contiguous(tensor: Any) -> Any:
    if hasattr(tensor, "contiguous"):
        return tensor.contiguous()
    return tensor if tensor.flags.c_contiguous else tensor.copy(order="C")
