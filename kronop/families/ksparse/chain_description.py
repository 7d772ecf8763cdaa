"""The family of chains of Kronecker-sparse factors: Y = epilogue(X K1' K2' ... KL').

K1 is the right-most factor of the matrix product KL ... K2 K1 and is applied first. Batch first, X
is (B, a1 c1 d1) and Y (B, aL bL dL); batch last, X is (a1 c1 d1, B) and Y = KL ... K1 X is
(aL bL dL, B). See `description` for one factor. The results between two factors are rounded to the
tensors' element type.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import field
from typing import Any

from kronop.descriptions.datatype import result_type
from kronop.descriptions.epilogue import Epilogue
from kronop.descriptions.shared import LISTS_OF_INTEGERS, check_flag, check_operands, check_sizes
from kronop.descriptions.strided import Strided
from kronop.descriptions.tensor import TensorDescription
from kronop.errors import DescriptionError, KronopError
from kronop.families.ksparse.description import (
    Ends,
    OfFeatures,
    Pattern,
    check_weights,
    inputs_of,
    outputs_of,
)
from kronop.frozen import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class KSparseChainDescription(OfFeatures):
    """Products with Kronecker-sparse factors, one after the other, as of `KSparseChainOperation`.

    Attributes:
        math: the multiply-add; `tile.math_instruction` where a tile is given.
        tile: tile sizes of every product, each of which is then a step of its own; None for the
            planner's choice.
        X: the operand.
        W: the weights of all factors, which have one description.
        Y: the result (Z is like Y).
        epilogue: what happens to the last product.
        patterns: (a, b, c, d) of each factor, the first applied first.
        batch_last: X is (a c d, B) and Y (a b d, B), instead of (B, a c d) and (B, a b d).

    Raises:
        DescriptionError: element types that differ, sizes that are not positive, factors that do
            not follow each other, or an alignment of W that no such weights can have.
        ElementTypeError: what is no description or epilogue.

    Example:
        >>> tensor = kronop.TensorDescription(kronop.float32)
        >>> epilogue = kronop.LinearCombination(kronop.float32, 1, kronop.float32, kronop.float32)
        >>> what = kronop.KSparseChainDescription(
        ...     math=kronop.MathInstruction.simt(kronop.float32), tile=None,
        ...     X=tensor, W=tensor, Y=tensor, epilogue=epilogue,
        ...     patterns=((1, 8, 16, 2), (8, 3, 2, 1)),
        ... )
        >>> what.x_shape(16), what.y_shape(16)
        ((16, 32), (16, 24))
        >>> weights = [np.ones((1, 8, 16, 2)), np.ones((8, 3, 2, 1))]
        >>> what.reference(np.ones((16, 32)), weights).max().item()  # 16 x 2
        32.0
    """

    X: TensorDescription
    W: TensorDescription
    Y: TensorDescription
    epilogue: Epilogue
    patterns: tuple[Pattern, ...] = field(metadata=LISTS_OF_INTEGERS)
    batch_last: bool = False

    def __post_init__(self) -> None:
        check_operands(self, ("X", "W"), trees=True)
        check_flag("batch_last", self.batch_last)
        _check_patterns(self.patterns)
        check_weights(self.W, self.patterns)
        element = self.X.element
        if len(self.patterns) > 1 and result_type(element) != element:
            raise DescriptionError(
                "element of X in a chain",
                expected="a type that results have as well",
                got=f"{element!r}, of which results are {result_type(element)!r}",
                hint="use that type for all tensors, or a KSparseOperation for each factor",
            )

    @property
    def weights(self) -> dict[str, Any]:
        return {"weights": list(self.patterns)}


def _check_patterns(patterns: object) -> None:
    if not isinstance(patterns, tuple) or not patterns:
        raise DescriptionError(
            "patterns",
            expected="at least one (a, b, c, d)",
            got=repr(patterns),
            hint="give the pattern of every factor, the right-most one first",
        )
    for index, pattern in enumerate(patterns):
        check_sizes(f"patterns[{index}]", ("a", "b", "c", "d"), pattern)
    check_chain(patterns, "patterns", DescriptionError)


def check_chain(patterns: Sequence[Pattern], name: str, error: type[KronopError]) -> None:
    """Raises the error if a factor takes other features than the one before gives.

    Args:
        name: what messages call the factors.
    """
    for index, (before, pattern) in enumerate(itertools.pairwise(patterns), 1):
        given, taken = outputs_of(before), inputs_of(pattern)
        if given != taken:
            raise error(
                f"{name}[{index}]",
                expected=f"a c d = {given}, the outputs of {name}[{index - 1}]",
                got=f"{taken} from {pattern}",
                hint="list the right-most factor first",
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class KSparseChainProblem(Ends):
    """A chain with its memory.

    Attributes:
        weights: of each factor.
    """

    weights: tuple[Strided, ...]
