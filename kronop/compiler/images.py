"""Whether the image of a binary is complete, judged by its ELF header without loading it.

The loader maps as many bytes as the header declares. If the file is shorter, reading a page behind
its end kills the process by SIGBUS; so a truncated image must be refused before it is loaded.
"""

from __future__ import annotations

import struct
import sys

from kronop.artifacts import Binary, BinaryFormat, Status
from kronop.errors import DeviceError

# System V ABI, chapter 4: 64 bits, little-endian.
_ELF = b"\x7fELF\x02\x01"
_HEADER = struct.Struct("<32xQQ6xHHHH2x")  # Offsets of both tables, then row sizes and counts.
_SEGMENT = struct.Struct("<8xQ16xQ")  # Offset and number of the segment's bytes in the file.


class BrokenImageError(DeviceError):
    """An image that can't be loaded; compiling its source once more may give a good one."""


def broken(binary: Binary, reason: object) -> BrokenImageError:
    """The error that says that `binary` does not load."""
    return BrokenImageError(
        f"{binary.entry} [{binary.arch}] does not load ({reason}); "
        "mend the compiler that made it, or install the libraries that it needs"
    )


def check_image(binary: Binary) -> None:
    """Refuses an image that is shorter than its header declares.

    Raises:
        BrokenImageError: the image is empty, truncated, or not the ELF file that is expected.
    """
    is_cuda = binary.format is not BinaryFormat.SHARED_OBJECT
    is_elf = binary.format is BinaryFormat.CUBIN or (not is_cuda and sys.platform == "linux")
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
    # Linkers differ in what they put last: the section table, or in cubins the segment table.
    ends = [segments + segment_size * segment_count, sections + section_size * section_count]
    if max(ends) <= len(image) and segment_size >= _SEGMENT.size:
        for place in range(segments, ends[0], segment_size):
            ends.append(sum(_SEGMENT.unpack_from(image, place)))
    if max(ends) > len(image):
        return Status.reject(f"{len(image)} bytes of an ELF file that has {max(ends)}")
    return Status.accept()
