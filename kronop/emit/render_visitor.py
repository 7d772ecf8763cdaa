"""Visitor trees as C++: a functor of straight-line statements."""

from __future__ import annotations

from kronop.descriptions.visitor import Result, VisitorEpilogue

_REDUCTIONS = {"sum": "kronop::Sum", "max": "kronop::Maximum"}
_AXES = {"row": "kronop::Axis::kRow", "column": "kronop::Axis::kColumn"}


def visitor_functor(epilogue: VisitorEpilogue) -> list[str]:
    """The tree as a struct: its scalars, and one call operator, which reads operands and keeps
    results where its second argument says."""
    tree = epilogue.tree
    operands = [epilogue.element_of(item).cxx for item in tree.tensors]
    results = [_kept(epilogue, item) for item in tree.results]
    return [
        f"struct Epilogue : kronop::Visitor<{epilogue.element_compute.cxx},"
        f" kronop::Types<{', '.join(operands)}>, kronop::Types<{', '.join(results)}>> {{",
        *_scalars(tree.scalars),
        "  template <class At>",
        "  KRONOP_INLINE void operator()(Compute accumulator, const At& at) const {",
        *(f"    {line}" for line in _statements(epilogue)),
        "  }",
        "};",
    ]


def _kept(epilogue: VisitorEpilogue, item: Result) -> str:
    """The type of a result in memory, or what is done with its rows or columns."""
    if not item.axis:
        return epilogue.element_of(item).cxx
    return f"kronop::Reduced<{_REDUCTIONS[item.reduction]}, {_AXES[item.axis]}>"


def _scalars(names: tuple[str, ...]) -> list[str]:
    """Members for the scalars, and the constructor."""
    made = ", ".join(f"{name}(Compute(scalars[{place}]))" for place, name in enumerate(names))
    return [
        *([f"  Compute {', '.join(names)};"] if names else []),
        "  template <class Scalar>",
        f"  KRONOP_INLINE explicit Epilogue(const Scalar*{' scalars' if names else ''})"
        f"{f' : {made}' if names else ''} {{}}",
    ]


def _statements(epilogue: VisitorEpilogue) -> list[str]:
    tree, lines = epilogue.tree, []
    written = [*tree.values, *(item.value for item in tree.results)]
    used = set().union(*(item.inputs for item in written))
    for place, operand in enumerate(tree.tensors):
        if operand.name in used:
            lines.append(f"const Compute {operand.name} = at.operand({place});")
    # What is used repeatedly is a value of the tree already.
    for place, value in enumerate(tree.values):
        lines.append(f"const Compute v{place} = {value.text('Compute')};")
    for place, result in enumerate(tree.results):
        lines.append(f"at.keep({place}, {result.value.text('Compute')});")
    return lines
