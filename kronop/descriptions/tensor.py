"""Descriptions of tensors: what a kernel may assume about an operand's memory."""

from __future__ import annotations

from kronop.descriptions.datatype import (
    TENSOR_TYPES,
    AnyLayout,
    DataType,
    InterleavedLayout,
    Layout,
)
from kronop.errors import DescriptionError
from kronop.frozen import dataclass

_MOST_BYTES = 16


def widest(subject: str, count: object, element: DataType) -> int:
    """So many elements, or as many as an access of 16 bytes has.

    Raises:
        DescriptionError: `count` is no power of two.
    """
    if type(count) is not int or count < 1 or count & (count - 1):
        hint = f"for example 4; more than {_MOST_BYTES} bytes mean {_MOST_BYTES}"
        raise DescriptionError(subject, expected="a power of two", got=repr(count), hint=hint)
    return min(count, _MOST_BYTES // element.bytes)


@dataclass(frozen=True, slots=True)
class TensorDescription:
    """Element type, layout and alignment of an operand.

    Args:
        element: element type.
        layout: the index of the matrix that is contiguous (RowMajor: the last one); or, of an
            operand of a product of int8 or its result, that it is interleaved.
        alignment: in elements. 1 promises nothing: kernels accept any strides, and `layout` only
            says which index they walk first. More than 1 promises a stride of 1 along `layout`, and
            that the pointer and all other strides are multiples of `alignment`; kernels then
            access memory in units of `alignment` elements. More than 16 bytes mean 16 bytes.

    Raises:
        DescriptionError: `element` is not an element type of tensors, `layout` is not one of its
            layouts, or `alignment` is not a power of two.

    Example:
        >>> kronop.TensorDescription(kronop.float32)
        TensorDescription(element=kronop.float32, layout=kronop.RowMajor, alignment=1)
        >>> kronop.TensorDescription(kronop.float16, kronop.ColumnMajor, 8).alignment  # 16 bytes
        8
    """

    element: DataType
    layout: AnyLayout = Layout.RowMajor
    alignment: int = 1

    def __post_init__(self) -> None:
        if not isinstance(self.element, DataType) or self.element.name not in TENSOR_TYPES:
            raise DescriptionError(
                "element",
                expected=f"one of {', '.join(map(repr, TENSOR_TYPES.values()))}",
                got=repr(self.element),
                hint="a tensor must have one of these types",
            )
        self._check_layout()
        alignment = widest(f"alignment of {self.element.name}", self.alignment, self.element)
        object.__setattr__(self, "alignment", alignment)

    @property
    def interleaved(self) -> bool:
        """Whether the matrix is an array of panels."""
        return isinstance(self.layout, InterleavedLayout)

    def _check_layout(self) -> None:
        layouts = [*Layout, *InterleavedLayout]
        if isinstance(self.layout, AnyLayout):
            if self.element in self.layout.elements:
                return
            layouts += type(self.layout)
        taking = [item for item in dict.fromkeys(layouts) if self.element in item.elements]
        raise DescriptionError(
            f"layout of {self.element.name}",
            expected=f"one of {', '.join(map(repr, taking))}",
            got=repr(self.layout),
            hint="interleaved are operands of products of int8, and their results",
        )
