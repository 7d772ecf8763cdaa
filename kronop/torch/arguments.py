"""Converts an operator's arguments between the nested form of its schema and autograd's flat form.

torch.library passes lists of tensors; autograd functions under torch.func must take each tensor as
an argument of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from torch import Tensor

from kronop.frozen import dataclass
from kronop.torch.declaration import Named

_ONE, _MANY, _OTHER = range(3)
_KINDS = {"Tensor": _ONE, "Optional[Tensor]": _ONE, "List[Tensor]": _MANY}
# The exact Python types of each schema type. isinstance and == are too lax to recognise a repeated
# call: True equals 1, and one stacked tensor looks like a list of tensors.
_EXACT: dict[str, tuple[type, ...]] = {
    "List[Tensor]": (list, tuple),
    "number": (float, int),
    "bool": (bool,),
    "Optional[str]": (str, type(None)),
}


@dataclass(frozen=True, slots=True)
class Whole:
    """A sequence as one argument of an autograd function.

    torch.func would flatten a tuple or list, and then find more arguments than tangents.
    """

    values: Sequence[Any]


class Layout:
    """Which of an operator's arguments are tensors and lists of tensors.

    Args:
        schema: torch's schema of the operator.

    Attributes:
        names: names of the arguments, in order.
        is_list: whether the result is a list of tensors.
        exact: (index, exact Python types) of each argument except single tensors.
    """

    def __init__(self, schema: Any) -> None:
        self.names = tuple(item.name for item in schema.arguments)
        types = [str(item.type) for item in schema.arguments]
        self._kinds = tuple(_KINDS.get(item, _OTHER) for item in types)
        self.exact = [(at, _EXACT[item]) for at, item in enumerate(types) if item in _EXACT]
        (result,) = schema.returns
        self.is_list = str(result.type) == "List[Tensor]"

    def named(self, values: Iterable[Any]) -> Named:
        """A namespace of values, one for each argument."""
        return Named(**dict(zip(self.names, values, strict=True)))

    def split(self, arguments: Iterable[Any]) -> tuple[tuple[Any, ...], list[Tensor]]:
        """(frame, all tensors in a flat list).

        The frame has one item for each argument: the number of its tensors (1, or the length of a
        list), None if it is None, and the argument itself if it is no tensor.
        """
        frame: list[Any] = []
        tensors: list[Tensor] = []
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

    def named_tensors(self, arguments: Iterable[Any]) -> list[tuple[str, Tensor]]:
        """All tensors in a flat list, with their names: `factors[0]`."""
        found: list[tuple[str, Tensor]] = []
        for name, kind, item in zip(self.names, self._kinds, arguments, strict=True):
            if kind == _MANY:
                found += [(f"{name}[{at}]", one) for at, one in enumerate(item)]
            elif kind == _ONE and item is not None:
                found.append((name, item))
        return found

    def some(self, arguments: Iterable[Any], names: Sequence[str]) -> list[Any]:
        """The arguments, with None for each tensor or list whose name is not in `names`."""
        return [
            item if kind == _OTHER or name in names else None
            for name, kind, item in zip(self.names, self._kinds, arguments, strict=True)
        ]

    def places(self, frame: Sequence[Any], names: Sequence[str]) -> tuple[int, ...]:
        """The indices, in the flat list of tensors, of those whose names are in `names`."""
        chosen = self.each((name in names for name in self.names), frame)
        return tuple(at for at, is_it in enumerate(self.flat(frame, chosen)) if is_it)

    def join(self, frame: Sequence[Any], tensors: Sequence[Any]) -> list[Any]:
        """The nested arguments from a frame and a flat list: the inverse of `split`.

        The list may also hold other values, one for each tensor.
        """
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

    def each(self, values: Iterable[Any], frame: Iterable[Any]) -> list[Any]:
        """The values, one for each argument; one for a list of tensors is that of each of them."""
        return [
            [value] * item if kind == _MANY and not isinstance(value, (list, tuple)) else value
            for kind, value, item in zip(self._kinds, values, frame, strict=True)
        ]

    def mapped(self, change: Callable[[Tensor], Tensor], arguments: Iterable[Any]) -> list[Any]:
        """The arguments, with every tensor changed."""
        frame, tensors = self.split(arguments)
        return self.join(frame, [change(item) for item in tensors])

    def replaced(
        self, arguments: Sequence[Any], names: Sequence[str], tensors: Sequence[Any]
    ) -> list[Any]:
        """The arguments, with `tensors` (flat) in place of those whose names are in `names`."""
        frame, _ = self.split(self.some(arguments, names))
        others = self.join(frame, tensors)
        return [
            other if name in names else item
            for name, item, other in zip(self.names, arguments, others, strict=True)
        ]

    def facts(self, read: Callable[[Tensor], Any], arguments: Iterable[Any]) -> list[Any]:
        """`read` of each tensor, in lists for lists of tensors; None for other arguments."""
        return [
            [read(one) for one in item]
            if kind == _MANY
            else (None if kind == _OTHER or item is None else read(item))
            for kind, item in zip(self._kinds, arguments, strict=True)
        ]

    def flat(self, frame: Iterable[Any], values: Iterable[Any]) -> list[Any]:
        """The values that belong to tensors, as a flat list: nested ones are flattened."""
        found: list[Any] = []
        for kind, item, value in zip(self._kinds, frame, values, strict=True):
            if kind == _MANY and item is not None:
                found += value
            elif kind == _ONE and item is not None:
                found.append(value)
        return found
