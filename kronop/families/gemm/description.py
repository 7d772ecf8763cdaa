"""D = epilogue(A B, C, bias), and D_g = epilogue(A_g B_g, C_g) for the products g of a group.

A is (M, K), B is (K, N), C and D are (M, N), bias is (N) and is added to each row. M, N and K vary
between runs of one operation, and between the products of a group. Leading dimensions are batches.
"""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import numpy as np

from kronop.descriptions.datatype import AnyLayout, InterleavedLayout, Layout, float32, tfloat32
from kronop.descriptions.epilogue import Epilogue
from kronop.descriptions.numeric import finish, widen
from kronop.descriptions.scalars import EpilogueArguments
from kronop.descriptions.shaped import Shaped
from kronop.descriptions.shared import check_flag, check_operands
from kronop.descriptions.strided import Strided
from kronop.descriptions.tensor import TensorDescription
from kronop.descriptions.visitor import VisitorEpilogue
from kronop.errors import DescriptionError
from kronop.families.gemm import panels
from kronop.families.gemm.size import GemmSize
from kronop.families.gemm.vocabulary import IdentitySwizzle1, SchedulerMode, Swizzle, check_word
from kronop.frozen import dataclass

# What a description's test data have where its sizes leave a choice.
_SAMPLE_COLUMNS, _SAMPLE_DEPTH, _SAMPLE_PRODUCTS = 37, 29, 3


def check_product(what: Shaped, layouts: tuple[type[AnyLayout], ...]) -> None:
    """Checks the types and layouts of products of A and B, as `check_operands` does.

    Args:
        layouts: the classes of layouts that they may have.
    """
    math = what.math
    if getattr(math, "element_a", None) is tfloat32:
        # In memory it is float32, whose last bits the tensor cores drop.
        math = dataclasses.replace(math, element_a=float32, element_b=float32)
    how = {"trees": True, "schedules": True, "half_sums": True}
    check_operands(what, "AB", math=math, called="C", layouts=layouts, **how)


@dataclass(frozen=True, slots=True, kw_only=True)
class OfProducts(Shaped):
    """What is said of one product, and of each of a group."""

    A: TensorDescription
    B: TensorDescription
    Y: TensorDescription
    epilogue: Epilogue
    swizzling_functor: Swizzle = IdentitySwizzle1


@dataclass(frozen=True, slots=True, kw_only=True)
class GemmDescription(OfProducts):
    """The frozen description of a matrix product.

    Attributes:
        math: multiply-add. Its `element_a` is the type of A and B; tfloat32 stands for float32.
        tile: tile sizes that the user chose, or None.
        A, B: descriptions of the operands, (M, K) and (K, N).
        Y: description of C and D, (M, N).
        epilogue: what is done with the sums.
        swizzling_functor: the order in which a GPU takes tiles.
        visitor: the epilogue is a visitor tree.

    Raises:
        DescriptionError: types, or what was promised of tensors, do not agree.
        ElementTypeError: an argument has the wrong class.

    Example:
        >>> matrix = kronop.TensorDescription(kronop.float16, kronop.RowMajor, 8)
        >>> epilogue = kronop.LinearCombination(kronop.float16, 8, kronop.float32, kronop.float32)
        >>> operation = kronop.GemmOperationUniversal(90, None, matrix, matrix, matrix, epilogue)
        >>> operation.description.A.alignment
        8
        >>> operation.description.reference(np.ones((2, 3)), np.ones((3, 2))).tolist()
        [[3.0, 3.0], [3.0, 3.0]]
    """

    visitor: bool = False

    def __post_init__(self) -> None:
        check_product(self, (Layout, InterleavedLayout))
        check_flag("visitor", self.visitor)
        panels.check_layouts({"A": self.A, "B": self.B, "C": self.Y}, visitor=self.visitor)
        is_tree = isinstance(self.epilogue, VisitorEpilogue)
        if self.visitor != is_tree:
            raise DescriptionError(
                "visitor",
                expected=f"{is_tree}, as the epilogue is {'a' if is_tree else 'no'} tree",
                got=repr(self.visitor),
                hint="pass visitor=True with what kronop.epilogue_visitor gave, and only there",
            )
        check_word("swizzling_functor", self.swizzling_functor, Swizzle)

    @property
    def interleaved(self) -> bool:
        """Whether A, B, C and D are arrays of panels."""
        return self.Y.interleaved

    def shapes(self, size: Any) -> dict[str, Any]:
        m = getattr(size, "m", size)
        n, k = getattr(size, "n", _SAMPLE_COLUMNS), getattr(size, "k", _SAMPLE_DEPTH)
        matrices = {"A": (m, k), "B": (k, n), "Y": (m, n)}
        return {
            name: panels.shape_in_memory(matrix, getattr(self, name).layout)
            for name, matrix in matrices.items()
        }

    def reference(
        self,
        a: Any,
        b: Any,
        z: Any = None,
        output_op: EpilogueArguments | None = None,
        bias: Any = None,
    ) -> Any:
        """The result in NumPy, in float64 or int64: (..., M, N). `z` is C.

        A visitor tree gives a dictionary of its results, by their names. Interleaved operands are
        matrices here.
        """
        wide = widen(self.math.element_accumulator)
        product = np.asarray(a, wide) @ np.asarray(b, wide)
        return finish(self.epilogue, output_op, product, z, bias)


