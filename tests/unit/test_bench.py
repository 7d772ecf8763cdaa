"""The benchmark: shapes, the protocol, floors, and tiny runs end to end."""

from __future__ import annotations

import importlib.util
import itertools
import json
import math
import re
import time
import weakref
from pathlib import Path

import numpy as np
import pytest

import kronop
from kronop.__main__ import main
from kronop.bench import arrays, case, load, peers, report, shapes, timing
from kronop.bench.protocol import (
    MOST_SETS,
    ROTATED_BYTES,
    HostClock,
    keeping,
    medians,
    needs_flush,
    sets_for,
    settle_seconds,
)
from kronop.bench.roofline import Ceilings, Floor, floor_of, passes_that_fit

_CEILINGS = Ceilings(
    copy_bytes_per_second=4e12,
    operations_per_second={
        "float32": 5e13,
        "float64": 6e13,
        "bfloat16": 6e14,
        "tf32": 3e14,
    },
    size=8192,
)


def test_a_start_is_told_part_by_part(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", "start", "--shape", "4:2^3", "--processes", "1"]) == 0
    head, columns, *table = capsys.readouterr().out.splitlines()
    assert "4:2^3 float32 for x86" in head
    assert columns.split() == ["ms", "cold", "warm"]
    parts = {line[:22].strip(): [float(word) for word in line[22:].split()] for line in table}
    assert list(parts) == [
        *("NumPy", "import kronop", "plan", "compile or load", "first call", "second call"),
        "to the first result",
    ]
    # A C++ compiler takes longer than the cache, however busy the machine.
    cold, warm = parts["compile or load"]
    assert cold > warm > 0
    ours = ("import kronop", "plan", "compile or load", "first call")
    for place in (0, 1):
        total = sum(parts[name][place] for name in ours)
        assert parts["to the first result"][place] == pytest.approx(total, abs=0.05)


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--processes", "0"], "--processes"),
        (["--shape", "8^3"], "shape"),
        (["--shape", "1x0"], "shape"),
    ],
)
def test_a_start_that_can_not_be_timed(words, told, capsys) -> None:
    assert main(["bench", "start", *words]) == 1
    assert told in capsys.readouterr().err


@pytest.mark.parametrize(
    ("text", "rows", "factors"),
    [
        ("1024:8^5", 1024, [(8, 8)] * 5),
        ("16:64^4", 16, [(64, 64)] * 4),
        ("1024:7,31", 1024, [(7, 7), (31, 31)]),
        ("1:4x3^2,20x48", 1, [(4, 3), (4, 3), (20, 48)]),
        ("20:2^7", 20, [(2, 2)] * 7),
    ],
)
def test_shapes_are_read(text, rows, factors) -> None:
    shape = shapes.parse(text)
    assert shape.rows == rows
    assert list(shape.factors) == factors
    assert shape.input_columns == math.prod(p for p, _ in factors)
    assert shape.output_columns == math.prod(q for _, q in factors)


@pytest.mark.parametrize(
    "text",
    ["", "8", "8^2", "1024:", ":8", "0:8", "4:0^2", "4:8^0", "4:8^", "4:8:2", "4 : 8", "4x0"],
)
def test_what_is_no_shape_is_refused(text) -> None:
    with pytest.raises(kronop.ArgumentError, match=r"1024:8\^[35]"):
        shapes.parse(text)


@pytest.mark.parametrize(
    ("former", "now"),
    [("1024x8^5", "1024:8^5"), ("1024x7x31", "1024:7,31"), ("16x4:3^2x7", "16:4x3^2,7")],
)
def test_the_former_notation_is_refused_with_the_one_of_now(former, now, capsys) -> None:
    with pytest.raises(kronop.ArgumentError, match=re.escape(f"write {now}")):
        shapes.parse(former)
    assert main(["bench", "kron", "--shapes", former]) == 1
    assert f"write {now}" in capsys.readouterr().err
    assert shapes.parse(now).rows == int(former.split("x")[0])


def test_every_default_is_a_shape() -> None:
    assert len(shapes.parse_all(shapes.DEFAULTS["cuda"], [])) == 12
    assert len(shapes.parse_all(shapes.DEFAULTS["cpu"], [])) == 9


def test_rows_replace_those_of_the_shapes() -> None:
    found = shapes.parse_all(["7:8^2", "4"], [1, 20])
    assert [shape.text for shape in found] == ["1:8^2", "20:8^2", "1:4", "20:4"]
    assert [shape.rows for shape in found] == [1, 20, 1, 20]
    assert [list(shape.factors) for shape in found[1:3]] == [[(8, 8)] * 2, [(4, 4)]]


