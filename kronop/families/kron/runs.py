"""Which neighbouring factors the backward merges into runs: pure arithmetic on shapes.

With runs of digits g = 1 .. n, A_g = x multiplied by the runs before g, and B_g = dy multiplied
by the transposed runs behind g,

    dG_g[p, q] = sum over rows and the other digits of A_g[.., p, ..] B_g[.., q, ..]

is the gradient of the merged factor of run g. Those of its factors follow from it at negligible
cost. A larger run saves passes over tensors of x's size, but costs more operations in dG.
"""

from __future__ import annotations

import functools
import math

from kronop.frozen import dataclass
from kronop.machine import CPU_BALANCE, GPU_BALANCE


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """A run of factors, start .. stop - 1, and the extents of the digits around them in A and B.

    Attributes:
        start, stop: the range of factors.
        before: product of the columns (Q) of all factors before the run.
        rows, columns: size of the merged factor.
        behind: product of the rows (P) of all factors behind the run.
        wanted: whether the gradient of some factor of the run is asked for.
    """

    start: int
    stop: int
    before: int
    rows: int
    columns: int
    behind: int
    wanted: bool


@functools.lru_cache(maxsize=1024)
def runs(
    shapes: tuple[tuple[int, int], ...],
    wanted: tuple[bool, ...],
    wants_x: bool,
    inner: int,
    element_bytes: int,
    on_gpu: bool,
) -> tuple[Run, ...]:
    """The partition of the factors into runs of neighbours that has the cheapest backward.

    Args:
        shapes: (rows, columns) of each factor, as x is contracted: rows first.
        wanted: whether the gradient of each factor is asked for.
        wants_x: whether the gradient of x is asked for.
        inner: contiguous elements behind the digits: M for gekmm, 1 for gemkm.
        element_bytes: bytes of an element of x.
        on_gpu: whether tensors are on a GPU, where kronop's own kernels sum dG up in place.
    """
    count = len(shapes)
    rate = element_bytes * (GPU_BALANCE[element_bytes] if on_gpu else CPU_BALANCE)
    best: list[tuple[float, tuple[Run, ...]]] = [(0.0, ())]
    for stop in range(1, count + 1):
        choices = []
        for start in range(stop):
            run = _run(shapes, wanted, start, stop)
            passes = int(any(wanted[stop:])) + int(wants_x or any(wanted[:start]))
            cost = best[start][0] + _cost(shapes, run, passes, inner, rate, on_gpu)
            choices.append((cost, (*best[start][1], run)))
        best.append(min(choices, key=lambda choice: choice[0]))
    return best[count][1]


def _run(
    shapes: tuple[tuple[int, int], ...], wanted: tuple[bool, ...], start: int, stop: int
) -> Run:
    return Run(
        start=start,
        stop=stop,
        before=math.prod(columns for _, columns in shapes[:start]),
        rows=math.prod(rows for rows, _ in shapes[start:stop]),
        columns=math.prod(columns for _, columns in shapes[start:stop]),
        behind=math.prod(rows for rows, _ in shapes[stop:]),
        wanted=any(wanted[start:stop]),
    )


def permutes(run: Run, inner: int) -> bool:
    """Whether dG on a CPU is one large product of copies of A and B that have the digits last,
    rather than a sum of many small products.

    With R elements behind the digits, the copies move 2 (P + Q) R elements, and the results of the
    small products 2 P Q.
    """
    behind = run.behind * inner
    return behind > 1 and behind * (run.rows + run.columns) < run.rows * run.columns


def _cost(
    shapes: tuple[tuple[int, int], ...],
    run: Run,
    passes: int,
    inner: int,
    rate: float,
    on_gpu: bool,
) -> float:
    """The cost of a run for one row: elements moved, where `rate` multiply-adds count as one."""
    behind = run.behind * inner
    both = run.before * behind * (run.rows + run.columns)
    moved = float(passes * both)
    multiplies = float(passes * _multiplies(shapes[run.start : run.stop]))
    multiplies *= run.before * behind
    if run.wanted:
        moved += both
        multiplies += run.before * behind * run.rows * run.columns
        if not on_gpu and permutes(run, inner):
            moved += 2 * both
        elif not on_gpu and behind > 1:
            moved += 2 * run.before * run.rows * run.columns
    return moved + multiplies / rate


def _multiplies(shapes: tuple[tuple[int, int], ...]) -> int:
    """Multiply-adds of the factors applied one after the other to one vector."""
    total, size = 0, math.prod(rows for rows, _ in shapes)
    for rows, columns in shapes:
        size = size // rows * columns
        total += size * rows
    return total
