"""The values and vectors of a kernel as arguments of torch operators."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from kronop.families.distance.form import Bound, Form
from kronop.families.distance.value_arguments import is_tensor, widths_in, with_bounded_powers
from kronop.torch.declaration import Named

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
