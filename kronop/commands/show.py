"""An operation seen from inside: its plan, source, PTX or assembly, machine code and resources."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from dataclasses import dataclass

from kronop import compiler
from kronop.artifacts import Binary, Resources, Source
from kronop.commands import family_options
from kronop.core.operation import AnyOperation
from kronop.descriptions.datatype import TENSOR_TYPES, result_type
from kronop.emit.plan import Plan
from kronop.emit.render import render
from kronop.errors import CompileError
from kronop.size import Rows, Size

EXAMPLES = {
    "show kron 8^5": "the plan for this CPU",
    "show kron 8^5 --target sm_90a": "for an H200, without one",
    "show ksparse 6,64,64,1 --view source": "what the compiler gets",
}
_ENDINGS = ("", " --target sm_90a")


def configure(parser: argparse.ArgumentParser) -> None:
    family_options.add(parser, family_options.examples_of("show", *_ENDINGS), _configure)


def _configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--target",
        default="x86",
        help="a GPU, as 80, sm_80 or cuda; x86, x86-avx2, arm64, ... (default x86)",
    )
    parser.add_argument(
        "--dtype", default="float32", choices=list(TENSOR_TYPES), help="(default float32)"
    )
    parser.add_argument(
        "--alignment",
        type=int,
        help="of the operands' rows and the result's, in elements (default: that of the shape)",
    )
    parser.add_argument(
        "--view", default="plan", choices=list(_SHOWN), help="what to print (default plan)"
    )


def execute(options: argparse.Namespace) -> None:
    family = family_options.chosen(options)
    size = family.size(options, options.shape)
    promised = 1 if options.alignment is None else options.alignment
    # Results that are wider than operands, as int8's are, have fewer in 16 bytes.
    widest = max(1, 16 // result_type(TENSOR_TYPES[options.dtype]).bytes)
    alignments = promised, min(promised, widest)
    operation = family_options.operation_of(options, family, alignments)
    if options.alignment is None:
        sizes = [Rows(1) if size is None else size]
        operation = family_options.aligned(operation, options, family, sizes)
    plan = operation.plan if size is None else _of_size(operation, size)
    print(_SHOWN[options.view](_Shown(plan, size)))


def _of_size(operation: AnyOperation, size: Size | int) -> Plan:
    """The plan for a size; if it is the planner's, with what that rejects for this size."""
    plan = operation.plan_for(size)
    return next((it for it in operation.candidates(1, size) if it.steps == plan.steps), plan)


@dataclass(frozen=True, slots=True)
class _Shown:
    """A plan, its sources, and its binaries, which are compiled when they are asked for.

    Attributes:
        size: that it is shown for; None if the user named none.
    """

    plan: Plan
    size: Size | int | None

    @property
    def sources(self) -> tuple[Source, ...]:
        return render(self.plan)

    @property
    def binaries(self) -> tuple[Binary, ...]:
        return compiler.compile_sources(self.sources, self.plan.target)


def _resources(shown: _Shown) -> str:
    return "\n".join(
        f"{binary.entry}: {_told(binary.resources)}{len(binary.image)} bytes as"
        f" {binary.format.value}, {binary.origin.value}, by {binary.compiler}"
        for binary in shown.binaries
    )


def _told(taken: Resources) -> str:
    """The resources that the compiler reports, in words; nothing of a CPU's, where it has none."""
    values = {
        "registers": taken.registers,
        "spilled bytes": taken.spill_bytes,
        "static shared bytes": taken.static_shared_bytes,
    }
    known = [f"{value} {name}" for name, value in values.items() if value is not None]
    unknown = [name for name, value in values.items() if value is None]
    if not known:
        return ""
    missing = [f"{' and '.join(unknown)} not told"] if unknown else []
    return "".join(f"{item}, " for item in (*known, *missing))


def _machine(shown: _Shown) -> str:
    texts = [compiler.disassemble(binary) for binary in shown.binaries]
    for text in texts:
        if "\n" not in text.strip():  # One line is the message that no disassembler was found.
            raise CompileError(f"machine code: {text.strip()}")
    return "\n".join(texts)


_SHOWN: dict[str, Callable[[_Shown], str]] = {
    "plan": lambda shown: shown.plan.explain(shown.size),
    "source": lambda shown: "\n".join(source.text for source in shown.sources),
    "assembly": lambda shown: "\n".join(
        compiler.assembly(source, shown.plan.target) for source in shown.sources
    ),
    "machine": _machine,
    "resources": _resources,
}
