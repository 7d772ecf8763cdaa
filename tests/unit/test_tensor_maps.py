"""Tensor maps: what they may be, and how the driver is asked to encode them."""

from __future__ import annotations

import ctypes
import dataclasses
import types
from collections.abc import Iterator
from typing import Any

import pytest

from kronop.compiler import tensor_maps
from kronop.errors import DeviceError
from kronop.tensor_map import Im2col, TensorMap

BOX = TensorMap(
    address=256,
    element="float16",
    element_bytes=2,
    extents=(100, 9, 5),
    strides=(208, 1872),
    box=(64, 4, 2),
)
PIXELS = dataclasses.replace(
    BOX,
    extents=(64, 9, 7, 5),
    strides=(128, 1152, 8064),
    box=Im2col(
        lower_corner=(-1, -2), upper_corner=(-1, 0), channels_per_pixel=32, pixels_per_column=96
    ),
    element_strides=(1, 2, 3, 1),
)


def _im2col(**changes: Any) -> dict[str, Any]:
    return {"box": dataclasses.replace(PIXELS.box, **changes)}  # type: ignore[type-var]


def test_lines() -> None:
    assert (BOX.line_bytes, BOX.swizzled, BOX.steps) == (128, True, (1, 1, 1))
    assert (PIXELS.line_bytes, PIXELS.swizzled, PIXELS.steps) == (64, False, (1, 2, 3, 1))


@pytest.mark.parametrize("axes", range(1, 6))
def test_boxes_have_one_to_five_axes(axes: int) -> None:
    change = {"extents": (8,) * axes, "strides": (16,) * (axes - 1), "box": (256,) * axes}
    assert dataclasses.replace(BOX, **change).line_bytes == 512


@pytest.mark.parametrize(("axes", "most"), [(1, 1 << 15), (2, 1 << 7), (3, 1 << 4)])
def test_pixels_lie_along_one_to_three_axes(axes: int, most: int) -> None:
    def made(lower: int, upper: int) -> TensorMap:
        corners = {"lower_corner": (lower,) * axes, "upper_corner": (upper,) * axes}
        extents, strides = (64, *[40] * axes, 2), (128,) * (axes + 1)
        change = {"extents": extents, "strides": strides, "element_strides": ()}
        return dataclasses.replace(PIXELS, **change, **_im2col(**corners))

    assert made(-most, most - 1).line_bytes == 64
    for lower, upper in ((-most - 1, 0), (0, most)):
        with pytest.raises(
            ValueError, match=rf"corner: expected {axes} from -{most} to {most - 1}"
        ):
            made(lower, upper)


