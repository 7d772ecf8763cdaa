"""Y[m, n] = epilogue(kernel(X1[m], X2[n]) + regularization [m + diagonal = n], Z[m, n]).

X1 is (M, K): M points of K features; X2 is (N, K), Y and Z are (M, N). The kernel is a function of
sums over the K features, such as the distance of two points (`form`).
"""

from __future__ import annotations

from dataclasses import field
from typing import Any

import numpy as np

from kronop.descriptions.epilogue import Epilogue
from kronop.descriptions.math_instruction import MathInstruction
from kronop.descriptions.numeric import finish, widen
from kronop.descriptions.scalars import EpilogueArguments
from kronop.descriptions.shared import check_flag, check_operands
from kronop.descriptions.strided import Strided
from kronop.descriptions.tensor import TensorDescription
from kronop.descriptions.tile import TileDescription
from kronop.errors import DescriptionError, ElementTypeError, mismatch
from kronop.families.distance.form import Form
from kronop.families.distance.kernels import Kernel
from kronop.families.distance.values import short
from kronop.frozen import dataclass

# What a description's test data have where its sizes leave a choice.
_SAMPLE_POINTS, _SAMPLE_FEATURES = 37, 9


def form_of(name: str, kernel: Any) -> Form:
    """The form of a kernel for points without a batch; a form as it is."""
    if isinstance(kernel, Kernel):
        return kernel.bound().form
    if isinstance(kernel, Form):
        return kernel
    raise ElementTypeError(
        mismatch(
            name,
            expected="a kernel",
            got=short(kernel),
            hint="take one of kronop.kernels, or the form of one: kernel.bound(batch_dims).form",
        )
    )


def check_points_element(points: TensorDescription) -> None:
    """Raises ElementTypeError unless their elements are floats of 16 to 64 bits."""
    if points.element.kind != "float" or points.element.bytes < 2:
        raise ElementTypeError(
            mismatch(
                "element type of points",
                expected="float64, float32, float16 or bfloat16",
                got=repr(points.element),
                hint="convert the points",
            )
        )


def check_form(kernel: object) -> None:
    """Raises ElementTypeError unless it is a form, DescriptionError unless its parts fit."""
    if not isinstance(kernel, Form):
        raise ElementTypeError(
            mismatch("kernel", expected="a Form", got=repr(kernel), hint="bind a kernel")
        )
    kernel.check()


@dataclass(frozen=True, slots=True, kw_only=True)
class DistanceDescription:
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

    math: MathInstruction
    tile: TileDescription | None
    X1: TensorDescription
    X2: TensorDescription
    Y: TensorDescription
    epilogue: Epilogue
    kernel: Form = field(metadata={"plain": form_of})
    symmetric: bool = False
    expanded: bool = False

    def __post_init__(self) -> None:
        check_operands(
            self.math, self.tile, self.epilogue, {"X1": self.X1, "X2": self.X2}, self.Y, trees=True
        )
        check_points_element(self.X1)
        check_form(self.kernel)
        check_flag("symmetric", self.symmetric)
        check_flag("expanded", self.expanded)
        if self.symmetric and self.X1 != self.X2:
            raise DescriptionError(
                mismatch(
                    "X2 of a symmetric operation",
                    expected=repr(self.X1),
                    got=repr(self.X2),
                    hint="describe X1 and X2 alike, since they are the same points",
                )
            )

    def x_shape(self, rows: Any) -> tuple[int, int]:
        m = getattr(rows, "m", rows)
        return m, getattr(rows, "k", _SAMPLE_FEATURES)

    def y_shape(self, rows: Any) -> tuple[int, int]:
        m = getattr(rows, "m", rows)
        return m, m if self.symmetric else getattr(rows, "n", _SAMPLE_POINTS)

    def operands(self, rows: Any) -> dict[str, Any]:
        """Shapes of points, in the order of `reference`; `rows` may be a size. X1 alone if X2 is
        X1."""
        (m, k), n = self.x_shape(rows), self.y_shape(rows)[1]
        return {"X1": (m, k)} if self.symmetric else {"X1": (m, k), "X2": (n, k)}

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


def varying(extents: tuple[int, ...], *strides: tuple[int, ...]) -> tuple[int, ...]:
    """The batch's extents, with 1 for those over which all operands of these strides repeat."""
    every = zip(extents, zip(*strides, strict=True), strict=True)
    return tuple(extent if any(steps) else 1 for extent, steps in every)


@dataclass(frozen=True, slots=True)
class Value:
    """A value of the kernel: a number, or one per problem in memory if `pointer` is not 0."""

    number: float
    pointer: int = 0
    batch: tuple[int, ...] = ()
    column: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class DistanceProblem:
    """M x N pairs of K features.

    Attributes:
        batch: extents of the leading dimensions, at most 4.
        z: None where beta is 0.
        values, vectors: in the order of the form. Vectors have a `column` stride over features.
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
