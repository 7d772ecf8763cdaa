"""Plans of products over many ranks: the ways that are possible, what they take, and the best one.

Plans are values, made without a GPU from shapes, a grid, and the figures of a `Machine`.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
import math
from collections.abc import Iterator, Sequence

from kronop.descriptions.shared import check_sizes, integers
from kronop.distributed.machine import (
    H200_HOSTS,
    Costs,
    Machine,
    Shapes,
    Step,
    checked,
    contracted,
    element_of,
    milliseconds,
    produced,
)
from kronop.distributed.steps import Choice, Problem, Way
from kronop.emit.cuda.operands import shape_name
from kronop.errors import ArgumentError
from kronop.frozen import dataclass
from kronop.size import extent_of

_PARTS = (1, 2, 4, 8)
# The Kronecker product of outer factors, where ranks have shares of it, is formed up to this size:
# 64 MB in float32.
_MOST_FORMED = 4096
# NOTE: modelled times are within 20 % of those measured on two H200s. Of ways that the model can't
# tell apart, the first of these is taken: the last two hold whole rows.
_AS_GOOD = 1.1
_PREFERRED = (Way.Alone, Way.Rows, Way.Digits, Way.ReduceScatter, Way.AllGather)


@dataclass(frozen=True, slots=True, kw_only=True)
class Rated:
    """A way, the seconds that it takes, and the bytes of memory that a rank needs."""

    choice: Choice
    seconds: float
    held: float

    def __str__(self) -> str:
        held = f"{self.held / 1e9:.3g} GB of memory"
        return f"{_told(self.choice)}: {milliseconds(self.seconds)}, {held}"


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

    Example:
        >>> import kronop.distributed
        >>> found = kronop.distributed.plan(4096, [(16, 16), (16, 16)], mesh=(1, 8))
        >>> found.choice.way.value, found.bytes, found.bound
        ('all-to-all of rows', 917504, 'NVLink')
        >>> len(found.explain().splitlines()) > len(str(found).splitlines())  # rejected ways too
        True
    """

    problem: Problem
    choice: Choice
    steps: tuple[Step, ...]
    seconds: float
    alone: float
    rejected: tuple[Rated, ...]

    @property
    def bytes(self) -> int:
        """The bytes that a rank sends."""
        return sum(step.bytes for step in self.steps)

    @property
    def efficiency(self) -> float:
        """One GPU's time over that of all ranks together; 1 is perfect."""
        return self.alone / (math.prod(self.problem.grid) * self.seconds)

    @property
    def bound(self) -> str:
        """What takes longest, of "products", "NVLink", "network" and "latency"."""
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
        """The plan, and what it was chosen from: of each other way, the best of its kind."""
        others: dict[Choice, Rated] = {}
        for item in self.rejected:
            others.setdefault(_kind(item.choice), item)
        others.pop(_kind(self.choice), None)
        return "\n".join([str(self), *(f"  rejected {item}" for item in others.values())])


def plan(
    m: int,
    factors: Sequence[object],
    mesh: tuple[int, int] = (1, 1),
    dtype: object = "float32",
    output: str = "standard",
    machine: Machine | None = None,
) -> DistributedPlan:
    """What ranks would do for a product of that size, how long it takes, and what else they could.

    Args:
        m: rows of X, over all ranks; as many for each row of ranks. (`gemkm` takes any number: each
            row of ranks plans for its own.)
        factors: tensors or (P, Q).
        mesh: ranks along rows, and along columns.
        dtype: an element type of torch or kronop, or its name.
        output: "standard" or "any", as of `gemkm`.
        machine: hosts of eight H200s with 400 Gb/s a GPU where None.

    Returns:
        The plan; `print` shows its steps, and `explain()` also what it was chosen from.

    Raises:
        ArgumentError: sizes that do not fit each other; the message says which would.
        ElementTypeError: no product has this element type.

    Example:
        >>> import kronop.distributed
        >>> print(kronop.distributed.plan(4096, [(16, 16), (16, 16)], mesh=(1, 8)))
        plan for 4096 rows, 16x16p2, over 1 x 8 ranks: all-to-all of rows, 1 outer digit
          rows to others: ... ms, 0.4588 MB leave a rank (NVLink)
          digit 2 (16x16): ... ms
          digit 1 (16x2): ... ms
          results back: ... ms, 0.4588 MB leave a rank (NVLink)
          together ... ms, most of it NVLink; one GPU takes ... ms, efficiency 0...
        >>> kronop.distributed.plan(4096, [(16, 16), (16, 16)], mesh=(8, 1)).bytes
        0
    """
    machine = H200_HOSTS if machine is None else checked(machine)
    grid = integers("mesh", mesh)
    check_sizes("mesh", ("ranks along rows", "ranks along columns"), grid)
    shapes = tuple(integers("factors", getattr(item, "shape", item)) for item in factors)
    for at, shape in enumerate(shapes):
        check_sizes(f"factors[{at}]", ("rows", "columns"), shape)
    check_output(output)
    problem = Problem(
        m=extent_of("m", m, "count the rows of X"),
        shapes=shapes,
        grid=grid,
        element_bytes=element_of(dtype).bytes,
        ordered=output == "standard",
    )
    return planned(problem, machine)


