"""kronop on torch tensors as torch operators: autograd, torch.compile and torch.func.

`gemkm` and `gekmm` multiply by Kronecker products, `ksmm` by Kronecker-sparse factors, `matmul` by
matrices (`matmul_visited` with a visitor tree), `conv2d` convolves images, and `nn` has layers of
the first two and of the last. Without gradients they do the same as the functions of the same names
in kronop, kronop.gemm and kronop.conv, which also take tensors of other frameworks, `out`, and
more. `decompositions` is for exports to where kronop is not.

Imported explicitly (`import kronop.torch`); `import kronop` alone does not import torch.
"""

from typing import TYPE_CHECKING

from kronop.errors import installing as _installing

try:
    import torch as _torch  # noqa: F401
except ImportError as _error:
    raise ImportError(f"kronop.torch: expected torch, got none; {_installing('torch')}") from _error

from kronop.families import FAMILIES as _FAMILIES
from kronop.late import imported as _imported
from kronop.torch import nn
from kronop.torch.registration import decompositions

if TYPE_CHECKING:
    from kronop.families.conv2d.torch.functional import conv2d as conv2d
    from kronop.families.distance.torch.functional import cdist as cdist
    from kronop.families.distance.torch.functional import kernel_matmul as kernel_matmul
    from kronop.families.distance.torch.functional import kernel_matrix as kernel_matrix
    from kronop.families.gemm.torch.functional import matmul as matmul
    from kronop.families.gemm.torch.visited import matmul_visited as matmul_visited
    from kronop.families.kron.torch.functional import gekmm as gekmm
    from kronop.families.kron.torch.functional import gemkm as gemkm
    from kronop.families.ksparse.torch.functional import ksmm as ksmm
    from kronop.families.quantized.torch import quantized_gemkm as quantized_gemkm

__all__ = ["decompositions", "nn"]
__dir__ = __all__.copy  # What completes is public.

if not TYPE_CHECKING:  # Checkers know the names above, and tell of others.

    def __getattr__(name: str) -> object:
        """Finds the names of families that were added to the list after this module was
        imported."""
        for family in _FAMILIES:
            if name in family.torch:
                return getattr(_imported(family.torch[name]), name)
        raise AttributeError(f"module 'kronop.torch' has no attribute {name!r}")

    # The operators of known families are imported now, because importing this module must register
    # them in torch.ops.
    for _family in _FAMILIES:
        for _name in _family.torch:
            globals()[_name] = __getattr__(_name)
            __all__.append(_name)
