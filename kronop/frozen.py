"""Frozen dataclasses, as those of `dataclasses`, at a third of what those cost to define.

A process defines some sixty of them before its first result. `dataclasses` writes text for up to
seven methods of each and has Python compile it, 0.7 ms a class (CPU). Here it finds the fields;
the constructor alone is compiled, and the other methods are closures over the fields.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from operator import attrgetter
from types import MemberDescriptorType
from typing import TYPE_CHECKING, Any, NoReturn

if TYPE_CHECKING:
    from dataclasses import dataclass as dataclass
else:

    def dataclass(*, frozen, slots=False, kw_only=False, eq=True):
        """`dataclasses.dataclass` with the same arguments, of which `frozen` has to be true."""
        if not frozen:
            raise TypeError("what is not frozen is made by dataclasses.dataclass")

        def made(cls):
            cls = dataclasses.dataclass(
                cls, init=False, repr=False, eq=False, slots=slots, kw_only=kw_only
            )
            for name, method in _methods(cls, slots, eq):
                if name not in cls.__dict__:
                    setattr(cls, name, method)
            return cls

        return made


def _methods(cls: type, slots: bool, eq: bool) -> Sequence[tuple[str, Callable[..., Any]]]:
    """What a class with these fields has, where it does not define it itself."""
    fields = dataclasses.fields(cls)
    found: list[tuple[str, Callable[..., Any]]] = [
        ("__init__", _constructor(cls, fields)),
        ("__repr__", _representation([item.name for item in fields if item.repr])),
        ("__setattr__", _assign),
        ("__delattr__", _delete),
    ]
    if eq:
        compared = _values([item.name for item in fields if item.compare])
        found += [("__eq__", _equality(compared)), ("__hash__", lambda self: hash(compared(self)))]
    if slots:  # The usual copy assigns to the slots.
        names = [item.name for item in fields]
        kept = _values(names)
        found += [("__getstate__", lambda self: kept(self)), ("__setstate__", _restoring(names))]
    return found


def _constructor(cls: type, fields: Sequence[dataclasses.Field[Any]]) -> Callable[..., Any]:
    """Writes each field to its slot or, where there is none, to the instance's dict."""
    known: dict[str, Any] = {}
    by_place: list[str] = ["self"]
    by_name: list[str] = []
    lines: list[str] = []
    for item in fields:
        told = item.name
        if item.default is not dataclasses.MISSING:
            told, known[f"_default_{item.name}"] = f"{told}=_default_{item.name}", item.default
        elif item.default_factory is not dataclasses.MISSING:
            told, known[f"_default_{item.name}"] = f"{told}=None", item.default_factory
            lines.append(f"if {item.name} is None: {item.name} = _default_{item.name}()")
        (by_name if item.kw_only else by_place).append(told)
        slot = getattr(cls, item.name, None)
        if isinstance(slot, MemberDescriptorType):
            known[f"_set_{item.name}"] = slot.__set__
            lines.append(f"_set_{item.name}(self, {item.name})")
        else:
            lines.append(f"self.__dict__[{item.name!r}] = {item.name}")
    if hasattr(cls, "__post_init__"):
        lines.append("self.__post_init__()")
    arguments = ", ".join([*by_place, *(["*", *by_name] if by_name else [])])
    exec(f"def __init__({arguments}):\n " + "\n ".join(lines or ["pass"]), known)
    made: Callable[..., Any] = known["__init__"]
    made.__qualname__ = f"{cls.__qualname__}.__init__"
    made.__annotations__ = {item.name: item.type for item in fields}
    return made


def _values(names: Sequence[str]) -> Callable[[Any], tuple[Any, ...]]:
    """What reads these fields of an instance."""
    if len(names) > 1:
        return attrgetter(*names)
    return lambda self: tuple(getattr(self, name) for name in names)


def _equality(compared: Callable[[Any], tuple[Any, ...]]) -> Callable[[Any, Any], Any]:
    def equals(self: Any, other: Any) -> Any:
        if other.__class__ is not self.__class__:
            return NotImplemented
        return compared(self) == compared(other)

    return equals


def _representation(names: Sequence[str]) -> Callable[[Any], str]:
    def told(self: Any) -> str:
        every = ", ".join(f"{name}={getattr(self, name)!r}" for name in names)
        return f"{self.__class__.__qualname__}({every})"

    return told


def _restoring(names: Sequence[str]) -> Callable[[Any, tuple[Any, ...]], None]:
    def restore(self: Any, values: tuple[Any, ...]) -> None:
        for name, value in zip(names, values, strict=True):
            object.__setattr__(self, name, value)

    return restore


def _assign(self: Any, name: str, value: Any) -> NoReturn:
    raise dataclasses.FrozenInstanceError(f"cannot assign to field {name!r}")


def _delete(self: Any, name: str) -> NoReturn:
    raise dataclasses.FrozenInstanceError(f"cannot delete field {name!r}")
