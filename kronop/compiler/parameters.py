"""Packed parameters in memory that a launcher passes and its owner may change."""

from __future__ import annotations

import ctypes
from typing import Any

from kronop.artifacts import Launch


def parameter_words(launch: Launch) -> tuple[Any, Any]:
    """(the parameters of `launch` as an array of 8-byte words, their memory)."""
    size = len(launch.parameters)
    buffer = ctypes.create_string_buffer(launch.parameters, max(size, 1))
    return (ctypes.c_uint64 * (size // 8)).from_buffer(buffer), buffer
