"""The arguments of an operator, between the nested form of its schema and the flat one of autograd.

torch.func takes tensors of autograd functions one by one, none in lists; torch.library in lists.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from kronop.frozen import dataclass
from kronop.torch.declaration import Named

_ONE, _MANY, _OTHER = range(3)
_KINDS = {"Tensor": _ONE, "Optional[Tensor]": _ONE, "List[Tensor]": _MANY}


@dataclass(frozen=True, slots=True)
class Whole:
    """A sequence as one argument: torch.func takes tuples and lists apart, and finds then more
    arguments than tangents."""

    values: Sequence[Any]


class Layout:
    """Where the tensors are among an operator's arguments.

    Args:
        schema: torch's.

    Attributes:
        names: of the arguments, in order.
        is_list: whether the result is a list of tensors.
    """

    def __init__(self, schema: Any) -> None:
        self.names = tuple(item.name for item in schema.arguments)
        self._kinds = tuple(_KINDS.get(str(item.type), _OTHER) for item in schema.arguments)
        (result,) = schema.returns
        self.is_list = str(result.type) == "List[Tensor]"

    def named(self, values: Iterable[Any]) -> Named:
        """One value for each argument, by name."""
        return Named(**dict(zip(self.names, values, strict=True)))

    def split(self, arguments: Iterable[Any]) -> tuple[tuple[Any, ...], list[Any]]:
        """(frame, tensors): the arguments that are no tensors in their places, with how many there
        are in the places of tensors (None for none); and the tensors, one after the other."""
        frame: list[Any] = []
        tensors: list[Any] = []
        for kind, item in zip(self._kinds, arguments, strict=True):
            if kind == _OTHER:
                frame.append(tuple(item) if type(item) is list else item)
            elif item is None:
                frame.append(None)
            elif kind == _MANY:
                frame.append(len(item))
                tensors += item
            else:
                frame.append(1)
                tensors.append(item)
        return tuple(frame), tensors

    def some(self, arguments: Iterable[Any], names: Sequence[str]) -> list[Any]:
        """The arguments, with None for tensors that have none of the names."""
        return [
            item if kind == _OTHER or name in names else None
            for name, kind, item in zip(self.names, self._kinds, arguments, strict=True)
        ]

    def places(self, frame: Sequence[Any], names: Sequence[str]) -> tuple[int, ...]:
        """Where the tensors of some names are among all of them."""
        count = sum(
            1 if kind == _ONE else item
            for kind, item in zip(self._kinds, frame, strict=True)
            if kind != _OTHER and item is not None
        )
        _, found = self.split(self.some(self.join(frame, range(count)), names))
        return tuple(found)

    def join(self, frame: Sequence[Any], tensors: Sequence[Any]) -> list[Any]:
        """The arguments again, or what there is one of for each tensor."""
        found: list[Any] = []
        at = 0
        for kind, item in zip(self._kinds, frame, strict=True):
            if kind == _OTHER or item is None:
                found.append(item)
            elif kind == _MANY:
                found.append(list(tensors[at : at + item]))
                at += item
            else:
                found.append(tensors[at])
                at += 1
        return found

    def each(self, values: Iterable[Any], arguments: Iterable[Any]) -> list[Any]:
        """Values for each argument, where None stands for a list of None as well."""
        return [
            [None] * len(item) if kind == _MANY and value is None else value
            for kind, value, item in zip(self._kinds, values, arguments, strict=True)
        ]

    def mapped(self, change: Callable[[Any], Any], arguments: Iterable[Any]) -> list[Any]:
        """The arguments, with every tensor changed."""
        return [
            item
            if kind == _OTHER or item is None
            else [change(one) for one in item]
            if kind == _MANY
            else change(item)
            for kind, item in zip(self._kinds, arguments, strict=True)
        ]

    def replaced(
        self, arguments: Sequence[Any], names: Sequence[str], tensors: Sequence[Any]
    ) -> list[Any]:
        """The arguments with other tensors for those of some names."""
        frame, _ = self.split(self.some(arguments, names))
        others = self.join(frame, tensors)
        return [
            other if name in names else item
            for name, item, other in zip(self.names, arguments, others, strict=True)
        ]

    def gradients(self, found: Mapping[str, Any], shapes: Sequence[Any]) -> list[Any]:
        """One for each argument, of the shape that it has (None for what is no tensor)."""
        return [
            _fitted(found.get(name), shape) for name, shape in zip(self.names, shapes, strict=True)
        ]

    def facts(self, read: Callable[[Any], Any], arguments: Iterable[Any]) -> list[Any]:
        """What is read off every tensor, in lists as well; None for what is none."""
        found: list[Any] = []
        for kind, item in zip(self._kinds, arguments, strict=True):
            if kind == _MANY:
                found.append([read(one) for one in item])
            else:
                found.append(None if kind == _OTHER or item is None else read(item))
        return found

    def flat(self, frame: Iterable[Any], values: Iterable[Any]) -> list[Any]:
        """What there is for each tensor that was split off, one after the other."""
        found: list[Any] = []
        for kind, item, value in zip(self._kinds, frame, values, strict=True):
            if kind == _MANY and item is not None:
                found += value
            elif kind == _ONE and item is not None:
                found.append(value)
        return found


def _fitted(gradient: Any, shape: Any) -> Any:
    """Summed over what was broadcast."""
    if gradient is None or shape is None:
        return [None] * len(shape) if isinstance(shape, list) else None
    if isinstance(shape, list):
        return [_fitted(one, own) for one, own in zip(gradient, shape, strict=True)]
    return gradient if gradient.shape == shape else gradient.sum_to_size(shape)
