"""D_g = epilogue(A_g B_g, C_g) for the products g of a group, each of its own M, N and K."""

from __future__ import annotations

import dataclasses
from typing import Any

from kronop.descriptions.scalars import EpilogueArguments
from kronop.descriptions.visitor import VisitorEpilogue
from kronop.errors import DescriptionError, ElementTypeError
from kronop.families.gemm.description import GemmDescription, GemmProblem, OfProducts
from kronop.families.gemm.vocabulary import SchedulerMode
from kronop.frozen import dataclass

# The products of a description's test data.
_SAMPLES = 3


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
        if not isinstance(self.precompute_mode, SchedulerMode):
            raise ElementTypeError(
                "precompute_mode",
                expected="kronop.SchedulerMode.Device or .Host",
                got=repr(self.precompute_mode),
                hint="name one of the two",
            )

    @property
    def product(self) -> GemmDescription:
        """The description of each product."""
        shared = dataclasses.fields(OfProducts)
        return GemmDescription(**{item.name: getattr(self, item.name) for item in shared})

    def shapes(self, size: Any) -> dict[str, Any]:
        """Those of stacked operands."""
        return {name: (_SAMPLES, *own) for name, own in self.product.shapes(size).items()}

    def reference(
        self, a: Any, b: Any, z: Any = None, output_op: EpilogueArguments | None = None
    ) -> Any:
        """The results in NumPy, of stacked operands: (products, M, N)."""
        return self.product.reference(a, b, z, output_op)


@dataclass(frozen=True, slots=True, kw_only=True)
class GemmGroupedProblem:
    """The products of a group, with their memory; they share a workspace, one after the other."""

    problems: tuple[GemmProblem, ...]
