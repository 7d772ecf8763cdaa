"""kronop on torch tensors as torch operators: autograd, torch.compile and torch.func.

Imported explicitly (`import kronop.torch`); `import kronop` alone does not import torch.
"""

try:
    import torch as _torch  # noqa: F401
except ImportError as _error:
    raise ImportError(
        "kronop.torch: expected torch, got none; pip install 'kronop[torch]'"
    ) from _error

from kronop.torch import nn
from kronop.torch.functional import gekmm, gemkm
from kronop.torch.ksparse import ksmm

__all__ = ["gekmm", "gemkm", "ksmm", "nn"]
