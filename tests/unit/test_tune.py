"""Tuning on the CPU: what is measured, what is skipped, what is kept and when it is believed."""

from __future__ import annotations

import sqlite3
import sys
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import kronop
from kronop import compiler, cpus, knobs
from kronop.artifacts import Resources
from kronop.compiler import Cache
from kronop.compiler.rows import Winner
from kronop.core import tuning, tuning_report, winners
from kronop.errors import CompileError
from kronop.size import Rows

ROWS = Rows(20)


@pytest.fixture(autouse=True)
def folder(tmp_path: Path):
    """A cache of its own for each test, kernels included."""
    with knobs.using(cache_dir=tmp_path / "cache"):
        yield tmp_path / "cache"


def make_operation(target: object = "x86") -> kronop.KronMatmulOperation:
    matrix = kronop.TensorDescription(kronop.float64)
    epilogue = kronop.LinearCombination(kronop.float64, 1, kronop.float64, kronop.float64)
    return kronop.KronMatmulOperation(
        target, None, matrix, matrix, matrix, epilogue, [(4, 3), (2, 5)]
    )


def make_arguments(operation: kronop.KronMatmulOperation, **more: Any) -> Any:
    random = np.random.default_rng(0)
    factors = [random.standard_normal(shape) for shape in ((4, 3), (2, 5))]
    x = random.standard_normal((ROWS, 8))
    return kronop.KronMatmulArguments(operation=operation, X=x, factors=factors, **more)


def crown(operation: kronop.KronMatmulOperation, place: int) -> None:
    plan = operation.candidates(place + 1)[place]
    times = {"milliseconds": 0.25, "untuned": 0.5}
    winners.remember(operation.description, plan, place, ROWS, 0, **times)


