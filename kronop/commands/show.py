"""An operation seen from inside: its plan, source, PTX or assembly, machine code and resources."""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable

import kronop
from kronop import compiler
from kronop.artifacts import Resources
from kronop.descriptions.datatype import TENSOR_TYPES, result_type
from kronop.errors import ArgumentError, CompileError, mismatch

_FACTOR = re.compile(r"(\d+)(?:x(\d+))?(?:\^(\d+))?")
_Operation = kronop.KronMatmulOperation | kronop.KSparseOperation | kronop.KSparseChainOperation


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("family", choices=("kron", "ksparse"))
    parser.add_argument(
        "shape",
        nargs="+",
        help="factors as 8x8,8x8,5x3 or 8^2,5x3 (kron), pattern as 6,64,64,1, or those of a chain"
        " (ksparse)",
    )
    parser.add_argument(
        "--target", default="x86", help="80, 90, sm_80, sm_90a, x86, x86-avx2, ... (default x86)"
    )
    parser.add_argument("--dtype", default="float32", choices=list(TENSOR_TYPES))
    parser.add_argument(
        "--alignment", type=int, default=1, help="of X and Y, in elements (default 1)"
    )
    parser.add_argument(
        "--left", action="store_true", help="kron: X on the right of the product (gekmm)"
    )
    parser.add_argument("--batch-last", action="store_true", help="ksparse: X is (a c d, B)")
    parser.add_argument(
        "--view", default="plan", choices=list(_SHOWN), help="what to print (default plan)"
    )


def execute(options: argparse.Namespace) -> None:
    operation = _operation(options)
    print(_SHOWN[options.view](operation))


def _resources(operation: _Operation) -> str:
    return "\n".join(
        f"{binary.entry}: {_told(binary.resources)}, {len(binary.image)} bytes of"
        f" {binary.format.value}, from {binary.origin.value}, {binary.compiler}"
        for binary in operation.binaries
    )


def _told(taken: Resources) -> str:
    """What the compiler tells, in words."""
    values = {
        "registers": taken.registers,
        "spilled bytes": taken.spill_bytes,
        "static shared bytes": taken.static_shared_bytes,
    }
    known = [f"{value} {name}" for name, value in values.items() if value is not None]
    unknown = [name for name, value in values.items() if value is None]
    return ", ".join([*known, *([f"{' and '.join(unknown)} not told"] if unknown else [])])


def _machine(operation: _Operation) -> str:
    texts = [compiler.disassemble(binary) for binary in operation.binaries]
    for text in texts:
        if "\n" not in text.strip():  # One line is what is said where no tool was found.
            raise CompileError(f"machine code: {text.strip()}")
    return "\n".join(texts)


_SHOWN: dict[str, Callable[[_Operation], str]] = {
    "plan": lambda operation: operation.plan.explain(),
    "source": lambda operation: operation.emit(),
    "assembly": lambda operation: "\n".join(
        compiler.assembly(source, operation.target) for source in operation.sources
    ),
    "machine": _machine,
    "resources": _resources,
}


def _operation(options: argparse.Namespace) -> _Operation:
    _check_flags(options)
    element = TENSOR_TYPES[options.dtype]
    accumulator = kronop.MathInstruction.simt(element).element_accumulator
    matrix = kronop.TensorDescription(element, kronop.RowMajor, options.alignment)
    small = kronop.TensorDescription(element)
    output = result_type(element)
    result = kronop.TensorDescription(output, kronop.RowMajor, options.alignment)
    epilogue = kronop.LinearCombination(output, options.alignment, accumulator, accumulator)
    common = (options.target, None, matrix, small, result, epilogue)
    if options.family == "kron":
        side = kronop.Side.Left if options.left else kronop.Side.Right
        (shape,) = options.shape
        return kronop.KronMatmulOperation(*common, factors_of(shape), side)
    patterns = [integers(item) for item in options.shape]
    if len(patterns) > 1:
        return kronop.KSparseChainOperation(*common, patterns, options.batch_last)
    return kronop.KSparseOperation(*common, patterns[0], options.batch_last)


def _check_flags(options: argparse.Namespace) -> None:
    """Refuses the flag of the other family, and several products of factors."""
    family, other, flag, is_set = (
        ("kron", "ksparse", "--batch-last", options.batch_last)
        if options.family == "kron"
        else ("ksparse", "kron", "--left", options.left)
    )
    if is_set:
        raise ArgumentError(
            mismatch(
                f"flags of {family}",
                expected=f"no {flag}, which is of {other}",
                got=flag,
                hint="leave it out",
            )
        )
    if options.family == "kron" and len(options.shape) > 1:
        raise ArgumentError(
            mismatch(
                "shape of kron",
                expected="one, of all factors",
                got=" ".join(options.shape),
                hint=f"join them by commas: {','.join(options.shape)}",
            )
        )


def factors_of(text: str) -> list[tuple[int, int]]:
    """Factors as they are written on the command line: `8x5,3` is 8 x 5 and 3 x 3, and `8^4` is
    four of 8 x 8."""
    found = [_FACTOR.fullmatch(item) for item in text.split(",")]
    factors: list[tuple[int, int]] = []
    for item in found:
        if item is None:
            raise ArgumentError(
                mismatch(
                    "shape", expected="factors as 8x8,8x5 or 8^3,5", got=text, hint="see --help"
                )
            )
        rows, columns, count = item.groups()
        factors += [(int(rows), int(columns or rows))] * int(count or 1)
    return factors


def integers(text: str) -> tuple[int, ...]:
    """The integers of a pattern as it is written on the command line."""
    if not re.fullmatch(r"\d+(,\d+)*", text):
        raise ArgumentError(
            mismatch("shape", expected="a pattern as 6,64,64,1", got=text, hint="see --help")
        )
    return tuple(map(int, text.split(",")))
