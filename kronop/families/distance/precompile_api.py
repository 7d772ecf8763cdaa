"""kermac's `pre_compile_descriptors`: kernels of descriptors before their first calls."""

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
from kronop.errors import ArgumentError, mismatch
from kronop.families.distance.descriptor import (
    Described,
    KernelDescriptor,
    PowerType,
    check_descriptor,
)
from kronop.families.distance.operation import DistanceOperation
from kronop.families.distance.size import DistanceSize
from kronop.target import Target

_POINTS = TensorDescription(float32)
# Plans for so many points serve larger numbers too.
_MANY, _FEATURES = 1 << 13, (1, 4, 64, 1024)
_DEVICE = re.compile(r"(cpu)|cuda(?::(\d+))?")


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
            mismatch(
                "device",
                expected="cpu, cuda, or cuda and an index",
                got=repr(device),
                hint="for example pre_compile_descriptors('cuda:0', descriptors)",
            )
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
