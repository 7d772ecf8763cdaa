"""`Matrices`: a stack of matrices in column-major memory, the form in which libraries take them."""

from __future__ import annotations

from kronop.args.frameworks import view
from kronop.descriptions.datatype import DataType
from kronop.frozen import dataclass
from kronop.tensors import Tensor


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Matrices:
    """Matrices of one shape.

    Attributes:
        tensor: of shape (count, rows, columns); the elements of a column are adjacent in memory.
        pointer: the address of the first element.
        leading: elements from one column to the next.
        step: elements from one matrix to the next.
        element: the element type.
    """

    tensor: Tensor
    pointer: int
    leading: int
    step: int
    element: DataType

    @property
    def count(self) -> int:
        return int(self.tensor.shape[0])

    @property
    def rows(self) -> int:
        return int(self.tensor.shape[1])

    @property
    def columns(self) -> int:
        return int(self.tensor.shape[2])

    @property
    def bytes_between(self) -> int:
        return self.step * self.element.bytes

    def address(self, index: int) -> int:
        """The address of one of the matrices."""
        return self.pointer + index * self.bytes_between


def matrices(tensor: Tensor) -> Matrices:
    """The matrices of a tensor (count, rows, columns) whose columns lie in adjacent memory."""
    item = view(tensor, "matrices")
    _, rows, columns = item.shape
    return Matrices(
        tensor=tensor,
        pointer=item.pointer,
        # The stride of a single column says nothing, and libraries refuse less than the rows.
        leading=item.strides[2] if columns > 1 else max(rows, 1),
        step=item.strides[0],
        element=item.element,
    )
