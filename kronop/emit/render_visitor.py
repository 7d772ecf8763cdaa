"""Visitor trees as C++: a functor of straight-line statements."""

from __future__ import annotations

from kronop.descriptions.visitor import ACCUMULATOR, Result, VisitorEpilogue

_REDUCTIONS = {"sum": "kronop::Sum", "max": "kronop::Maximum"}
_AXES = {"row": "kronop::Axis::kRow", "column": "kronop::Axis::kColumn"}


def visitor_functor(epilogue: VisitorEpilogue) -> list[str]:
    """The tree as a struct: its scalars, and a call operator, which reads operands from and writes
    results to its second argument."""
    tree = epilogue.tree
    operands = [epilogue.element_of(item).cxx for item in tree.tensors]
    results = [_kept(epilogue, item) for item in tree.results]
    return [
        f"struct Epilogue : kronop::Visitor<{epilogue.element_compute.cxx},"
        f" kronop::Types<{', '.join(operands)}>, kronop::Types<{', '.join(results)}>> {{",
        *_scalars(len(tree.scalars)),
        "  template <class At>",
        "  KRONOP_INLINE void operator()(Compute accumulator, const At& at) const {",
        *(f"    {line}" for line in _statements(epilogue)),
        "  }",
        "};",
    ]


def _kept(epilogue: VisitorEpilogue, item: Result) -> str:
    """The element type of a result in memory, or the reduction of its rows or columns."""
    if not item.axis:
        return epilogue.element_of(item).cxx
    return f"kronop::Reduced<{_REDUCTIONS[item.reduction]}, {_AXES[item.axis]}>"


def _scalars(count: int) -> list[str]:
    """Members for the scalars, and the constructor."""
    names = [_scalar(place) for place in range(count)]
    made = ", ".join(f"{name}(Compute(scalars[{place}]))" for place, name in enumerate(names))
    return [
        *([f"  Compute {', '.join(names)};"] if names else []),
        "  template <class Scalar>",
        f"  KRONOP_INLINE explicit Epilogue(const Scalar*{' scalars' if names else ''})"
        f"{f' : {made}' if names else ''} {{}}",
    ]


def _statements(epilogue: VisitorEpilogue) -> list[str]:
    tree = epilogue.tree
    # By index: functions' own names might be macros of some header.
    operands = {item.name: f"operand{place}" for place, item in enumerate(tree.tensors)}
    names = {name: _scalar(place) for place, name in enumerate(tree.scalars)} | operands
    names[ACCUMULATOR] = "accumulator"
    lines, values = tree.graph.statements("Compute", names, tree.graph.results)
    used = tree.graph.inputs
    return [
        *(
            f"const Compute {operands[item.name]} = at.operand({place});"
            for place, item in enumerate(tree.tensors)
            if item.name in used
        ),
        *lines,
        *(f"at.keep({place}, {value});" for place, value in enumerate(values)),
    ]


def _scalar(place: int) -> str:
    return f"scalar{place}"
