"""From the shapes of operands to a program: JAX knows every shape when it compiles a function, so
that kronop plans, compiles and records the launches there, over addresses that XLA gives later."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import jax

from kronop.args import signature
from kronop.args.base import Arguments
from kronop.args.view import CPU, Device, TensorView, contiguous_strides
from kronop.core.addressed import Product, Symbols, UnfitError, plan_without_maps, symbol
from kronop.descriptions.datatype import TENSOR_TYPES, DataType
from kronop.errors import ArgumentError, DescriptionError, DeviceError, ElementTypeError, converting
from kronop.jax.native import Program, register

# Kernels of every target assume this alignment, in bytes, of scratch memory.
_OF_SCRATCH = 64

Builder = Callable[..., Arguments]
"""The arguments for views of all operands, `out`, and the parameters of the primitive by name."""


class _Addresses(Symbols):
    """Operands whose views have symbolic addresses already; `scratch` is the workspace's slot."""

    def __init__(self, scratch: int, device: Device) -> None:
        super().__init__({"": scratch}, [0] * scratch, device)

    def _symbol(self, name: str, pointer: int) -> int:
        return pointer


def element_of(name: str, dtype: jax.numpy.dtype) -> DataType:
    """The element type of a JAX dtype.

    Raises:
        ElementTypeError: no kernel knows it.
    """
    element = TENSOR_TYPES.get(dtype.name)
    if element is None:
        raise ElementTypeError(
            f"element type of {name}",
            expected=f"one of {', '.join(TENSOR_TYPES)}",
            got=dtype.name,
            hint=converting(dtype, "convert the array to one of these"),
        )
    return element


def record(
    build: Builder,
    operands: Sequence[jax.Array],
    result: jax.ShapeDtypeStruct,
    platform: str,
    **parameters: object,
) -> tuple[int, int]:
    """(the key of the program that computes `result`, the bytes of scratch memory that it needs).

    The program's slots are the operands, the result, and the scratch memory if there is any.

    Args:
        build: makes the arguments.
        operands, result: their shapes and dtypes; the memory of each is row-major.
        platform: "cpu" or "cuda".
        parameters: those of the primitive.

    Raises:
        ArgumentError: kronop would copy an operand first, because of too many batch dimensions.
        DescriptionError: every plan takes tensor maps; or as of the product itself.
        CompileError, DeviceError: as of the product itself.
    """
    devices = (0,) if platform == "cpu" else _gpus()
    device = CPU if platform == "cpu" else Device("cuda", devices[0])
    *views, out = (_outline(slot, item, device) for slot, item in enumerate([*operands, result]))
    arguments = build(*views, out=out, **parameters)
    try:
        symbols = _Addresses(len(operands) + 1, device)
        product = Product(arguments, symbols, None, plan_without_maps(arguments, symbols))
    except UnfitError:
        raise ArgumentError(
            "batch dimensions",
            expected="few enough for one launch over all of them",
            got=", ".join(str(tuple(item.shape)) for item in operands),
            hint="broadcast the operands to one batch, and reshape that to one dimension",
        ) from None
    # The handler writes addresses into words. A tensor map would stay the zeros that it is packed
    # as, and the kernel would read and write anywhere.
    if any(record.launch.blocks for record in product.records):
        raise DescriptionError(
            "parameters of a kernel in a function of JAX",
            expected="8-byte words",
            got="tensor maps, which the driver encodes for each address",
            hint="the functions of kronop and kronop.torch take them",
        )
    alignments = [signature.ALIGNMENT] * (len(operands) + 1)
    alignments += [_OF_SCRATCH] if product.scratch_bytes else []
    program = Program(records=product.records, alignments=tuple(alignments))
    return register(platform, program, devices), product.scratch_bytes


def _outline(slot: int, item: jax.Array | jax.ShapeDtypeStruct, device: Device) -> TensorView:
    """A row-major tensor of this shape and dtype whose memory is not there yet."""
    shape = tuple(item.shape)
    return TensorView(
        pointer=symbol(slot, 0),
        shape=shape,
        strides=contiguous_strides(shape),
        element=element_of(f"operand {slot}", item.dtype),
        device=device,
        framework="jax",
        writable=True,
        owner=None,
    )


def _gpus() -> tuple[int, ...]:
    """The driver's indices of the GPUs that JAX uses, the first one of which is planned for."""
    found = tuple(item.local_hardware_id for item in jax.local_devices(backend="cuda"))
    if not found:
        raise DeviceError(
            "GPU", expected="one that JAX uses", got="none", hint="jax.devices() lists them"
        )
    return found
