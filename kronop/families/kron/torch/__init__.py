"""Kronecker products: `gemkm` and `gekmm`."""

import kronop.torch  # noqa: F401  (it imports these: whoever begins here begins there)
