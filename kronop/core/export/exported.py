"""The method of operations that exports them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from kronop.late import imported


class Exported:
    """A base of operations."""

    def export(
        self,
        folder: Any,
        *,
        name: str | None = None,
        rows: Sequence[Any] | None = None,
        threads: Sequence[int] | None = None,
        **more: Any,
    ) -> Path:
        """Writes the operation to a folder, as a library for C and C++ that needs no Python.

        For a CPU there are a header, a shared and a static library; for a GPU a header, and a C
        source that holds the binaries and needs the CUDA driver alone. Files for CMake and
        pkg-config are beside them. Operands are dense, of the layouts that the operation describes.

        Args:
            folder: where to; it is made if it is not there. An earlier export of the same
                operation there, for the same target, is replaced.
            name: what the library is called, and its functions begin with; None for the kind's own.
                No keyword, nor a name of a system's headers and libraries, nor kronop's.
            rows: the sizes to plan for. If the rows of X and Y are independent and contiguous,
                other numbers of rows run in parts, of which each is the largest of these that is
                left: with 1 among them, any number. Else they are all that the library runs.
                None for the powers of two up to 65536. Of a matrix product or of distances, the
                extents (m, n, k), which have to be given.
            threads: on a CPU, the numbers of threads to plan for; a run takes the largest that
                OpenMP has. None for the powers of two up to 64.
            more: further arguments of the operation's arguments class, whose values are fixed in
                the library: `kernel=`, for distances.

        Returns:
            The folder.

        Raises:
            ArgumentError: a name, a size or an argument that does not fit; a folder that can't be
                written, or has another operation's export of this name.
            DescriptionError: the operation can't be exported.
            CompileError: a compiler is missing or refused a source.
        """
        # Imported late: it imports operations, and few programs export.
        imported("kronop.core.export.api")
        from kronop.core.export.api import export

        operation: Any = self
        return export(operation, folder, name=name, rows=rows, threads=threads, **more)
