"""What pairs of points take at least: the operations that floors and cost models count."""

from __future__ import annotations

import dataclasses
from collections import Counter

from kronop.descriptions.expression import variable
from kronop.descriptions.graph import Graph
from kronop.emit.pipes import Work
from kronop.families.distance.form import Form, Term, TermKind, sum_of
from kronop.families.distance.gradient_size import GradientSize
from kronop.families.distance.product_size import KernelMatmulSize
from kronop.families.distance.size import DistanceSize

# From so many columns on, sums over pairs count as matrix products: those of tensor cores have no
# fewer.
LEAST_PRODUCTS = 8

# For each kind of term and each feature of a pair: additions, multiplications and multiply-adds
# (the difference and the sum are among them), square roots, logarithms, exponentials.
_TERMS = {
    TermKind.Zero: (2, 0, 0, 0),
    TermKind.Half: (2, 1, 0, 0),
    TermKind.One: (2, 0, 0, 0),
    TermKind.ThreeHalves: (2, 1, 0, 0),
    TermKind.Two: (2, 0, 0, 0),
    TermKind.FiveHalves: (3, 1, 0, 0),
    TermKind.Three: (3, 0, 0, 0),
    TermKind.Four: (3, 0, 0, 0),
    TermKind.General: (3, 0, 1, 1),
    TermKind.Infinity: (2, 0, 0, 0),
    TermKind.Largest: (2, 0, 0, 0),
    TermKind.Relative: (4, 0, 1, 1),
}
# Terms that need |d|. A GPU's additions take it for nothing; on a CPU it is one more operation.
_OF_MAGNITUDE = frozenset(_TERMS) - {TermKind.Zero, TermKind.Two, TermKind.Four}
# The same for a node of the expression, once for each pair.
_NODES = {
    "sqrt": (0, 1, 0, 0),
    "exp": (1, 0, 0, 1),
    "times_log": (1, 0, 1, 0),
    "fade": (2, 0, 0, 0),
    "power": (1, 0, 1, 1),
}
# Arithmetic that replaces a square root, a logarithm and an exponential where no unit computes
# them: an estimate with Newton's steps, and polynomials of the type's accuracy.
_REPLACED = {"float32": (6, 11, 10), "float64": (9, 16, 15)}


def work_of_pairs(
    form: Form, pairs: int, features: int, *, sums: str, units: bool, expanded: bool = False
) -> Work:
    """The work of the kernel of so many pairs of points, without its bytes.

    Args:
        sums: the type of sums, float32 or float64.
        units: whether special function units take part: those of a GPU, which are for float32.
        expanded: squared distances are matrix products.
    """
    counted = [0.0, 0.0, 0.0, 0.0]
    products = 0
    for term in form.terms:
        if term.kind is TermKind.Dot or (expanded and term.kind is TermKind.Two):
            products += pairs * features
        for index, count in enumerate(_of_term(term.kind, expanded, units)):
            counted[index] += count * pairs * features
    for operation, times in _operations(form.expression).items():
        for index, count in enumerate(_NODES.get(operation, (1, 0, 0, 0))):
            counted[index] += count * times * pairs
    arithmetic, roots, logarithms, exponentials = counted
    if units:
        special = roots + logarithms + exponentials
        return Work(arithmetic=arithmetic, special=special, movable=exponentials, products=products)
    root, logarithm, exponential = _REPLACED[sums]
    replaced = root * roots + logarithm * logarithms + exponential * exponentials
    return Work(arithmetic=arithmetic + replaced, products=products)


def work_of_matrix(
    form: Form,
    size: DistanceSize,
    *,
    element: int,
    sums: str,
    units: bool,
    expanded: bool = False,
    symmetric: bool = False,
) -> Work:
    """The work of all pairs of a kernel matrix; see `work_of_pairs`.

    Args:
        element: bytes of an element of the points and of the result.
        symmetric: points are compared with themselves, so that each pair counts once.
    """
    m, n, k = size.m, size.n, size.k
    pairs, points = (m * (m + 1) // 2, m) if symmetric else (m * n, m + n)
    work = work_of_pairs(form, size.batch * pairs, k, sums=sums, units=units, expanded=expanded)
    return dataclasses.replace(work, bytes=size.batch * element * (m * n + points * k))


def work_of_matmul(
    form: Form, size: KernelMatmulSize, *, element: int, sums: str, units: bool, expanded: bool
) -> Work:
    """The work of a kernel matrix times columns; arguments as for `work_of_matrix`."""
    m, n, k, c = size.m, size.n, size.k, size.c
    pairs = size.batch * m * n
    work = work_of_pairs(form, pairs, k, sums=sums, units=units, expanded=expanded)
    few = c < LEAST_PRODUCTS
    return dataclasses.replace(
        work,
        arithmetic=work.arithmetic + few * pairs * c,
        products=work.products + (not few) * pairs * c,
        bytes=size.batch * element * ((m + n) * k + (m + n) * c),
    )


def work_of_gradient(
    slope: TermKind,
    size: GradientSize,
    *,
    element: int,
    sums: str,
    units: bool,
    expanded: bool = False,
) -> Work:
    """The work of sums of coefficients times derivatives; arguments as for `work_of_matrix`.

    Args:
        slope: the kind of the derivative's size, |t|^(p - 1).
        expanded: differences are multiplied out: D o (C A) - (C o B) A, two matrix products.
    """
    o, n, k, m = size.o, size.n, size.k, size.m
    moved = size.batch * element * (k * m + n * k + o * k + n * m + o * n * m)
    if expanded:
        return Work(products=size.batch * o * (n + 1) * k * m, bytes=moved)
    pairs = size.batch * n * k * m
    # The difference and its power; then its product with A, in place of the norm's addition.
    form = Form(terms=(Term(kind=slope),), expression=Graph.of(variable(sum_of(0))))
    power = work_of_pairs(form, pairs, 1, sums=sums, units=units)
    few = o < LEAST_PRODUCTS
    return dataclasses.replace(
        power,
        arithmetic=power.arithmetic + few * o * pairs,
        products=(not few) * o * pairs,
        bytes=moved,
    )


def _of_term(kind: TermKind, expanded: bool, units: bool) -> tuple[int, int, int, int]:
    if kind not in _TERMS or (expanded and kind is TermKind.Two):
        return 0, 0, 0, 0
    arithmetic, *others = _TERMS[kind]
    roots, logarithms, exponentials = others
    return arithmetic + (kind in _OF_MAGNITUDE and not units), roots, logarithms, exponentials


def _operations(expression: Graph) -> Counter[str]:
    """How often each operation is computed for a pair.

    What has no sums is computed once for all pairs. Factors of a factor, and those of an exponent,
    become one.
    """
    found: Counter[str] = Counter()
    seen: set[int] = set()
    has_sums = _has_sums(expression)
    left = [(at, False) for at in expression.results]
    while left:
        place, absorbs = left.pop()
        if place in seen or not has_sums[place]:
            continue
        seen.add(place)
        operation, *operands = expression.rows[place]
        if operation == "input":
            continue
        scales = operation in ("multiply", "divide") and not all(has_sums[at] for at in operands)
        found[operation] += not (scales and absorbs)
        left += [(at, scales or operation == "exp") for at in reversed(operands)]
    return found


def _has_sums(expression: Graph) -> list[bool]:
    """Whether each row depends on sums over features."""
    found: list[bool] = []
    for operation, *operands in expression.rows:
        if operation == "input":
            found.append(operands[0].startswith("s["))
        else:
            found.append(operation != "constant" and any(found[at] for at in operands))
    return found
