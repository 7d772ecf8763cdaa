"""Plans of products over many ranks: what is possible, what it takes, and how it scales."""

from __future__ import annotations

import dataclasses
import math

import pytest

torch = pytest.importorskip("torch")

import kronop  # noqa: E402
from kronop.distributed import machine as machines  # noqa: E402
from kronop.distributed import planning, scaling  # noqa: E402
from kronop.distributed.machine import H200_HOSTS  # noqa: E402
from kronop.distributed.steps import Choice, Problem, Way  # noqa: E402
from kronop.errors import ArgumentError, DescriptionError, ElementTypeError  # noqa: E402

# Measured on two H200s of one host, in float32: rows, shape, and milliseconds on one GPU, with rows
# split over both, and with columns split, of the local products and of both exchanges.
MEASURED = [
    (1024, ((8, 8),) * 6, 1.21, 0.68, 0.6, 1.8),
    (1024, ((16, 16),) * 5, 4.74, 2.42, 2.4, 6.6),
    (64, ((64, 64),) * 4, 8.77, 4.33, 4.4, 6.6),
    (1024, ((32, 32),) * 4, 5.28, 2.72, 2.7, 6.6),
]
_WITHIN = 0.2


def _problem(m: int, shapes: tuple[tuple[int, int], ...], ranks: int, **more: object) -> Problem:
    return Problem(m=m, shapes=shapes, **{"grid": (1, ranks), "element_bytes": 4} | more)


