"""Visitor trees as text, for graphs that are kept: of a compiled or an exported program.

The text is JSON without blanks,

    [[[name, kind], ...], graph, [[name, reduction, axis], ...]]

with operands, what is computed (`Graph.text`) and results. Equal trees have equal texts in every
process.
"""

from __future__ import annotations

import functools
import json

from kronop.descriptions.graph import Graph
from kronop.descriptions.visitor import Operand, Result, VisitorTree
from kronop.errors import DescriptionError, mismatch, shown


def to_text(tree: VisitorTree) -> str:
    operands = [[item.name, item.kind] for item in tree.operands]
    results = [[item.name, item.reduction, item.axis] for item in tree.results]
    first, last = (json.dumps(told, separators=(",", ":")) for told in (operands, results))
    return f"[{first},{tree.graph.text()},{last}]"


@functools.lru_cache(maxsize=256)
def from_text(text: str) -> VisitorTree:
    """The tree that `to_text` told.

    Raises:
        DescriptionError: it is not the text of a tree.
    """
    try:
        operands, graph, results = json.loads(text)
        return VisitorTree(
            operands=tuple(Operand(name, kind) for name, kind in operands),
            graph=Graph.from_lists(graph),
            results=tuple(Result(name, reduction, axis) for name, reduction, axis in results),
        )
    except (ValueError, TypeError, RecursionError) as error:
        raise DescriptionError(
            mismatch(
                "the text of a visitor tree",
                expected="operands, a graph and results, as kronop writes them",
                got=f"{shown(text)} ({error})",
                hint="trace or export the program again, with this version of kronop",
            )
        ) from error
