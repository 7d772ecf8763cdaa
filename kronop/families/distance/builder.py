"""Writing a kernel down: its terms and values are collected, and become a form with values."""

from __future__ import annotations

from typing import Any

from kronop.descriptions.expression import Expression, variable
from kronop.families.distance.form import POWERS, Bound, Form, Term, TermKind, sum_of, value_of


class Builder:
    """Collects the terms and values of a kernel while it is written down.

    Args:
        batch_dims: the number of leading dimensions of both operands, whichever has more. Where a
            value may have one element per feature, one with more dimensions than these does.
    """

    def __init__(self, batch_dims: int) -> None:
        self._batch_dims = batch_dims
        self._terms: list[tuple[int, int, int]] = []
        self._values: list[tuple[str, Any]] = []
        self._vectors: list[tuple[str, Any]] = []

    def term(self, kind: TermKind, power: int = -1, vector: int = -1) -> Expression:
        """The sum of that kind; the same one if it is asked for twice."""
        wanted = (int(kind), power, vector)
        if wanted not in self._terms:
            self._terms.append(wanted)
        return variable(sum_of(self._terms.index(wanted)))

    def power_of(self, name: str, p: Any) -> tuple[Expression, Expression | float]:
        """(the sum of |d|^p, 1/p) for a number or tensor p, with no logarithm where none is
        needed."""
        kind = None if hasattr(p, "shape") else POWERS.get(float(p))
        if kind is not None:
            return self.term(kind), 1 / float(p) if p else 1.0
        at = self._place(self._values, name, p)
        one: Expression = Expression("constant", (1.0,))
        root = Expression("divide", (one, variable(value_of(at))))
        return self.term(TermKind.General, at), root

    def value(self, name: str, value: Any) -> Expression:
        """A value that each call brings, of that name in messages."""
        return variable(value_of(self._place(self._values, name, value)))

    def vector(self, name: str, value: Any) -> int:
        """The index of a vector of one value per feature."""
        return self._place(self._vectors, name, value)

    def _place(self, held: list[tuple[str, Any]], name: str, value: Any) -> int:
        """The index of a value among those that are held, to which it is added if it is new."""
        for index, (_, known) in enumerate(held):
            if known is value:
                return index
        held.append((name, value))
        return len(held) - 1

    def is_vector(self, value: Any) -> bool:
        """Whether the value has one element per feature."""
        return len(getattr(value, "shape", ())) > self._batch_dims

    def finish(self, expression: Expression, regularization: Any = None) -> Bound:
        """The form of what was collected, with its values.

        Args:
            regularization: what is added on the diagonal; None for nothing.
        """
        if regularization is not None:
            self._values.append(("regularization", regularization))
        form = Form(
            terms=tuple(
                Term(kind=TermKind(kind), value=value, vector=vector)
                for kind, value, vector in self._terms
            ),
            expression=expression,
            values=len(self._values),
            vectors=len(self._vectors),
            regularized=regularization is not None,
        )
        return Bound(
            form=form,
            values=tuple([value for _, value in self._values]),
            vectors=tuple([value for _, value in self._vectors]),
            names=tuple([name for name, _ in self._values + self._vectors]),
        )
