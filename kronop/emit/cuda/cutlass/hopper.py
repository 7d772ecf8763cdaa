"""How kernels of CUTLASS 3.x are compiled."""

from __future__ import annotations

from kronop.emit.design import package_folder

# Assertions are calls, which would serialise products of warp groups (wgmma). NVRTC warns of
# constants that become definitions, of defaulted functions and of unused variables.
OPTIONS = ("-DNDEBUG", "-diag-suppress=20044", "-diag-suppress=20012", "-diag-suppress=177")
# Replacements for headers of CUTLASS, which must be found before the originals.
FOLDER = f"{package_folder(__package__)}/overrides"
