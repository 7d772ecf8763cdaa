"""Layers that form their matrix once, as the layers of other libraries do.

KSLinear keeps its weights (a, b, c, d) for all algorithms, and forms dense and sparse matrices in
every call. Timing that would be unfair to these algorithms.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from kronop.families.ksparse.torch.sparse import by_blocks, by_rows


class Dense(nn.Module):  # type: ignore[misc]  # mypy sees no types of torch.
    """A dense layer without bias, for both layouts; `weight` is (outputs, inputs)."""

    def __init__(self, weight: Tensor, batch_last: bool) -> None:
        super().__init__()
        self.weight = nn.Parameter(weight)
        self.batch_last = batch_last

    def forward(self, x: Tensor) -> Tensor:
        """(batch, inputs) to (batch, outputs), or (inputs, batch) to (outputs, batch)."""
        if self.batch_last:
            return self.weight @ x
        return torch.nn.functional.linear(x, self.weight)


class Sparse(nn.Module):  # type: ignore[misc]  # mypy sees no types of torch.
    """A layer over one of torch's sparse matrices, by rows or by blocks; without gradients.

    Args:
        weight: (a, b, c, d).
        batch_last: whether X is (features, batch).
        blocks: whether the matrix is stored by blocks. It is block diagonal after the last two
            digits of the features are exchanged; the layer exchanges them before and after the
            product.
    """

    def __init__(self, weight: Tensor, batch_last: bool, blocks: bool) -> None:
        super().__init__()
        self.pattern = tuple(weight.shape)
        self.batch_last = batch_last
        # cuSPARSE refuses blocks of one element.
        self.blocks = blocks and math.gcd(*weight.shape[1:3]) > 1
        self.matrix = by_blocks(weight) if self.blocks else by_rows(weight)

    def forward(self, x: Tensor) -> Tensor:
        """(batch, inputs) to (batch, outputs), or (inputs, batch) to (outputs, batch)."""
        a, b, c, d = self.pattern
        columns = x if self.batch_last else x.mT
        if self.blocks:
            columns = _exchanged(columns, (a, c, d))
        result = self.matrix @ columns
        if self.blocks:
            result = _exchanged(result, (a, d, b))
        return result if self.batch_last else result.mT


def _exchanged(columns: Tensor, digits: tuple[int, int, int]) -> Tensor:
    """The columns with the last two of the features' three digits exchanged."""
    if 1 in digits[1:]:
        return columns
    return columns.unflatten(0, digits).transpose(1, 2).flatten(0, 2)
