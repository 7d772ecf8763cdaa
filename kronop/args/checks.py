"""The checks of operands and scalars that all families share, made before anything runs."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterable, Mapping
from typing import TypeVar

from kronop.args.device import default_device, runs_on, target_of_device
from kronop.args.overlap import overlaps, overlaps_itself, same_elements
from kronop.args.protocols import OperationLike
from kronop.args.view import CPU, Device, TensorView
from kronop.descriptions.scalars import EpilogueArguments
from kronop.descriptions.shared import beta_beside
from kronop.descriptions.visitor import VisitorEpilogue
from kronop.descriptions.visitor_arguments import VisitorArguments
from kronop.errors import ArgumentError, ElementTypeError
from kronop.target import Target

AnyDescription = TypeVar("AnyDescription")


def description_of(
    operation: object, kind: type[AnyDescription], called: str = ""
) -> AnyDescription:
    """The description of an operation, which must be of the class `kind`.

    Args:
        called: the name of the operation's class; by default that of the description, ending in
            "Operation".

    Raises:
        ElementTypeError: the operation is of another kind, or is no operation.
    """
    description = getattr(operation, "description", None)
    if not isinstance(description, kind):
        raise ElementTypeError(
            "operation",
            expected=f"a {called or kind.__name__.removesuffix('Description') + 'Operation'}",
            got=type(operation).__name__,
            hint="use the arguments of that operation's family",
        )
    return description


def check_scalars(
    operation: OperationLike, output_op: EpilogueArguments | None
) -> EpilogueArguments:
    if output_op is None:
        return operation.epilogue_type()
    if not isinstance(output_op, EpilogueArguments):
        raise ElementTypeError(
            "output_op",
            expected="scalars that epilogue_type made",
            got=repr(output_op),
            hint="pass output_op=operation.epilogue_type(alpha, beta)",
        )
    epilogue = operation.description.epilogue
    names = epilogue.scalar_names
    if isinstance(output_op, VisitorArguments) or isinstance(epilogue, VisitorEpilogue):
        return _check_visitor(epilogue, output_op)
    if len(output_op.scalars) != len(names):
        raise ArgumentError(
            "output_op",
            expected=f"the scalars {', '.join(names)}",
            got=f"{len(output_op.scalars)} scalars",
            hint="build it with the epilogue_type of the same operation",
        )
    # The scalars may have been built by another operation, with values that this one refuses:
    # fractions where it needs integers, or values beyond its range.
    checked = operation.epilogue_type(*output_op.scalars)
    return dataclasses.replace(checked, has_beta=output_op.has_beta)


def _check_visitor(epilogue: object, output_op: EpilogueArguments) -> VisitorArguments:
    if not isinstance(output_op, VisitorArguments) or output_op.epilogue != epilogue:
        raise ArgumentError(
            "output_op",
            expected="what this operation's epilogue_type gave",
            got="that of another epilogue",
            hint="build it with the epilogue_type of the same operation",
        )
    return output_op


def common_device(target: Target, views: Mapping[str, TensorView]) -> Device:
    """The device that the operation runs on; host tensors of a CUDA operation go to a GPU.

    Raises:
        ArgumentError: the tensors are on several devices, or on one that the target does not serve.
    """
    devices = {view.device for view in views.values()}
    if target.backend == "x86":
        if devices != {CPU}:
            raise ArgumentError(
                f"tensors of an operation for {target}",
                expected="all on cpu",
                got=_told(views),
                hint="move them to the host, or build the operation for the GPU",
            )
        return CPU
    if len(devices) > 1:
        raise ArgumentError(
            f"tensors of an operation for {target}",
            got=_told(views),
            expected="all on one GPU, or all on the host",
            hint="move them to one device",
        )
    device = devices.pop()
    device = default_device() if device == CPU else device
    is_named = device.kind == target.name
    if not is_named and not (device.kind == "cuda" and runs_on(target, device.index)):
        served = str(target_of_device(device))
        raise ArgumentError(
            f"{device} for an operation",
            expected=f"a GPU that runs {target.arch}",
            got=served,
            hint=f"build the operation for {served!r}",
        )
    return device


def _told(views: Mapping[str, TensorView]) -> str:
    return ", ".join(f"{name} on {view.device}" for name, view in views.items())


def check_source(
    output_op: EpilogueArguments, source: TensorView | None, called: str = "Z"
) -> None:
    """Refuses beta without Z, which would scale nothing, and Z with beta 0, which nobody reads.

    `called` is its name for the caller.
    """
    beta = beta_beside(source, output_op.beta if output_op.has_beta else None, called)
    if beta != 0 and source is None:
        raise ArgumentError(
            called,
            expected=f"a tensor, because beta is {beta}",
            got="None",
            hint=f"pass {called}, or beta = 0",
        )


def check_results(
    views: Mapping[str, TensorView], shape: tuple[int, ...], extents: str, describes: str
) -> None:
    """Refuses a Y or Z of another shape, if there are any.

    Args:
        extents: the last ones in words.
        describes: what they are for.
    """
    for name in ("Z", "Y"):
        if name in views and views[name].shape != shape:
            raise ArgumentError(
                f"shape of {name}",
                expected=f"{shape}: leading dimensions, {extents}",
                got=views[name].shape,
                hint=f"it has {describes}",
            )


def check_writable(result: TensorView, called: str = "Y") -> None:
    """Refuses a result that kernels can't write in place, or that has one element at two indices.

    `called` is its name for the caller.
    """
    if not result.writable or not result.in_place:
        refused = "a read-only one"
        if result.framework == "dlpack":
            refused += ", or one that its __dlpack__ copies"
        got = "one in foreign byte order or misaligned" if result.writable else refused
        raise ArgumentError(
            called, expected="a writable tensor", got=got, hint="pass a new contiguous tensor"
        )
    if overlaps_itself(result):
        raise ArgumentError(
            called,
            expected="a tensor whose elements are all distinct",
            got=f"shape {result.shape} with strides {result.strides}",
            hint="pass a new tensor",
        )


def check_overlap(
    result: TensorView,
    inputs: Mapping[str, TensorView],
    source: TensorView | None,
    called: str = "Y",
    source_called: str = "Z",
) -> None:
    """Refuses a result that shares memory with an input, or with Z in part; Z may be Y itself.

    A `source` of None means that Z is not read; `called` and `source_called` are the names of the
    result and of Z for the caller.
    """
    for name, item in inputs.items():
        if overlaps(result, item):
            raise ArgumentError(
                f"{called} and {name}",
                expected="separate memory",
                got="tensors that overlap",
                hint=f"pass another {called}, or a copy of {name}",
            )
    if source is not None and not same_elements(result, source) and overlaps(result, source):
        raise ArgumentError(
            f"{called} and {source_called}",
            expected="the same elements or separate memory",
            got="tensors that overlap in part",
            hint=f"pass {called} itself as {source_called}, or a copy",
        )


def count_text(count: int) -> str:
    """A number of elements for a message, in full where somebody can read it."""
    return str(count) if count < 10**15 else f"{count:.1e}"


def product_text(sizes: Iterable[int]) -> str:
    """A product of sizes for a message, with equal neighbours written once: `8^5 x 3`."""
    runs = [(size, len([*run])) for size, run in itertools.groupby(sizes)]
    return " x ".join(f"{size}^{count}" if count > 1 else str(size) for size, count in runs)
