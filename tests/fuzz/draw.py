"""Random choices that are the same on every machine."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from typing import TypeVar

Item = TypeVar("Item")


class Draw:
    """Random choices that depend on a name only.

    Args:
        name: equal names give equal choices.
    """

    def __init__(self, name: str) -> None:
        self._random = random.Random(name)

    def chance(self, share: float) -> bool:
        """True with this probability."""
        return self._random.random() < share

    def pick(self, items: Sequence[Item]) -> Item:
        return self._random.choice(items)

    def weighed(self, weights: Mapping[Item, float]) -> Item:
        """A key of `weights`, with a probability proportional to its weight."""
        return self._random.choices(list(weights), list(weights.values()))[0]

    def whole(self, least: int, most: int) -> int:
        """A number in [least, most]."""
        return self._random.randint(least, most)

    def shuffled(self, items: Sequence[Item]) -> list[Item]:
        return self._random.sample(items, len(items))

    def seed(self) -> int:
        """A seed for another generator."""
        return self._random.getrandbits(62)
