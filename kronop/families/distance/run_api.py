"""kermac's `run_kernel` and `pre_compile_descriptors`, on plain tensors."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Iterator
from typing import Any

from kronop.args.device import default_device, target_of_device
from kronop.args.view import CPU, Device
from kronop.core.calls import epilogue_of
from kronop.core.gathering import compile_all
from kronop.descriptions.datatype import float32
from kronop.descriptions.tensor import TensorDescription
from kronop.emit.plan import Plan
from kronop.errors import ArgumentError
from kronop.families.distance.api import DIRECT, batch_dims, matrix_of
from kronop.families.distance.arguments import check_diagonal
from kronop.families.distance.descriptor import (
    Described,
    KernelDescriptor,
    PowerType,
    check_descriptor,
)
from kronop.families.distance.operation import DistanceOperation
from kronop.families.distance.size import DistanceSize
from kronop.families.distance.values import checked
from kronop.target import Target

_POINTS = TensorDescription(float32)
# Plans for so many points serve larger numbers too.
_MANY, _FEATURES = 1 << 13, (1, 4, 64, 1024)
_DEVICE = re.compile(r"(cpu)|cuda(?::(\d+))?")


def run_kernel(
    descriptor: KernelDescriptor,
    a: Any,
    b: Any,
    out: Any = None,
    p: Any = None,
    inner_p: Any = None,
    outer_p: Any = None,
    bandwidth: Any = None,
    epsilon: Any = None,
    regularization: Any = None,
    regularization_offset_x: int = 0,
    regularization_offset_y: int = 0,
) -> Any:
    """The kernel matrix of a descriptor, as kermac's function of that name.

    Other than there: any strides and element types, results have as many dimensions as operands,
    nothing waits for the GPU, and `regularization` is added to the diagonal's values instead of to
    1, which is the same for kernels that are 1 between equal points.

    Args:
        descriptor: what is computed.
        a: (..., M, K).
        b: (..., N, K); leading dimensions broadcast.
        out: (..., M, N), where to write the result; None for a new tensor.
        p: for POW inside and outside: the powers p and 1 / p, instead of the two next.
        inner_p, outer_p: the powers of POW.
        bandwidth: of LAPLACE and GAUSSIAN.
        epsilon: what is below it counts as 0 in LAPLACE and GAUSSIAN; None for 1e-5.
        regularization: added where m + regularization_offset_x = n + regularization_offset_y.

    Values are numbers, or tensors that broadcast with the leading dimensions of a and b: a tensor
    of shape (L,) beside two matrices gives a result (L, M, N).

    Returns:
        (..., M, N), of a's kind, element type and device.

    Raises:
        ArgumentError: shapes, devices or values that do not fit.
        ElementTypeError: no tensor, no descriptor, or element types that do not fit.
        DescriptionError, CompileError, DeviceError, OutOfMemoryError: as of `kernel_matrix`.

    Example:
        >>> euclidean = kronop.KernelDescriptor(
        ...     inner_operator=kronop.InnerOperator.DIFF,
        ...     inner_power=kronop.PowerType.SQUARE,
        ...     outer_power=kronop.PowerType.SQRT,
        ... )
        >>> x, y = np.array([[0.0, 0.0], [3.0, 4.0]]), np.zeros((1, 2))
        >>> kronop.run_kernel(euclidean, x, y).tolist()
        [[0.0], [5.0]]
    """
    check_descriptor(descriptor)
    inner_p, outer_p = _powers(descriptor, p, inner_p, outer_p)
    kernel = Described(
        descriptor=descriptor,
        inner_p=inner_p,
        outer_p=outer_p,
        bandwidth=bandwidth,
        epsilon=epsilon,
    )
    offset = check_diagonal("regularization_offset_x", regularization_offset_x)
    offset -= check_diagonal("regularization_offset_y", regularization_offset_y)
    bound = kernel.bound(batch_dims(a, b), regularization)
    return matrix_of(a, b, bound, DIRECT, out, diagonal=offset)


def _powers(descriptor: KernelDescriptor, p: Any, inner_p: Any, outer_p: Any) -> tuple[Any, Any]:
    if p is None:
        return inner_p, outer_p
    both = descriptor.inner_power is descriptor.outer_power is PowerType.POW
    if not both or inner_p is not None or outer_p is not None:
        raise ArgumentError(
            "p",
            expected="POW as inner and as outer power, and neither inner_p nor outer_p",
            got=f"{descriptor} with p",
            hint="pass inner_p or outer_p instead",
        )
    return checked("p", p), None


def pre_compile_descriptors(
    device: Any,
    descriptors: Iterable[KernelDescriptor] | KernelDescriptor,
    try_to_align: bool = False,
    debug: bool = False,
) -> None:
    """Compiles what `run_kernel` needs for these descriptors, as many kernels at once as there are
    CPUs, and keeps it in the cache; kermac's function of that name.

    It is what many points (8192 and more) of float32 need, with a regularization and without,
    beside other points and beside themselves. `kronop.warmup(kronop.run_kernel, descriptor, a, b,
    ...)` compiles what a particular call needs.

    Args:
        device: "cuda", "cuda:1", "cpu", or a `torch.device`.
        descriptors: those of the kernels, or a single one.
        try_to_align: is not looked at: kernels read points of any alignment and strides.
        debug: print the plans.

    Raises:
        ArgumentError: another device.
        ElementTypeError: what is no descriptor.
        CompileError, DeviceError: no compiler, or no such GPU.

    Example:
        >>> kronop.pre_compile_descriptors("cpu", [kronop.kernel_descriptor_l1_norm])
    """
    target = target_of_device(_device_of(device))
    items = [descriptors] if isinstance(descriptors, KernelDescriptor) else [*descriptors]
    for item in items:
        check_descriptor(item)
    plans = [plan for item in items for plan in _plans(item, target)]
    if debug:
        print(*dict.fromkeys(map(str, plans)), sep="\n")
    compile_all(plans)


def _device_of(device: Any) -> Device:
    found = _DEVICE.fullmatch(str(device))
    if found is None:
        raise ArgumentError(
            "device",
            expected="cpu, cuda, or cuda and an index",
            got=repr(device),
            hint="for example pre_compile_descriptors('cuda:0', descriptors)",
        )
    if found[1]:
        return CPU
    return default_device() if found[2] is None else Device("cuda", int(found[2]))


def _plans(descriptor: KernelDescriptor, target: str | Target) -> Iterator[Plan]:
    """The plans of a descriptor's calls."""
    # Any numbers will do: values are not compiled in, other than powers that need no logarithm.
    inner_p = 1.3 if descriptor.inner_power is PowerType.POW else None
    outer_p = 0.7 if descriptor.outer_power is PowerType.POW else None
    bandwidth = 1.0 if descriptor.takes_bandwidth else None
    # The outer power of calls with p is its reciprocal.
    outer_powers = (outer_p, None) if inner_p and outer_p else (outer_p,)
    regularizations = (None, 1.0) if descriptor.takes_bandwidth else (None,)
    epilogue = epilogue_of(_POINTS.element, _POINTS, None)
    for outer_p, regularization in itertools.product(outer_powers, regularizations):
        kernel = Described(
            descriptor=descriptor, inner_p=inner_p, outer_p=outer_p, bandwidth=bandwidth
        )
        form = kernel.bound(0, regularization).form
        for symmetric in (False, True):
            operation = DistanceOperation(
                target, None, _POINTS, _POINTS, _POINTS, epilogue, form, symmetric
            )
            for features in _FEATURES:
                yield operation.plan_for(DistanceSize(_MANY, _MANY, features))
