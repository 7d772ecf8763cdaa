"""torch.vmap: the mapped dimension becomes the first of the leading dimensions that broadcast."""

from __future__ import annotations

from torch import Tensor

from kronop.torch.declaration import Named
from kronop.torch.scaling import scaled
from kronop.torch.transforms import in_front


def mapped(
    size: int, given: Named, dims: Named
) -> tuple[Tensor, Tensor, Tensor | None, Tensor | None, float]:
    """(a, b, c, bias, beta) of one call whose result has the mapped dimension in front."""
    rank = max(
        item.dim() - (dim is not None) for item, dim in ((given.a, dims.a), (given.b, dims.b))
    )
    a, b = in_front(given.a, dims.a, rank), in_front(given.b, dims.b, rank)
    if dims.a is None and dims.b is None:
        a = a.expand(size, *a.shape[1:])
    c, bias, beta = given.c, given.bias, given.beta
    if dims.c is not None:
        c = in_front(c, dims.c, rank)
    if dims.bias is not None:
        # Each product has a bias of its own, which is what a source of one row is.
        rows = in_front(bias, dims.bias, rank)
        c, bias, beta = rows if c is None or not beta else scaled(c, beta) + rows, None, 1
    return a, b, c, bias, beta
