"""An operation as a library for C and C++, which needs no Python."""

from __future__ import annotations

import argparse
from typing import Any

from kronop.commands import family_options
from kronop.core.command import Command
from kronop.core.family import Family
from kronop.descriptions.datatype import TENSOR_TYPES
from kronop.progress import busy
from kronop.size import Rows

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
    parser.add_argument(
        "--dtype", default="float32", choices=list(TENSOR_TYPES), help="(default float32)"
    )
    parser.add_argument(
        "--name", help="of the library, with which its functions begin (default: the family)"
    )
    parser.add_argument(
        "--rows",
        type=int,
        nargs="+",
        help="M, or images, one or several (default: the shape's, or powers of two up to 65536)",
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
    operation = family_options.aligned(operation, options, family, rows or [Rows(1)])
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
    if kind is Rows:
        return [Rows(count) for count in options.rows]
    assert size is not None
    return [family.of_rows(options, size, count) for count in options.rows]