def test_useful_bytes_and_operations() -> None:
    shape = shapes.parse("1024:8^5")
    assert shape.bytes(4) == 4 * (2 * 1024 * 8**5 + 5 * 64)
    assert shape.operations == 2 * 1024 * 8**5 * 40
    # 2 -> 8 and 8 -> 2 on 16 elements: shrinking first takes 32 multiply-adds and leaves 4.
    assert shapes.parse("1:2x8,8x2").operations == shapes.parse("1:8x2,2x8").operations
    assert shapes.parse("1:2x8,8x2").operations == 2 * (16 * 2 + 4 * 8)


def test_the_floor_is_the_larger_of_bytes_and_operations() -> None:
    shape = shapes.parse("1024:8^5")
    one, two = (floor_of(shape, "float32", 4, _CEILINGS, 4e12, passes) for passes in (1, 2))
    assert one.ms == pytest.approx(shape.bytes(4) / 4e12 * 1e3)
    assert two.ms == pytest.approx(2 * one.ms)
    assert (one.bound, two.bound) == ("1 pass", "2 passes")
    slow = floor_of(shapes.parse("1024:128^3"), "float32", 4, _CEILINGS, 4e12, 1)
    assert slow.bound == "arithmetic"
    assert slow.ms == pytest.approx(2 * 1024 * 128**3 * 384 / 1e14 * 1e3)


def test_rates_are_those_that_accuracy_allows() -> None:
    assert _CEILINGS.rate("float32") == 1e14
    assert _CEILINGS.rate("float64") == 6e13
    assert _CEILINGS.rate("bfloat16") == 6e14


@pytest.mark.parametrize(
    ("text", "element_bytes", "passes"),
    [("1024:8^6", 4, 1), ("1024:8^6", 8, 2), ("1024:64^3", 4, 1), ("1024:16^5", 4, 2)],
)
def test_passes_that_fit_are_those_of_a_cluster(text, element_bytes, passes) -> None:
    target = kronop.Target.parse("sm_90a")
    assert passes_that_fit(shapes.parse(text), element_bytes, target) == passes
    assert passes_that_fit(shapes.parse(text), element_bytes, kronop.Target.parse("x86")) == 1