@pytest.mark.parametrize(
    ("value", "change", "message"),
    [
        (BOX, {"address": 8}, r"address: expected 1 .* multiples of 16, got 8"),
        (BOX, {"extents": ()}, r"axes: expected 1 from 1 to 5, got 0"),
        (BOX, {"extents": (1,) * 6}, r"axes: expected 1 from 1 to 5, got 6"),
        (BOX, {"extents": (100, 0, 5)}, r"extents: expected 3 from 1 to 4294967296, got 100, 0, 5"),
        (BOX, {"strides": (208,)}, r"strides: expected 2 .* got 208"),
        (BOX, {"strides": (0, 16)}, r"strides: expected 2 from 1 .* got 0, 16"),
        (BOX, {"strides": (16, 24)}, r"multiples of 16, got 16, 24"),
        (BOX, {"strides": (16, 1 << 40)}, r"strides: expected 2 from 1 to 1099511627775"),
        (BOX, {"box": (64, 4)}, r"extents of the box: expected 3 from 1 to 256, got 64, 4"),
        (BOX, {"box": (64, 257, 1)}, r"extents of the box: .* got 64, 257, 1"),
        (BOX, {"box": (12, 4, 1)}, r"bytes of a line: expected 1 .* multiples of 16, got 24"),
        (BOX, {"element_strides": (1, 9, 1)}, r"element strides: expected 3 from 1 to 8"),
        (BOX, {"element_strides": (2, 1, 1)}, r"element strides of ends: .* got 2"),
        (BOX, {"rounds": True}, r"expected float32 to be rounded, got float16"),
        (PIXELS, {"element_strides": (1, 1, 1, 2)}, r"element strides of ends: .* got 1, 2"),
        (PIXELS, {"extents": (64, 9), "strides": (128,)}, r"axes: expected 1 from 3 to 5, got 2"),
        (PIXELS, _im2col(lower_corner=(0,)), r"lower corner: expected 2 .* got 0"),
        (PIXELS, _im2col(upper_corner=(-11, 0)), r"box of pixels: .* got -1, 9"),
        (PIXELS, _im2col(channels_per_pixel=257), r"channels per pixel: .* 1 to 256, got 257"),
        (PIXELS, _im2col(pixels_per_column=1025), r"pixels per column: .* 1 to 1024, got 1025"),
    ],
)
def test_what_no_copy_does_is_refused(
    value: TensorMap, change: dict[str, Any], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        dataclasses.replace(value, **change)


class _Names:
    """An enumeration of the driver: members are their names."""

    def __getattr__(self, name: str) -> str:
        return name.removeprefix("CU_TENSOR_MAP_")


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Any]]:
    """What a driver is asked, which encodes maps as their addresses."""
    asked: list[Any] = []

    def encode(kind: str) -> Any:
        def call(*given: Any) -> Any:
            asked.append((kind, *given))
            return given[2] % 32 and _Names(), types.SimpleNamespace(opaque=[given[2]] * 16)

        return call

    enumerations = ("DataType", "Interleave", "Swizzle", "L2promotion", "FloatOOBfill")

    def replace(place: Any, address: int) -> Any:
        asked.append(("replace", address))
        place[:] = (address,) * 16
        return (address % 32 and _Names(),)

    driver = types.SimpleNamespace(
        CUtensorMap=lambda _ptr: (ctypes.c_uint64 * 16).from_address(_ptr),
        cuTensorMapReplaceAddress=replace,
        cuuint32_t=int,
        cuuint64_t=int,
        cuTensorMapEncodeTiled=encode("tiled"),
        cuTensorMapEncodeIm2col=encode("im2col"),
        **{f"CUtensorMap{name}": _Names() for name in enumerations},
    )
    monkeypatch.setattr(tensor_maps, "imported", lambda name: driver)
    monkeypatch.setattr(tensor_maps, "_known", {})
    tensor_maps._ways.cache_clear()
    yield asked
    tensor_maps._ways.cache_clear()


def test_the_driver_is_told_all_of_a_map(calls: list[Any]) -> None:
    line = dataclasses.replace(
        BOX, element="float32", element_bytes=4, extents=(99,), strides=(), box=(4,), rounds=True
    )
    place = memoryview(bytearray(128))
    for value in (BOX, PIXELS, line):
        tensor_maps.write_block(value, place, 512)
    assert bytes(place) == (512).to_bytes(8, "little") * 16
    ways = ["INTERLEAVE_NONE", "SWIZZLE_NONE", "L2_PROMOTION_L2_256B", "FLOAT_OOB_FILL_NONE"]
    swizzled = [ways[0], "SWIZZLE_128B", *ways[2:]]
    half, tf32 = "DATA_TYPE_FLOAT16", "DATA_TYPE_TFLOAT32"
    extents, strides = [64, 9, 7, 5], [128, 1152, 8064]
    pixels = ([-1, -2], [-1, 0], 32, 96, [1, 2, 3, 1])
    assert calls == [
        ("tiled", half, 3, 512, [100, 9, 5], [208, 1872], [64, 4, 2], [1, 1, 1], *swizzled),
        ("im2col", half, 4, 512, extents, strides, *pixels, *ways),
        ("tiled", tf32, 1, 512, [99], [16], [4], [1], *ways),
    ]


def test_a_map_is_encoded_once_and_then_moved(calls: list[Any]) -> None:
    places = [memoryview(bytearray(128)) for _ in range(2)]
    tensor_maps.write_block(BOX, places[0], 512)
    move = tensor_maps.write_block(dataclasses.replace(BOX, address=1 << 50), places[1], 1024)
    assert [bytes(place) for place in places] == [
        at.to_bytes(8, "little") * 16 for at in (512, 1024)
    ]
    move(2048)
    assert bytes(places[1]) == (2048).to_bytes(8, "little") * 16
    assert [call[:1] for call in calls] == [("tiled",), ("replace",), ("replace",)]
    with pytest.raises(DeviceError, match=r"tensor map: .* at 0x810"):
        move(0x810)


def test_what_the_driver_refuses_is_named(calls: list[Any]) -> None:
    with pytest.raises(DeviceError, match=r"tensor map: .* got name for TensorMap\(.* at 0x210"):
        tensor_maps.write_block(BOX, memoryview(bytearray(128)), 0x210)
    assert len(calls) == 1
