"""The values of a kernel as arguments of torch operators, and what derivatives of kernel matrices
share with those of their products: they go through all terms of the form, then all values."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from kronop.errors import ArgumentError
from kronop.families.distance.form import GENERAL_POWERS, Bound, Form, Term, TermKind
from kronop.families.distance.torch.sums import center_of
from kronop.families.distance.value_arguments import is_tensor, widths_in, with_bounded_powers
from kronop.torch.declaration import Named
from kronop.torch.scaling import added

# Stands for a tensor among the numbers.
_HELD = "t"


@dataclass(frozen=True)
class Values:
    """The values and vectors of a form as an operator's arguments.

    Values are a list of tensors and a string: torch.compile loses lists of numbers that are empty.

    Attributes:
        tensors: the values that are tensors, in order.
        numbers: all values as text, "t" for tensors, with commas between them.
        vectors: of one number per feature, all tensors.
    """

    tensors: list[Tensor]
    numbers: str
    vectors: list[Tensor]

    @classmethod
    def of(cls, bound: Bound, points: Tensor) -> Values:
        """Those of a call; arrays of NumPy become tensors beside the points."""
        values = with_bounded_powers(bound, max(4, points.dtype.itemsize))
        texts = [_HELD if is_tensor(item) else repr(float(item)) for item in values]
        tensors = [_tensor(item, points) for item in values if is_tensor(item)]
        widths = widths_in(str(_kind_of_sums(points))[6:], bound.vectors)
        return cls(tensors, ",".join(texts), [_tensor(item, points) for item in widths])

    @classmethod
    def given(cls, given: Named) -> Values:
        """Those among an operator's arguments."""
        return cls(list(given.values), given.numbers, list(given.vectors))

    @property
    def arguments(self) -> tuple[list[Tensor], str, list[Tensor]]:
        return self.tensors, self.numbers, self.vectors

    @property
    def slots(self) -> list[int]:
        """The indices of the tensors among all values."""
        return [index for index, text in enumerate(self.numbers.split(",")) if text == _HELD]

    @property
    def every(self) -> list[Any]:
        """All values, as numbers and tensors."""
        tensors = iter(self.tensors)
        texts = self.numbers.split(",") if self.numbers else []
        return [next(tensors) if text == _HELD else float(text) for text in texts]

    def some(self, kept: tuple[int, ...], kept_vectors: tuple[int, ...]) -> Values:
        """Those with these indices, which become 0, 1, ..."""
        every = [self.every[index] for index in kept]
        tensors = [item for item in every if is_tensor(item)]
        texts = [_HELD if is_tensor(item) else repr(item) for item in every]
        return Values(tensors, ",".join(texts), [self.vectors[index] for index in kept_vectors])

    def value(self, index: int) -> Tensor | float:
        """A value, as a number or as a tensor that broadcasts against matrices."""
        value = self.every[index]
        return value[..., None, None] if is_tensor(value) else value

    def bound(self, form: Form) -> Bound:
        return Bound(form=form, values=tuple(self.every), vectors=tuple(self.vectors))


def _tensor(item: object, points: Tensor) -> Tensor:
    """A tensor as it is, or an array as a tensor of the type that sums have."""
    if isinstance(item, Tensor):
        return item
    return torch.as_tensor(item, dtype=_kind_of_sums(points), device=points.device)


def _kind_of_sums(points: Tensor) -> torch.dtype:
    return torch.promote_types(points.dtype, torch.float32)


