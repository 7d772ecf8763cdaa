"""How kernels of CUTLASS 3.x are compiled."""

from __future__ import annotations

from kronop.emit.design import package_folder

# Assertions are calls, across which products of warp groups do not overlap. NVRTC warns of
# constants that become definitions, of defaulted functions and of unused variables.
_OPTIONS = ("-DNDEBUG", "-diag-suppress=20044", "-diag-suppress=20012", "-diag-suppress=177")


def options(version: tuple[int, int, int]) -> tuple[str, ...]:
    """Options of the compiler for a version of CUTLASS."""
    major, minor, _ = version
    return (*_OPTIONS, f"-DKRONOP_CUTLASS_VERSION={100 * major + minor}")


def folders(cutlass: str) -> tuple[str, ...]:
    """Where headers are looked for: what stands in for some of CUTLASS's is before its folder."""
    return f"{package_folder(__package__)}/overrides", cutlass
