"""Y[m, n] = epilogue(kernel(X1[m], X2[n]) + regularization [m + diagonal = n], Z[m, n]).

X1 is (M, K): M points of K features; X2 is (N, K), Y and Z are (M, N). The kernel is a function of
sums over the K features, such as the distance of two points (`form`).

The product with a matrix V, (N, C), has the same matrix, which is computed piece by piece and never
stored: Y[m, c] = epilogue(sum over n of (kernel(X1[m], X2[n]) + regularization [m = n]) V[n, c],
Z[m, c]), with Y and Z of (M, C).
"""

from __future__ import annotations

from dataclasses import field
from typing import Any

import numpy as np

from kronop.descriptions.epilogue import Epilogue
from kronop.descriptions.numeric import finish, widen
from kronop.descriptions.scalars import EpilogueArguments
from kronop.descriptions.shaped import Shaped
from kronop.descriptions.shared import check_flag, check_operands
from kronop.descriptions.strided import NOTHING, Strided
from kronop.descriptions.tensor import TensorDescription
from kronop.errors import DescriptionError, ElementTypeError
from kronop.families.distance.form import Form
from kronop.families.distance.kernels import Kernel
from kronop.families.distance.product_size import KernelMatmulSize
from kronop.families.distance.values import short
from kronop.frozen import dataclass

_SAMPLE = {"n": 37, "k": 9, "c": 3, "o": 3}


def extents_of(size: Any, names: str) -> list[int]:
    """Extents of a size by name; of rows M, with those of test data for the others."""
    return [getattr(size, name, _SAMPLE.get(name, size)) for name in names]


def form_of(name: str, kernel: Any) -> Form:
    """The form of a kernel for points without a batch; a form as it is."""
    if isinstance(kernel, Kernel):
        return kernel.bound().form
    if isinstance(kernel, Form):
        return kernel
    raise ElementTypeError(
        name,
        expected="a kernel",
        got=short(kernel),
        hint="take one of kronop.kernels, or the form of one: kernel.bound(batch_dims).form",
    )


def check_floats(operand: TensorDescription, of: str = "points", what: str = "points") -> None:
    """Raises ElementTypeError unless its elements are floats of 16 to 64 bits.

    Args:
        of, what: for the message: what these are the elements of, and what to convert.
    """
    if operand.element.kind != "float" or operand.element.bytes < 2:
        raise ElementTypeError(
            f"element type of {of}",
            expected="float64, float32, float16 or bfloat16",
            got=repr(operand.element),
            hint=f"convert the {what}",
        )


def check_form(kernel: object) -> None:
    """Raises ElementTypeError unless it is a form, DescriptionError unless its parts fit."""
    if not isinstance(kernel, Form):
        raise ElementTypeError("kernel", expected="a Form", got=repr(kernel), hint="bind a kernel")
    kernel.check()


