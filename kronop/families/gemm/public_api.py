"""`kronop.gemm`: the one-line forms, with PyCUTLASS's names for sizes and modes."""

from kronop.families.gemm import namespace_api as gemm

__all__ = ["gemm"]
