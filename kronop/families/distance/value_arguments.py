"""The values of kernels among arguments: numbers, and tensors of any framework; views of points,
and of what is multiplied with their kernels, in the types that these have."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from kronop.args.strides import Broadcast, Shape
from kronop.args.tensor import beside, view
from kronop.args.view import TensorView
from kronop.descriptions.datatype import DataType
from kronop.errors import ArgumentError, ElementTypeError, converting
from kronop.families.distance.form import Bound, Form

TYPES = ("float64", "float32", "float16", "bfloat16")
# What results are linear in, so that real and imaginary parts may be passed apart.
_LINEAR = ("V", "A", "C")
DIFFERENTIABLE = "kronop.torch.cdist, kernel_matrix and kernel_matmul"
# By the bytes of sums: from this power on, the numbers next to 1 become 0 and infinity; from its
# reciprocal down, all numbers become 1.
_MOST_POWER = {4: 2.0**40, 8: 2.0**70}


def check_bandwidths(shape: tuple[int, ...], features: int) -> None:
    """Raises ArgumentError unless a vector of that shape has one bandwidth per feature, or one."""
    if shape[-1] not in (1, features):
        raise ArgumentError(
            "bandwidths per feature",
            expected=f"{features} or 1 as last extent, one for each feature",
            got=shape,
            hint="a bandwidth with more dimensions than the batch has one per feature; one for"
            " each problem is bandwidth[:, None] of an array, or takes x1[None] and x2[None]",
        )


def checked(bound: Bound | None, form: Form) -> Bound:
    """The values for a form.

    Raises:
        ArgumentError: they are of another form, or missing.
    """
    if bound is None and not (form.values or form.vectors):
        return Bound(form=form, values=(), vectors=())
    if bound is None or bound.form != form:
        raise ArgumentError(
            "kernel",
            expected=f"a kernel of the operation's form, {form}",
            got="none" if bound is None else repr(bound.form),
            hint="describe the operation with the kernel that you pass; fixed powers, and"
            " bandwidths that are extreme or per feature, are forms of their own",
        )
    return bound


def is_tensor(value: Any) -> bool:
    """Whether a value of a kernel is in memory, not a number."""
    return hasattr(value, "shape") and not isinstance(value, np.generic)


def tensors_of(bound: Bound) -> dict[str, Any]:
    """The tensors among values and vectors, by the names under which arguments place them."""
    named = {f"value {index}": item for index, item in enumerate(bound.values)}
    named |= {f"vector {index}": item for index, item in enumerate(bound.vectors)}
    return {name: item for name, item in named.items() if is_tensor(item)}


def names_of(bound: Bound) -> dict[str, str]:
    """The user's names of values and vectors, by the names of `tensors_of`."""
    places = [f"value {index}" for index in range(len(bound.values))]
    places += [f"vector {index}" for index in range(len(bound.vectors))]
    return dict(zip(places, bound.names or places, strict=True))


def lead_with_values(
    lead: Shape, bound: Bound, features: Any, points: tuple[Any, Any], broadcast: Broadcast
) -> Shape:
    """The leading dimensions of a result, to which those of the points and the values broadcast.

    Args:
        points: how many each side has.

    Raises:
        ArgumentError: a value has no number for each problem; or a vector not one per feature; or a
            regularization has one for each point.
    """
    named, result = names_of(bound), lead
    if bound.form.regularized:
        _refuse_noise(tuple(getattr(bound.values[-1], "shape", ())), lead, points)
    for place, item in tensors_of(bound).items():
        shape = own = tuple(item.shape)
        if place.startswith("vector"):
            check_bandwidths(shape, features)
            own = shape[:-1]
        try:
            result = broadcast([("X1 and X2", result), (named[place], own)])
        except ArgumentError as error:
            raise _not_of_a_batch(named[place], shape, result, features) from error
    return result


def _refuse_noise(shape: tuple[int, ...], lead: tuple[int, ...], points: tuple[int, int]) -> None:
    """Raises ArgumentError if the points would have to be repeated for a regularization that has as
    many numbers as points: it is taken for noise of each, and gave as many matrices."""
    count = shape[-1] if len(shape) > len(lead) else 1
    if count > 1 and points == (count, count):
        raise ArgumentError(
            "regularization",
            expected="one number for each problem",
            got=f"shape {shape} beside {count} points",
            hint="noise of each point is added to the diagonal of the result; for a result of"
            " each number, pass x1[None] and x2[None]",
        )


def _not_of_a_batch(
    name: str, shape: tuple[int, ...], lead: tuple[int, ...], features: int
) -> ArgumentError:
    is_width = name == "bandwidth"
    each = f", or {(*lead, features)} and (1, {features}) for one per feature" if is_width else ""
    hint = f"numbers for the features of all problems are {name}[None] of an array"
    return ArgumentError(
        name,
        expected=f"shape {lead}, one for each problem, or (){each}",
        got=shape,
        hint=hint if is_width and shape[-1:] == (features,) else "it broadcasts over the batch",
    )