def test_candidates_are_compiled_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two compilations have to be under way together, or the barrier breaks."""
    together = threading.Barrier(2)

    def compile_sources(*arguments: Any) -> tuple[Any, ...]:
        together.wait(timeout=20)
        return ()

    monkeypatch.setattr(cpus, "cpu_count", lambda: 2)
    monkeypatch.setattr(tuning.compiler, "compile_sources", compile_sources)
    plans = dict(enumerate(make_operation().candidates(4)))
    assert tuning._compile_all(plans, shown=False) == dict.fromkeys(plans, ())
    assert len(plans) == 4


@pytest.mark.parametrize("target", ["x86", "sm_80", "sm_90a"])
def test_the_first_candidate_is_the_plan(target: str) -> None:
    for operation in (make_operation(target), make_ksparse(target)):
        family, description = operation.kind.name, operation.description
        emitter = operation.kind.emitter(operation.target)
        plan = emitter.plan(description, kronop.Target.parse(target))
        many = emitter.candidates(description, kronop.Target.parse(target), 6)
        assert many[0].steps == plan.steps, family
        assert 1 <= len(many) <= 6
        # A place is a name only if a longer list begins as a shorter one.
        for count in range(1, 6):
            fewer = emitter.candidates(description, kronop.Target.parse(target), count)
            assert [item.steps for item in fewer] == [item.steps for item in many[:count]]


def make_ksparse(target: str) -> kronop.KSparseOperation:
    matrix = kronop.TensorDescription(kronop.float32)
    epilogue = kronop.LinearCombination(kronop.float32, 1, kronop.float32, kronop.float32)
    return kronop.KSparseOperation(target, None, matrix, matrix, matrix, epilogue, (2, 4, 6, 3))


@pytest.mark.parametrize(
    ("times", "told"),
    [
        ((1.0, 1.1), "it stays ("),
        ((1.01, 1.0), "it stays: the best gains 1.0%, too little"),
        ((1.5, 1.0), "tuning gained 50.0% ("),
    ],
)
def test_a_report_tells_what_is_kept(times, told) -> None:
    outcomes = tuple(
        tuning_report.Outcome(place=place, name="", milliseconds=took)
        for place, took in enumerate(times)
    )
    report = kronop.TuningReport(
        operation="", device="", size=Rows(4), bucket=Rows(4), outcomes=outcomes
    )
    assert told in str(report)


def test_tuning_measures_keeps_and_leaves_the_result_alone(capsys, monkeypatch) -> None:
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    operation = make_operation()
    arguments = make_arguments(operation)
    arguments.Y[...] = 5
    report = kronop.tune(operation, arguments, candidates=3)
    assert (arguments.Y == 5).all()
    assert len(report.ranked) == len(report.outcomes) >= 2
    assert report.bucket == 16
    assert report.gain >= 0
    assert 1 <= report.untuned_rank <= 3
    assert f"the planner's choice ranks {report.untuned_rank} of" in str(report)
    assert "measuring" in capsys.readouterr().err
    operation.run(arguments)
    np.testing.assert_allclose(arguments.Y, make_expected(arguments), rtol=1e-12)
    best = operation.candidates(3)[report.kept.place]
    assert make_operation().plan_for(ROWS).steps == best.steps


def make_expected(arguments: Any) -> Any:
    fresh = make_arguments(make_operation("x86-generic"))
    fresh.operation.run(fresh)
    return fresh.Y


def test_a_winner_runs_in_its_bucket_only(folder: Path) -> None:
    operation = make_operation()
    expected = operation.candidates(2)[1]
    arguments = make_arguments(operation)
    operation.run(arguments)
    crown(operation, 1)
    winners._process.found.clear()  # As a later process: only the file knows.
    for rows, plan in ((15, operation.plan), (16, expected), (31, expected), (32, operation.plan)):
        assert make_operation().plan_for(rows).steps == plan.steps
    again = make_arguments(operation)
    operation.run(again)
    np.testing.assert_allclose(again.Y, arguments.Y, rtol=1e-12)
    least = expected.workspace_bytes(ROWS, 1)
    assert operation.workspace_bytes(ROWS, 1) >= least
    compiler.default_cache().clear()
    assert make_operation().plan_for(ROWS).steps == operation.plan.steps


@pytest.mark.parametrize(
    "change",
    [
        "fingerprint = 'x'",
        "place = 2",
        "place = 'x'",
        "checksum = 0",
        "place = -1",
        "device = 'there'",
        "nanoseconds = 999",
        "untuned_nanoseconds = 1.5",
    ],
)
def test_a_damaged_winner_is_a_miss(folder: Path, change: str) -> None:
    cache = Cache(folder)
    found = Winner(
        key="k",
        place=1,
        fingerprint="f",
        description="d",
        target="x86",
        device="here",
        size="4 rows",
        serves="4 to 7",
        name="n",
        nanoseconds=1000,
        untuned_nanoseconds=2000,
    )
    cache.crown(found)
    assert Cache(folder).winner("k") == found
    assert Cache(folder).winners() == [found]
    assert cache.winner("other") is None
    cache.close()
    with sqlite3.connect(cache.path) as db:
        db.execute(f"UPDATE winners SET {change}")
    assert cache.winner("k") is None
    assert cache.winners() == []


def test_a_winner_of_another_planner_is_a_miss(monkeypatch) -> None:
    operation = make_operation()
    crown(operation, 1)
    assert operation.plan_for(ROWS) is not operation.plan
    monkeypatch.setattr(winners, "header_digests", lambda source: (("kron.hpp", "upgraded"),))
    assert make_operation().plan_for(ROWS).steps == operation.plan.steps


def test_what_fails_or_differs_is_skipped(monkeypatch) -> None:
    operation = make_operation()
    arguments = make_arguments(operation)
    places = {id(item): place for place, item in enumerate(operation.candidates(3))}
    assert len(places) == 3
    compile_sources, run = compiler.compile_sources, tuning._run
    second = operation.candidates(3)[1]

    def failing(sources: Any, target: Any) -> Any:
        if sources[0].text == winners.render(second)[0].text:
            raise CompileError("refused\nlog", log="log", source_path="")
        return compile_sources(sources, target)

    def wrong(twin: Any, served: Any) -> None:
        run(twin, served)
        if served.plan.steps == operation.candidates(3)[2].steps:
            twin.Y[0, 0] += 1e-3

    monkeypatch.setattr(compiler, "compile_sources", failing)
    monkeypatch.setattr(tuning, "_run", wrong)
    report = kronop.tune(operation, arguments, candidates=3, progress=False)
    assert report.best.place == 0
    assert report.gain == 0
    assert report.outcomes[1].reason == "does not compile: refused"
    assert "away from the first" in report.outcomes[2].reason
    assert "skipped: does not compile" in str(report)


def test_what_spills_is_measured(monkeypatch) -> None:
    operation, compile_sources = make_operation(), compiler.compile_sources

    def spilling(sources: Any, target: Any) -> Any:
        resources = Resources(registers=255, spill_bytes=64)
        return tuple(replace(it, resources=resources) for it in compile_sources(sources, target))

    monkeypatch.setattr(compiler, "compile_sources", spilling)
    report = kronop.tune(operation, make_arguments(operation), candidates=3, progress=False)
    assert len(report.ranked) == 3
    assert not any(item.reason for item in report.outcomes)


def test_accumulating_arguments_are_judged_and_restored() -> None:
    operation = make_operation()
    y = np.ones((ROWS, 15))
    arguments = make_arguments(operation, Z=y, Y=y, output_op=operation.epilogue_type(1.0, 2.0))
    report = kronop.tune(operation, arguments, candidates=2, progress=False)
    assert not any(item.reason for item in report.outcomes)
    assert (y == 1).all()


def test_what_can_not_be_tuned_is_told() -> None:
    operation = make_operation()
    arguments = make_arguments(operation)
    with pytest.raises(kronop.ArgumentError, match="at least 1 candidate"):
        kronop.tune(operation, arguments, candidates=0)
    with pytest.raises(kronop.ElementTypeError, match="those of"):
        kronop.tune(make_operation(), arguments)
    with pytest.raises(kronop.ElementTypeError, match="an operation and its arguments"):
        kronop.tune(operation, None)  # type: ignore[arg-type]
    random = np.full((ROWS, 8), np.inf)
    factors = [np.ones((4, 3)), np.ones((2, 5))]
    endless = kronop.KronMatmulArguments(operation=operation, X=random, factors=factors)
    with pytest.raises(kronop.ArgumentError, match="finite"):
        kronop.tune(operation, endless, candidates=2, progress=False)


@pytest.mark.parametrize(("second", "kept"), [(0.99, 0), (0.97, 1), (1.5, 0)])
def test_a_gain_within_the_noise_changes_nothing(second: float, kept: int) -> None:
    times = (1.0, second)
    outcomes = tuple(
        tuning.Outcome(place=place, name="", milliseconds=value)
        for place, value in enumerate(times)
    )
    report = kronop.TuningReport(
        operation="", device="", size=Rows(3), bucket=Rows(2), outcomes=outcomes
    )
    assert report.kept.place == kept
    assert report.best.place == (second < 1)
