"""The modules whose names are public: those of `__all__`."""

from __future__ import annotations

# What each needs besides NumPy.
MODULES = {
    "compiler": None,
    "distributed": "torch",
    "distributed.scaling": "torch",
    "gemm": None,
    "jax": "jax",
    "kernels": None,
    "linalg": None,
    "linear_operator": "linear_operator",
    "scipy": "scipy",
    "torch": "torch",
    "torch.nn": "torch",
    "torch.nn.patterns": "torch",
}