@pytest.mark.parametrize(("m", "shapes", "one", "rows", "products", "exchanges"), MEASURED)
def test_modelled_times_are_those_measured(
    m: int,
    shapes: tuple[tuple[int, int], ...],
    one: float,
    rows: float,
    products: float,
    exchanges: float,
) -> None:
    problem = _problem(m, shapes, 2)
    share = m * problem.columns * 4 / 2
    assert H200_HOSTS.product(shapes, m, 4) * 1e3 == pytest.approx(one, rel=_WITHIN)
    assert H200_HOSTS.product(shapes, m // 2, 4) * 1e3 == pytest.approx(products, rel=_WITHIN)
    exchange = H200_HOSTS.all_to_all(share, 2, 2)
    assert exchange.sent == share / 2
    assert 2 * exchange.seconds * 1e3 == pytest.approx(exchanges, rel=_WITHIN)
    split = planning.plan(m, shapes, (2, 1))
    assert split.seconds * 1e3 == pytest.approx(rows, rel=_WITHIN)
    assert split.efficiency > 0.95


# Products of split columns over two H200s of one host: rows, factors, inner digits that are
# multiplied with the outer one, whether results come back, and milliseconds of 1, 2 and 4 parts.
PRODUCTS = [
    (1024, 8, 6, 1, True, (2.90, 2.64, 2.89)),
    (1024, 8, 6, 1, False, (1.79, 1.77, 1.72)),
    (1024, 16, 5, 1, True, (9.53, 7.49, 9.03)),
    (1024, 16, 5, 1, False, (5.61, 5.23, 5.67)),
    (64, 64, 4, 0, True, (11.35, 10.40, 10.59)),
    (64, 64, 4, 0, False, (7.71, 7.23, 7.66)),
    (1024, 32, 4, 0, True, (9.50, 8.53, 9.15)),
    (1024, 32, 4, 0, False, (5.89, 5.39, 5.83)),
]


@pytest.mark.parametrize(("m", "p", "count", "later", "ordered", "measured"), PRODUCTS)
def test_modelled_products_take_as_long_as_measured(
    m: int, p: int, count: int, later: int, ordered: bool, measured: tuple[float, ...]
) -> None:
    problem = _problem(m, ((p, p),) * count, 2, ordered=ordered)
    for parts, took in zip((1, 2, 4), measured, strict=True):
        choice = Choice(way=Way.Rows, outer=1, later=later, parts=parts)
        found = planning.seconds(problem, choice, H200_HOSTS) * 1e3
        assert found == pytest.approx(took, rel=_WITHIN), parts
    # The plan's own choice is about as good as the best of these.
    chosen = planning.best(problem)
    assert (chosen.way, chosen.later) == (Way.Rows, later)
    assert measured[(1, 2, 4).index(chosen.parts)] <= 1.07 * min(measured)


@pytest.mark.parametrize(("handed", "bandwidth"), [(256 << 20, 246e9), (4 << 30, 330e9)])
def test_bandwidths_of_exchanges_are_those_measured(handed: int, bandwidth: float) -> None:
    exchange = H200_HOSTS.all_to_all(handed, 2, 2)
    assert exchange.sent / exchange.seconds == pytest.approx(bandwidth, rel=0.05)
    assert exchange.bound == "NVLink"


def test_hosts_are_joined_by_the_slower_link() -> None:
    for collective in (H200_HOSTS.all_to_all, H200_HOSTS.ring):
        assert collective(1 << 30, 8, 1024).bound == "NVLink"
        assert collective(1 << 10, 8, 1024).bound == "latency"
        assert collective(1 << 30, 16, 1024).seconds > collective(1 << 30, 8, 1024).seconds
    across = H200_HOSTS.all_to_all(1 << 30, 16, 1024)
    assert across.bound == "network"
    assert across.seconds > (1 << 29) / H200_HOSTS.network.bandwidth
    # Two hosts have two ranks of some group of 6, which are 4 and 2.
    assert H200_HOSTS.all_to_all(1 << 30, 6, 12).bound == "network"
    assert H200_HOSTS.all_to_all(1 << 30, 6, 6).bound == "NVLink"


def test_products_with_columns_behind_cost_as_those_without() -> None:
    """A pass reads and writes as much wherever its digits stand."""
    alone = H200_HOSTS.product(((16, 16),), 1 << 20, 4)
    for right in (64, 1 << 12):
        behind = H200_HOSTS.product(((16, 16),), (1 << 20) // right, 4, right)
        assert behind == pytest.approx(alone, rel=0.5)


def test_digits_that_fit_no_pass_together_are_multiplied_in_more() -> None:
    shapes, element = ((8, 8),) * 5, machines.element_of("float32")
    target = kronop.target.Target.parse(H200_HOSTS.target)
    (alone,) = machines._passes(shapes, 1, 1, element, target)
    found = machines._passes(shapes, 1, 8, element, target)
    assert [way.work.shape.factors for way in found] == [shapes[:2], shapes[2:]]
    assert all(way.work.shape.columns_in == 8**6 for way in found)
    assert alone.work.shape.columns_in == 8**5


def _outer(problem: Problem, way: Way) -> set[int]:
    """Outer digits of the choices of a kind."""
    return {item.outer for item in planning.choices(problem) if item.way is way}


def test_the_choices_of_cubes() -> None:
    shapes = ((4, 4),) * 3
    assert list(planning.choices(_problem(8, shapes, 1))) == [Choice(way=Way.Alone)]
    for ordered in (True, False):
        assert _outer(_problem(8, shapes, 4, ordered=ordered), Way.Rows) == {1}
        assert _outer(_problem(3, shapes, 4, ordered=ordered), Way.Digits) == {1}
    assert _outer(_problem(8, shapes, 4), Way.Digits) == {1}
    # What stays split is told by shapes alone.
    assert {item.way for item in planning.choices(_problem(8, shapes, 4, ordered=False))} == {
        Way.Rows
    }
    assert {item.way for item in planning.choices(_problem(3, shapes, 4, ordered=False))} == {
        Way.Digits
    }
    # 16 ranks share two digits before or behind an exchange, of three; rows need no even digits.
    assert _outer(_problem(16, shapes, 16), Way.Rows) == {2}
    assert _outer(_problem(16, shapes, 16), Way.Digits) == set()
    assert _outer(_problem(8, shapes, 16), Way.Rows) == set()
    assert _outer(_problem(8, shapes, 16), Way.ReduceScatter) == {2}
    assert _outer(_problem(8, shapes, 16), Way.AllGather) == {2}


def test_the_choices_of_rectangular_factors() -> None:
    shapes = ((4, 3), (2, 4), (5, 4), (3, 8))
    # Ordered results are split along the results of outer digits: 3, 12 or 48 of them.
    assert _outer(_problem(8, shapes, 4), Way.Rows) == {2}
    assert _outer(_problem(8, shapes, 4, ordered=False), Way.Rows) == {1}
    # Sums are in order, so that a reduce-scatter may split them inside a digit.
    assert _outer(_problem(8, shapes, 4), Way.ReduceScatter) == {1}
    assert _outer(_problem(8, shapes, 4), Way.AllGather) == {2}


def test_what_cannot_be_handed_over() -> None:
    """Rows need contiguous rows, and a result that may have them; digits of a left product come
    back."""
    shapes = ((4, 4),) * 3
    assert _outer(_problem(8, shapes, 4, by_rows=False), Way.Rows) == set()
    assert _outer(_problem(8, shapes, 4, by_rows=False), Way.Digits) == {1}
    assert _outer(_problem(8, shapes, 4, by_rows=False, ordered=False), Way.Digits) == set()
    left = _problem(8, shapes, 4, ordered=False, rows_split=False)
    assert _outer(left, Way.Rows) == set()
    assert _outer(left, Way.Digits) == {1}


@pytest.mark.parametrize(("rows", "parts"), [(3, []), (4, [1]), (15, [1, 2]), (64, [1, 2, 4, 8])])
def test_parts_are_as_rows_allow(rows: int, parts: list[int]) -> None:
    problem = _problem(2 * rows, ((4, 4), (4, 4)), 4, grid=(2, 4))

    def found(problem: Problem) -> list[int]:
        return [item.parts for item in planning.choices(problem) if item.way is Way.Rows]

    assert found(problem) == parts
    # Rows that stay split are as DTensors have them: equal parts are, or all rows at once.
    even = {3: [], 4: [1], 15: [1], 64: [1, 2, 4, 8]}[rows]
    assert found(dataclasses.replace(problem, ordered=False)) == even


def test_inner_digits_may_be_multiplied_with_the_outer_ones() -> None:
    every = planning.choices(_problem(8, ((8, 8),) * 4, 4))
    found = {(item.outer, item.later) for item in every if item.way is Way.Rows}
    assert found == {(1, 0), (1, 1), (1, 2)}
    # Of tiny digits, not every number of them.
    every = planning.choices(_problem(8, ((2, 2),) * 13, 4))
    assert {item.later for item in every if item.way is Way.Rows} == {0, 2, 5, 8}


def test_outer_factors_are_formed_where_they_are_small() -> None:
    assert _outer(_problem(64, ((64, 64),) * 4, 64 * 64), Way.ReduceScatter) == {2}
    with pytest.raises(ArgumentError, match="ranks along columns: expected one of 1, 2, 4, 8"):
        list(planning.choices(_problem(64, ((64, 64),) * 4, 64**3)))


def test_work_and_exchanges_go_on_side_by_side() -> None:
    problem = _problem(1024, ((8, 8),) * 4, 8)
    for parts in (1, 2, 4):
        choice = Choice(way=Way.Rows, outer=1, parts=parts)
        steps = _steps(problem, choice)
        local = sum(step.seconds for step in steps if not step.bytes)
        link = sum(step.seconds for step in steps if step.bytes)
        took = planning.seconds(problem, choice, H200_HOSTS)
        if parts == 1:
            assert took == pytest.approx(local + link)
        else:
            assert max(local, link) < took < 0.97 * (local + link)


def _steps(problem: Problem, choice: Choice) -> tuple[machines.Step, ...]:
    return planning._steps(machines.Costs(problem=problem, choice=choice, machine=H200_HOSTS))


def test_bytes_are_what_leaves_a_rank() -> None:
    shapes = ((8, 8), (8, 16), (8, 4))
    problem = _problem(64, shapes, 4)
    sent = {}
    for choice in planning.choices(problem):
        sent[choice] = sum(step.bytes for step in _steps(problem, choice))
    whole = 64 * 8 * 64 * 4  # X has as many columns as the result.
    assert sent[Choice(way=Way.Rows, outer=1)] == 2 * whole / 4 * 3 / 4
    assert sent[Choice(way=Way.Rows, outer=1, later=1, parts=2)] == 2 * whole / 4 * 3 / 4
    assert sent[Choice(way=Way.Digits, outer=1)] == 2 * whole / 4 * 3 / 4
    assert sent[Choice(way=Way.AllGather, outer=1)] == whole * 3 / 4
    assert sent[Choice(way=Way.ReduceScatter, outer=1)] == whole * 3 / 4
    split = dataclasses.replace(problem, ordered=False)
    for way in (Way.Rows, Way.Digits):
        steps = _steps(split, Choice(way=way, outer=1))
        assert sum(step.bytes for step in steps) == whole / 4 * 3 / 4
    # Of int8, elements arrive and sums leave.
    small = _problem(64, shapes, 4, element_bytes=1)
    steps = _steps(small, Choice(way=Way.Rows, outer=1))
    assert sum(step.bytes for step in steps) == (1 + 1 / 4) * whole / 4 * 3 / 4


def test_the_plan_takes_the_least_time_and_tells_the_others() -> None:
    found = planning.plan(1024, [torch.empty(32, 32)] * 4, mesh=(1, 2))
    assert found.choice == planning.best(found.problem)
    assert all(found.seconds <= 1.1 * item.seconds for item in found.rejected)
    assert found.efficiency == pytest.approx(found.alone / (2 * found.seconds))
    assert planning.plan(1024, [(32, 32)] * 4, (1, 2), output="any").seconds < found.seconds
    text = found.explain()
    assert text.startswith("plan for 1024 rows, 32x32p4, over 1 x 2 ranks: all-to-all of rows")
    for step in found.steps:
        assert step.what in text
    assert "  together " in text
    assert "  rejected all-gather, 1 outer digit: " in text
    assert str(found) in text
    assert "rejected" not in str(found)


def test_few_bytes_are_gathered() -> None:
    """One exchange has half the latency of two."""
    found = planning.plan(1, [(16, 16), (16, 16)], (1, 8))
    assert found.choice.way in (Way.AllGather, Way.ReduceScatter)
    assert found.bound == "latency"


@pytest.mark.parametrize("dtype", ["float16", torch.float16, kronop.float16])
def test_element_types_have_any_name(dtype: object) -> None:
    found = planning.plan(64, [(8, 8)] * 4, (1, 4), dtype)
    assert found == planning.plan(64, [(8, 8)] * 4, (1, 4), "bfloat16")
    assert found.bytes == planning.plan(64, [(8, 8)] * 4, (1, 4), "float64").bytes / 4


@pytest.mark.parametrize(
    ("arguments", "kind", "message"),
    [
        ((10, [(4, 4)], (4, 1)), ArgumentError, "m: expected a multiple of 4.*got 10; take one"),
        ((8, [(4, 4)] * 2, (1, 3)), ArgumentError, "expected one of 1, 2, 4 for 4x4p2, got 3; "),
        ((8, [(4, 4), (4, 5)], (1, 8)), ArgumentError, "expected one of 1, 2, 4 for .* got 8"),
        ((8, [(4, 4)], (1, 2), "bool"), ElementTypeError, "dtype: expected one of float64, .*bool"),
        ((8, [(4, 4)], (1, 2), "float32", "all"), ArgumentError, "output: expected 'standard' or"),
        ((8, [(4, 4, 4)]), DescriptionError, r"factors\[0\]: expected 2 positive"),
        ((8, [(4, 4)], (1, 0)), DescriptionError, "mesh: expected 2 positive integers"),
        ((8, [(4, 0)], (1, 2)), DescriptionError, r"factors\[0\]: expected 2 positive"),
        ((-1, [(4, 4)], (1, 2)), ArgumentError, "m: expected an integer of at least 0"),
        (
            (1 << 20, [(64, 64)] * 4, (1, 4)),
            ArgumentError,
            "memory of a rank: expected at most",
        ),
    ],
)
def test_what_does_not_fit_is_told(
    arguments: tuple[object, ...], kind: type[Exception], message: str
) -> None:
    with pytest.raises(kind, match=message):
        planning.plan(*arguments)


@pytest.mark.parametrize("by_rows", [True, False])
def test_no_rows_are_planned_too(by_rows: bool) -> None:
    assert planning.best(_problem(0, ((4, 4),) * 2, 2, by_rows=by_rows)).parts == 1


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"gpus": 0}, "gpus of the machine: expected more than 0"),
        ({"contention": 2.0}, "contention of the machine: expected 0 to 1"),
        ({"target": "x86"}, "target of the machine: expected a GPU"),
        (
            {"network": machines.Link(name="network", bandwidth=0.0, half=0.0, latency=0.0)},
            "bandwidth of network of the machine",
        ),
    ],
)
def test_machines_that_cannot_be(change: dict[str, object], message: str) -> None:
    machine = dataclasses.replace(H200_HOSTS, **change)  # type: ignore[arg-type]
    with pytest.raises(ArgumentError, match=message):
        planning.plan(8, [(4, 4)] * 2, machine=machine)
    with pytest.raises(ElementTypeError, match="machine: expected a Machine, got str"):
        planning.plan(8, [(4, 4)] * 2, machine="H100")  # type: ignore[arg-type]