@dataclass(frozen=True, slots=True, kw_only=True)
class DistanceDescription(Shaped):
    """The frozen description of distances, or of another kernel, between all pairs of points.

    Attributes:
        math: multiply-add; its type `element_a` is that of the points.
        tile: tile sizes that the user chose, or None.
        X1, X2, Y: descriptions of the points and of the result.
        epilogue: what is done with the kernel's value.
        kernel: the kernel's form.
        symmetric: X1 and X2 are the same memory, so that half of the pairs are computed.
        expanded: squared distances may be computed as `|x|^2 + |y|^2 - 2 x y`, by matrix products:
            their errors are relative to the largest square of a norm, not to the distance.

    Raises:
        DescriptionError: types, or what was promised of tensors, do not agree.
        ElementTypeError: an argument has the wrong class, or an element type that is no float of
            16 to 64 bits.

    Example:
        >>> points = kronop.TensorDescription(kronop.float32)
        >>> epilogue = kronop.LinearCombination(kronop.float32, 1, kronop.float32, kronop.float32)
        >>> norm = kronop.kernels.PowerNorm(2)
        >>> operation = kronop.DistanceOperation(90, None, points, points, points, epilogue, norm)
        >>> x, y = np.array([[0.0, 0.0], [3.0, 4.0]]), np.zeros((1, 2))
        >>> operation.description.reference(x, y).tolist()
        [[0.0], [5.0]]
    """

    X1: TensorDescription
    X2: TensorDescription
    Y: TensorDescription
    epilogue: Epilogue
    kernel: Form = field(metadata={"plain": form_of})
    symmetric: bool = False
    expanded: bool = False

    def __post_init__(self) -> None:
        check_operands(self, ("X1", "X2"), trees=True)
        check_floats(self.X1)
        check_form(self.kernel)
        check_flag("symmetric", self.symmetric)
        check_flag("expanded", self.expanded)
        if self.symmetric and self.X1 != self.X2:
            raise DescriptionError(
                "X2 of a symmetric operation",
                expected=repr(self.X1),
                got=repr(self.X2),
                hint="describe X1 and X2 alike, since they are the same points",
            )

    def shapes(self, size: Any) -> dict[str, Any]:
        """X1 stands alone if X2 is X1."""
        m, n, k = extents_of(size, "mnk")
        if self.symmetric:
            return {"X1": (m, k), "Y": (m, m)}
        return {"X1": (m, k), "X2": (n, k), "Y": (m, n)}

    def reference(
        self,
        x1: Any,
        x2: Any,
        z: Any = None,
        output_op: EpilogueArguments | None = None,
        values: Any = (),
        vectors: Any = (),
        diagonal: int = 0,
    ) -> Any:
        """The result in NumPy, in float64: (..., M, N)."""
        wide = widen(self.math.element_accumulator)
        matrix = self.kernel.evaluate(
            np.asarray(x1, wide), np.asarray(x2, wide), values, vectors, diagonal
        )
        return finish(self.epilogue, output_op, np.asarray(matrix, wide), z)


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelMatmulDescription(Shaped):
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

    X1: TensorDescription
    X2: TensorDescription
    V: TensorDescription
    Y: TensorDescription
    epilogue: Epilogue
    kernel: Form = field(metadata={"plain": form_of})

    def __post_init__(self) -> None:
        check_operands(self, ("X1", "X2", "V"))
        check_floats(self.X1)
        check_form(self.kernel)

    def shapes(self, size: Any) -> dict[str, Any]:
        m, n, k, c = extents_of(size, "mnkc")
        return {"X1": (m, k), "X2": (n, k), "V": (n, c), "Y": (m, c)}

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


def varying(extents: tuple[int, ...], *strides: tuple[int, ...]) -> tuple[int, ...]:
    """The batch's extents, with 1 for those over which all operands of these strides repeat."""
    every = zip(extents, zip(*strides, strict=True), strict=True)
    return tuple(extent if any(steps) else 1 for extent, steps in every)


@dataclass(frozen=True, slots=True)
class Value:
    """A value of the kernel: a number, or one or a vector for each problem in memory."""

    number: float = 0.0
    memory: Strided = NOTHING


@dataclass(frozen=True, slots=True, kw_only=True)
class DistanceProblem:
    """M x N pairs of K features.

    Attributes:
        batch: extents of the leading dimensions, at most 4.
        z: None where beta is 0.
        values, vectors: in the order of the form. Vectors have a stride over features.
        diagonal: row m and column m + diagonal are the same point.
        workspace: the address of the plan's scratch memory; 0 if it needs none.
    """

    m: int
    n: int
    k: int
    batch: tuple[int, ...]
    x1: Strided
    x2: Strided
    z: Strided | None
    y: Strided
    values: tuple[Value, ...]
    vectors: tuple[Value, ...]
    diagonal: int
    scalars: tuple[float, ...]
    threads: int
    workspace: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelMatmulProblem(DistanceProblem):
    """A product over N of M x N kernels of K features and N x C numbers.

    Attributes:
        size: as arguments tell it.
        c: columns of V and of the result.
        v: `row` is the stride of n, `column` that of c.
        workspace: the address of scratch memory.
    """

    size: KernelMatmulSize
    c: int
    v: Strided
    workspace: int