def test_buffers_rotate_until_caches_are_left() -> None:
    assert sets_for(ROTATED_BYTES) == 1
    assert sets_for(ROTATED_BYTES // 3) == 3 + 1
    assert sets_for(1) == MOST_SETS
    assert needs_flush(1)
    assert not needs_flush(ROTATED_BYTES // MOST_SETS)


def test_variants_are_interleaved_and_take_their_calls_in_turn() -> None:
    seen: list[str] = []
    variants = {
        name: [lambda tag=f"{name}{index}": seen.append(tag) for index in range(2)]
        for name in ("a", "b")
    }
    times = medians(variants, HostClock(), 3, lambda: seen.append("flush"))
    warm, timed = seen[:6], seen[6:]
    assert warm == ["a0", "a1", "a1", "b0", "b1", "b1"]
    assert timed[::3] == ["flush"] * 6
    assert timed[1::3] == ["a1", "b1", "a0", "b0", "a1", "b1"]
    assert timed[2::3] == ["a0", "b0", "a1", "b1", "a0", "b0"]
    assert set(times) == {"a", "b"}
    assert all(value >= 0 for value in times.values())


def test_a_variant_runs_until_the_threads_of_others_are_asleep() -> None:
    """Each timed call comes after calls of the same variant that took so long."""
    began: list[tuple[str, float]] = []
    variants = {
        name: [lambda name=name: began.append((name, time.perf_counter()))] * 2 for name in "ab"
    }
    medians(variants, HostClock(), 2, settle=0.01)
    turns = [[at for _, at in calls] for _, calls in itertools.groupby(began, lambda item: item[0])]
    assert len(turns) == 2 + 4
    assert all(calls[-1] - calls[0] > 0.009 for calls in turns[2:])


def test_results_are_kept_until_their_calls_next_turn() -> None:
    results: list[weakref.ref[set[int]]] = []

    def call() -> set[int]:
        result: set[int] = set()
        results.append(weakref.ref(result))
        return result

    calls = keeping([call, call])
    for index in (0, 1, 0):
        calls[index]()
    assert [result() is not None for result in results] == [False, True, True]


@pytest.mark.parametrize(("device", "settles"), [("cpu", True), ("cuda", False)])
def test_only_unflushed_variants_on_cpus_wait_for_threads(device, settles) -> None:
    assert (settle_seconds(device, None) > 0) == settles
    assert settle_seconds(device, lambda: None) == 0


def test_large_arrays_are_copied_by_all_threads() -> None:
    source = np.random.default_rng(1).standard_normal(arrays._SHARED_BYTES)
    target = np.full_like(source, np.nan)
    arrays.NumpyArrays().copy(target, source)
    assert np.array_equal(target, source)


def test_shuffle_is_the_product() -> None:
    random = np.random.default_rng(1)
    x = random.standard_normal((3, 24))
    factors = [random.standard_normal(size) for size in ((2, 5), (3, 3), (4, 2))]
    expected = x @ np.kron(np.kron(factors[0], factors[1]), factors[2])
    np.testing.assert_allclose(arrays.shuffle(x, factors), expected, rtol=1e-12)


def test_a_tiny_run_end_to_end(capsys, tmp_path) -> None:
    out = tmp_path / "out.json"
    command = ["bench", "kron", "--shapes", "4:2^3", "3:4x3,5", "--repeats", "2"]
    assert main([*command, "--dtype", "float32", "float64", "--json", str(out)]) == 0
    printed = capsys.readouterr().out.splitlines()
    assert printed[2].split()[:4] == ["M", "x", "factors", "type"]
    assert [line.split()[:2] for line in printed[3:7]] == [
        [shape, dtype] for dtype in ("float32", "float64") for shape in ("4:2^3", "3:4x3,5")
    ]
    told = json.loads(out.read_text())
    assert told["ceilings"]["copy_bytes_per_second"] > 0
    assert set(told["ceilings"]["operations_per_second"]) == {"float32", "float64"}
    assert told["machine"]["kronop"] == kronop.__version__
    first, second, *_ = told["cases"]
    assert first["factors"] == [[2, 2]] * 3
    assert second["factors"] == [[4, 3], [5, 5]]
    for item in told["cases"]:
        assert item["kronop"]["ms"] > 0
        assert item["kronop"]["error"] < (1e-6 if item["dtype"] == "float32" else 1e-14)
        assert item["peers"]["shuffle"]["ms"] > 0
        assert item["peers"]["shuffle"]["error"] < 1e-6
        assert item["floor"]["passes"] == 1
        assert item["roofline"] == pytest.approx(item["floor"]["ms"] / item["kronop"]["ms"])


@pytest.mark.parametrize("busy", [0, 2])
def test_a_busy_machine_is_told_of(monkeypatch, capsys, busy) -> None:
    monkeypatch.setattr(load, "busy_cpus", lambda: busy)
    assert main(["bench", "kron", "--shapes", "4:2^3", "--repeats", "1", "--dtype", "float32"]) == 0
    told = capsys.readouterr().err
    assert ("warning: other processes keep 2 of" in told) == bool(busy)
    load.warn_of_load("cuda")
    assert not capsys.readouterr().err


@pytest.mark.parametrize(
    ("running", "all_cpus", "own", "busy"),
    [
        (["1/90"] * 5, 2, 2, 0),
        (["3/90"] * 5, 2, 2, 2),
        (["9/90"] * 5, 2, 2, 2),
        (["5/90"] * 5, 8, 4, 0),  # There is room beside the process's own CPUs,
        (["7/90"] * 5, 8, 4, 2),  # and now there is not.
        (["1/90", "4/90", "1/90", "1/90", "3/90"], 2, 2, 0),  # Only for a moment.
        (["none"] * 5, 2, 2, 0),
    ],
)
def test_cpus_that_others_keep_busy(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    running: list[str],
    all_cpus: int,
    own: int,
    busy: int,
) -> None:
    file, told = tmp_path / "loadavg", iter(running)
    monkeypatch.setattr(load, "_LOAD", file)
    monkeypatch.setattr(
        load.time, "sleep", lambda _: file.write_text(f"0.1 0.1 0.1 {next(told)} 77\n")
    )
    monkeypatch.setattr(load.os, "cpu_count", lambda: all_cpus)
    monkeypatch.setattr(load, "cpu_count", lambda: own)
    assert load.busy_cpus() == busy


def test_no_load_is_told_where_the_system_does_not(tmp_path: Path) -> None:
    assert load._running(tmp_path / "none") == 1


def test_without_torch_numpy_is_the_peer(monkeypatch, capsys) -> None:
    found = importlib.util.find_spec
    hidden = {"torch", "pyfastkron", "linear_operator"}
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name, *rest: None if name in hidden else found(name)
    )
    command = ["bench", "kron", "--shapes", "5:3^2", "--repeats", "1", "--passes", "2"]
    assert main([*command, "--dtype", "float32"]) == 0
    printed = capsys.readouterr().out
    assert "torch" not in printed.splitlines()[0]
    assert "2 passes" in printed
    assert "fastkron: not installed (5:3^2)" in printed
    assert main([*command, "--dtype", "float16"]) == 1
    assert "float32 or float64 where torch is not installed" in capsys.readouterr().err
    assert main([*command, "--device", "cuda"]) == 1
    assert "which times the GPU" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--shapes", "8y8"], "1024:8^3,5x3"),
        (["--rows", "0"], "at least 1"),
        (["--repeats", "0"], "at least 1"),
        (["--json", "/nowhere/at/all.json"], "make the folder first"),
        (["--plot", "roof.jpg"], "ends in .png or .svg"),
    ],
)
def test_wrong_arguments_are_one_line(words, message, capsys) -> None:
    assert main(["bench", "kron", *words]) == 1
    told = capsys.readouterr()
    assert told.out == ""
    assert message in told.err
    assert len(told.err.splitlines()) == 1


