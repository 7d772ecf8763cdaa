"""That parameter structs in headers are laid out as the signatures that fill them say."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterable
from pathlib import Path

from kronop.artifacts import Block, KernelSignature, Source
from kronop.emit.plan import Plan
from kronop.emit.render import render

_STRUCT = re.compile(r"struct (?:alignas\(\w+\) )?(\w+Parameters) \{")


def static_asserts(signature: KernelSignature, struct_type: str) -> str:
    """C++20 lines that hold a struct to a signature.

    Designated initialisers must name members in their order; with that and each member's size and
    alignment the layout is settled. (NVRTC 13.0 has no offsetof.)
    """
    order = ", ".join(f".{item.name} = {{}}" for item in signature.fields)
    conditions = [f"sizeof({struct_type}{{{order}}}) == {signature.size}"]
    for item in signature.fields:
        size = item.nbytes if isinstance(item, Block) else 8 * item.count
        conditions.append(f"sizeof({struct_type}::{item.name}) == {size}")
        if isinstance(item, Block):
            conditions.append(f"alignof(decltype({struct_type}::{item.name})) == {item.align}")
    return "\n".join(
        textwrap.fill(f"static_assert({line});", 100, subsequent_indent="    ")
        for line in conditions
    )


def unit(plans: Iterable[Plan], entry: str) -> Source:
    """What compiles where every parameter struct of the plans is right; `entry` is the kernel that
    compilers want. Structs are checked once for each choice of their template's arguments."""
    headers, checks, sources = set(), {}, set()
    for plan in plans:
        sources.update(render(plan))
        for step in plan.steps:
            made = step.design.instantiation(plan.target)
            headers.add(made.header)
            checks[made.parameters, step.design.signature] = None
    lines = [f'#include "{header}"' for header in sorted(headers)]
    for index, (parameters, signature) in enumerate(checks):
        lines += [f"using P{index} = {parameters};", static_asserts(signature, f"P{index}")]
    return Source(
        entry="abi",
        text="\n".join([*lines, entry, ""]),
        language=next(iter(sources)).language,
        include_directories=_union(source.include_directories for source in sources),
        options=_union(source.options for source in sources),
    )


def _union(rows: Iterable[tuple[str, ...]]) -> tuple[str, ...]:
    return tuple(sorted(set().union(*rows)))


def structs(folder: Path) -> set[str]:
    """Names of the parameter structs that headers in a folder have."""
    files = [path for path in folder.rglob("*") if path.suffix in (".cuh", ".hpp")]
    return {name for path in files for name in _STRUCT.findall(path.read_text())}
