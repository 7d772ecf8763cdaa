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
from kronop.errors import DescriptionError, shown


@functools.lru_cache(maxsize=256)
def from_text(text: str) -> VisitorTree:
    """The tree whose `text` it is.

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
            "the text of a visitor tree",
            expected="operands, a graph and results, as kronop writes them",
            got=f"{shown(text)} ({error})",
            hint="trace or export the program again, with this version of kronop",
        ) from error