def check_output(output: str) -> None:
    """Raises ArgumentError where it is neither "standard" nor "any"."""
    if output not in ("standard", "any"):
        expected, hint = "'standard' or 'any'", "'standard' keeps the placements of x"
        raise ArgumentError("output", expected=expected, got=repr(output), hint=hint)


def planned(problem: Problem, machine: Machine) -> DistributedPlan:
    """The best plan of a problem."""
    first, *others = _ranked(problem, machine)
    if first.held > machine.memory:
        most, got = f"at most {machine.memory / 1e9:.4g} GB", f"{first.held / 1e9:.4g} GB"
        hint = "take more ranks, or multiply some rows at a time"
        raise ArgumentError("memory of a rank", expected=most, got=got, hint=hint)
    costs = Costs(problem=problem, choice=first.choice, machine=machine)
    return DistributedPlan(
        problem=problem,
        choice=first.choice,
        steps=_steps(costs),
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
        raise ArgumentError("m", expected=expected, got=problem.m, hint=hint)
    found = list(_ways(problem, ranks))
    if not found:
        fitting = [str(n) for n in range(1, 2 * ranks) if any(_ways(problem, n))]
        raise ArgumentError(
            "ranks along columns",
            expected=f"one of {', '.join(fitting)} for {shape_name(problem.shapes)}",
            got=ranks,
            hint="they have to divide the columns of X and of the result, in whole digits; give"
            " more ranks rows instead, or pad a factor with zeros",
        )
    return iter(found)


def _ways(problem: Problem, ranks: int) -> Iterator[Choice]:
    """Those with so many ranks along columns."""
    if ranks == 1:
        yield Choice(way=Way.Alone)
        return
    count = len(problem.shapes)
    outer = _first([at for at in range(1, count) if _may_hand_rows(problem, ranks, at)])
    if outer:
        counts = [parts for parts in _PARTS if _may_part(problem, ranks, parts)]
        for later, parts in itertools.product(_later(problem.shapes[outer:]), counts):
            yield Choice(way=Way.Rows, outer=outer, later=later, parts=parts)
        if not problem.ordered:
            return  # What stays split is told by the shapes alone, not by the model.
    outer = _first([at for at in range(1, count) if _may_hand_digits(problem, ranks, at)])
    if outer:
        yield Choice(way=Way.Digits, outer=outer)
        if not problem.ordered:
            return
    for way in (Way.ReduceScatter, Way.AllGather):
        outer = _first([at for at in range(1, count + 1) if _may_form(problem, ranks, at, way)])
        if outer:
            yield Choice(way=way, outer=outer)


def _first(fitting: Sequence[int]) -> int:
    return fitting[0] if fitting else 0


def _later(inner: Shapes) -> list[int]:
    """How many inner digits may be multiplied together with the outer ones, not all of them; of
    small digits not every number."""
    every = range(len(inner) - 1, -1, -1)
    return sorted({contracted(inner[:count]).bit_length() // 3: count for count in every}.values())


def _may_hand_rows(problem: Problem, ranks: int, outer: int) -> bool:
    """Whether every rank gets rows, of evenly split outer digits."""
    may_leave = problem.by_rows and (problem.ordered or problem.rows_split)
    return may_leave and problem.rows >= ranks and _is_even(problem, ranks, outer)


def _may_part(problem: Problem, ranks: int, parts: int) -> bool:
    """Rows that stay split as `torch.chunk` does it are handed over in equal parts, or in one."""
    if problem.ordered or parts == 1:
        return problem.rows >= ranks * parts
    return problem.rows % (ranks * parts) == 0


def _may_hand_digits(problem: Problem, ranks: int, outer: int) -> bool:
    """Whether inner columns are split evenly too."""
    may_leave = problem.ordered or problem.by_rows
    even = produced(problem.shapes[outer:]) % ranks == 0
    return may_leave and even and _is_even(problem, ranks, outer)


def _is_even(problem: Problem, ranks: int, outer: int) -> bool:
    digits = problem.shapes[:outer]
    comes_back = produced(digits) % ranks == 0 or not problem.ordered
    return contracted(digits) % ranks == 0 and comes_back and (outer == 1 or _is_small(digits))


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
    """Exchanges go on beside products, in the order in which `rows` begins both: all parts are on
    their way at first, and each goes back when it is multiplied."""
    parts, whole = costs.choice.parts, sum(step.seconds for step in _steps(costs))
    if parts == 1:
        return whole
    arriving, *products, leaving = (step.seconds / parts for step in _steps_of_rows(costs))
    local, link = 0.0, parts * arriving
    for part in range(1, parts + 1):
        local = max(local, part * arriving) + sum(products)
        link = max(link, local) + leaving
    return max(local, link) + costs.machine.contention * (whole - max(local, link))


@functools.lru_cache(maxsize=4096)
def _steps(costs: Costs) -> tuple[Step, ...]:
    choice = costs.choice
    if choice.way is Way.Alone:
        return (costs.product("all digits", costs.problem.shapes),)
    if choice.way is Way.Rows:
        return tuple(step for step in _steps_of_rows(costs) if step.seconds)
    if choice.way is Way.Digits:
        return _steps_of_digits(costs)
    return _steps_of_collective(costs)


def _steps_of_rows(costs: Costs) -> tuple[Step, ...]:
    """An exchange, inner and outer digits of own rows, and in order an exchange back."""
    problem, choice, ranks = costs.problem, costs.choice, costs.problem.grid[1]
    count, end = len(problem.shapes), choice.outer + choice.later
    digits, inner = problem.shapes[: choice.outer], problem.shapes[end:]
    times = ranks if problem.ordered else 1
    chunk = (contracted(digits), produced(digits) // times)
    together = (chunk, *problem.shapes[choice.outer : end])
    own = -(-costs.rows // ranks)
    held = problem.columns * problem.element_bytes // ranks
    first = costs.all_to_all("rows to others", held)
    second = costs.product(_named(end, count), inner, own * contracted(problem.shapes[:end]))
    third = costs.product(
        _named(0, end), together, own, right=produced(inner), times=times, wide=True
    )
    if not problem.ordered:
        return first, second, third, Step(what="", bytes=0, seconds=0.0)
    back = costs.all_to_all("results back", problem.results * costs.wide // ranks)
    return first, second, third, back


def _steps_of_digits(costs: Costs) -> tuple[Step, ...]:
    """Inner digits, exchanges of each share, outer digits; in order, also exchanges back."""
    problem, outer, ranks = costs.problem, costs.choice.outer, costs.problem.grid[1]
    digits, inner = problem.shapes[:outer], problem.shapes[outer:]
    share, columns = contracted(digits) // ranks, produced(inner)
    behind = 1 if problem.by_rows else max(problem.rows, 1)
    each = max(problem.rows, 1) if problem.by_rows else 1
    first = costs.product(_named(outer, len(problem.shapes)), inner, costs.rows * share)
    held = share * columns * costs.wide
    sent = costs.all_to_all("inner columns to others", held, share * each)
    formed = ((contracted(digits), produced(digits)),)
    right = columns * behind // ranks
    second = costs.product(_named(0, outer), formed, each, right=right, wide=True)
    if not problem.ordered:
        return first, sent, second
    shares = produced(digits) // ranks
    back = costs.all_to_all("results back", shares * columns * costs.wide, shares * each)
    return first, sent, second, back


def _steps_of_collective(costs: Costs) -> tuple[Step, ...]:
    problem, outer, ranks = costs.problem, costs.choice.outer, costs.problem.grid[1]
    digits, inner = problem.shapes[:outer], problem.shapes[outer:]
    share, results = contracted(digits) // ranks, produced(digits)
    if costs.choice.way is Way.ReduceScatter:
        product = costs.product("own rows of outer factors", ((share, results), *inner))
        sent = costs.collective("reduce-scatter of sums", problem.results * costs.wide)
        return product, sent
    sent = costs.collective("all-gather of X", problem.columns * problem.element_bytes)
    own = ((share, results // ranks), *inner)
    return sent, costs.product("own columns", own, times=ranks)


def _named(first: int, end: int) -> str:
    return f"digits {first + 1} to {end}" if end > first + 1 else f"digit {end}"


def _kind(choice: Choice) -> Choice:
    """Ways that differ in details alone are alike."""
    return dataclasses.replace(choice, parts=1, later=0)


def _told(choice: Choice) -> str:
    words = [choice.way.value]
    if choice.outer:
        words.append(f"{choice.outer} outer digit{'s' if choice.outer > 1 else ''}")
    if choice.later:
        words.append(f"{choice.later} more with them")
    if choice.parts > 1:
        words.append(f"{choice.parts} parts")
    return ", ".join(words)