def test_scaling_tells_what_is_wrong() -> None:
    for wrong in ({"output": "all"}, {"columns": 0}):
        with pytest.raises((ArgumentError, DescriptionError), match=r"output|columns"):
            scaling.weak(H200_HOSTS, ((4, 4),) * 2, 8, **wrong)


def test_rows_scale_perfectly() -> None:
    for row in scaling.weak(H200_HOSTS, ((16, 16),) * 4, 1024, gpus=(1, 8, 1024)):
        assert row.grid == (row.gpus, 1)
        assert row.efficiency > 0.95
        assert row.bound == "products"


def test_columns_scale_as_links_allow() -> None:
    rows = scaling.weak(H200_HOSTS, ((32, 32),) * 5, 8, gpus=(1, 2, 8, 64), columns=64)
    assert [row.grid for row in rows] == [(1, 1), (1, 2), (1, 8), (1, 64)]
    assert [row.bound for row in rows] == ["products", "NVLink", "NVLink", "network"]
    efficiencies = [row.efficiency for row in rows]
    assert efficiencies == sorted(efficiencies, reverse=True)
    in_hosts = scaling.weak(H200_HOSTS, ((32, 32),) * 5, 8, gpus=(8, 64), columns=8)
    assert in_hosts[0].milliseconds == pytest.approx(in_hosts[1].milliseconds, rel=0.1)


