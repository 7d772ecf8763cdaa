"""kronop on JAX arrays: products that jit, vmap and grad take as JAX's own.

`gemkm` and `gekmm` multiply by Kronecker products, `ksmm` by Kronecker-sparse factors, and `conv2d`
convolves images. Compiled functions run kronop's kernels through XLA's foreign function interface
(`jax.ffi`).

Imported explicitly (`import kronop.jax`); `import kronop` alone does not import JAX.
"""

import importlib as _importlib
from typing import TYPE_CHECKING

from kronop.errors import installing as _installing

try:
    import jax as _jax  # noqa: F401
except ImportError as _error:
    raise ImportError(f"kronop.jax: expected jax, got none; {_installing('jax')}") from _error

from kronop.families import FAMILIES as _FAMILIES

if TYPE_CHECKING:
    from kronop.families.conv2d.jax import conv2d as conv2d
    from kronop.families.kron.jax import gekmm as gekmm
    from kronop.families.kron.jax import gemkm as gemkm
    from kronop.families.ksparse.jax import ksmm as ksmm

__all__: list[str] = []
__dir__ = __all__.copy  # What completes is public.

for _family in _FAMILIES:
    for _name, _module in _family.jax.items():
        globals()[_name] = getattr(_importlib.import_module(_module), _name)
        __all__.append(_name)
