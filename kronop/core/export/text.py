"""The texts of an exported library: its C, and how CMake and pkg-config find it."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from kronop.core.export.operands import BIAS, RESULT, SOURCE, Exportable, Operand
from kronop.descriptions.datatype import Layout
from kronop.descriptions.epilogue import Epilogue
from kronop.size import Rows, Size
from kronop.version import __version__

FOLDER = Path(__file__).with_name("c")
_HOLE = re.compile(r"@([A-Z_]+)@")
# The comment of the function that makes a handle.
_INIT = {
    "x86": "A handle for OpenMP's number of threads, omp_get_max_threads().",
    "cuda": "A handle for the GPU of the current context (else GPU 0); its kernels are loaded.",
}


def written(template: str, values: Mapping[str, str]) -> str:
    """The text of a template in the folder `c`, with `@NAME@` and the like replaced."""
    return replaced((FOLDER / template).read_text(encoding="utf-8"), values)


def replaced(text: str, values: Mapping[str, str]) -> str:
    return _HOLE.sub(lambda hole: values[hole[1]], text)


def common(
    operation: Exportable, name: str, sizes: Sequence[Size], in_parts: bool
) -> dict[str, str]:
    """The values that all files of an export share."""
    is_host = operation.target.backend == "x86"
    counts = ", ".join(str(size.rows) for size in sizes)
    return {
        "NAME": name,
        "TITLE": f"{operation.kind.name}, {operation.description.Y.element.name}",
        "VERSION": __version__,
        "TARGET": f"for {operation.target.name}",
        "BACKEND": operation.target.backend,
        "ROWS_TOLD": _rows_told(sizes[0].rows, counts) if in_parts else f"one of {counts}",
        "BUT": f" (except by {name}_set_threads)" if is_host else "",
        "INIT": _INIT[operation.target.backend],
        "GUARD": f"{name.upper()}_H",
    }


def _rows_told(least: int, counts: str) -> str:
    if least == 1:
        return f"any number, in parts of {counts}"
    return f"any number that taking the largest of {counts} again and again uses up"


def header(
    operation: Exportable,
    operands: Sequence[Operand],
    values: Mapping[str, str],
    sizes: Sequence[Size],
) -> str:
    """The public header."""
    formula = (type(operation).__doc__ or "").splitlines()[0].rstrip(".")
    for name, word in operation.kind.argument_names.items():
        formula = re.sub(rf"\b{word}\b", name, formula)
    described = [*_problems(operation, sizes)]
    described += [_described(item, sizes) for item in _distinct(operands)]
    described += [
        "Y shares no memory with an operand, but Z may be Y; Z may be NULL where beta is 0.",
        "workspace has the bytes that the sizes say; runs that may overlap need one each.",
        "stream is a CUstream or cudaStream_t." if values["BACKEND"] == "cuda" else "",
        "stream is not used." if values["BACKEND"] == "x86" else "",
    ]
    largest = sizes[-1]
    plan = operation.plan_for(largest).describe(largest).splitlines()
    own = {
        "PLAN": "\n".join(f" * {line}".rstrip() for line in plan),
        "FORMULA": formula,
        "OPERANDS": "\n".join(f" * {line}" for line in described if line),
        "PARAMETERS": parameters(operation.description.epilogue, operands, values["NAME"]),
        "THREADS": written("threads.h.in", values) if values["BACKEND"] == "x86" else "",
    }
    return written("library.h.in", {**values, **own})


def parameters(epilogue: Epilogue, operands: Sequence[Operand], name: str) -> str:
    """The parameters of the function that runs the operation."""
    scalar = "double" if epilogue.element_epilogue.kind == "float" else "int64_t"
    found = [f"{name}_handle handle", "int64_t rows"]
    for item in _distinct(operands):
        if item.name == SOURCE:
            found += [f"{scalar} {scalar_name}" for scalar_name in epilogue.scalar_names]
        const = "" if item.name == RESULT else "const "
        stars = "* const* " if item.is_listed else "* "
        found.append(f"{const}{item.c_type}{stars}{item.name}")
    return ", ".join([*found, "void* workspace", "void* stream"])


def fill(epilogue: Epilogue, operands: Sequence[Operand]) -> str:
    """The statements that put the function's arguments into the struct `given`."""
    lines = ["if (beta != 0 && Z == NULL) return KRONOP_SOURCE;"]
    counts: dict[str, int] = {}
    for slot, item in enumerate(operands):
        at = counts[item.name] = counts.get(item.name, -1) + 1
        value = f"({item.name} == NULL ? NULL : {item.name}[{at}])" if item.is_listed else item.name
        if item.name == SOURCE:
            value = "(beta != 0 ? Z : NULL)"
        lines.append(f"given.addresses[{slot}] = (const char*){value};")
    for at, name in enumerate(epilogue.scalar_names):
        lines.append(f"memcpy(&given.scalars[{at}], &{name}, sizeof {name});")
    lines += ["given.has_source = beta != 0;", "given.is_plain = alpha == 1 && beta == 0;"]
    if any(item.name == BIAS for item in operands):
        lines.append("given.has_bias = bias != NULL;")
    return "\n".join(f"  {line}" for line in lines)


def _distinct(operands: Sequence[Operand]) -> list[Operand]:
    """The first of each list, and the others."""
    return list({item.name: item for item in reversed(operands)}.values())[::-1]


def _problems(operation: Exportable, sizes: Sequence[Size]) -> list[str]:
    """What the description says of each size, once if it is the same of all."""
    told = {size.rows: tuple(operation.description.told(size)) for size in sizes}
    if len(set(told.values())) == 1:
        return [*told[sizes[0].rows]]
    return [line for rows, lines in told.items() for line in (f"Of {rows} rows:", *lines)]


def _described(item: Operand, sizes: Sequence[Size]) -> str:
    shape = _shape(item, sizes)
    what = f"{shape} {item.description.element.name}"
    if item.description.layout is Layout.ColumnMajor:
        what += ", column-major"
    which = f"{item.name}[0], as the others" if item.is_listed else item.name
    return f"{which}: {what}{', or NULL' if item.name == BIAS else ''}."


def _shape(item: Operand, sizes: Sequence[Size]) -> str:
    if isinstance(sizes[0], Rows):
        sizes = [Rows(1), Rows(2)]
    rows = tuple(size.rows for size in sizes)
    axes = zip(*map(item.shape_for, sizes), strict=True)
    return " x ".join(_extent(extents, rows) for extents in axes)


def _extent(extents: tuple[int, ...], rows: tuple[int, ...]) -> str:
    """An axis of the shapes of all sizes; of several with other extents, each in turn."""
    if len(set(extents)) == 1:
        return str(extents[0])
    return "rows" if extents == rows else f"({' or '.join(map(str, extents))})"
