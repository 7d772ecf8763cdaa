"""How kernels of CUTLASS 3.x are compiled."""

from __future__ import annotations

from kronop.emit.design import package_folder

# Assertions are calls, across which products of warp groups do not overlap. NVRTC warns of
# constants that become definitions, of defaulted functions and of unused variables.
OPTIONS = ("-DNDEBUG", "-diag-suppress=20044", "-diag-suppress=20012", "-diag-suppress=177")
# What stands in for headers of CUTLASS, and is therefore found before them.
FOLDER = f"{package_folder(__package__)}/overrides"
