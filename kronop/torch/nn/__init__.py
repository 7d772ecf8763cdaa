"""Layers of torch with Kronecker-structured weights."""

from kronop.torch.nn import patterns
from kronop.torch.nn.kronecker import KroneckerEmbedding, KroneckerLinear
from kronop.torch.nn.kslinear import KSLinear
from kronop.torch.nn.replacing import Report, replace_linears

__all__ = [
    "KSLinear",
    "KroneckerEmbedding",
    "KroneckerLinear",
    "Report",
    "patterns",
    "replace_linears",
]
