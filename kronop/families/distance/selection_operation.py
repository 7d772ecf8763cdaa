"""The first numbers of each row of a matrix that is computed in parts: the smallest or largest."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from kronop.args.device import target_of
from kronop.args.host import host_threads
from kronop.args.tensor import empty, view
from kronop.args.view import TensorView
from kronop.core import loose
from kronop.descriptions.datatype import int64
from kronop.families.distance.x86 import select_design
from kronop.target import Target


class Selection:
    """The k first of each row, in order: NaN comes before all others.

    On a CPU a kernel chooses few of them in one pass, of equal numbers those of the lowest columns.
    Many, and those of a GPU's tensors, are left to the framework.

    Args:
        k: how many; at most as many as there are columns in all.
        largest: whether the largest come first.

    Attributes:
        values, indices: (..., rows, k), once k columns were added.
    """

    def __init__(self, k: int, largest: bool) -> None:
        self.values: Any = None
        self.indices: Any = None
        self._k, self._largest = k, largest

    def add(self, matrix: Any, before: int) -> None:
        """Adds columns, behind as many as `before`.

        Args:
            matrix: (..., rows, columns), contiguous; it may be changed.
        """
        item = view(matrix, "matrix")
        if item.device.is_host and self._k <= select_design.MOST:
            self._run(item, before)
            return
        values, indices = self._first(matrix)
        indices += before
        if self.values is not None:
            indices = joined([self.indices, indices], -1)
            values, chosen = self._first(joined([self.values, values], -1))
            indices = _taken(indices, chosen)
        self.values, self.indices = values, indices

    def found(self) -> tuple[Any, ...]:
        return self.values, self.indices

    def _run(self, item: TensorView, before: int) -> None:
        *lead, columns = item.shape
        if self.values is None:
            self.values, self.indices = (
                empty(item, (*lead, self._k), element) for element in (item.element, int64)
            )
        plan = select_design.plan(item.element, Target.parse(target_of(item)))
        problem = select_design.SelectProblem(
            matrix=item.pointer,
            values=view(self.values, "values").pointer,
            indices=view(self.indices, "indices").pointer,
            rows=math.prod(lead),
            columns=columns,
            before=before,
            k=self._k,
            largest=int(self._largest),
            threads=host_threads(item.framework),
        )
        loose.run(plan, *plan.launches(problem))

    def _first(self, matrix: Any) -> tuple[Any, Any]:
        """(values, indices) of the first ones in the last dimension, by the matrix's framework.

        All frameworks take NaN for the largest value, so that the smallest ones with NaN are minus
        the largest of minus the matrix, which is changed.
        """
        keys, k = matrix if self._largest else _negative(matrix), min(self._k, matrix.shape[-1])
        if hasattr(keys, "topk"):  # Only torch's tensors have it as a method.
            values, chosen = keys.topk(k, -1)
        else:
            last = np.argpartition(keys, keys.shape[-1] - k, -1)[..., -k:]
            chosen = _taken(last, np.argsort(_taken(keys, last), -1)[..., ::-1])
            values = _taken(keys, chosen)
        return values if self._largest else _negative(values), chosen


def _negative(own: Any) -> Any:
    """Minus the elements, in their own memory."""
    return own.neg_() if hasattr(own, "neg_") else np.negative(own, out=own)


def _taken(items: Any, chosen: Any) -> Any:
    """The items at these indices, along the last dimension."""
    if hasattr(items, "gather"):
        return items.gather(-1, chosen)
    return np.take_along_axis(items, chosen, -1)


def joined(parts: Sequence[Any], axis: int) -> Any:
    """The parts in one tensor, one behind the other along the last axis or the one before it; a
    single part as it is."""
    if len(parts) == 1:
        return parts[0]
    first, shape = parts[0], list(parts[0].shape)
    shape[axis] = sum(part.shape[axis] for part in parts)
    # Only torch's tensors have `new_empty`. NumPy's functions of CuPy's arrays are CuPy's.
    whole = (
        first.new_empty(shape) if hasattr(first, "new_empty") else np.empty_like(first, shape=shape)
    )
    at = 0
    for part in parts:
        extent = part.shape[axis]
        place = slice(at, at + extent)
        whole[(..., place) if axis == -1 else (..., place, slice(None))] = part
        at += extent
    return whole
