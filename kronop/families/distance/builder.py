"""Writing a kernel down: its terms and values are collected, and become a form with values."""

from __future__ import annotations

from typing import Any

from kronop.descriptions.expression import Expression, variable
from kronop.descriptions.graph import Graph
from kronop.errors import ArgumentError, mismatch
from kronop.families.distance.form import POWERS, Bound, Form, Term, TermKind, sum_of, value_of


class _Held:
    """Values that calls bring, each once, with their names in messages."""

    def __init__(self) -> None:
        self.every: list[Any] = []
        self.names: list[str] = []

    def place(self, name: str, value: Any, most: int) -> int:
        """The index of a value of at most so many dimensions, which is added if it is new."""
        for index, known in enumerate(self.every):
            if known is value:
                return index
        _check_dims(name, value, most)
        return self.add(name, value)

    def add(self, name: str, value: Any) -> int:
        self.every.append(value)
        self.names.append(name)
        return len(self.every) - 1


class Builder:
    """Collects the terms and values of a kernel while it is written down.

    Args:
        batch_dims: the number of leading dimensions of both operands, whichever has more. A value
            with more dimensions has one element per feature.
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

    def power_of(self, name: str, p: Any) -> tuple[Expression, Expression | float]:
        """(the sum of |d|^p, 1/p) for a number or tensor p, with no logarithm where none is
        needed."""
        kind = None if hasattr(p, "shape") else POWERS.get(float(p))
        if kind is not None:
            return self.term(kind), 1 / float(p) if p else 1.0
        at = self._values.place(name, p, self._batch_dims)
        one: Expression = Expression("constant", (1.0,))
        root = Expression("divide", (one, variable(value_of(at))))
        return self.term(TermKind.General, at), root

    def value(self, name: str, value: Any) -> Expression:
        """A value that each call brings, of that name in messages.

        Raises:
            ArgumentError: it has more dimensions than the points have leading ones.
        """
        at = self._values.place(name, value, self._batch_dims)
        return variable(value_of(at))

    def vector(self, name: str, value: Any) -> int:
        """The index of a vector of one value per feature.

        Raises:
            ArgumentError: it has more dimensions than that and the points' leading ones.
        """
        return self._vectors.place(name, value, self._batch_dims + 1)

    def is_vector(self, value: Any) -> bool:
        """Whether the value has one element per feature."""
        return len(getattr(value, "shape", ())) > self._batch_dims

    def finish(self, expression: Expression, regularization: Any = None) -> Bound:
        """The form of what was collected, with its values.

        Args:
            regularization: what is added on the diagonal; None for nothing.
        """
        if regularization is not None:
            _check_dims("regularization", regularization, self._batch_dims)
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
            vectors=tuple(self._vectors.every),
            names=tuple(self._values.names + self._vectors.names),
        )


def _check_dims(name: str, value: Any, most: int) -> None:
    """Refuses a value of more dimensions: it would make the result as many times as large."""
    shape = getattr(value, "shape", ())
    if len(shape) > most:
        more = "; noise of each point is added to the diagonal of the result"
        raise ArgumentError(
            mismatch(
                name,
                expected=f"at most {most} dimensions beside these points",
                got=f"shape {tuple(shape)}",
                hint="for a result of each value, pass x1[None] and x2[None]"
                + (more if name == "regularization" else ""),
            )
        )