@dataclass(frozen=True)
class Scaled:
    """The points of a term, whose sums are those of the term without its vector.

    Attributes:
        x1, x2: the points, divided by the vector; at least float32 then.
        vector: what they are divided by, (..., 1, K); None if the term has no vector.
        dtype: the type that they had before.
    """

    x1: Tensor
    x2: Tensor
    vector: Any
    dtype: torch.dtype

    @classmethod
    def of(cls, term: Term, x1: Tensor, x2: Tensor, vectors: Sequence[Tensor]) -> Scaled:
        if term.vector < 0:
            return cls(x1, x2, None, x1.dtype)
        vector = vectors[term.vector].unsqueeze(-2)
        return cls(x1 / vector, x2 / vector, vector, x1.dtype)

    def needs(self, needs: Named, of_vector: bool) -> Named:
        """Which gradients in x1 and x2 `gradients` reads."""
        return Named(x1=needs.x1 or of_vector, x2=needs.x2 or of_vector)

    def gradients(self, found: Mapping[str, Tensor], needs: Named) -> dict[str, Tensor]:
        """The gradients in the points before they were divided, from those afterwards."""
        wanted = {name: item for name, item in found.items() if getattr(needs, name)}
        if self.vector is None:
            return wanted
        return {name: (item / self.vector).to(self.dtype) for name, item in wanted.items()}

    def of_vector(self, found: Mapping[str, Tensor]) -> Tensor | None:
        """The gradient in the vector, (..., K), from those in both points; None of none."""
        # The points may be moved together, as their differences count: there is less to cancel.
        center = center_of(self.x2)
        parts = [(item * (getattr(self, name) - center)).sum(-2) for name, item in found.items()]
        return -sum(parts[1:], parts[0]) / self.vector.squeeze(-2) if parts else None

    def tangents(
        self, of_x1: Tensor | None, of_x2: Tensor | None, of_vector: Tensor | None
    ) -> tuple[Tensor | None, Tensor | None]:
        """The tangents of x1 and x2, from those before they were divided and of the vector."""
        if self.vector is None:
            return of_x1, of_x2
        return self._tangent(self.x1, of_x1, of_vector), self._tangent(self.x2, of_x2, of_vector)

    def _tangent(
        self, points: Tensor, direction: Tensor | None, of_vector: Tensor | None
    ) -> Tensor | None:
        parts = [] if direction is None else [direction]
        parts += [] if of_vector is None else [-points * of_vector.unsqueeze(-2)]
        return sum(parts[1:], parts[0]) / self.vector if parts else None


# (index of a term, its scaled points, which of them need a gradient, whether its power does) ->
# (the gradients in the scaled points, that in the power or None); None if nothing depends on it.
OfTerm = Callable[[int, Scaled, Named, bool], tuple[Mapping[str, Tensor], Tensor | None] | None]


def gradients(
    given: Named,
    needs: Named,
    of_term: OfTerm,
    of_value: Callable[[int, torch.dtype], Tensor | None],
) -> dict[str, Tensor | list[Tensor | None]]:
    """The gradients in points, values and vectors.

    Args:
        of_value: (index among all values, the type of the value) -> the gradient in it, other than
            as a power; None if nothing depends on it.
    """
    form, values = Form.from_text(given.form), Values.given(given)
    found: dict[str, Tensor] = {}
    of_values: list[Tensor | None] = [None] * len(values.tensors)
    of_vectors: list[Tensor | None] = [None] * len(values.vectors)
    slots = values.slots
    for index, term in enumerate(form.terms):
        if term.kind is TermKind.Largest:  # What is factored out does not count.
            continue
        is_power = term.kind in GENERAL_POWERS and term.value in slots
        of_power = is_power and needs.values[slots.index(term.value)]
        of_vector = term.vector >= 0 and needs.vectors[term.vector]
        if not (needs.x1 or needs.x2 or of_power or of_vector):
            continue
        scaled = Scaled.of(term, given.x1, given.x2, values.vectors)
        sides, of_p = of_term(index, scaled, scaled.needs(needs, of_vector), of_power) or ({}, None)
        for name, more in scaled.gradients(sides, needs).items():
            found[name] = added(found.get(name), more)
        if of_vector:
            of_vectors[term.vector] = added(of_vectors[term.vector], scaled.of_vector(sides))
        if of_power and of_p is not None:
            place = slots.index(term.value)
            more = of_p.to(values.tensors[place].dtype)
            of_values[place] = added(of_values[place], more)
    for place, slot in enumerate(slots):
        held = values.tensors[place].dtype
        more = of_value(slot, held) if needs.values[place] else None
        of_values[place] = added(of_values[place], None if more is None else more.to(held))
    return found | {"values": of_values, "vectors": of_vectors}


def tangent_of_values(
    given: Named,
    tangents: Named,
    of_value: Callable[[int], Tensor | float | None],
    total: Tensor | None,
) -> Tensor | None:
    """`total`, plus the tangent of the result along the directions of the values.

    Args:
        of_value: the derivative of the result in a value; None if it does not depend on it.
    """
    form, values = Form.from_text(given.form), Values.given(given)
    for direction, slot in zip(tangents.values, values.slots, strict=True):
        if direction is None:
            continue
        _refuse_power(form, slot)
        slope = of_value(slot)
        if slope is not None:
            change = (direction[..., None, None] * slope).to(given.x1.dtype)
            total = added(total, change)
    return total


def is_of_diagonal(form: Form, slot: int) -> bool:
    """Whether a value is the one that is added to the diagonal."""
    return form.regularized and slot == form.values - 1


def _refuse_power(form: Form, slot: int) -> None:
    """Refuses a direction of a power: the sums depend on it too, and have no tangent here."""
    if any(term.value == slot for term in form.terms):
        raise ArgumentError(
            "forward-mode derivatives",
            expected="directions of points and of other values",
            got="one of a power p",
            hint="use reverse mode for p",
        )
