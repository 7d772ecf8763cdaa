"""A visitor tree as a tape of operations, which is run forwards for values and tangents, and
backwards for gradients.

Only those values are computed that derivatives read: the sums of a product are not needed again
where a tree is linear in them.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

from torch import Tensor

from kronop.descriptions.tree_text import from_text
from kronop.descriptions.visitor import Result
from kronop.families.gemm.torch.tree_rules import RULES, Rule, Slope
from kronop.frozen import dataclass
from kronop.torch.scaling import added

# What is at a place of a tape: None where it is not wanted.
Value: TypeAlias = "Tensor | float | None"


@dataclass(frozen=True, slots=True)
class Step:
    """One operation.

    Attributes:
        operation: a key of RULES, "input" or "constant".
        value: the name of an input, or a constant.
        operands: the places of the operands on the tape.
    """

    operation: str
    value: Any = None
    operands: tuple[int, ...] = ()

    @property
    def rule(self) -> Rule:
        return RULES[self.operation]


@dataclass(frozen=True, slots=True)
class Tape:
    """The operations of a tree, each after its operands.

    Attributes:
        steps: the operations.
        results: (place on the tape, result) of each.
    """

    steps: tuple[Step, ...]
    results: tuple[tuple[int, Result], ...]

    def values(
        self, inputs: Mapping[str, Tensor], wanted: Sequence[bool], like: Tensor
    ) -> list[Value]:
        """The value at each place; None where it is not wanted.

        Args:
            inputs: name -> a tensor, for all that are wanted.
            wanted: for each place, also for operands of what is wanted.
            like: a tensor of the type and on the device of all values.
        """
        found: list[Value] = []
        for step, is_wanted in zip(self.steps, wanted, strict=True):
            if not is_wanted:
                found.append(None)
            elif step.operation == "input":
                found.append(inputs[step.value])
            elif step.operation == "constant":
                found.append(step.value)
            else:
                found.append(_applied(step.rule, [found[at] for at in step.operands], like))
        return found

    def depending(self, names: frozenset[str]) -> list[bool]:
        """Which steps depend on these inputs."""
        found: list[bool] = []
        for step in self.steps:
            is_named = step.operation == "input" and step.value in names
            found.append(is_named or any(found[at] for at in step.operands))
        return found

    def read(self, depends: Sequence[bool], results: Sequence[bool]) -> list[bool]:
        """Which values are read by derivatives, or needed for what is read.

        Args:
            depends: which steps have derivatives.
            results: which results' derivatives are taken.
        """
        used, wanted = [False] * len(depends), [False] * len(depends)
        for (place, result), is_taken in zip(self.results, results, strict=True):
            used[place] |= is_taken
            wanted[place] |= is_taken and depends[place] and result.reduction == "max"
        for place in reversed(range(len(self.steps))):
            step = self.steps[place]
            used[place] &= depends[place]
            read = set().union(*(reads for _, reads, _ in self._slopes(place, depends)))
            for name, at in zip("ab", step.operands, strict=False):
                used[at] |= used[place]
                wanted[at] |= used[place] and name in read
            wanted[place] |= used[place] and "y" in read
            if wanted[place]:
                for at in step.operands:
                    wanted[at] = True
        return wanted

    def pulled(
        self, values: Sequence[Value], depends: Sequence[bool], gradients: Sequence[Any]
    ) -> dict[str, Tensor]:
        """The gradient of each input that something depends on, from those of all places."""
        totals, found = list(gradients), dict[str, Any]()
        for place in reversed(range(len(self.steps))):
            step, total = self.steps[place], totals[place]
            if total is None or not depends[place]:
                continue
            if step.operation == "input":
                found[step.value] = added(found.get(step.value), total)
            seen = self._seen(place, values)
            for at, _, slope in self._slopes(place, depends):
                totals[at] = added(totals[at], slope(total, *seen))
        return found

    def pushed(
        self, values: Sequence[Value], depends: Sequence[bool], tangents: Mapping[str, Tensor]
    ) -> list[Any]:
        """The tangent at each place, from those of inputs; None where there is none."""
        found: list[Any] = []
        for place, step in enumerate(self.steps):
            total = tangents.get(step.value) if step.operation == "input" else None
            seen = self._seen(place, values)
            for at, _, slope in self._slopes(place, depends):
                if found[at] is not None:
                    total = added(total, slope(found[at], *seen))
            found.append(total)
        return found

    def _slopes(self, place: int, depends: Sequence[bool]) -> list[tuple[int, str, Slope]]:
        """(place, what is read, function) of each operand with a derivative."""
        step, found = self.steps[place], []
        slopes = step.rule.slopes if step.operands else ()
        for at, slope in zip(step.operands, slopes, strict=True):
            if depends[at] and slope is not None:
                found.append((at, *slope))
        return found

    def _seen(self, place: int, values: Sequence[Value]) -> list[Value]:
        """[y, a, b] of a step."""
        operands = [values[at] for at in self.steps[place].operands]
        return [values[place], *operands, *[None] * (2 - len(operands))]


def _applied(rule: Rule, operands: Sequence[Value], like: Tensor) -> Tensor:
    are_tensors = [isinstance(item, Tensor) for item in operands]
    if rule.takes_numbers and any(are_tensors):
        return rule.apply(*operands)
    both = zip(operands, are_tensors, strict=True)
    return rule.apply(*(item if is_it else like.new_full((), item) for item, is_it in both))


@functools.lru_cache(maxsize=256)
def tape_of(tree: str) -> Tape:
    """The tape of a tree that is given as text."""
    told = from_text(tree)
    steps = []
    for operation, *told_of in told.graph.rows:
        if operation == "input":
            steps.append(Step(operation, told_of[0]))
        elif operation == "constant":
            steps.append(Step(operation, float(told_of[0])))
        else:
            steps.append(Step(operation, None, tuple(told_of)))
    return Tape(tuple(steps), tuple(zip(told.graph.results, told.results, strict=True)))
