"""Layers of torch with Kronecker-structured weights.

`KSLinear` has a product of Kronecker-sparse factors for a weight, `KroneckerLinear` a Kronecker
product, and `KroneckerEmbedding` a Kronecker product for a table. `patterns` gives the shapes of
factors for numbers of features, and `replace_linears` puts `KSLinear` layers into a model.

Example:
    >>> import torch
    >>> layer = kronop.torch.nn.KSLinear.monarch(16, 16, blocks=4)
    >>> layer(torch.ones(3, 16)).shape
    torch.Size([3, 16])
    >>> print(layer)
    KSLinear(
      in_features=16, out_features=16, patterns=[(4, 4, 4, 1), (1, 4, 4, 4)], bias=True, ...
      ...
    )
"""

from kronop.torch.nn import patterns
from kronop.torch.nn.kronecker import KroneckerEmbedding, KroneckerLinear
from kronop.torch.nn.kslinear import KSLinear
from kronop.torch.nn.replacing import Report, replace_linears

__all__ = [
    "KSLinear",
    "KroneckerEmbedding",
    "KroneckerLinear",
    "Report",
    "patterns",
    "replace_linears",
]
__dir__ = __all__.copy  # What completes is public.
