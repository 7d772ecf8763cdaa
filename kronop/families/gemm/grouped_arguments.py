"""Arguments of groups of products: lists of tensors -> GemmGroupedProblem."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any, ClassVar

from kronop.args.protocols import OperationLike, Places
from kronop.descriptions.scalars import EpilogueArguments
from kronop.families.gemm.arguments import GemmArguments
from kronop.families.gemm.grouped_description import GemmGroupedDescription, GemmGroupedProblem
from kronop.families.gemm.member_arguments import Members, lists_of
from kronop.families.gemm.vocabulary import GemmCoord

_OWN = {"problem_sizes": "problem_size", "biases": "bias"}


class GemmGroupedArguments(Members):
    """The tensors and scalars of a group of matrix products, `D_g = epilogue(A_g B_g, C_g)` for
    each product g.

    Args:
        operation: a GemmOperationGrouped.
        problem_sizes: a `kronop.gemm.GemmCoord` for each product; None for what the tensors'
            shapes say. With it, tensors may be flat, as of GemmArguments.
        A, B: lists of tensors (M, K) and (K, N), each of its own sizes; or a stacked tensor.
        C: a list of tensors (M, N), or a stacked one; needed where beta is not 0.
        D: where the results go, likewise; None for new tensors.
        output_op: `operation.epilogue_type(alpha, beta, ...)`, of all products.
        biases: a list of tensors (N), likewise; None for none.

    Raises:
        ElementTypeError: not a list, a tensor's element type, or what is no tensor.
        ArgumentError: lists of other lengths, results that overlap, or a product whose arguments do
            not fit: the message has its number.
        OutOfMemoryError: no room for a result.

    Example:
        >>> matrix = kronop.TensorDescription(kronop.float32)
        >>> epilogue = kronop.LinearCombination(kronop.float32, 1, kronop.float32, kronop.float32)
        >>> operation = kronop.GemmOperationGrouped("x86", None, matrix, matrix, matrix, epilogue)
        >>> As = [np.ones((2, 3), np.float32), np.ones((1, 5), np.float32)]
        >>> Bs = [np.ones((3, 2), np.float32), np.ones((5, 4), np.float32)]
        >>> arguments = kronop.GemmGroupedArguments(operation=operation, A=As, B=Bs)
        >>> [product.shape for product in arguments.D]
        [(2, 2), (1, 4)]
    """

    describes: ClassVar[type] = GemmGroupedDescription
    made_for = "GemmOperationGrouped"

    def __init__(
        self,
        operation: OperationLike,
        problem_sizes: Sequence[GemmCoord] | None = None,
        A: Any = None,
        B: Any = None,
        C: Any = None,
        D: Any = None,
        output_op: EpilogueArguments | None = None,
        biases: Any = None,
    ) -> None:
        super().__init__(operation, output_op)
        others = {"problem_sizes": problem_sizes, "C": C, "D": D, "biases": biases}
        lists = lists_of({"A": A, "B": B}, others)
        product: Any = operation
        make = functools.partial(GemmArguments, product.product, output_op=self.output_op)
        self._take_members(
            make, {_OWN.get(name, name): items for name, items in lists.items()}, "the group"
        )

    @property
    def D(self) -> tuple[Any, ...]:
        """The tensors of the results."""
        return self.results

    def _problem(self, places: Places, workspace: int) -> GemmGroupedProblem:
        problems = tuple(member._problem(places, workspace) for member in self._sizes)
        return GemmGroupedProblem(problems=problems)
