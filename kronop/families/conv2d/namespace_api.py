"""Convolutions in one line, and PyCUTLASS's names of kinds, modes and sizes.

Example:
    >>> x = np.ones((1, 5, 5, 2), np.float32).transpose(0, 3, 1, 2)  # (N, C, H, W), channels last
    >>> w = np.ones((4, 3, 3, 2), np.float32).transpose(0, 3, 1, 2)
    >>> kronop.conv.conv2d(x, w, padding=1).shape
    (1, 4, 5, 5)
"""

import typing as _typing

from kronop.families.conv2d.api import conv2d, conv2d_input, conv2d_weight
from kronop.families.conv2d.vocabulary import (
    Conv2dProblemSize,
    IteratorAlgorithm,
    Mode,
    Operator,
    SplitKMode,
    StrideSupport,
    implicit_gemm_problem_size,
    implicit_gemm_tensor_a_extent,
    implicit_gemm_tensor_a_size,
    implicit_gemm_tensor_b_extent,
    implicit_gemm_tensor_b_size,
    implicit_gemm_tensor_c_extent,
    implicit_gemm_tensor_c_size,
)

if not _typing.TYPE_CHECKING:  # Checkers know the names, and tell of others.

    def __getattr__(name: str) -> object:
        hint = "; give conv2d images of H = 1" if name == "conv1d" else ""
        raise AttributeError(f"kronop.conv has no attribute {name!r}{hint}")


__all__ = [
    "Conv2dProblemSize",
    "IteratorAlgorithm",
    "Mode",
    "Operator",
    "SplitKMode",
    "StrideSupport",
    "conv2d",
    "conv2d_input",
    "conv2d_weight",
    "implicit_gemm_problem_size",
    "implicit_gemm_tensor_a_extent",
    "implicit_gemm_tensor_a_size",
    "implicit_gemm_tensor_b_extent",
    "implicit_gemm_tensor_b_size",
    "implicit_gemm_tensor_c_extent",
    "implicit_gemm_tensor_c_size",
]
