"""What the solvers need of NumPy, torch and CuPy beside indexing: the few spellings that differ."""

from __future__ import annotations

import contextlib
import math
import sys
from contextlib import AbstractContextManager

from kronop.args.device import current
from kronop.args.tensor import empty
from kronop.args.view import TensorView
from kronop.descriptions.datatype import DataType
from kronop.linalg.matrices import Matrices
from kronop.tensors import Tensor


class Arrays:
    """Makes and changes tensors of the framework and on the device of `like`."""

    def __init__(self, like: TensorView) -> None:
        self.like = like
        self._module = sys.modules[like.framework]

    def on_device(self) -> AbstractContextManager[None]:
        """Makes the tensors' GPU the current one; nothing on a host."""
        device = self.like.device
        return contextlib.nullcontext() if device.is_host else current(device.index)

    def empty(self, shape: tuple[int, ...], element: DataType) -> Tensor:
        return empty(self.like, shape, element)

    def zeros(self, shape: tuple[int, ...], element: DataType) -> Tensor:
        result = self.empty(shape, element)
        result[...] = 0
        return result

    def addresses(self, matrices: Matrices) -> Tensor:
        """The addresses of the matrices, as a tensor on their device."""
        size = matrices.bytes_between
        module = self._module
        if self.like.framework == "torch":
            place = matrices.tensor.device
            steps = module.arange(matrices.count, dtype=module.int64, device=place)
        else:
            steps = module.arange(matrices.count, dtype=module.int64)
        return steps * size + matrices.pointer

    def triangle(self, tensor: Tensor, lower: bool) -> Tensor:
        """A copy with zeros outside of the triangle."""
        return (self._module.tril if lower else self._module.triu)(tensor)

    def finite(self, tensor: Tensor) -> Tensor:
        """For each index of the first dimension, whether all values there are finite."""
        shape = tensor.shape[0], math.prod(tensor.shape[1:])
        return self._module.isfinite(tensor).reshape(shape).all(-1)

    def mark(self, tensor: Tensor, where: Tensor, value: float) -> None:
        """Writes `value` at the indices of the first dimension at which `where` is true."""
        where = where.reshape(where.shape[0], *(1 for _ in tensor.shape[1:]))
        if self.like.framework == "torch":
            tensor.masked_fill_(where, value)
        else:
            self._module.copyto(tensor, value, where=where)
