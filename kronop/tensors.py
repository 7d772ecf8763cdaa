"""Names for tensors in the signatures of code that serves several frameworks."""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np

NDArray = np.ndarray[Any, np.dtype[Any]]

Tensor: TypeAlias = Any
"""A tensor of NumPy, torch or CuPy, all of whose operators kronop uses. No type of checkers holds
these three: NumPy's arrays, for one, do not pass pyright as what declares the operators of all."""

AnyTensor: TypeAlias = Any
"""What a caller gets: a tensor of the framework of what it gave."""

Scale: TypeAlias = float | Tensor
"""A number, or a tensor over the leading dimensions of what it multiplies or is added to."""
