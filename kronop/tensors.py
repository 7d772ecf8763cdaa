"""Names for tensors in the signatures of code that serves several frameworks."""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np

NDArray = np.ndarray[Any, np.dtype[Any]]

Tensor: TypeAlias = Any
"""A tensor of NumPy, torch or CuPy; results are of the framework of what was given. No type of
checkers holds these three: NumPy's arrays, for one, do not pass pyright as a protocol that declares
the operators of all."""

Scale: TypeAlias = float | Tensor
"""A number, or a tensor over the leading dimensions of what it multiplies or is added to."""
