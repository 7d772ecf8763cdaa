"""Distances and kernel matrices: `cdist` and `kernel_matrix`."""

import kronop.torch  # noqa: F401  (it imports these: whoever begins here begins there)
