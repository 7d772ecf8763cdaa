"""Writes an operation as a C library into a folder."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import fields
from operator import attrgetter
from pathlib import Path
from typing import Any

from kronop import compiler
from kronop.artifacts import Language, Source
from kronop.compiler import libraries
from kronop.compiler.keys import digest
from kronop.core.addressed import MOST_BYTES
from kronop.core.export import names, places, text
from kronop.core.export.operands import (
    BIAS,
    RESULT,
    Exportable,
    Operand,
    check_exported,
    operands_of,
)
from kronop.core.export.record import CASES, Recorder
from kronop.core.export.tables import Tables, filled, recorded, table_text
from kronop.descriptions.shared import integers
from kronop.emit.render import render
from kronop.errors import ArgumentError
from kronop.size import Rows, Size, size_within
from kronop.target import Target

_MOST_ROWS, _MOST_THREADS = 16, 6  # Powers of two.
_WORKSPACE_ALIGNMENT = {"x86": 64, "cuda": 256}
# Vector extensions by which GCC and clang name what a CPU has; tiles are asked of Linux.
_NO_EXTENSIONS = ("-mprefer-vector-width", "-mamx", "-mavx512bf16")


class _Export:
    """One export: what is recorded, and the texts that every target has."""

    def __init__(
        self,
        operation: Exportable,
        name: str,
        sizes: Sequence[Size],
        threads: Sequence[int],
        more: Mapping[str, object],
    ) -> None:
        self.operation, self.name, self.sizes, self.threads = operation, name, sizes, threads
        self.backend = operation.target.backend
        self.operands = operands_of(operation, sizes[0])
        scalars = operation.description.epilogue.scalar_names
        names.check_scalars(scalars, name)
        for size in sizes:
            _check_memory(self.operands, size)
        self.in_parts = _in_parts(self.operands, sizes)
        recorder = Recorder(operation, self.operands, more)
        has_bias = any(item.name == BIAS for item in self.operands)
        self.tables: Tables = recorded(recorder, sizes, threads, has_bias)
        self.sources: list[Source] = []
        self._step_of: dict[tuple[int, int], int] = {}
        for plan_at, plan in enumerate(recorder.plans):
            for step_at, source in enumerate(render(plan)):
                if source not in self.sources:
                    self.sources.append(source)
                self._step_of[plan_at, step_at] = self.sources.index(source)
        of = (repr(operation.description), operation.target.mark, repr(sorted(more.items())))
        self.mark = digest("exported operation", *of)
        self.values = {
            **text.common(operation, name, sizes, self.in_parts),
            "OPERATION": self.mark,
        }

    @property
    def header(self) -> str:
        return text.header(self.operation, self.operands, self.values, self.sizes)

    def shared_bytes(self, step: int) -> int:
        """The most dynamic shared memory of any launch of an exported step."""
        return max(
            call.shared_bytes
            for item in self.tables.variants
            for call in item.calls
            if self._step_of[item.plan, call.step] == step
        )

    def library(self, defines: Sequence[str], steps: str) -> str:
        """The C file: tables, and the functions of the header."""
        epilogue = self.operation.description.epilogue
        values = {
            **self.values,
            "SLOTS": str(len(self.operands) + 1),
            "SCALARS": str(len(epilogue.scalar_names)),
            "COUNTS": str(len(self.sizes)),
            "TEAMS": str(len(self.threads)),
            "CASES": str(CASES),
            "STEPS": str(len(self.sources)),
            "MOST_WORDS": str(self.tables.most_words()),
            "IN_PARTS": str(int(self.in_parts)),
            "ON_HOST": str(int(self.backend == "x86")),
            "ALIGNMENT": str(_WORKSPACE_ALIGNMENT[self.backend]),
            "DEFINES": "\n".join(f"#define {line}" for line in defines),
            "TABLES": "\n".join([self._extents(), table_text(self.tables, self._step_of), steps]),
            "PARAMETERS": text.parameters(epilogue, self.operands, self.name),
            "FILL": text.fill(epilogue, self.operands),
        }
        return text.written("library.c.in", values)

    def _extents(self) -> str:
        result = next(item for item in self.operands if item.name == RESULT)
        row_bytes = [(item.row_bytes or 0) * self.in_parts for item in self.operands]
        optional = (BIAS, "Z")
        arrays = {
            "int64_t kronop_rows": [size.rows for size in self.sizes],
            "int64_t kronop_row_bytes": [*row_bytes, 0],
            "uint64_t kronop_result_bytes": [result.nbytes(size) for size in self.sizes],
            "uintptr_t kronop_promised": [*(item.promised for item in self.operands), 1],
            "uint8_t kronop_needed": [
                *(int(item.name not in optional) for item in self.operands),
                0,
            ],
        }
        if self.backend == "x86":
            arrays["int kronop_threads"] = list(self.threads)
        return "\n".join(
            f"static const {name}[] = {{{', '.join(map(str, items))}}};"
            for name, items in arrays.items()
        )


def export(
    operation: Exportable,
    folder: str | os.PathLike[str],
    *,
    name: str | None = None,
    rows: Sequence[object] | None = None,
    threads: Sequence[int] | None = None,
    **more: object,
) -> Path:
    """See `Operation.export`."""
    check_exported(operation)
    name = _name(operation, name)
    sizes = _sizes(operation, rows)
    is_host = operation.target.backend == "x86"
    counts = _threads(threads) if is_host else [1]
    made = _Export(operation, name, sizes, counts, more)
    with places.prepared(folder, name, made.mark) as root:
        places.write(root, _host_files(made) if is_host else _gpu_files(made))
    return root


def _name(operation: Exportable, name: str | None) -> str:
    found = re.sub(r"\W+", "_", operation.kind.name.lower()) if name is None else name
    names.check_name(found)
    return found


def _sizes(operation: Exportable, rows: Sequence[object] | None) -> list[Size]:
    kind: Any = operation.kind.size
    if kind is Rows:
        given = [1 << at for at in range(_MOST_ROWS + 1)] if rows is None else rows
        return [Rows(count) for count in names.counts("rows", given)]
    given = integers("rows of an export", () if rows is None else rows)
    try:
        given = [
            kind(*item) if isinstance(item, tuple) else size_within(item, kind) for item in given
        ]
    except TypeError:  # Too many of them.
        raise _bad_sizes(operation, rows) from None
    sizes = sorted({item for item in given if isinstance(item, kind)}, key=attrgetter("rows"))
    are_sizes = bool(given) and all(isinstance(item, kind) for item in given)
    if not are_sizes or sizes[0].rows < 1 or len({item.rows for item in sizes}) < len(sizes):
        raise _bad_sizes(operation, rows)
    return sizes


def _bad_sizes(operation: Exportable, rows: object) -> ArgumentError:
    kind: Any = operation.kind.size
    told = ", ".join(item.name for item in fields(kind))
    return ArgumentError(
        f"rows of an export of {operation.kind.name}",
        expected=f"each {kind.__name__}, with at least 1 row and no two of the same rows",
        got="none" if rows is None else repr(rows),
        hint=f"for example rows=[arguments.size], or tuples ({told})",
    )


def _threads(threads: Sequence[int] | None) -> list[int]:
    given = [1 << at for at in range(_MOST_THREADS + 1)] if threads is None else threads
    # A program with fewer threads than all of these takes one.
    return sorted({1, *names.counts("threads", given)})


def _check_memory(operands: Sequence[Operand], size: Size) -> None:
    """Raises ArgumentError if an operand is too large for any memory."""
    for item in operands:
        if item.nbytes(size) >= MOST_BYTES:
            shape = " x ".join(map(str, item.shape_for(size)))
            raise ArgumentError(
                f"{item.name} of an export for M = {size.rows}",
                expected=f"fewer than {MOST_BYTES} bytes, which processes can address",
                got=f"{shape} {item.description.element.name}: {item.nbytes(size)} bytes",
                hint="the shape is too large for memory: take smaller factors or fewer rows",
            )


def _in_parts(operands: Sequence[Operand], sizes: Sequence[Size]) -> bool:
    """Whether rows are independent, and a part of them is an operand of fewer rows: other numbers
    of rows are then run as several."""
    if not isinstance(sizes[0], Rows):
        return False
    by_name = {item.name: item.row_bytes for item in operands}
    return None not in by_name.values() and bool(operands[0].row_bytes and by_name[RESULT])


def _host_files(made: _Export) -> dict[str, str | bytes]:
    name, target = made.name, made.operation.target
    symbols = [f"{name}_kernel_{at}" for at in range(len(made.sources))]
    declared = "".join(f"int {symbol}(const void* parameters, int alone); " for symbol in symbols)
    steps = (
        f'extern "C" {{ {declared}}}\n'
        "typedef int (*KronopStep)(const void* parameters, int alone);\n"
        f"static const KronopStep kronop_steps[] = {{{', '.join(symbols)}}};"
    )
    # Every function with linkage is this library's own: a program may link several statically.
    objects = {
        f"{name}_{at}.o": libraries.object_file(
            source,
            target,
            [
                f"-D{source.entry}={symbol}",
                f"-Dkronop={name}_namespace",
                "-DKRONOP_WITHOUT_CREW",
            ],
        )
        for at, (source, symbol) in enumerate(zip(made.sources, symbols, strict=True))
    }
    library = made.library(_machine(target), steps)
    objects[f"{name}.o"] = libraries.object_file(_joined(made, library), target.baseline)
    needed = [item for item in (libraries.openmp_library(target), "m") if item]
    values = {
        **made.values,
        "LIBRARIES": ";".join(needed),
        "PRIVATE": " ".join(f"-l{item}" for item in needed),
    }
    return {
        **_found_by(made, values),
        f"include/{name}.h": made.header,
        f"lib/lib{name}.so": libraries.shared_library(objects, f"lib{name}.so", target),
        f"lib/lib{name}.a": libraries.archive(objects, f"lib{name}.a"),
    }


def _machine(target: Target) -> list[str]:
    """Macros: what the CPU must have, and whether tiles are among it."""
    names = [flag[2:] for flag in target.flags if not flag.startswith(_NO_EXTENSIONS)]
    has = " && ".join(f'__builtin_cpu_supports("{name}")' for name in names)
    tiles = any(flag.startswith("-mamx") for flag in target.flags)
    required = f"if (!({has})) return KRONOP_MACHINE;" if has else ""
    return [f"KRONOP_REQUIRE {required}".rstrip(), f"KRONOP_TILES {int(tiles)}"]


def _joined(made: _Export, library: str) -> Source:
    """The C file with its own headers in place of their includes, to be compiled as C++."""
    pieces = {f"{made.name}.h": made.header} | {
        path.name: path.read_text(encoding="utf-8") for path in text.FOLDER.glob("*.h")
    }
    return Source(
        entry=made.name,
        text=re.sub(r'#include "([^"]+)"', lambda include: pieces[include[1]], library),
        language=Language.CXX,
        include_directories=(),
    )


def _gpu_files(made: _Export) -> dict[str, str | bytes]:
    binaries = compiler.compile_sources(made.sources, made.operation.target)
    shared = [made.shared_bytes(at) for at in range(len(binaries))]
    images = [
        f"static const unsigned char kronop_image_{at}[] __attribute__((aligned(64))) = {{\n"
        f"{filled([str(byte) for byte in binary.image])}\n}};"
        for at, binary in enumerate(binaries)
    ]
    entries = ",\n".join(
        f'    {{kronop_image_{at}, "{binary.entry}", {shared[at]}}}'
        for at, binary in enumerate(binaries)
    )
    steps = (
        "typedef struct {\n  const void* image;\n  const char* entry;\n  unsigned shared_bytes;\n"
        f"}} KronopStep;\nstatic const KronopStep kronop_steps[] = {{\n{entries}}};"
    )
    included = ("kronop_types.h", "kronop_run.h", "kronop_cuda.h")
    return {
        **_found_by(made, made.values),
        f"include/{made.name}.h": made.header,
        f"src/{made.name}.c": made.library([], "\n".join([*images, steps])),
        **{f"src/{name}": (text.FOLDER / name).read_text(encoding="utf-8") for name in included},
    }


def _found_by(made: _Export, values: Mapping[str, str]) -> dict[str, str | bytes]:
    """The files by which CMake and pkg-config find the library."""
    folder, name = f"lib/cmake/{made.name}", made.name
    return {
        f"{folder}/{name}-config.cmake": text.written(f"config-{made.backend}.cmake.in", values),
        f"{folder}/{name}-config-version.cmake": text.written("version.cmake.in", values),
        f"lib/pkgconfig/{name}.pc": text.written(f"{made.backend}.pc.in", values),
    }
