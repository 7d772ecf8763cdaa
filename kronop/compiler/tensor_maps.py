"""Tensor maps as the CUDA driver encodes them."""

from __future__ import annotations

import ctypes
import dataclasses
import functools
from collections.abc import Callable
from operator import attrgetter
from typing import Any, NoReturn

from kronop.errors import DeviceError
from kronop.late import imported
from kronop.tensor_map import Im2col, TensorMap

_MOST_MAPS = 4096
# Of other element types only the size in bytes matters.
_NAMES = {"float64", "float32", "float16", "bfloat16", "int64", "int32"}
# All of a map but its address, and the maps that were encoded, by that.
_form = attrgetter(*(item.name for item in dataclasses.fields(TensorMap) if item.name != "address"))
_known: dict[tuple[Any, ...], bytes] = {}


def write_block(value: TensorMap, place: memoryview, address: int) -> Callable[[int], None]:
    """Writes the bytes of a map of the memory at `address` to its block of the parameters.

    NOTE: the driver takes 5 us to encode a map through its Python bindings, and 1 us to give one
    that it has encoded another address.

    Returns:
        A function that has the block map the memory at another address.

    Raises:
        DeviceError: the driver refuses the map; the function raises it too.
    """
    form, move = _form(value), _mover(value, place)
    known = _known.get(form)
    if known is not None:
        place[:] = known
        move(address)
        return move
    if len(_known) >= _MOST_MAPS:
        _known.clear()
    place[:] = _known[form] = _encoded(value, address)
    return move


def _mover(value: TensorMap, place: memoryview) -> Callable[[int], None]:
    """A function that gives the encoded map in a block another address."""
    driver = imported("cuda.bindings.driver")
    here = driver.CUtensorMap(_ptr=ctypes.addressof(ctypes.c_char.from_buffer(place)))

    def move(address: int, _keep: object = place) -> None:
        (error,) = driver.cuTensorMapReplaceAddress(here, address)
        if error:
            _refuse(error, value, address)

    return move


def _refuse(error: Any, value: TensorMap, address: int) -> NoReturn:
    raise DeviceError(
        "tensor map",
        expected="one that the driver can encode",
        got=f"{error.name} for {value} at {address:#x}",
        hint="report this: kronop chose a kernel that can't read the tensor",
    )


def _encoded(value: TensorMap, address: int) -> bytes:
    driver = imported("cuda.bindings.driver")
    name = value.element.upper() if value.element in _NAMES else "UINT8"
    kind = f"CU_TENSOR_MAP_DATA_TYPE_{'TFLOAT32' if value.rounds else name}"
    box: tuple[Any, ...]
    if isinstance(value.box, Im2col):
        encode, pixels = driver.cuTensorMapEncodeIm2col, value.box
        corners = [*pixels.lower_corner], [*pixels.upper_corner]
        box = (*corners, pixels.channels_per_pixel, pixels.pixels_per_column)
    else:
        encode = driver.cuTensorMapEncodeTiled
        box = ([driver.cuuint32_t(item) for item in value.box],)
    # A tensor of one axis has no strides, but an empty array may not be taken.
    strides = value.strides or (value.line_bytes,)
    error, made = encode(
        getattr(driver.CUtensorMapDataType, kind),
        len(value.extents),
        address,
        [driver.cuuint64_t(item) for item in value.extents],
        [driver.cuuint64_t(item) for item in strides],
        *box,
        [driver.cuuint32_t(item) for item in value.steps],
        *_ways(value.swizzled),
    )
    if error:
        _refuse(error, value, address)
    return b"".join(int(word).to_bytes(8, "little") for word in made.opaque)


@functools.cache
def _ways(swizzled: bool) -> tuple[Any, ...]:
    """No interleaving, lines of 128 bytes that are swizzled or lines as they are, whole sectors of
    the level-2 cache, and zeros beyond the tensor."""
    driver = imported("cuda.bindings.driver")
    kind = "128B" if swizzled else "NONE"
    return (
        driver.CUtensorMapInterleave.CU_TENSOR_MAP_INTERLEAVE_NONE,
        getattr(driver.CUtensorMapSwizzle, f"CU_TENSOR_MAP_SWIZZLE_{kind}"),
        driver.CUtensorMapL2promotion.CU_TENSOR_MAP_L2_PROMOTION_L2_256B,
        driver.CUtensorMapFloatOOBfill.CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE,
    )
