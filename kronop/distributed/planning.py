"""Plans of products over many ranks: the ways that are possible, what they take, and the best one.

Plans are values, made without a GPU from shapes, a grid, and the figures of a `Machine`.
"""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Iterator, Sequence
from typing import Any

from kronop.descriptions.shared import check_sizes, integers
from kronop.distributed.machine import (
    H200_HOSTS,
    Costs,
    Machine,
    Shapes,
    Step,
    contracted,
    element_of,
    milliseconds,
    produced,
)
from kronop.distributed.steps import Choice, Problem, Way
from kronop.emit.cuda.operands import shape_name
from kronop.errors import ArgumentError, mismatch
from kronop.frozen import dataclass
from kronop.size import extent_of

_PARTS = (1, 2, 4, 8)
# The Kronecker product of outer factors, where ranks have shares of it, is formed up to this size:
# 64 MB in float32.
_MOST_FORMED = 4096
# NOTE: modelled products and exchanges take within 12 % of what two H200s were measured to take. Of
# ways that the model can't tell apart, the first of these is taken: the last two hold whole rows.
_AS_GOOD = 1.1
_PREFERRED = (Way.Alone, Way.AllToAll, Way.ReduceScatter, Way.AllGather)


@dataclass(frozen=True, slots=True, kw_only=True)
class Rated:
    """A way, the seconds that it takes, and the bytes of memory that a rank needs."""

    choice: Choice
    seconds: float
    held: float

    def __str__(self) -> str:
        return f"{_told(self.choice)}: {milliseconds(self.seconds)}, {self.held / 1e9:.3g} GB"


@dataclass(frozen=True, slots=True, kw_only=True)
class DistributedPlan:
    """What every rank does for a product.

    Attributes:
        problem: the product, and the grid of ranks.
        choice: the way that takes about the least time.
        steps: in order.
        seconds: of all steps, some beside others.
        alone: seconds of the whole product on one GPU, if its memory were large enough.
        rejected: other ways, the fastest first.
    """

    problem: Problem
    choice: Choice
    steps: tuple[Step, ...]
    seconds: float
    alone: float
    rejected: tuple[Rated, ...]

    @property
    def bytes(self) -> int:
        """That a rank sends."""
        return sum(step.bytes for step in self.steps)

    @property
    def efficiency(self) -> float:
        """The share of perfect: one GPU's time over that of all ranks together."""
        return self.alone / (math.prod(self.problem.grid) * self.seconds)

    @property
    def bound(self) -> str:
        """What takes longest: "products", "NVLink", "network" or "latency"."""
        took = {step.bound: 0.0 for step in self.steps}
        for step in self.steps:
            took[step.bound] += step.seconds
        return max(took, key=lambda name: took[name])

    def __str__(self) -> str:
        problem, (down, across) = self.problem, self.problem.grid
        return "\n".join(
            [
                f"plan for {problem.m} rows, {shape_name(problem.shapes)}, over"
                f" {down} x {across} ranks: {_told(self.choice)}",
                *(f"  {step}" for step in self.steps),
                f"  together {milliseconds(self.seconds)}, most of it {self.bound}; one GPU takes"
                f" {milliseconds(self.alone)}, efficiency {self.efficiency:.2f}",
            ]
        )

    def explain(self) -> str:
        """The plan, and what it was chosen from: of each other way, the best number of parts."""
        others: dict[Choice, Rated] = {}
        for item in self.rejected:
            others.setdefault(dataclasses.replace(item.choice, parts=1), item)
        others.pop(dataclasses.replace(self.choice, parts=1), None)
        return "\n".join([str(self), *(f"  rejected {item}" for item in others.values())])


def plan(
    m: int,
    factors: Sequence[Any],
    mesh: tuple[int, int] = (1, 1),
    dtype: Any = "float32",
    output: str = "standard",
    machine: Machine | None = None,
) -> DistributedPlan:
    """What ranks would do for a product of that size, how long it takes, and what else they could.

    Args:
        m: rows of X, over all ranks.
        factors: tensors or (P, Q).
        mesh: ranks along rows, and along columns.
        dtype: an element type of torch or kronop, or its name.
        output: "standard" or "any", as of `gemkm`.
        machine: hosts of eight H200s with 400 Gb/s a GPU where None.

    Raises:
        ArgumentError: sizes that do not fit each other; the message says which would.
        ElementTypeError: no product has this element type.
    """
    machine = H200_HOSTS if machine is None else machine
    grid = integers("mesh", mesh)
    check_sizes("mesh", ("ranks along rows", "ranks along columns"), grid)
    shapes = tuple(integers("factors", getattr(item, "shape", item))[-2:] for item in factors)
    for at, shape in enumerate(shapes):
        check_sizes(f"factors[{at}]", ("rows", "columns"), shape)
    if output not in ("standard", "any"):
        expected, hint = "'standard' or 'any'", "'standard' keeps the placements of x"
        raise ArgumentError(mismatch("output", expected=expected, got=repr(output), hint=hint))
    problem = Problem(
        m=extent_of("m", m, "count the rows of X"),
        shapes=shapes,
        grid=grid,
        element_bytes=element_of(dtype).bytes,
        ordered=output == "standard",
    )
    return planned(problem, machine)


