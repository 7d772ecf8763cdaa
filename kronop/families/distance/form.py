"""The form of a kernel function: what of it is compiled, without its values.

    kernel(x1[m], x2[n]) = expression(s_0, s_1, ...; h_0, h_1, ...)
    s_i[m, n] = sum, or maximum, over k of term_i(x1[m, k], x2[n, k])

The s are `Term`s, one of each kind that the expression needs. The h are values that each call
brings: powers, bandwidths, scales. Most terms are of d = x1[m, k] - x2[n, k], which may be divided
by a vector's element k first, as for one bandwidth per feature.
"""

from __future__ import annotations

import enum
import functools
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace  # torch.compile can trace its constructors.
from typing import Any

import numpy as np

from kronop.artifacts import Decision
from kronop.descriptions.graph import Graph
from kronop.errors import DescriptionError, shown


class TermKind(enum.IntEnum):
    """What is summed over features. The numbers are those of `kronop::TermKind` in C++."""

    Zero = 0  # 1 where d is not 0
    Half = 1  # |d|^0.5
    One = 2
    ThreeHalves = 3
    Two = 4
    FiveHalves = 5
    Three = 6
    Four = 7
    General = 8  # |d|^h
    Infinity = 9  # max |d|
    Dot = 10  # x1 x2
    NormA = 11  # x1^2
    NormB = 12  # x2^2
    Largest = 13  # max |d|, the one that Relative terms are relative to
    Relative = 14  # (|d| / max |d|)^h


# Powers that need no logarithm, and the kinds of their terms.
POWERS: Mapping[float, TermKind] = {
    0.0: TermKind.Zero,
    0.5: TermKind.Half,
    1.0: TermKind.One,
    1.5: TermKind.ThreeHalves,
    2.0: TermKind.Two,
    2.5: TermKind.FiveHalves,
    3.0: TermKind.Three,
    4.0: TermKind.Four,
    float("inf"): TermKind.Infinity,
}
# Terms that take a logarithm and an exponential, of a power that each call brings.
GENERAL_POWERS = (TermKind.General, TermKind.Relative)
_PRODUCTS = (TermKind.Dot, TermKind.NormA, TermKind.NormB)


@dataclass(frozen=True, kw_only=True)
class Term(Decision):
    """One sum over features.

    Attributes:
        kind: what is summed.
        value: the index of the power among the values; -1 unless `kind` is General or Relative.
        vector: the index of the vector that d is divided by; -1 for none.
    """

    kind: TermKind
    value: int = -1
    vector: int = -1

    def is_one(self, values: int, vectors: int) -> bool:
        """Whether it is one of a form with so many values and vectors."""
        is_general = self.kind in GENERAL_POWERS
        is_known = isinstance(self.kind, TermKind) and is_general == (self.value != -1)
        return is_known and _is_index(self.value, values) and _is_index(self.vector, vectors)

    def of(self, a: Any, b: Any, values: Sequence[Any], vectors: Sequence[Any]) -> Any:
        """The sums of NumPy arrays a (..., M, K) and b (..., N, K): (..., M, N)."""
        a, b = a[..., :, None, :], b[..., None, :, :]
        if self.kind in _PRODUCTS:
            first, second = {
                TermKind.Dot: (a, b),
                TermKind.NormA: (a, a),
                TermKind.NormB: (b, b),
            }[self.kind]
            whole = np.broadcast_shapes(a.shape, b.shape)
            return np.broadcast_to(first * second, whole).sum(-1)
        d = np.abs(a - b)
        if self.vector >= 0:
            d = d / np.asarray(vectors[self.vector])[..., None, None, :]
        if self.kind in (TermKind.Infinity, TermKind.Largest):
            return d.max(-1, initial=0)
        if self.kind is TermKind.Zero:
            return np.where(np.isnan(d), d, d != 0).sum(-1, dtype=d.dtype)
        if self.kind is TermKind.Relative:
            largest = d.max(-1, initial=0, keepdims=True)
            d = d / np.where((largest > 0) & np.isfinite(largest), largest, 1)
        if self.kind in GENERAL_POWERS:
            return (d ** np.asarray(values[self.value])[..., None, None, None]).sum(-1)
        power = next(power for power, kind in POWERS.items() if kind is self.kind)
        return (d**power).sum(-1)


