"""Recorded launches as native code takes them: the structs of kronop_native/launches.hpp."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from kronop.compiler.tensor_maps import write_block
from kronop.core.addressed import Record

HEADERS = Path(__file__).parent / "include"


class _Patch(ctypes.Structure):
    _fields_ = tuple((name, ctypes.c_int64) for name in ("word", "slot", "displacement"))


class Launch(ctypes.Structure):
    """One launch."""

    _fields_ = (
        ("kernel", ctypes.c_void_p),
        ("parameters", ctypes.c_void_p),
        ("nbytes", ctypes.c_int64),
        ("patches", ctypes.c_void_p),
        ("patch_count", ctypes.c_int64),
        ("maps", ctypes.c_void_p),
        ("map_count", ctypes.c_int64),
        ("grid", ctypes.c_uint32 * 3),
        ("block", ctypes.c_uint32 * 3),
        ("shared_bytes", ctypes.c_uint32),
        ("overlaps", ctypes.c_uint32),
    )


class Kept:
    """Objects that own what addresses point to."""

    def __init__(self) -> None:
        self._owners: list[object] = []

    def address(self, owner: Any) -> int:
        """The address of a ctypes object, which is kept."""
        self._owners.append(owner)
        return ctypes.addressof(owner)

    def numbers(self, values: Sequence[int]) -> int:
        """The address of 64-bit integers."""
        return self.address((ctypes.c_int64 * len(values))(*values))

    def list(self, struct: ctypes.Structure, name: str, rows: Sequence[Sequence[int]]) -> None:
        """Fills in a list of a struct: its address and the number of rows."""
        setattr(struct, name, self.numbers([number for row in rows for number in row]))
        setattr(struct, f"{name}_count", len(rows))


def launches(
    records: Sequence[Record], devices: Sequence[int], kept: Kept, somewhere: int = 0
) -> int:
    """The address of the launches, for these GPUs (or (0,) for a CPU). Tensor maps are encoded for
    the address `somewhere`, and moved in each call."""
    found = (Launch * len(records))()
    for place, record in zip(found, records, strict=True):
        launch, count = record.launch, len(record.patches)
        for device in devices:  # Shared memory is allowed on each of them.
            place.kernel = record.kernel.address(launch, device)
        place.nbytes, place.patch_count = len(launch.parameters), count
        parameters = bytearray(launch.parameters)
        for item in record.maps:
            encoded = memoryview(parameters)[item.offset : item.offset + item.nbytes]
            write_block(item.value, encoded, somewhere)
        place.parameters = kept.address(
            ctypes.create_string_buffer(bytes(parameters), place.nbytes)
        )
        place.patches = kept.address((_Patch * count)(*(_Patch(*item) for item in record.patches)))
        maps = [_Patch(item.offset // 8, item.slot, item.displacement) for item in record.maps]
        place.maps, place.map_count = kept.address((_Patch * len(maps))(*maps)), len(maps)
        place.grid[:], place.block[:] = launch.grid, launch.block
        place.shared_bytes, place.overlaps = launch.shared_bytes, launch.overlaps
    return kept.address(found)
