"""Writing a kernel down: its terms and values are collected, and become a form with values."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from kronop.descriptions.expression import Expression, apply, variable
from kronop.descriptions.graph import Graph
from kronop.families.distance.form import POWERS, Bound, Form, Term, TermKind, sum_of, value_of

# Powers from the first to below the second are summed up as they are: differences from 2^-7 to 2^8
# have 16th powers in float32.
_LEAST_ORDINARY, _MOST_ORDINARY = 1 / 16, 16


class _Held:
    """Values that calls bring, each once, with their names in messages."""

    def __init__(self) -> None:
        self.every: list[Any] = []
        self.names: list[str] = []

    def place(self, name: str, value: Any) -> int:
        """The index of a value, which is added if it is new."""
        for index, known in enumerate(self.every):
            if known is value:
                return index
        return self.add(name, value)

    def add(self, name: str, value: Any) -> int:
        self.every.append(value)
        self.names.append(name)
        return len(self.every) - 1


class Builder:
    """Collects the terms and values of a kernel while it is written down.

    Args:
        batch_dims: the number of leading dimensions of both operands, whichever has more. Where a
            value may have one element per feature, one with more dimensions than these does.
    """

    def __init__(self, batch_dims: int) -> None:
        self._batch_dims = batch_dims
        self._terms: list[tuple[int, int, int]] = []
        self._values, self._vectors = _Held(), _Held()

    def term(self, kind: TermKind, power: int = -1, vector: int = -1) -> Expression:
        """The sum of that kind; the same one if it is asked for twice."""
        wanted = (int(kind), power, vector)
        if wanted not in self._terms:
            self._terms.append(wanted)
        return variable(sum_of(self._terms.index(wanted)))

    def sum_of_powers(self, name: str, p: Any) -> Expression:
        """The sum of |d|^p for a number or tensor p, with no logarithm where none is needed."""
        if not hasattr(p, "shape") and p in POWERS:
            return self.term(POWERS[p])
        return self.term(TermKind.General, self._power(name, p))

    def norm(self, name: str, p: Any) -> Expression:
        """|d|_p, the p-th root of that sum. The largest |d| is factored out unless p is known to be
        one whose powers are seldom out of range."""
        if not hasattr(p, "shape") and p in POWERS:
            total = self.sum_of_powers(name, p)
            if p in (0, 1, math.inf):
                return total
            return apply("sqrt", total) if p == 2 else apply("power", total, 1 / float(p))
        at = self._power(name, p)
        root = apply("divide", 1.0, variable(value_of(at)))
        if _are_ordinary(p):
            return apply("power", self.sum_of_powers(name, p), root)
        total = self.term(TermKind.Relative, at)
        return self.term(TermKind.Largest) * apply("power", total, root)

    def _power(self, name: str, p: Any) -> int:
        return self._values.place(name, p)

    def value(self, name: str, value: Any) -> Expression:
        """A value that each call brings, of that name in messages."""
        return variable(value_of(self._values.place(name, value)))

    def vector(self, name: str, value: Any) -> int:
        """The index of a vector of one value per feature, or of a number or array for all."""
        return self._vectors.place(name, value)

    def _of_features(self, value: Any) -> Any:
        return value if self.is_vector(value) else np.asarray(value)[..., None]

    def is_vector(self, value: Any) -> bool:
        """Whether the value has one element per feature."""
        return len(getattr(value, "shape", ())) > self._batch_dims

    def finish(self, expression: Expression, regularization: Any = None) -> Bound:
        """The form of what was collected, with its values.

        Args:
            regularization: what is added on the diagonal; None for nothing.
        """
        if regularization is not None:
            self._values.add("regularization", regularization)
        form = Form(
            terms=tuple(
                Term(kind=TermKind(kind), value=value, vector=vector)
                for kind, value, vector in self._terms
            ),
            expression=Graph.of(expression),
            values=len(self._values.every),
            vectors=len(self._vectors.every),
            regularized=regularization is not None,
        )
        return Bound(
            form=form,
            values=tuple(self._values.every),
            vectors=tuple([self._of_features(value) for value in self._vectors.every]),
            names=tuple(self._values.names + self._vectors.names),
        )


def _are_ordinary(p: Any) -> bool:
    """Whether a number, or all of an array, are known to be ordinary powers."""
    if isinstance(p, np.ndarray):
        return bool(((p >= _LEAST_ORDINARY) & (p < _MOST_ORDINARY)).all())
    return not hasattr(p, "shape") and _LEAST_ORDINARY <= p < _MOST_ORDINARY
