"""Convolutions and their gradients as products of two of three tensors: images, filters, results.

Each is linear in both operands, and its gradient in either is such a product again. A product that
is mapped over its operands is one with more images, filters, channels or groups. Nothing here
depends on a framework; shapes are torch's: (N, C, H, W), (K, C / groups, R, S) and (N, K, P, Q).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from kronop.errors import ArgumentError
from kronop.families.conv2d.geometry import Shape
from kronop.families.conv2d.size import Conv2dSize, check_groups, shapes_of
from kronop.families.conv2d.vocabulary import Operator

Pair = tuple[int, int]
_BY_RESULT = {kind.tensors[2]: kind for kind in Operator}
# What users call the tensors.
CALLED = {"images": "x", "filters": "w", "results": "grad"}


class Form(NamedTuple):
    """What decides a convolution besides its tensors; hashable.

    Attributes:
        kind: a name of `Operator`.
        pixels: of the result, along both axes: (P, Q) of fprop, (H, W) of dgrad, (R, S) of wgrad.
        stride, padding, dilation: along both axes; the padding is that above and left of an image.
        groups: the channels and filters are divided in so many groups.
        activation: of fprop, or None.
    """

    kind: str
    pixels: Pair
    stride: Pair
    padding: Pair
    dilation: Pair
    groups: int
    activation: str | None = None

    @property
    def operator(self) -> Operator:
        return Operator[self.kind]

    @property
    def called(self) -> tuple[str, str]:
        """What messages call the operands."""
        first, second, _ = self.operator.tensors
        return CALLED[first], CALLED[second]

    def size(self, a: Shape, b: Shape) -> Conv2dSize:
        """The size for operands of these shapes.

        Raises:
            ArgumentError: the shapes don't fit each other.
        """
        kind = self.operator
        shapes: dict[str, Any] = dict(zip(kind.tensors, (a, b, self.shape(a, b)), strict=True))
        (n, c, *image), (k, _, *taps) = shapes["images"], shapes["filters"]
        extents: Any = (n, *image, c, k, *taps, *shapes["results"][2:])
        how: Any = (*self.padding, *self.stride, *self.dilation, self.groups)
        size = Conv2dSize(*extents, *how)
        for name, (first, *pixels, last) in shapes_of(size).items():
            if tuple(shapes[name]) != (first, last, *pixels):
                raise ArgumentError(
                    f"shape of {CALLED[name]}",
                    expected=(first, last, *pixels),
                    got=tuple(shapes[name]),
                    hint="images, filters and results are those of one convolution",
                )
        return size

    def shape(self, a: Shape, b: Shape) -> tuple[int, ...]:
        """The shape of the result, for operands of these shapes.

        Raises:
            ArgumentError: a shape is not of four axes.
        """
        kind = self.operator
        for name, shape in zip(kind.tensors[:2], (a, b), strict=True):
            if len(shape) != len("NCHW"):
                raise ArgumentError(
                    f"shape of {CALLED[name]}",
                    expected="four axes",
                    got=tuple(shape),
                    hint="(N, C, H, W), (K, C / groups, R, S) or (N, K, P, Q)",
                )
        lead = {
            Operator.fprop: (a[0], b[0]),
            Operator.dgrad: (a[0], b[1] * self.groups),
            Operator.wgrad: (a[1], b[1] // self.groups),
        }[kind]
        return (*lead, *self.pixels)

    def check(self, a: Shape, b: Shape) -> None:
        """Refuses operands whose images, channels, filters or groups don't fit each other.

        Raises:
            ArgumentError: they don't; shapes may have symbols.
        """
        shapes = dict(zip(self.operator.tensors, (a, b, self.shape(a, b)), strict=True))
        (n, c, *_), (k, channels, *_) = shapes["images"], shapes["filters"]
        check_groups(self.groups, c, k)
        if (*shapes["results"][:2], c) != (n, k, channels * self.groups):
            raise ArgumentError(
                f"shapes of {' and '.join(self.called)}",
                expected=f"those of one convolution in {self.groups} groups",
                got=f"{tuple(a)} and {tuple(b)}",
                hint="x is (N, C, H, W), w (K, C / groups, R, S), grad (N, K, P, Q)",
            )

    def gradient(
        self, at: int, operands: Sequence[Any], grad: Any, pixels: Sequence[int]
    ) -> tuple[Form, Any, Any]:
        """The product (its form, A, B) that is the gradient in operand `at`.

        Args:
            operands: both; that at `at` is not read.
            grad: the gradient of the result.
            pixels: those of operand `at`, along both axes.
        """
        tensors, (h, w) = self.operator.tensors, pixels
        kind = _BY_RESULT[tensors[at]]
        known = {tensors[1 - at]: operands[1 - at], tensors[2]: grad}
        form = self._replace(kind=kind.name, pixels=(h, w), activation=None)
        first, second = (known[name] for name in kind.tensors[:2])
        return form, first, second


class _Place(NamedTuple):
    """An axis that the mapped one becomes a part of.

    Attributes:
        channels: it is that of the channels (of results: of the filters); else the first.
        grouped: groups are its first digit, which the mapped axis comes behind.
    """

    channels: bool
    grouped: bool


# By the tensor that is not mapped, if any: the axes that the others share.
_SHARED: Mapping[str | None, Mapping[str, _Place]] = {
    "filters": {"images": _Place(False, False), "results": _Place(False, False)},
    "images": {"filters": _Place(False, True), "results": _Place(True, True)},
    "results": {"images": _Place(True, True), "filters": _Place(True, False)},
    # Each index of the mapped axis has groups of its own.
    None: {
        "images": _Place(True, False),
        "filters": _Place(False, False),
        "results": _Place(True, False),
    },
}
Move = Callable[[Any, int, int], Any]
Multiply = Callable[[Form, Any, Any], Any]


def mapped(
    form: Form,
    operands: Sequence[Any],
    are: Sequence[bool],
    channels: int,
    move: Move,
    multiply: Multiply,
) -> Any:
    """A product that is mapped over one operand or both, as one product; the mapped axis of the
    result is the first.

    Args:
        operands: with the mapped axis in front.
        are: whether each is mapped.
        channels: the axis of the channels in what is not mapped.
        move: `movedim` of the framework.
        multiply: computes the product.
    """
    tensors = form.operator.tensors
    alone = next((name for name, is_one in zip(tensors, are, strict=False) if not is_one), None)
    places = _SHARED[alone]
    count = operands[are.index(True)].shape[0]
    folded = [
        _folded(item, *_axis(places[name], channels, form.groups), move) if name in places else item
        for name, item in zip(tensors, operands, strict=False)
    ]
    groups = form.groups if alone is not None else form.groups * count
    made = multiply(form._replace(groups=groups), *folded)
    return _unfolded(made, count, *_axis(places[tensors[2]], channels, form.groups), move)


def _axis(place: _Place, channels: int, groups: int) -> tuple[int, int]:
    """(the axis, into how many groups it is divided)."""
    return channels if place.channels else 0, groups if place.grouped else 1


def _folded(item: Any, axis: int, groups: int, move: Move) -> Any:
    """The tensor with its first axis as a part of that which is `axis` behind it."""
    count, *shape = item.shape
    before, extent, behind = shape[:axis], shape[axis], shape[axis + 1 :]
    digits = item.reshape(count, *before, groups, extent // groups, *behind)
    return move(digits, 0, axis + 1).reshape(*before, count * extent, *behind)


def _unfolded(item: Any, count: int, axis: int, groups: int, move: Move) -> Any:
    """The inverse of `_folded`."""
    shape = item.shape
    before, extent, behind = shape[:axis], shape[axis] // count, shape[axis + 1 :]
    digits = item.reshape(*before, groups, count, extent // groups, *behind)
    return move(digits, axis + 1, 0).reshape(count, *before, extent, *behind)