def item_in_memory(item: Any, element: DataType, beside_what: TensorView) -> Any:
    """The same value; an array of the host as a tensor that kernels can read beside an operand: of
    the type that sums have, and on the operand's device."""
    if not isinstance(item, np.ndarray):
        return item
    item = item.astype(element.name, copy=False)
    return item if beside_what.device.is_host else beside(item, beside_what)


def widths_in(kind: str, widths: Iterable[Any]) -> list[Any]:
    """Bandwidths per feature, of which those in NumPy's arrays become numbers of a type that are
    neither 0 nor infinite."""
    limits = np.finfo(kind)
    return [
        np.clip(item, limits.tiny, limits.max).astype(kind, copy=False)
        if isinstance(item, np.ndarray)
        else item
        for item in widths
    ]


def in_memory(bound: Bound, element: DataType, points: TensorView) -> Bound:
    """The same values, all as `item_in_memory`; powers as `bounded_power`."""
    values, vectors = (
        tuple(item_in_memory(item, element, points) for item in items)
        for items in (
            with_bounded_powers(bound, element.bytes),
            widths_in(element.name, bound.vectors),
        )
    )
    return dataclasses.replace(bound, values=values, vectors=vectors)


def with_bounded_powers(bound: Bound, width: int) -> list[Any]:
    """The values, with powers as `bounded_power`."""
    powers = {term.value for term in bound.form.terms}
    every = enumerate(bound.values)
    return [bounded_power(item, width) if index in powers else item for index, item in every]


def bounded_power(p: Any, width: int) -> Any:
    """A power, or the largest or least one that makes a difference to numbers of so many bytes.

    So 1e39, which float32 does not reach, counts as a large number, not as infinity, and 1e-46 as a
    small one, not as 0. Tensors of torch and CuPy are not looked at.
    """
    is_known = isinstance(p, (float, np.ndarray))
    return np.clip(p, 1 / _MOST_POWER[width], _MOST_POWER[width]) if is_known else p


def view_of_value(name: str, item: Any, element: DataType) -> TensorView:
    """A view of a value's tensor; `name` is the user's.

    Raises:
        ElementTypeError: it is not of the type that sums have.
    """
    found = view(item, name, DIFFERENTIABLE)
    check_type(name, found.element.name, element.name)
    return found


def check_type(name: str, found: str, of_sums: str) -> None:
    """Raises ElementTypeError unless a value's tensor is of the type that sums have."""
    if found != of_sums:
        raise ElementTypeError(
            f"element type of {name}",
            expected=f"{of_sums}, the type of sums",
            got=found,
            hint="pass its real part"
            if "complex" in found
            else "convert it; numbers and NumPy arrays need no conversion",
        )


def view_of(tensor: Any, name: str) -> TensorView:
    """A view of a tensor of one of `TYPES`.

    Raises:
        ElementTypeError, ArgumentError: as `kronop.args.tensor.view`; or another element type.
    """
    # Before the view, whose message would name all types that a product can have.
    check_kind(tensor, name)
    found = view(tensor, name, DIFFERENTIABLE)
    _check(tensor, name, found.element.name)
    return found


def check_kind(tensor: Any, name: str) -> None:
    """Raises ElementTypeError if a tensor of NumPy, CuPy or torch is of none of `TYPES`."""
    given = getattr(tensor, "dtype", None)
    if isinstance(given, np.dtype) or str(given).startswith("torch."):
        _check(tensor, name, str(getattr(given, "name", given)).removeprefix("torch."))


def _check(tensor: Any, name: str, element: str) -> None:
    if element not in TYPES:
        hint = converting(element, f"convert it: {_conversion(tensor, name, 'float32')}")
        if "complex" in element and name.upper() not in _LINEAR:
            at = name.lower()
            hint = (
                f"complex points are not supported; for p = 2 join {at}.real and {at}.imag along"
                " the last dimension, which leaves distances as they are"
            )
        raise ElementTypeError(
            f"element type of {name}", expected=f"one of {', '.join(TYPES)}", got=element, hint=hint
        )


def alike(operands: Mapping[str, Any]) -> list[TensorView]:
    """Views of operands of one element type, that of the first.

    Raises:
        ElementTypeError, ArgumentError: as `view_of`; or another element type.
    """
    views = {name: view_of(item, name) for name, item in operands.items()}
    (first, one), *others = views.items()
    for name, item in others:
        if item.element != one.element:
            raise ElementTypeError(
                f"element type of {name}",
                expected=f"{one.element.name}, as {first} has",
                got=item.element.name,
                hint=f"convert one: {_conversion(operands[name], name, one.element.name)}",
            )
    return [*views.values()]


def _conversion(tensor: Any, name: str, element: str) -> str:
    call = f"astype('{element}')" if hasattr(tensor, "astype") else f"to(torch.{element})"
    return f"{name.lower()}.{call}"
