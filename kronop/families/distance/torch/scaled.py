"""Points of which a term is divided by one number per feature, and derivatives through that."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from kronop.families.distance.form import Term
from kronop.families.distance.torch.sums import center_of
from kronop.torch.declaration import Named


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
