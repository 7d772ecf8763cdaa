"""Frozen dataclasses of `kronop.frozen` do as those of `dataclasses`."""

from __future__ import annotations

import copy
import dataclasses
import inspect
import pickle
from typing import Any

import pytest

from kronop import frozen


@frozen.dataclass(frozen=True, slots=True)
class Base:
    first: int
    unseen: int = dataclasses.field(default=0, repr=False, compare=False)


@frozen.dataclass(frozen=True, slots=True, kw_only=True)
class Slotted(Base):
    second: tuple[int, ...] = (1,)
    made: list[int] = dataclasses.field(default_factory=list, compare=False)


@frozen.dataclass(frozen=True)
class Open:
    first: int
    second: str = "two"

    def __post_init__(self) -> None:
        self.__dict__["third"] = self.first + 1

    def __repr__(self) -> str:
        return "its own"


_VALUES = (Base(1), Slotted(1, second=(2, 3)), Open(1))


@pytest.mark.parametrize("value", _VALUES, ids=lambda value: type(value).__name__)
@pytest.mark.parametrize("again", [copy.copy, copy.deepcopy, dataclasses.replace])
def test_copies_are_equal_and_as_hard_to_change(value: Any, again: Any) -> None:
    found = again(value)
    assert found == value
    assert hash(found) == hash(value)
    assert found is not value
    for change in (lambda: setattr(found, "first", 2), lambda: delattr(found, "first")):
        with pytest.raises(dataclasses.FrozenInstanceError, match="first"):
            change()


@pytest.mark.parametrize("value", _VALUES, ids=lambda value: type(value).__name__)
def test_other_values_differ(value: Any) -> None:
    assert dataclasses.replace(value, first=2) != value
    assert value not in [other for other in _VALUES if other is not value]


def test_fields_that_are_not_compared_do_not_count() -> None:
    assert Base(1, 2) == Base(1, 3)
    assert hash(Base(1, 2)) == hash(Base(1, 3))


def test_subclasses_are_other_values() -> None:
    assert Slotted(1) != Base(1)


def test_each_gets_a_default_of_its_own() -> None:
    assert Slotted(1).made == []
    assert Slotted(1).made is not Slotted(1).made


def test_pickled_ones_come_back() -> None:
    kept = pickle.dumps(Open(5))  # By name, as its class is this module's.
    assert pickle.loads(kept).third == 6
    assert Slotted(1, second=(2,)).__getstate__() == [1, 0, (2,), []]


def test_text_names_what_is_shown() -> None:
    assert repr(Slotted(1)) == "Slotted(first=1, second=(1,), made=[])"
    assert repr(Open(1)) == "its own"


def test_arguments_are_checked() -> None:
    assert str(inspect.signature(Slotted)).startswith("(first: 'int', unseen: 'int' = 0, *, second")
    for wrong in (lambda: Slotted(1, 2, (3,)), lambda: Slotted(), lambda: Slotted(1, other=2)):
        with pytest.raises(TypeError, match="argument"):
            wrong()


def test_what_is_not_frozen_is_refused() -> None:
    with pytest.raises(TypeError, match="dataclasses"):
        frozen.dataclass(frozen=False)


@dataclasses.dataclass(frozen=True)
class OfTheirs(Slotted):
    third: int = 3


class Plain(Open):
    """A subclass that is no dataclass."""


def test_the_usual_dataclasses_may_inherit_from_them() -> None:
    value = OfTheirs(1, third=4)
    assert copy.copy(value) == value
    assert pickle.loads(pickle.dumps(value)).third == 4
    with pytest.raises(dataclasses.FrozenInstanceError):
        value.third = 5  # type: ignore[misc]
    with pytest.raises(TypeError, match="frozen"):
        dataclasses.dataclass(type("Loose", (Base,), {"__annotations__": {"more": int}}))


def test_subclasses_may_have_attributes_of_their_own() -> None:
    value = Plain(1)
    value.more = 5  # type: ignore[attr-defined]
    del value.more  # type: ignore[attr-defined]
    for change in (lambda: setattr(value, "first", 2), lambda: delattr(value, "first")):
        with pytest.raises(dataclasses.FrozenInstanceError, match="first"):
            change()


def test_fields_are_hashed_beside_an_equality_of_its_own() -> None:
    @frozen.dataclass(frozen=True)
    class Own:
        first: int

        def __eq__(self, other: object) -> bool:
            return True

    assert hash(Own(1)) == hash(Own(1))
    assert Own(1) == Own(2)


def test_all_fields_are_arguments() -> None:
    class Hidden:
        first: int = dataclasses.field(default=0, init=False)

    with pytest.raises(TypeError, match=r"'first' of .*Hidden: all fields are arguments"):
        frozen.dataclass(frozen=True)(Hidden)