@dataclass(frozen=True, kw_only=True)
class Form(Decision):
    """A kernel function without its values.

    Attributes:
        terms: the sums over features, all different; with a Relative one there is a Largest one.
        expression: the kernel of them: its inputs are `s[i]` for sums and `h[j]` for values.
        values: how many values a call brings.
        vectors: how many vectors of one value per feature it brings.
        regularized: whether the last value is added where m + diagonal = n.
    """

    terms: tuple[Term, ...]
    expression: Graph
    values: int = 0
    vectors: int = 0
    regularized: bool = False

    def check(self) -> None:
        """Raises DescriptionError unless all of it fits together: a form may be made by hand."""
        if not isinstance(self.terms, tuple) or not self.terms:
            raise _refused(f"the terms {shown(self.terms)}")
        plain = (type(self.values), type(self.vectors), type(self.regularized))
        if plain != (int, int, bool) or self.values < self.regularized:
            raise _refused(f"{shown(self.values)} values and {shown(self.vectors)} vectors")
        for term in self.terms:
            if not isinstance(term, Term) or not term.is_one(self.values, self.vectors):
                raise _refused(f"{shown(term)} of {self.values} values and {self.vectors} vectors")
        kinds = {term.kind for term in self.terms}
        if TermKind.Relative in kinds and TermKind.Largest not in kinds:
            raise _refused("a Relative term without a Largest one")
        if not isinstance(self.expression, Graph):
            raise _refused(f"the expression {shown(self.expression)}")
        self.expression.check(
            [sum_of(index) for index in range(len(self.terms))]
            + [value_of(index) for index in range(self.values)]
        )

    def evaluate(
        self,
        a: Any,
        b: Any,
        values: Sequence[Any] = (),
        vectors: Sequence[Any] = (),
        diagonal: int = 0,
    ) -> Any:
        """The kernel matrix (..., M, N) of NumPy arrays (..., M, K) and (..., N, K), in their type.

        Values and vectors are as `Bound` holds them, with the batch's dimensions first.
        """
        sums = [term.of(a, b, values, vectors) for term in self.terms]
        inputs = {sum_of(index): item for index, item in enumerate(sums)}
        inputs |= {
            value_of(index): np.asarray(item)[..., None, None] for index, item in enumerate(values)
        }
        with np.errstate(divide="ignore", invalid="ignore"):
            matrix = self.expression.evaluate(inputs)
        whole = np.broadcast_shapes(np.shape(matrix), sums[0].shape)
        if not self.regularized:
            return np.broadcast_to(matrix, whole)
        rows, columns = whole[-2:]
        is_diagonal = np.arange(rows)[:, None] + diagonal == np.arange(columns)
        return matrix + np.asarray(values[-1])[..., None, None] * is_diagonal

    def with_expression(self, expression: Graph) -> tuple[Form, tuple[int, ...], tuple[int, ...]]:
        """(the form of another expression of the same sums and values, without those that it does
        not read; the indices of the values that are left; those of the vectors)."""
        inputs = expression.inputs
        kinds = [item.kind for item in self.terms]
        terms = [index for index in range(len(kinds)) if sum_of(index) in inputs]
        if any(kinds[index] is TermKind.Relative for index in terms):
            terms = sorted({*terms, kinds.index(TermKind.Largest)})
        # A form has a sum in any case: its features say how many there are.
        terms = terms or [0]
        powers = {self.terms[index].value for index in terms}
        values = [
            index for index in range(self.values) if value_of(index) in inputs or index in powers
        ]
        vectors = sorted({self.terms[index].vector for index in terms} - {-1})
        renamed = {sum_of(old): sum_of(new) for new, old in enumerate(terms)}
        renamed |= {value_of(old): value_of(new) for new, old in enumerate(values)}
        form = Form(
            terms=tuple(
                Term(
                    kind=item.kind,
                    value=values.index(item.value) if item.value >= 0 else -1,
                    vector=vectors.index(item.vector) if item.vector >= 0 else -1,
                )
                for item in map(self.terms.__getitem__, terms)
            ),
            expression=expression.renamed(renamed),
            values=len(values),
            vectors=len(vectors),
        )
        return form, tuple(values), tuple(vectors)

    def turned(self) -> Form:
        """The form of the transposed matrix: the points have changed places."""
        other = {TermKind.NormA: TermKind.NormB, TermKind.NormB: TermKind.NormA}
        terms = [replace(item, kind=other.get(item.kind, item.kind)) for item in self.terms]
        return replace(self, terms=tuple(terms))

    def text(self) -> str:
        """The form as text, for `from_text`."""
        terms = ",".join([f"[{int(item.kind)},{item.value},{item.vector}]" for item in self.terms])
        flag = "true" if self.regularized else "false"
        return f"[[{terms}],{self.expression.text()},{self.values},{self.vectors},{flag}]"

    @classmethod
    @functools.lru_cache(maxsize=256)
    def from_text(cls, text: str) -> Form:
        """The form of `text`.

        Raises:
            DescriptionError: it is not the text of a form.
        """
        try:
            terms, expression, values, vectors, regularized = json.loads(text)
            form = cls(
                terms=tuple(
                    Term(kind=TermKind(kind), value=value, vector=vector)
                    for kind, value, vector in terms
                ),
                expression=Graph.from_lists(expression),
                values=values,
                vectors=vectors,
                regularized=regularized,
            )
            form.check()
            return form
        except (ValueError, TypeError, RecursionError) as error:
            raise _refused(f"{shown(text)} ({error})") from error

    @property
    def operations(self) -> int:
        """Arithmetic operations per feature and pair, about."""
        return sum(2 if term.kind in (TermKind.One, TermKind.Two) else 3 for term in self.terms)


def _is_index(at: Any, count: int) -> bool:
    """Whether it is the index of one of so many, or -1."""
    return type(at) is int and -1 <= at < count


def _refused(got: str) -> DescriptionError:
    return DescriptionError(
        "the form of a kernel",
        expected="terms with the indices of its values and vectors, and an expression of them",
        got=got,
        hint="take that of a kernel: kernel.bound(batch_dims).form",
    )


def sum_of(index: int) -> str:
    """The name of a sum among the expression's inputs."""
    return f"s[{index}]"


def value_of(index: int) -> str:
    """The name of a value among the expression's inputs."""
    return f"h[{index}]"


@dataclass(frozen=True, kw_only=True)
class Bound:
    """A form with the values of one call: numbers or tensors, not looked into.

    Attributes:
        names: those of the values in order, then of the vectors, for messages; () if unknown.
    """

    form: Form
    values: tuple[Any, ...]
    vectors: tuple[Any, ...]
    names: tuple[str, ...] = ()
