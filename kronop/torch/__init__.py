"""kronop on torch tensors as torch operators: autograd, torch.compile and torch.func.

`gemkm` and `gekmm` are Kronecker products, `ksmm` products with Kronecker-sparse factors, and
`nn.KSLinear` is the layer of such factors. Where no gradient is needed, they do what kronop's
functions of the same names do; those also take tensors of other frameworks, `out`, and more.

Imported explicitly (`import kronop.torch`); `import kronop` alone does not import torch.
"""

from kronop.errors import installing as _installing

try:
    import torch as _torch  # noqa: F401
except ImportError as _error:
    raise ImportError(f"kronop.torch: expected torch, got none; {_installing('torch')}") from _error

from kronop.torch import nn
from kronop.torch.families.kron.functional import gekmm, gemkm
from kronop.torch.families.ksparse.functional import ksmm

__all__ = ["gekmm", "gemkm", "ksmm", "nn"]
