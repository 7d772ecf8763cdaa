"""How products scale with the number of GPUs, by the model of `planning`.

Of weak scaling the rows grow with the GPUs, of strong scaling they stay. Rows are split without any
traffic, so that grids with all ranks along rows are perfect where there are enough rows; `columns`
asks for grids whose ranks share rows, which is what X wants if its rows are few or long.

Example:
    >>> from kronop.distributed import H200_HOSTS, scaling
    >>> rows = scaling.strong(H200_HOSTS, [(16, 16), (16, 16)], 4096, gpus=(1, 8), columns=8)
    >>> print(scaling.markdown(rows))
    | GPUs | rows x columns | ms | efficiency | bound by |
    | --- | --- | --- | --- | --- |
    | 1 | 1 x 1 | ... | 1.00 | products |
    | 8 | 1 x 8 | ... | 0... | NVLink |
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from kronop.descriptions.shared import check_sizes
from kronop.distributed.machine import Machine
from kronop.distributed.planning import DistributedPlan, check_output, plan
from kronop.errors import ArgumentError
from kronop.frozen import dataclass

__all__ = ["GPUS", "Row", "markdown", "strong", "weak"]
__dir__ = __all__.copy  # What completes is public.

GPUS = tuple(1 << power for power in range(11))
"""The numbers of GPUs of a table where none are given, 1, 2, 4 to 1024."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """A row of a table.

    Attributes:
        gpus: how many.
        plan: the best one for the best grid.

    Example:
        >>> from kronop.distributed import H200_HOSTS, scaling
        >>> shapes = [(16, 16), (16, 16)]
        >>> row = scaling.strong(H200_HOSTS, shapes, 4096, gpus=[8])[0]
        >>> row.gpus, row.grid
        (8, (8, 1))
    """

    gpus: int
    plan: DistributedPlan

    @property
    def grid(self) -> tuple[int, int]:
        """Ranks along rows, and along columns."""
        return self.plan.problem.grid

    @property
    def milliseconds(self) -> float:
        """The time of the plan."""
        return self.plan.seconds * 1e3

    @property
    def efficiency(self) -> float:
        """One GPU's time over that of all GPUs together; 1 is perfect."""
        return self.plan.efficiency

    @property
    def bound(self) -> str:
        """What takes longest, of "products", "NVLink", "network" and "latency"."""
        return self.plan.bound


def weak(
    machine: Machine,
    shapes: Sequence[tuple[int, int]],
    rows_a_rank: int,
    dtype: object = "float32",
    gpus: Sequence[int] = GPUS,
    *,
    columns: int | None = None,
    output: str = "standard",
) -> list[Row]:
    """A row for each number of GPUs, of a product that has `rows_a_rank` rows for each.

    Args:
        machine: the hosts.
        shapes: (P, Q) of each factor.
        rows_a_rank: rows of X over the number of GPUs.
        dtype: the element type, as of `plan`.
        gpus: how many.
        columns: most ranks along columns, so many where there are that many GPUs; None for the best
            number.
        output: "standard" or "any".

    Returns:
        A `Row` for each number of GPUs; none for one that no grid of that kind fits.

    Raises:
        ArgumentError: `columns` is no positive integer, or another output.
        ElementTypeError: no product has this element type.

    Example:
        >>> from kronop.distributed import H200_HOSTS, scaling
        >>> shapes = [(16, 16), (16, 16)]
        >>> row = scaling.weak(H200_HOSTS, shapes, 4096, gpus=[8])[0]
        >>> row.plan.problem.m, row.grid
        (32768, (8, 1))
    """
    every = ((count, rows_a_rank * count) for count in gpus)
    return _rows(machine, shapes, every, dtype, columns, output)


def strong(
    machine: Machine,
    shapes: Sequence[tuple[int, int]],
    rows: int,
    dtype: object = "float32",
    gpus: Sequence[int] = GPUS,
    *,
    columns: int | None = None,
    output: str = "standard",
) -> list[Row]:
    """A row for each number of GPUs, of a product that has `rows` rows on any number of them.

    Arguments, results and errors are those of `weak`.

    Example:
        >>> from kronop.distributed import H200_HOSTS, scaling
        >>> shapes = [(16, 16), (16, 16)]
        >>> rows = scaling.strong(H200_HOSTS, shapes, 4096, gpus=[1, 8], columns=8)
        >>> [(row.grid, row.bound) for row in rows]
        [((1, 1), 'products'), ((1, 8), 'NVLink')]
    """
    return _rows(machine, shapes, ((count, rows) for count in gpus), dtype, columns, output)


def markdown(rows: Sequence[Row]) -> str:
    """The rows as a table in Markdown.

    Example:
        >>> from kronop.distributed import H200_HOSTS, scaling
        >>> shapes = [(16, 16), (16, 16)]
        >>> print(scaling.markdown(scaling.strong(H200_HOSTS, shapes, 4096, gpus=[1])))
        | GPUs | rows x columns | ms | efficiency | bound by |
        | --- | --- | --- | --- | --- |
        | 1 | 1 x 1 | ... | 1.00 | products |
    """
    lines = [
        "| GPUs | rows x columns | ms | efficiency | bound by |",
        "| --- | --- | --- | --- | --- |",
    ]
    for row in rows:
        down, across = row.grid
        lines.append(
            f"| {row.gpus} | {down} x {across} | {row.milliseconds:.3g} | {row.efficiency:.2f} |"
            f" {row.bound} |"
        )
    return "\n".join(lines)


def _rows(
    machine: Machine,
    shapes: Sequence[tuple[int, int]],
    every: Iterator[tuple[int, int]],
    dtype: object,
    columns: int | None,
    output: str,
) -> list[Row]:
    if columns is not None:
        check_sizes("columns", ("ranks",), (columns,))
    check_output(output)
    found = []
    for count, rows in every:
        plans = []
        for grid in _grids(count, columns):
            try:
                plans.append(plan(rows, shapes, grid, dtype, output, machine))
            except ArgumentError:  # This grid does not fit.
                continue
        if plans:
            best = min(plans, key=lambda item: item.seconds)
            found.append(Row(gpus=count, plan=best))
    return found


def _grids(count: int, columns: int | None) -> list[tuple[int, int]]:
    """With few ranks along columns first."""
    wanted = range(1, count + 1) if columns is None else [min(columns, count)]
    return [(count // across, across) for across in wanted if count % across == 0]
