"""Calls exported libraries of a host through ctypes, with NumPy arrays."""

from __future__ import annotations

import ctypes
from pathlib import Path
from typing import Any

import numpy as np

from kronop.core.export.operands import RESULT, SOURCE, operands_of
from tests import support

_SCALAR = {"float": ctypes.c_double, "int": ctypes.c_int64}


def address(array: Any) -> int | None:
    """The address of an array's memory; None for no array."""
    return None if array is None else array.__array_interface__["data"][0]


def placed(array: Any, offset: int) -> Any:
    """A contiguous copy that begins `offset` bytes behind a multiple of 64."""
    memory = np.empty(array.nbytes + 128, np.uint8)
    start = -address(memory) % 64 + offset
    copy = memory[start : start + array.nbytes].view(array.dtype).reshape(array.shape)
    copy[...] = array
    return copy


class Library:
    """A loaded library with one handle."""

    def __init__(self, folder: Path, name: str, operation: Any, sample: Any) -> None:
        self._library = ctypes.CDLL(str(folder / "lib" / f"lib{name}.so"))
        self._name, self._operation = name, operation
        self._operands = operands_of(operation, sample)
        self.handle = ctypes.c_void_p()
        self._function("status_string").restype = ctypes.c_char_p
        status = self._function("init")(ctypes.byref(self.handle))
        assert status == 0, self.told(status)

    def _function(self, what: str) -> Any:
        return getattr(self._library, f"{self._name}_{what}")

    def told(self, status: int) -> str:
        return self._function("status_string")(status).decode()

    def close(self) -> None:
        self._function("destroy")(self.handle)

    def set_threads(self, threads: int) -> int:
        return self._function("set_threads")(self.handle, threads)

    def sizes(self, rows: int) -> tuple[int, int, int]:
        """(status, bytes of Y, bytes of the workspace)."""
        result, workspace = ctypes.c_size_t(), ctypes.c_size_t()
        status = self._function("sizes")(
            self.handle, ctypes.c_int64(rows), ctypes.byref(result), ctypes.byref(workspace)
        )
        return status, result.value, workspace.value

    def status(self, rows: int, given: dict[str, Any], y: Any, scalars: Any, z: Any = None) -> int:
        """Runs the operation; the status.

        Args:
            rows: as the function takes it.
            given: inputs by name, of a list a list; those left out are NULL.
            y, z: the result and its source.
            scalars: alpha, beta, and those of the activation.
        """
        kind = _SCALAR[self._operation.description.epilogue.element_epilogue.kind]
        status, _, nbytes = self.sizes(rows)
        workspace = np.empty(nbytes if status == 0 else 0, np.uint8)
        arguments: list[Any] = [self.handle, ctypes.c_int64(rows)]
        kept: list[Any] = []
        for item in {item.name: item for item in self._operands}.values():
            if item.name == RESULT:
                arguments += [ctypes.c_void_p(address(y)), *map(kind, scalars)]
                arguments.append(ctypes.c_void_p(address(z)))
            elif item.is_listed:
                kept.append((ctypes.c_void_p * len(given[item.name]))())
                kept[-1][:] = [address(array) for array in given[item.name]]
                arguments.append(kept[-1])
            elif item.name != SOURCE:
                arguments.append(ctypes.c_void_p(address(given.get(item.name))))
        return self._function("run")(
            *arguments, ctypes.c_void_p(address(workspace)), ctypes.c_void_p()
        )

    def run(self, rows: int, given: dict[str, Any], scalars: Any, z: Any = None) -> Any:
        """A new result; fails unless the status is 0."""
        what = self._operation.description
        y = support.poison(what.y_shape(rows), what.Y.element)
        status = self.status(rows, given, y, scalars, z)
        assert status == 0, self.told(status)
        return y
