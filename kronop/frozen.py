"""Frozen dataclasses that do as those of `dataclasses`, at a third of what those cost to define;
and properties of them that are computed once.

A process defines some sixty of them before its first result. `dataclasses` writes text for up to
seven methods of each and has Python compile it, 0.7 ms a class (CPU). Here it finds the fields;
the constructor alone is compiled, and the other methods are closures over the fields.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from operator import attrgetter
from types import MemberDescriptorType
from typing import TYPE_CHECKING, Any, Generic, Self, TypeVar, overload

_NOT_GIVEN = object()

if TYPE_CHECKING:
    from dataclasses import dataclass as dataclass
else:

    def dataclass(*, frozen, slots=False, kw_only=False, eq=True):
        """`dataclasses.dataclass` with the same arguments, of which `frozen` has to be true."""
        if not frozen:
            raise TypeError("what is not frozen is made by dataclasses.dataclass")

        def made(cls):
            # `dataclasses` asks that children of frozen classes are frozen from the start.
            bases = cls.__mro__[1:]
            is_child = any(dataclasses.is_dataclass(base) for base in bases)
            # Python puts None there beside an __eq__; `dataclasses` hashes fields all the same.
            if cls.__dict__.get("__hash__", 0) is None and "__eq__" in cls.__dict__:
                del cls.__hash__
            own = set(cls.__dict__)
            cls = dataclasses.dataclass(
                cls, init=False, repr=False, eq=False, slots=slots, kw_only=kw_only, frozen=is_child
            )
            for name, method in _methods(cls, slots, eq):
                if name not in own:
                    setattr(cls, name, method)
            cls.__dataclass_params__.frozen = True  # So that those who inherit from it know.
            return cls

        return made


_Owner = TypeVar("_Owner")
_Value = TypeVar("_Value")


class derived(Generic[_Owner, _Value]):  # As property, which it stands beside.
    """A property that is computed when it is first read, and then kept in the instance.

    `functools.cached_property` takes a lock in Python 3.11, a fifth of what planning took. The
    class has no slots.
    """

    def __init__(self, function: Callable[[_Owner], _Value]) -> None:
        self._function, self.__doc__ = function, function.__doc__

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name

    @overload
    def __get__(self, instance: None, owner: type) -> Self: ...

    @overload
    def __get__(self, instance: _Owner, owner: type) -> _Value: ...

    def __get__(self, instance: _Owner | None, owner: type) -> Self | _Value:
        if instance is None:
            return self
        value = instance.__dict__[self._name] = self._function(instance)
        return value


def _methods(cls: type, slots: bool, eq: bool) -> Sequence[tuple[str, Callable[..., Any]]]:
    """What a class with these fields has, where it does not define it itself."""
    fields = dataclasses.fields(cls)
    names = frozenset(item.name for item in fields)
    found: list[tuple[str, Callable[..., Any]]] = [
        ("__init__", _constructor(cls, fields)),
        ("__repr__", _representation([item.name for item in fields if item.repr])),
        ("__setattr__", _guarded(cls, names, "__setattr__", "assign to")),
        ("__delattr__", _guarded(cls, names, "__delattr__", "delete")),
    ]
    if eq:
        compared = _values([item.name for item in fields if item.compare])
        found += [("__eq__", _equality(compared)), ("__hash__", lambda self: hash(compared(self)))]
    if slots:  # Python's own copy and pickle would assign to the slots, which are frozen.
        found += [("__getstate__", _state), ("__setstate__", _restore)]
    return found


def _constructor(cls: type, fields: Sequence[dataclasses.Field[Any]]) -> Callable[..., Any]:
    """Writes each field to its slot or, where there is none, to the instance's dict."""
    known: dict[str, Any] = {"_not_given": _NOT_GIVEN}
    by_place: list[str] = ["self"]
    by_name: list[str] = []
    lines: list[str] = []
    for item in fields:
        told, value = item.name, item.name
        if item.default is not dataclasses.MISSING:
            told, known[f"_default_{item.name}"] = f"{told}=_default_{item.name}", item.default
        elif item.default_factory is not dataclasses.MISSING:
            told, known[f"_default_{item.name}"] = f"{told}=_not_given", item.default_factory
            value = f"_default_{item.name}() if {item.name} is _not_given else {item.name}"
        if not item.init:
            raise TypeError(f"field {item.name!r} of {cls.__qualname__}: all fields are arguments")
        (by_name if item.kw_only else by_place).append(told)
        slot = getattr(cls, item.name, None)
        if isinstance(slot, MemberDescriptorType):
            known[f"_set_{item.name}"] = slot.__set__
            lines.append(f"_set_{item.name}(self, {value})")
        else:
            lines.append(f"self.__dict__[{item.name!r}] = {value}")
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


def _guarded(cls: type, names: frozenset[str], method: str, doing: str) -> Callable[..., None]:
    """Refuses the fields; a subclass that is no dataclass may have attributes of its own."""

    def guarded(self: Any, name: str, *value: Any) -> None:
        if type(self) is cls or name in names:
            raise dataclasses.FrozenInstanceError(f"cannot {doing} field {name!r}")
        getattr(super(cls, self), method)(name, *value)

    return guarded


# Of the instance's class, which may be a child with more fields.
def _state(self: Any) -> list[Any]:
    return [getattr(self, item.name) for item in dataclasses.fields(self)]


def _restore(self: Any, values: Sequence[Any]) -> None:
    for item, value in zip(dataclasses.fields(self), values, strict=True):
        object.__setattr__(self, item.name, value)
