"""A kernel that is the sum of any one kind of terms: one compiled form shows all kinds."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import numpy as np

from kronop.descriptions.expression import apply, variable
from kronop.descriptions.graph import Graph
from kronop.families.distance.form import (
    GENERAL_POWERS,
    Bound,
    Form,
    Term,
    TermKind,
    sum_of,
    value_of,
)
from kronop.families.distance.kernels import Kernel

_K = TermKind
# In two forms, since the sums of all kinds would take more registers than a GPU has.
KINDS = (
    (_K.Zero, _K.Half, _K.One, _K.ThreeHalves, _K.Two, _K.FiveHalves, _K.Three, _K.Four),
    (_K.General, _K.Infinity, _K.Largest, _K.Relative, _K.Dot, _K.NormA, _K.NormB),
)
_POWER = 1.5


class OneOf(Kernel):
    """The sum of terms of a kind, among `kinds`: the others are raised to the power of 0, which is
    1, also of NaN."""

    def __init__(self, kinds: Sequence[TermKind], kind: TermKind) -> None:
        self._kinds, self._kind = tuple(kinds), kind

    def bound(self, batch_dims: int = 0, regularization: Any = None) -> Bound:
        chosen = [float(kind is self._kind) for kind in self._kinds]
        return Bound(form=form_of(self._kinds), values=(_POWER, *chosen), vectors=())


@functools.cache
def form_of(kinds: tuple[TermKind, ...]) -> Form:
    terms = [Term(kind=kind, value=0 if kind in GENERAL_POWERS else -1) for kind in kinds]
    places = range(len(kinds))
    powers = [apply("power", variable(sum_of(at)), variable(value_of(at + 1))) for at in places]
    total = functools.reduce(lambda a, b: a + b, powers)
    return Form(terms=tuple(terms), expression=Graph.of(total), values=len(kinds) + 1)


def nan_of(kind: TermKind, shape: tuple[int, int], row: int, column: int) -> Any:
    """Where a matrix is NaN if point `row` of x1 and point `column` of x2 are."""
    is_nan = np.zeros(shape, bool)
    is_nan[row] = kind is not _K.NormB
    is_nan[:, column] |= kind is not _K.NormA
    return is_nan
