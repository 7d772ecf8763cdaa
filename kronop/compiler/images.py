"""Whether the image of a binary is whole, told from its own header and without loading it.

The loader maps what the header promises, and a process that reads a mapped page behind the end of
the file is ended by SIGBUS: what is cut short must never get that far.
"""

from __future__ import annotations

import struct
import sys

from kronop.artifacts import Binary, BinaryFormat, Status
from kronop.errors import DeviceError

# System V ABI, chapter 4: 64 bits, little-endian.
_ELF = b"\x7fELF\x02\x01"
_HEADER = struct.Struct("<32xQQ6xHHHH2x")  # Where both tables are, sizes and counts of their rows.
_SEGMENT = struct.Struct("<8xQ16xQ")  # Where the segment's bytes are, and how many there are.


class BrokenImageError(DeviceError):
    """An image that nothing can load; another one of the same source may be whole."""


def broken(binary: Binary, reason: object) -> BrokenImageError:
    """The error that says that `binary` does not load."""
    return BrokenImageError(
        f"{binary.entry} [{binary.arch}] does not load ({reason}); "
        "mend the compiler that made it, or install the libraries that it needs"
    )


def check_image(binary: Binary) -> None:
    """Refuse an image that lacks a part of what its header says it has.

    Raises:
        BrokenImageError: it is empty, no ELF file where one is expected, or cut short.
    """
    is_elf = binary.format is BinaryFormat.CUBIN or sys.platform == "linux"
    status = _whole_elf(binary.image) if is_elf else _filled(binary.image)
    if not status:
        raise broken(binary, status.reason)


def _filled(image: bytes) -> Status:
    return Status.accept() if image else Status.reject("the image is empty")


def _whole_elf(image: bytes) -> Status:
    if not image.startswith(_ELF) or len(image) < _HEADER.size:
        return Status.reject(f"{len(image)} bytes that are no ELF file of 64 bits")
    segments, sections, segment_size, segment_count, section_size, section_count = (
        _HEADER.unpack_from(image)
    )
    # What comes last differs among linkers: the sections' table, or for cubins the segments'.
    ends = [segments + segment_size * segment_count, sections + section_size * section_count]
    if max(ends) <= len(image) and segment_size >= _SEGMENT.size:
        for place in range(segments, ends[0], segment_size):
            ends.append(sum(_SEGMENT.unpack_from(image, place)))
    if max(ends) > len(image):
        return Status.reject(f"{len(image)} bytes of an ELF file that has {max(ends)}")
    return Status.accept()
