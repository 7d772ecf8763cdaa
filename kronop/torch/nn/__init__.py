"""Layers of torch with Kronecker-sparse weights."""

from kronop.torch.nn.kslinear import KSLinear

__all__ = ["KSLinear"]
