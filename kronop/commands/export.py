"""An operation as a library for C and C++, which needs no Python."""

from __future__ import annotations

import argparse
import math
from collections.abc import Sequence
from typing import Any

from kronop.commands import family_options
from kronop.core.command import Command
from kronop.core.export.operands import RESULT, SOURCE, Operand, operands_of
from kronop.core.family import Family
from kronop.descriptions.datatype import TENSOR_TYPES, Layout
from kronop.errors import ArgumentError
from kronop.progress import busy
from kronop.size import Rows

_ACCESS = 16  # The bytes of the widest access, to which rows are aligned where they can be.


EXAMPLES = {
    "export kron 8^5 --out kron8": "a library for CPUs like this one",
    "export kron 8^5 --target sm_90a --out kron8": "C that holds the kernels, for an H200",
}
_ENDINGS = (" --out folder", " --out folder --target x86-avx2")


def configure(parser: argparse.ArgumentParser) -> None:
    examples = family_options.examples_of("export", *_ENDINGS)
    family_options.add(parser, examples, _configure, among=_can_be_exported)


def _can_be_exported(family: Family) -> bool:
    return family.kinds[0].arguments is not None


def _configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--out", required=True, metavar="FOLDER", help="where the library goes")
    parser.add_argument(
        "--target",
        default="x86",
        help="a GPU, as 80, sm_80 or cuda; x86, x86-avx2, arm64, ... (default x86)",
    )
    parser.add_argument("--dtype", default="float32", choices=list(TENSOR_TYPES))
    parser.add_argument(
        "--name", help="of the library, with which its functions begin (default: the family)"
    )
    parser.add_argument(
        "--rows",
        type=int,
        nargs="+",
        help="M, one or several (default: the shape's, or the powers of two up to 65536)",
    )
    parser.add_argument(
        "--threads",
        type=int,
        nargs="+",
        help="x86: threads to plan for (default: the powers of two up to 64)",
    )


def execute(options: argparse.Namespace) -> None:
    family = family_options.chosen(options)
    operation = family_options.operation_of(options, family)
    rows = _rows(options, family, operation.kind.size)
    samples = [Rows(1)] if rows is None else rows
    operands = operands_of(operation, samples[0])
    result = next(item for item in operands if item.name == RESULT)
    first, last = _alignment(operands[0], samples), _alignment(result, samples)
    if (first, last) != (1, 1):
        operation = family_options.operation_of(options, family, (first, last))
        inputs = [
            it for it in operands_of(operation, samples[0]) if it.name not in (RESULT, SOURCE)
        ]
        promised = [item for item in inputs if item.description.alignment > 1]
        least = math.gcd(first, *(_alignment(item, samples) for item in promised))
        if least < first:  # Another operand has shorter rows.
            operation = family_options.operation_of(options, family, (least, last))
    more = family.fixed(options)
    with busy("planning and compiling"):
        folder = operation.export(
            options.out,
            name=options.family if options.name is None else options.name,
            rows=rows,
            threads=options.threads,
            **more,
        )
    for path in sorted(folder.rglob("*")):
        if path.is_file():
            print(path)


def _rows(options: argparse.Namespace, family: Command, kind: type) -> list[Any] | None:
    """The sizes to plan for: --rows, else the shape's own, else None."""
    size = family.size(options, options.shape)
    if options.rows is None:
        return None if size is None else [size]
    if kind is not Rows:
        raise ArgumentError(
            f"--rows of {options.family}",
            expected="none, since the shape says the size",
            got=" ".join(map(str, options.rows)),
            hint="leave --rows out",
        )
    return [Rows(count) for count in options.rows]


def _alignment(item: Operand, sizes: Sequence[Any]) -> int:
    """The most elements of an access to which every row of a dense operand is aligned."""
    most = _ACCESS // item.description.element.bytes
    axis = -2 if item.description.layout is Layout.ColumnMajor else -1
    return math.gcd(most, *(item.shape_for(size)[axis] for size in sizes))