@dataclass(frozen=True, slots=True, kw_only=True)
class GemmProblem:
    """One product, or a batch of them, with its memory.

    Attributes:
        m, n, k: the extents; k may be 0.
        batch: extents of the leading dimensions, at most 4.
        a, b, y: the operands and the result; `row` and `column` are strides in elements, of any
            sign; a stride of an operand's `batch` is 0 where it repeats. Interleaved ones are in
            their panels on a GPU: `row` is the stride in a panel, `column` that of panels. On a CPU
            they are copies that are not interleaved.
        z: the source C; None where beta is 0. Its memory may be just that of `y`.
        bias: row 0 of it has one number for each column of the result (`row` is 0), of the
            result's type; None if there is none.
        visited: operands, then auxiliary results of a visitor tree; strides are 0 where a row or a
            column repeats, or is reduced.
        scalars: alpha, beta, then those of the activation; those of a visitor tree.
        slices: parts of the sum that run side by side.
        threads: of a host.
        workspace: the address of the plan's scratch memory; 0 if it needs none.
    """

    m: int
    n: int
    k: int
    batch: tuple[int, ...]
    a: Strided
    b: Strided
    y: Strided
    z: Strided | None
    bias: Strided | None
    scalars: tuple[float, ...]
    threads: int
    visited: tuple[Strided, ...] = ()
    slices: int = 1
    workspace: int = 0

    @property
    def size(self) -> GemmSize:
        return GemmSize(self.m, self.n, self.k, self.problems, self.slices)

    @property
    def problems(self) -> int:
        """How many products the batch has."""
        return math.prod(self.batch)

    @property
    def transposed(self) -> GemmProblem:
        """The problem of the transposed result, the product of B and A, both transposed."""
        z, bias = self.z, self.bias
        return dataclasses.replace(
            self,
            m=self.n,
            n=self.m,
            a=self.b.transposed,
            b=self.a.transposed,
            y=self.y.transposed,
            z=z and z.transposed,
            bias=bias and bias.transposed,
            visited=tuple(item.transposed for item in self.visited),
        )

    def in_memory(self, epilogue: VisitorEpilogue) -> tuple[Strided, ...]:
        """A visitor tree's operands, then its results, D first."""
        count = len(epilogue.tree.tensors)
        return (*self.visited[:count], self.y, *self.visited[count:])


@dataclass(frozen=True, slots=True, kw_only=True)
class GemmGroupedDescription(OfProducts):
    """The frozen description of a group of matrix products.

    Attributes:
        math, tile, A, B, Y, epilogue, swizzling_functor: those of each product, as in a
            GemmDescription.
        precompute_mode: where PyCUTLASS decides which block computes which tile. Launches here hold
            that in their parameters, so both modes run the same kernels.

    Raises:
        DescriptionError: types, or what was promised of tensors, do not agree.
        ElementTypeError: an argument has the wrong class.

    Example:
        >>> matrix = kronop.TensorDescription(kronop.float16, kronop.RowMajor, 8)
        >>> epilogue = kronop.LinearCombination(kronop.float16, 8, kronop.float32, kronop.float32)
        >>> operation = kronop.GemmOperationGrouped(90, None, matrix, matrix, matrix, epilogue)
        >>> operation.description.precompute_mode.name, operation.description.product.A.alignment
        ('Device', 8)
    """

    precompute_mode: SchedulerMode = SchedulerMode.Device

    def __post_init__(self) -> None:
        if isinstance(self.epilogue, VisitorEpilogue):
            raise DescriptionError(
                "epilogue of a group",
                expected="one of the four functors",
                got="a visitor tree",
                hint="only kronop.GemmOperationUniversal, with visitor=True, takes trees",
            )
        _ = self.product  # Checks what it shares with each product.
        check_word("precompute_mode", self.precompute_mode, SchedulerMode)

    @property
    def product(self) -> GemmDescription:
        """The description of each product."""
        shared = dataclasses.fields(OfProducts)
        return GemmDescription(**{item.name: getattr(self, item.name) for item in shared})

    def shapes(self, size: Any) -> dict[str, Any]:
        """Those of stacked operands."""
        return {name: (_SAMPLE_PRODUCTS, *own) for name, own in self.product.shapes(size).items()}

    def reference(
        self, a: Any, b: Any, z: Any = None, output_op: EpilogueArguments | None = None
    ) -> Any:
        """The results in NumPy, of stacked operands: (products, M, N)."""
        return self.product.reference(a, b, z, output_op)


@dataclass(frozen=True, slots=True, kw_only=True)
class GemmGroupedProblem:
    """The products of a group, with their memory; they share a workspace, one after the other."""

    problems: tuple[GemmProblem, ...]