def test_a_plot_without_matplotlib_is_one_line(monkeypatch, capsys) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name, *rest: None)
    assert main(["bench", "kron", "--plot", "roof.png"]) == 1
    assert "pip install matplotlib" in capsys.readouterr().err


def _result(**changes) -> case.Result:
    values = {
        "shape": shapes.parse("1024:8^5"),
        "dtype": "float32",
        "kronop": timing.Timing(ms=0.1, graph_ms=0.02, error=1e-7),
        "bytes": 1 << 20,
        "operations": 1 << 22,
        "steps": 2,
        "copy_ms": 0.06,
        "floor": Floor(one_pass_ms=0.06, arithmetic_ms=0.02, passes=1),
        "peers": {"shuffle": timing.Timing(ms=0.5, error=1e-7)},
    }
    return case.Result(**{**values, **changes})


def test_a_row_shows_share_floor_and_gain() -> None:
    table = case.TABLE.beside(["shuffle"])
    line = _result().row(table)
    words = line.split()
    assert words[:6] == ["1024:8^5", "float32", "2", "0.1", "20.00", "0.60"]
    assert "1 pass" in line
    assert line.endswith("0.5 (5.00x)")
    heading = table.heading()
    assert heading.index("shuffle") == line.index("0.5 (")


def test_failures_are_told_and_counted(monkeypatch, capsys) -> None:
    failed = _result(kronop=timing.Timing(reason="out of memory"), floor=None, peers={})
    assert failed.row(case.TABLE.beside(["shuffle"])).endswith("failed: out of memory")
    told = failed.as_json()
    assert told["floor"] is None
    assert told["roofline"] is None
    monkeypatch.setattr(case, "run", lambda *rest: failed)
    assert main(["bench", "kron", "--shapes", "4:2", "--repeats", "1", "--dtype", "float32"]) == 1
    assert "expected 1 results, got 0; 1024:8^5 failed" in capsys.readouterr().err


def test_wrong_peers_and_impossible_shares_are_noted() -> None:
    wrong = _result(peers={"fastkron": timing.Timing(ms=0.2, error=math.inf)})
    assert report.notes([wrong]) == ["fastkron: the result is not finite (1024:8^5)"]
    assert wrong.row(case.TABLE.beside(["fastkron"])).endswith("wrong")
    json.dumps(wrong.as_json(), allow_nan=False)
    (note,) = report.notes([_result(kronop=timing.Timing(ms=0.01, error=0.0))])
    assert note.startswith("roofline above 1")


def test_a_peer_that_fails_is_left_out(monkeypatch) -> None:
    def fail(*rest):
        raise RuntimeError("no such kernel\nmore")

    monkeypatch.setitem(peers._PEERS, "shuffle", fail)
    setting = case.Setting(
        arrays=arrays.NumpyArrays(),
        clock=HostClock(),
        ceilings=_CEILINGS,
        peers=("shuffle",),
        repeats=1,
        passes="fit",
        graph=False,
    )
    result = case.run(shapes.parse("4:3^2"), "float32", setting, lambda what: None)
    assert result.peers["shuffle"].reason == "no such kernel"
    assert result.peers["shuffle"].ms is None
    assert result.kronop.ms is not None
    assert result.floor is not None


def test_results_that_were_not_written_are_infinitely_wrong() -> None:
    numpy = arrays.NumpyArrays()
    x, factors = numpy.random((4, 9), "float64"), [numpy.random((3, 3), "float64")] * 2
    check = case._Check(numpy, x, factors)
    y = arrays.shuffle(x, factors)
    assert check.error(y) < 1e-14
    y[2, 1] = np.nan
    assert check.error(y) == math.inf
