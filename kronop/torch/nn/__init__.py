"""Layers of torch with Kronecker-structured weights, and convolutions.

`KSLinear` has a product of Kronecker-sparse factors for a weight, `KroneckerLinear` a Kronecker
product, and `KroneckerEmbedding` a Kronecker product for a table. `Conv2d` is torch.nn.Conv2d by
kronop's kernels. `patterns` gives the shapes of
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

from typing import TYPE_CHECKING

from kronop.families import FAMILIES as _FAMILIES
from kronop.late import imported as _imported
from kronop.torch.nn import patterns
from kronop.torch.nn.replacing import Report, replace_linears

if TYPE_CHECKING:
    from kronop.torch.nn.conv2d import Conv2d as Conv2d
    from kronop.torch.nn.kronecker import KroneckerEmbedding as KroneckerEmbedding
    from kronop.torch.nn.kronecker import KroneckerLinear as KroneckerLinear
    from kronop.torch.nn.kslinear import KSLinear as KSLinear

__all__ = ["Report", "patterns", "replace_linears"]
__dir__ = __all__.copy  # What completes is public.

for _family in _FAMILIES:
    for _name, _module in _family.layers.items():
        globals()[_name] = getattr(_imported(_module), _name)
        __all__.append(_name)
