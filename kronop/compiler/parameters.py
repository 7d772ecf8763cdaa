"""Memory for the packed parameters of a launcher, which repeated calls change between launches."""

from __future__ import annotations

import ctypes

from kronop.artifacts import Launch
from kronop.compiler.tensor_maps import write_block

# The alignment in bytes of blocks (tensor maps) within a parameter struct.
_ALIGNMENT = 128


def parameter_words(launch: Launch) -> ctypes.Array[ctypes.c_uint64]:
    """The parameters of `launch` as an array of 8-byte words; the array owns its memory."""
    size = len(launch.parameters)
    memory = ctypes.create_string_buffer(size + _ALIGNMENT)
    start = -ctypes.addressof(memory) % _ALIGNMENT
    ctypes.memmove(ctypes.addressof(memory) + start, launch.parameters, size)
    words = (ctypes.c_uint64 * (size // 8)).from_buffer(memory, start)
    for offset, nbytes, value in launch.blocks:
        write_block(value, memoryview(words).cast("B")[offset : offset + nbytes], value.address)
    return words
