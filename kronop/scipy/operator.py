"""An operator of kronop as one of SciPy."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse.linalg

from kronop.errors import ArgumentError, ElementTypeError
from kronop.operators.operator import Operator


class LinearOperator(scipy.sparse.linalg.LinearOperator):  # type: ignore[misc]
    """An operator of kronop as SciPy's class, for scipy.sparse.linalg: `cg`, `gmres`, `eigsh`,
    `svds`, `lsqr`, ...

    Args:
        operator: one of kronop's operators of NumPy arrays, or of torch tensors on a CPU, whose
            memory is shared and which get no gradients. It has no leading dimensions. What is
            multiplied is converted to its element type: beside float32 a float64 x is rounded, and
            beside integers only integers are taken.

    Raises:
        ArgumentError: it has leading dimensions, or lies on a GPU.
        ElementTypeError: it is none of kronop's operators.

    Example:
        >>> import kronop.scipy
        >>> import scipy.sparse.linalg
        >>> A, B = np.array([[2.0, 1.0], [1.0, 2.0]]), np.diag([1.0, 2.0, 4.0])
        >>> operator = kronop.scipy.LinearOperator(kronop.KroneckerOperator([A, B]))
        >>> x, info = scipy.sparse.linalg.cg(operator, np.ones(6))
        >>> info, bool(np.allclose(operator @ x, 1, atol=1e-4))
        (0, True)
    """

    def __init__(self, operator: Operator) -> None:
        self.operator = _of_numpy(operator)
        super().__init__(self.operator.dtype, self.operator.shape)

    def _matvec(self, x: Any) -> Any:
        return self.operator @ self._read(x).reshape(-1)

    def _rmatvec(self, x: Any) -> Any:
        return self._read(x).reshape(-1) @ self.operator

    def _matmat(self, x: Any) -> Any:
        return self.operator @ self._read(x)

    def _rmatmat(self, x: Any) -> Any:
        return self.operator.T @ self._read(x)

    def _adjoint(self) -> LinearOperator:
        return type(self)(self.operator.T)

    _transpose = _adjoint

    def _read(self, x: Any) -> Any:
        """What SciPy multiplies with, which may be of another type of real numbers."""
        x = np.asarray(x)
        if np.iscomplexobj(x):
            raise ElementTypeError(
                "x",
                expected="real numbers",
                got=x.dtype,
                hint="multiply x.real and x.imag one after the other",
            )
        if not np.can_cast(x.dtype, self.dtype, "same_kind"):
            raise ElementTypeError(
                "x",
                expected=f"whole numbers beside an operator of {self.dtype}",
                got=x.dtype,
                hint="make the operator of factors of float64",
            )
        return x.astype(self.dtype, copy=False)


def _of_numpy(operator: Any) -> Operator:
    if not isinstance(operator, Operator):
        raise ElementTypeError(
            "the operator",
            expected="one of kronop's operators",
            got=type(operator).__name__,
            hint="kronop.scipy.LinearOperator(kronop.KroneckerOperator(factors))",
        )
    if len(operator.shape) != 2:
        raise ArgumentError(
            "the operator",
            expected="no leading dimensions",
            got=f"shape {operator.shape}",
            hint="SciPy knows no batches: make one of each",
        )
    if operator.framework is np:
        return operator
    places = {str(getattr(item, "device", "")) for item in operator.tensors}
    if places != {"cpu"}:
        raise ArgumentError(
            "the operator",
            expected="tensors on a CPU",
            got=", ".join(sorted(places)),
            hint="move the factors, or use kronop.cg, which runs where they are",
        )
    return operator.like([item.detach().numpy() for item in operator.tensors])
