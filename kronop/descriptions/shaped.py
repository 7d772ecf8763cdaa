"""What descriptions of all families have: their first fields, and the shapes of operands."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from kronop.descriptions.epilogue import Epilogue
from kronop.descriptions.math_instruction import MathInstruction
from kronop.descriptions.tensor import TensorDescription
from kronop.descriptions.tile import TileDescription
from kronop.frozen import dataclass

Shape = tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Shaped:
    """A base of descriptions."""

    math: MathInstruction
    tile: TileDescription | None

    if TYPE_CHECKING:
        # Fields of all descriptions, which come behind those of a family's operands.
        Y: TensorDescription
        epilogue: Epilogue

    def shapes(self, size: Any) -> dict[str, Any]:
        """Shapes of the operands by name, in the order of `reference`, then of "Y", without batch
        dimensions; of one that is a list, a list.

        Args:
            size: the rows M, or a size of the family. Extents that rows leave open are some number.
        """
        raise NotImplementedError

    def x_shape(self, size: Any) -> Shape:
        """The shape of the first operand."""
        first: Shape = next(iter(self.shapes(size).values()))
        return first

    def y_shape(self, size: Any) -> Shape:
        """The shape of Y and Z."""
        found: Shape = self.shapes(size)["Y"]
        return found

    @property
    def adds_rows(self) -> bool:
        """Whether a bias is added to each row of the result as it is in memory."""
        return True

    def told(self, size: Any) -> Sequence[str]:
        """What an exported header says of a problem of this size beside the shapes."""
        return ()

    def operands(self, size: Any) -> dict[str, Any]:
        """The shapes of all operands but Z and Y."""
        return {name: shape for name, shape in self.shapes(size).items() if name != "Y"}