def planned(problem: Problem, machine: Machine) -> DistributedPlan:
    """The best plan of a problem."""
    first, *others = _ranked(problem, machine)
    if first.held > machine.memory:
        most, got = (f"{size / 1e9:.4g} GB" for size in (machine.memory, first.held))
        hint = "take more ranks, or multiply some rows at a time"
        raise ArgumentError(mismatch("memory of a rank", expected=most, got=got, hint=hint))
    stages = _stages(Costs(problem=problem, choice=first.choice, machine=machine))
    return DistributedPlan(
        problem=problem,
        choice=first.choice,
        steps=tuple(step for stage in stages for step in (stage.local, stage.sent) if step),
        seconds=first.seconds,
        alone=machine.product(problem.shapes, problem.m, problem.element_bytes),
        rejected=tuple(others),
    )


def best(problem: Problem, machine: Machine = H200_HOSTS) -> Choice:
    """The way that takes about the least time."""
    return _ranked(problem, machine)[0].choice


@functools.lru_cache(maxsize=1024)
def _ranked(problem: Problem, machine: Machine) -> tuple[Rated, ...]:
    """The best way, and then the others, the fastest first; those that fit in memory before."""
    costs = [Costs(problem=problem, choice=item, machine=machine) for item in choices(problem)]
    every = [Rated(choice=it.choice, seconds=_finished(it), held=it.held) for it in costs]
    every.sort(key=lambda item: (item.held > machine.memory, item.seconds))
    limit, memory = _AS_GOOD * every[0].seconds, max(machine.memory, every[0].held)
    alike = [item for item in every if item.seconds <= limit and item.held <= memory]
    first = min(alike, key=lambda item: _PREFERRED.index(item.choice.way))
    return first, *(item for item in every if item is not first)


def choices(problem: Problem) -> Iterator[Choice]:
    """The ways that are possible.

    Raises:
        ArgumentError: there is none; the message says which grids would fit.
    """
    down, ranks = problem.grid
    if problem.m % down:
        expected = f"a multiple of {down}, the number of ranks along rows"
        hint = f"take one that divides {problem.m}, or add rows of zeros"
        raise ArgumentError(mismatch("m", expected=expected, got=problem.m, hint=hint))
    found = list(_ways(problem, ranks))
    if not found:
        fitting = [str(n) for n in range(1, 2 * ranks) if any(_ways(problem, n))]
        raise ArgumentError(
            mismatch(
                "ranks along columns",
                expected=f"one of {', '.join(fitting)} for {shape_name(problem.shapes)}",
                got=ranks,
                hint="they have to divide the columns of X and of the result, in whole digits; give"
                " more ranks rows instead, or pad a factor with zeros",
            )
        )
    return iter(found)


def _ways(problem: Problem, ranks: int) -> Iterator[Choice]:
    """Those with so many ranks along columns."""
    if ranks == 1:
        yield Choice(way=Way.Alone)
        return
    count, rows = len(problem.shapes), problem.m // problem.grid[0]
    parts = [item for item in _PARTS if item <= max(rows, 1)] if problem.ordered else [1]
    for outer in range(1, count):
        for last in (0, 1) if problem.ordered else (0,):
            if _may_exchange(problem, ranks, outer, last):
                for item in parts:
                    yield Choice(way=Way.AllToAll, outer=outer, last=last, parts=item)
    for way in (Way.ReduceScatter, Way.AllGather):
        outer = next((s for s in range(1, count + 1) if _may_form(problem, ranks, s, way)), 0)
        if outer:
            yield Choice(way=way, outer=outer)


def _may_exchange(problem: Problem, ranks: int, outer: int, last: int) -> bool:
    """Whether an all-to-all is possible: outer digits, then inner columns are split evenly."""
    digits, inner = problem.shapes[:outer], problem.shapes[outer : len(problem.shapes) - last]
    return (
        len(inner) > 0
        and contracted(digits) % ranks == 0
        and produced(inner) % ranks == 0
        and (produced(digits) % ranks == 0 or not problem.ordered)
        and (contracted(digits) == ranks or outer == 1 or _is_small(digits))
    )


