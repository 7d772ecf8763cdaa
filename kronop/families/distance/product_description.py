"""Y[m, c] = epilogue(sum over n of (kernel(X1[m], X2[n]) + delta[m, n]) V[n, c], Z[m, c])

X1 is (M, K): M points of K features; X2 is (N, K), V is (N, C), Y and Z are (M, C), and delta is
the regularization where m = n. The kernel matrix is computed piece by piece, never stored.
"""

from __future__ import annotations

import math
from dataclasses import field
from typing import Any

import numpy as np

from kronop.descriptions.epilogue import Epilogue
from kronop.descriptions.math_instruction import MathInstruction
from kronop.descriptions.numeric import finish, widen
from kronop.descriptions.scalars import EpilogueArguments
from kronop.descriptions.shared import check_operands
from kronop.descriptions.strided import Strided
from kronop.descriptions.tensor import TensorDescription
from kronop.descriptions.tile import TileDescription
from kronop.families.distance.description import (
    DistanceProblem,
    check_form,
    check_points_element,
    form_of,
    varying,
)
from kronop.families.distance.form import Form
from kronop.families.distance.product_size import KernelMatmulSize
from kronop.frozen import dataclass

# What a description's test data have where its sizes leave a choice.
_SAMPLE_POINTS, _SAMPLE_FEATURES, _SAMPLE_COLUMNS = 37, 9, 3


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelMatmulDescription:
    """The frozen description of the product of a kernel matrix and a matrix.

    Attributes:
        math: multiply-add; its type `element_a` is that of the points and of V.
        tile: tile sizes that the user chose, or None.
        X1, X2, V, Y: descriptions of the points, the matrix and the result.
        epilogue: what is done with the product.
        kernel: the kernel's form.

    Raises:
        DescriptionError: types, or what was promised of tensors, do not agree.
        ElementTypeError: an argument has the wrong class, or an element type that is no float of
            16 to 64 bits.

    Example:
        >>> matrix = kronop.TensorDescription(kronop.float32)
        >>> epilogue = kronop.LinearCombination(kronop.float32, 1, kronop.float32, kronop.float32)
        >>> described = [matrix, matrix, matrix, matrix, epilogue]  # of X1, X2, V and Y
        >>> linear = kronop.kernels.Linear()
        >>> operation = kronop.KernelMatmulOperation(90, None, *described, linear)
        >>> x1, x2, v = np.ones((2, 3)), np.ones((4, 3)), np.ones((4, 1))
        >>> operation.description.reference(x1, x2, v).tolist()
        [[12.0], [12.0]]
    """

    math: MathInstruction
    tile: TileDescription | None
    X1: TensorDescription
    X2: TensorDescription
    V: TensorDescription
    Y: TensorDescription
    epilogue: Epilogue
    kernel: Form = field(metadata={"plain": form_of})

    def __post_init__(self) -> None:
        inputs = {"X1": self.X1, "X2": self.X2, "V": self.V}
        check_operands(self.math, self.tile, self.epilogue, inputs, self.Y)
        check_points_element(self.X1)
        check_form(self.kernel)

    def x_shape(self, rows: Any) -> tuple[int, int]:
        return getattr(rows, "m", rows), getattr(rows, "k", _SAMPLE_FEATURES)

    def y_shape(self, rows: Any) -> tuple[int, int]:
        return getattr(rows, "m", rows), getattr(rows, "c", _SAMPLE_COLUMNS)

    def operands(self, rows: Any) -> dict[str, Any]:
        """Shapes of points and of V, in the order of `reference`; `rows` may be a size."""
        (m, k), columns = self.x_shape(rows), self.y_shape(rows)[1]
        n = getattr(rows, "n", _SAMPLE_POINTS)
        return {"X1": (m, k), "X2": (n, k), "V": (n, columns)}

    def reference(
        self,
        x1: Any,
        x2: Any,
        v: Any,
        z: Any = None,
        output_op: EpilogueArguments | None = None,
        values: Any = (),
        vectors: Any = (),
    ) -> Any:
        """The result in NumPy, in float64: (..., M, C)."""
        wide = widen(self.math.element_accumulator)
        x1, x2, v = (np.asarray(item, wide) for item in (x1, x2, v))
        matrix = self.kernel.evaluate(x1, x2, values, vectors)
        return finish(self.epilogue, output_op, np.asarray(matrix, wide) @ v, z)


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelMatmulProblem(DistanceProblem):
    """A product over N of M x N kernels of K features and N x C numbers.

    Attributes:
        c: columns of V and of the result.
        v: `row` is the stride of n, `column` that of c.
        workspace: the address of scratch memory.
    """

    c: int
    v: Strided
    workspace: int

    @property
    def size(self) -> KernelMatmulSize:
        """The size, as arguments tell it."""
        operands = {"own_x1": [self.x1], "own_x2": [self.x2], "own_points": [self.x1, self.x2]}
        own = {
            name: math.prod(varying(self.batch, *(item.batch for item in items)))
            for name, items in (operands | {"own_v": [self.v]}).items()
        }
        return KernelMatmulSize(self.m, self.n, self.k, math.prod(self.batch), self.c, **own)
