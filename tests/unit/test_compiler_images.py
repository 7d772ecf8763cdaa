"""What is cut short, empty or no ELF file is told before a loader maps it."""

from __future__ import annotations

import struct
import sys

import pytest

from kronop.artifacts import Binary, BinaryFormat, Resources
from kronop.compiler.images import BrokenImageError, check_image


def make(image: bytes, kind: BinaryFormat) -> Binary:
    return Binary(
        key="e1" * 32,
        entry="kernel",
        arch="generic",
        format=kind,
        image=image,
        resources=Resources(),
        log="",
        compiler="test",
    )


def elf(order: str) -> bytes:
    """An ELF file of one segment of 50 bytes and two sections; `order` is that of its parts."""
    sizes, place, at = {"bytes": 50, "segments": 56, "sections": 128}, 64, {}
    for part in order.split():
        at[part], place = place, place + sizes[part]
    header = struct.pack(
        "<4sBB10xHHIQQQIHHHHHH",
        *(b"\x7fELF", 2, 1, 3, 62, 1, 0, at["segments"], at["sections"], 0, 64, 56, 1, 64, 2, 0),
    )
    parts = {
        "bytes": bytes(50),
        "segments": struct.pack("<IIQQQQQQ", 1, 5, at["bytes"], 0, 0, 50, 4096, 4096),
        "sections": bytes(128),
    }
    return header + b"".join(parts[part] for part in order.split())


@pytest.mark.parametrize(
    "order", ["bytes segments sections", "bytes sections segments", "segments sections bytes"]
)
@pytest.mark.parametrize("kind", [BinaryFormat.CUBIN, BinaryFormat.SHARED_OBJECT])
def test_a_file_is_whole_or_refused(order: str, kind: BinaryFormat) -> None:
    if kind is BinaryFormat.SHARED_OBJECT and sys.platform != "linux":
        pytest.skip("shared objects of this system are no ELF files")
    image = elf(order)
    check_image(make(image, kind))
    for size in range(len(image)):
        with pytest.raises(BrokenImageError, match=f"does not load .{size} bytes"):
            check_image(make(image[:size], kind))


@pytest.mark.parametrize("image", [b"", b"garbage" * 100, b"\x7fELF\x01\x01" + bytes(200)])
def test_what_is_no_elf_file_of_64_bits_is_refused(image: bytes) -> None:
    with pytest.raises(BrokenImageError, match="no ELF file"):
        check_image(make(image, BinaryFormat.CUBIN))


def test_other_systems_load_other_files(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "platform", "darwin")
    check_image(make(b"MZ and what follows", BinaryFormat.SHARED_OBJECT))
    with pytest.raises(BrokenImageError, match="the image is empty"):
        check_image(make(b"", BinaryFormat.SHARED_OBJECT))


def test_text_for_the_driver_is_only_not_empty() -> None:
    check_image(make(b".version 8.4", BinaryFormat.PTX))
    with pytest.raises(BrokenImageError, match="the image is empty"):
        check_image(make(b"", BinaryFormat.PTX))