def test_few_rows_scale_until_there_are_as_many_ranks() -> None:
    rows = scaling.strong(H200_HOSTS, ((32, 32),) * 4, 64, gpus=(1, 8, 64, 256))
    assert [math.prod(row.grid) for row in rows] == [1, 8, 64, 256]
    assert rows[1].efficiency > 0.9
    assert rows[3].grid[1] > 1
    assert rows[3].efficiency < 0.5


def test_numbers_of_gpus_that_do_not_fit_have_no_row() -> None:
    rows = scaling.strong(H200_HOSTS, ((4, 4),) * 2, 1, gpus=(1, 2, 3, 4))
    assert [row.gpus for row in rows] == [1, 2, 4]


def test_a_table_is_markdown() -> None:
    head, line, first, *others = scaling.markdown(
        scaling.weak(H200_HOSTS, ((16, 16),) * 4, 64, gpus=(1, 2), columns=2)
    ).splitlines()
    assert head == "| GPUs | rows x columns | ms | efficiency | bound by |"
    assert line == "| --- | --- | --- | --- | --- |"
    assert first.startswith("| 1 | 1 x 1 | ")
    assert first.endswith(" | 1.00 | products |")
    assert len(others) == 1
    assert others[0].startswith("| 2 | 1 x 2 | ")
