"""Layers whose weight, or table, is a Kronecker product of small matrices."""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from kronop.descriptions.shared import check_flag
from kronop.families.kron.torch.functional import gemkm
from kronop.families.ksparse.torch.sparse import biased
from kronop.torch.nn.checks import check_type, checked_sizes
from kronop.torch.nn.initial import draw


class _Factored(torch.nn.Module):  # type: ignore[misc]  # torch is Any to mypy.
    """A module with the factors (rows, columns) of a Kronecker product."""

    def __init__(
        self,
        shapes: Sequence[Sequence[int]],
        dtype: torch.dtype | None,
        device: torch.device | str | int | None,
    ) -> None:
        super().__init__()
        found = checked_sizes("shapes", shapes, ("rows", "columns"), "the left-most factor first")
        self.shapes = tuple((rows, columns) for rows, columns in found)
        dtype = torch.get_default_dtype() if dtype is None else dtype
        check_type("dtype", dtype)
        self.factors = torch.nn.ParameterList(
            torch.nn.Parameter(torch.empty(shape, dtype=dtype, device=device))
            for shape in self.shapes
        )

    def _size(self, axis: int) -> int:
        return math.prod(shape[axis] for shape in self.shapes)

    @property
    def weight(self) -> Tensor:
        """The Kronecker product (rows, columns) of the factors, formed at each reading;
        differentiable. Writing into it changes no parameter."""
        first, *others = self.factors  # A parameter alone would be the product itself.
        return functools.reduce(torch.kron, others, first) if others else first.clone()


class KroneckerLinear(_Factored):
    """A linear layer whose weight is a Kronecker product: W = F1 x ... x FN.

    The layer computes y = x W' + bias, as torch.nn.Linear does, by `kronop.torch.gemkm`, without
    forming W.

    Args:
        shapes: (outputs, inputs) of each factor, F1 first.
        bias: whether the layer has a bias.
        dtype: float32, float16, bfloat16 or float64; None means torch's default.
        device: device of the parameters; None means torch's default.

    Attributes:
        factors: a ParameterList of the factors, drawn so that results are of the size of those of a
            new torch.nn.Linear.
        bias: a parameter (out_features,), drawn uniformly from +-1/sqrt(in_features), or None.
        weight: W (out_features, in_features), formed at each reading.
        in_features, out_features: the products of the factors' columns and rows.

    Raises:
        ArgumentError: a shape is not two positive integers.
        ElementTypeError: `shapes` is no list, or the element type none of the four.

    Example:
        >>> import torch
        >>> generator = torch.manual_seed(0)
        >>> layer = kronop.torch.nn.KroneckerLinear([(4, 4), (4, 4)])
        >>> x = torch.randn(3, 16)
        >>> expected = torch.nn.functional.linear(x, torch.kron(*layer.factors), layer.bias)
        >>> bool(torch.allclose(layer(x), expected, atol=1e-5))
        True
        >>> sum(item.numel() for item in layer.factors)  # a torch.nn.Linear has 256
        32
    """

    def __init__(
        self,
        shapes: Sequence[Sequence[int]],
        bias: bool = True,
        dtype: torch.dtype | None = None,
        device: torch.device | str | int | None = None,
    ) -> None:
        super().__init__(shapes, dtype, device)
        check_flag("bias", bias)
        self.out_features, self.in_features = self._size(0), self._size(1)
        like = self.factors[0]
        empty = torch.nn.Parameter(like.new_empty(self.out_features)) if bias else None
        self.register_parameter("bias", empty)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draws new random values for all parameters, in place."""
        draw(self, self.factors, [columns for _, columns in self.shapes])

    if TYPE_CHECKING:

        def __call__(self, x: Tensor) -> Tensor:
            """As `forward`."""

    def forward(self, x: Tensor) -> Tensor:
        """x W' + bias.

        Args:
            x: (..., in_features), of the layer's type and device.

        Returns:
            (..., out_features).

        Raises:
            ArgumentError, ElementTypeError: as of `kronop.torch.gemkm`.
        """
        return biased(gemkm(x, [factor.t() for factor in self.factors]), self.bias, False)

    def extra_repr(self) -> str:
        """The layer's settings, for print."""
        return (
            f"in_features={self.in_features}, out_features={self.out_features},"
            f" shapes={[*self.shapes]}, bias={self.bias is not None}"
        )


class KroneckerEmbedding(_Factored):
    """An embedding whose table is a Kronecker product of small tables: T1 x ... x TN.

    Row n of the table is the Kronecker product of one row of each small table: those that are the
    digits of n, in the mixed radix of the tables' numbers of rows. Only these rows are read, and
    only the rows of the result are formed.

    Args:
        shapes: (rows, columns) of each small table, T1, of the most significant digit, first. Where
            a vocabulary is no product of small numbers, take one that is a little larger.
        dtype: float32, float16, bfloat16 or float64; None means torch's default.
        device: device of the parameters; None means torch's default.

    Attributes:
        factors: a ParameterList of the small tables, drawn from N(0, 1): then the elements of the
            table have variance 1, as those of torch.nn.Embedding.
        weight: the table (num_embeddings, embedding_dim), formed at each reading.
        num_embeddings, embedding_dim: the products of the tables' rows and columns.

    Raises:
        ArgumentError: a shape is not two positive integers.
        ElementTypeError: `shapes` is no list, or the element type none of the four.

    Example:
        >>> import torch
        >>> layer = kronop.torch.nn.KroneckerEmbedding([(100, 16), (100, 16)])
        >>> layer.num_embeddings, layer.embedding_dim
        (10000, 256)
        >>> first, second = layer.factors
        >>> bool(torch.equal(layer(torch.tensor(4207)), torch.kron(first[42], second[7])))
        True
        >>> sum(item.numel() for item in layer.parameters())  # a torch.nn.Embedding has 2560000
        3200
    """

    def __init__(
        self,
        shapes: Sequence[Sequence[int]],
        dtype: torch.dtype | None = None,
        device: torch.device | str | int | None = None,
    ) -> None:
        super().__init__(shapes, dtype, device)
        self.num_embeddings, self.embedding_dim = self._size(0), self._size(1)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draws new random values for all parameters, in place."""
        for factor in self.factors:
            torch.nn.init.normal_(factor)

    if TYPE_CHECKING:

        def __call__(self, indices: Tensor) -> Tensor:
            """As `forward`."""

    def forward(self, indices: Tensor) -> Tensor:
        """The rows of the table with these indices.

        Args:
            indices: (...), int32 or int64, from 0 to `num_embeddings` - 1.

        Returns:
            (..., embedding_dim), of the tables' type.

        Raises:
            IndexError: on a CPU, an index is negative or not below `num_embeddings`.
            RuntimeError: the indices have another type.
        """
        found: Any = None
        for (rows, _), factor in zip(self.shapes[:0:-1], [*self.factors][:0:-1], strict=True):
            digit = indices.remainder(rows)
            indices = indices.div(rows, rounding_mode="floor")
            found = _outer(torch.nn.functional.embedding(digit, factor), found)
        # What is left is the first digit: it is out of range where the index is.
        return _outer(torch.nn.functional.embedding(indices, self.factors[0]), found)

    def extra_repr(self) -> str:
        """The layer's settings, for print."""
        return f"{self.num_embeddings}, {self.embedding_dim}, shapes={[*self.shapes]}"


def _outer(left: Tensor, right: Tensor | None) -> Tensor:
    """The Kronecker products of vectors (..., p) and (..., q): (..., p q)."""
    if right is None:
        return left
    return (left.unsqueeze(-1) * right.unsqueeze(-2)).flatten(-2)