def _may_form(problem: Problem, ranks: int, outer: int, way: Way) -> bool:
    """Whether ranks can have shares of the outer factors: of their rows for a reduce-scatter, which
    may then split sums anywhere, else of their columns too."""
    digits = problem.shapes[:outer]
    split = problem.shapes if way is Way.ReduceScatter else digits
    fits = contracted(digits) % ranks == 0 and produced(split) % ranks == 0
    return fits and (outer == 1 or _is_small(digits))


def _is_small(digits: Shapes) -> bool:
    return max(contracted(digits), produced(digits)) <= _MOST_FORMED


def seconds(problem: Problem, choice: Choice, machine: Machine) -> float:
    """Until every rank has its share of the result."""
    return _finished(Costs(problem=problem, choice=choice, machine=machine))


def _finished(costs: Costs) -> float:
    """Exchanges go on beside local work, in the order in which `columns` begins both: the first
    stage of a part, and then the next stage of each part before it."""
    stages, choice = _stages(costs), costs.choice
    local = link = 0.0
    ready = [0.0] * choice.parts
    for turn in range(choice.parts + len(stages) - 1):
        before = range(max(0, turn - len(stages) + 1), min(turn, choice.parts))
        for part in (turn, *before) if turn < choice.parts else before:
            stage = stages[turn - part]
            works, moves = _took(stage.local) / choice.parts, _took(stage.sent) / choice.parts
            begin = max(local, ready[part])
            local = ready[part] = begin + works
            if stage.sent is not None:
                first, last = begin + works / stage.pieces, local + moves / stage.pieces
                link = ready[part] = max(max(link, first) + moves, last)
    return max(ready)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Stage:
    """Local work and then an exchange, of as many pieces as there are of each part of the rows:
    each is exchanged as soon as it is there."""

    local: Step | None = None
    sent: Step | None = None
    pieces: int = 1


def _took(step: Step | None) -> float:
    return step.seconds if step is not None else 0.0


@functools.lru_cache(maxsize=4096)
def _stages(costs: Costs) -> tuple[_Stage, ...]:
    problem, choice = costs.problem, costs.choice
    if choice.way is Way.Alone:
        return (_Stage(local=costs.product("all digits", problem.shapes)),)
    if choice.way is Way.AllToAll:
        return _of_all_to_all(costs)
    digits, inner = problem.shapes[: choice.outer], problem.shapes[choice.outer :]
    ranks, results = problem.grid[1], produced(digits)
    share = contracted(digits) // ranks
    if choice.way is Way.ReduceScatter:
        product = costs.product("own rows of outer factors", ((share, results), *inner))
        sent = costs.collective("reduce-scatter of sums", problem.results * costs.wide)
        return _Stage(local=product, sent=sent), _Stage(local=costs.ordering())
    sent = costs.collective("all-gather of X", problem.columns * problem.element_bytes)
    own = ((share, results // ranks), *inner)
    return _Stage(sent=sent), _Stage(local=costs.product("own columns", own, times=ranks))


def _of_all_to_all(costs: Costs) -> tuple[_Stage, ...]:
    """Inner digits, an exchange, outer digits; in order, also an exchange and the last digit."""
    problem, outer, count = costs.problem, costs.choice.outer, len(costs.problem.shapes)
    end, ranks = count - costs.choice.last, problem.grid[1]
    digits, inner = problem.shapes[:outer], problem.shapes[outer:end]
    behind = problem.shapes[end:]
    share, columns = contracted(digits) // ranks, produced(inner) * contracted(behind)
    name = f"digits {outer + 1} to {end}" if end > outer + 1 else f"digit {end}"
    first = _Stage(
        local=costs.product(name, inner, right=contracted(behind), times=share),
        sent=costs.all_to_all("exchange for outer digits", share * columns, share),
        pieces=share,
    )
    formed = digits if share == 1 else ((contracted(digits), produced(digits)),)
    name = f"digits 1 to {outer}" if outer > 1 else "digit 1"
    product = costs.product(name, formed, right=columns // ranks, wide=True)
    if not problem.ordered:
        return first, _Stage(local=product)
    held = produced(digits) * columns // ranks
    second = _Stage(local=product, sent=costs.all_to_all("exchange back", held))
    if not behind:
        return first, second, _Stage(local=costs.ordering())
    rows = held // contracted(behind)
    last = costs.product(f"digit {count}, in order", behind, rows=rows, wide=True)
    return first, second, _Stage(local=last)


def _told(choice: Choice) -> str:
    words = [choice.way.value]
    if choice.outer:
        words.append(f"{choice.outer} outer digit{'s' if choice.outer > 1 else ''}")
    if choice.last:
        words.append("the last digit at the end")
    if choice.parts > 1:
        words.append(f"{choice.parts} parts")
    return ", ".join(words)
