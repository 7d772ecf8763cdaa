"""Arguments of chains of Kronecker-sparse factors: tensors -> KSparseChainProblem."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from kronop.args.checks import description_of
from kronop.args.protocols import OperationLike, Places
from kronop.args.tensor import listed
from kronop.descriptions.scalars import EpilogueArguments
from kronop.errors import ArgumentError, ElementTypeError, mismatch
from kronop.families.ksparse.arguments import SparseArguments
from kronop.families.ksparse.chain_description import (
    KSparseChainDescription,
    KSparseChainProblem,
)
from kronop.families.ksparse.description import Pattern


class KSparseChainArguments(SparseArguments):
    """Y = epilogue(X K1' ... KL'), or KL ... K1 X with batch_last, for the factors' weights.

    Args:
        operation: a KSparseChainOperation.
        X: (..., a c d) of the first factor, or (a c d, ...) with batch_last; the other dimensions
            are the batch. A vector is a batch of 1.
        weights: one (a, b, c, d) tensor for each factor, any strides, in the order of the patterns.
        Z: like Y; needed where beta is not 0, and read only there. It may be Y itself.
        Y: where the result goes, shaped as X with a b d features of the last factor; None for a
            new tensor like X.
        bias: (a b d,) of Y's element type, added to every row; or None.
        output_op: `operation.epilogue_type(alpha, beta, ...)`; None for its defaults, without Z.

    A batch that no single stride walks is copied (Y: written through a copy). Everything is
    checked here; nothing is computed, and nothing but Y is allocated, before the first run.

    Raises:
        ElementTypeError: not a tensor, or another element type than the operation's.
        ArgumentError: shapes, strides, alignment, devices or overlaps that do not fit.
        OutOfMemoryError: no room for Y.

    Example:
        >>> tensor = kronop.TensorDescription(kronop.float32)
        >>> epilogue = kronop.LinearCombination(kronop.float32, 1, kronop.float32, kronop.float32)
        >>> operation = kronop.KSparseChainOperation(
        ...     "x86", None, tensor, tensor, tensor, epilogue, patterns=((2, 8, 8, 1), (2, 8, 8, 1))
        ... )
        >>> rng = np.random.default_rng(0)
        >>> x = rng.standard_normal((4, 16), np.float32)
        >>> w = rng.standard_normal((2, 8, 8, 1), np.float32)
        >>> arguments = kronop.KSparseChainArguments(operation=operation, X=x, weights=[w, w])
        >>> operation.run(arguments)
        >>> bool(np.allclose(arguments.Y, kronop.ksmm(kronop.ksmm(x, w), w), atol=1e-3))
        True
    """

    _description: KSparseChainDescription

    def __init__(
        self,
        *,
        operation: OperationLike,
        X: Any,
        weights: Sequence[Any],
        Z: Any = None,
        Y: Any = None,
        bias: Any = None,
        output_op: EpilogueArguments | None = None,
    ) -> None:
        what = description_of(operation, KSparseChainDescription)
        named = _named(weights, len(what.patterns))
        super().__init__(operation, KSparseChainDescription, X, named, Z, Y, bias, output_op)

    @property
    def _patterns(self) -> Mapping[str, Pattern]:
        return {_name(index): item for index, item in enumerate(self._description.patterns)}

    def _problem(self, places: Places, workspace: int) -> KSparseChainProblem:
        weights = tuple(self._place_weights(places, name) for name in self._weights)
        return KSparseChainProblem(weights=weights, **self._ends(places, workspace))


def _name(index: int) -> str:
    return f"weights[{index}]"


def _named(weights: Sequence[Any], count: int) -> dict[str, Any]:
    found = listed(weights)
    if found is None:
        raise ElementTypeError(
            mismatch(
                "weights",
                expected="a list or tuple of tensors",
                got=type(weights).__name__,
                hint="give the weights of every factor, in the order of the patterns",
            )
        )
    if len(found) != count:
        raise ArgumentError(
            mismatch(
                "weights",
                expected=f"{count} tensors, one for each pattern",
                got=f"{len(found)}",
                hint="give the weights of every factor, in the order of the patterns",
            )
        )
    return {_name(index): item for index, item in enumerate(found)}
