"""linear_operator's Kronecker products, multiplied by kronop, for GPyTorch's kernels too.

`KroneckerProductLinearOperator(*operators)` stands where linear_operator's class of the same name
does, and is a subclass of it. `with accelerated():` makes everything that would build that class
build this one, GPyTorch's kernels among it; `accelerate()` does so for the rest of a program.

Imported explicitly (`import kronop.linear_operator`): it needs linear_operator, which comes with
GPyTorch.

Example:
    >>> import torch
    >>> import kronop.linear_operator
    >>> from kronop.linear_operator import KroneckerProductLinearOperator
    >>> K = KroneckerProductLinearOperator(2 * torch.eye(2), torch.eye(3))
    >>> (K @ torch.ones(6, 1)).sum().item()
    12.0
"""

from kronop.errors import installing as _installing

try:
    import linear_operator as _linear_operator  # noqa: F401
except ImportError as _error:
    raise ImportError(
        f"kronop.linear_operator: expected linear_operator, got none; {_installing('gpytorch')}"
    ) from _error

from kronop.linear_operator.added_diagonal import KroneckerProductAddedDiagLinearOperator
from kronop.linear_operator.product import (
    KroneckerProductLinearOperator,
    KroneckerProductTriangularLinearOperator,
)
from kronop.linear_operator.substitution import accelerate, accelerated

__all__ = [
    "KroneckerProductAddedDiagLinearOperator",
    "KroneckerProductLinearOperator",
    "KroneckerProductTriangularLinearOperator",
    "accelerate",
    "accelerated",
]
__dir__ = __all__.copy  # What completes is public.
