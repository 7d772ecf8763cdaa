"""The benchmark of Kronecker-sparse layers: grid, samples, rows, figures, tiny runs end to end."""

from __future__ import annotations

import itertools
import math
from collections import Counter

import pytest

import kronop
from kronop.__main__ import main
from kronop.bench import layer_case, layer_report, layers, patterns, roofline, rows, summary
from kronop.bench.arrays import TorchArrays
from kronop.bench.patterns import Case, Pattern
from kronop.bench.protocol import HostClock, rounds
from kronop.bench.roofline import Ceilings
from kronop.bench.rows import Row

torch = pytest.importorskip("torch")

_BYTES = ("float8_e4m3fn", "float8_e5m2", "int8")
_RATES = dict.fromkeys(("float32", *_BYTES), 1e11)
_CEILINGS = Ceilings(copy_bytes_per_second=1e10, operations_per_second=_RATES, size=1024)
_TINY = ["bench", "ksparse", "--rows", "6", "--repeats", "1", "--dtype", "float32"]


@pytest.fixture(autouse=True)
def _known_ceilings(monkeypatch) -> None:
    """Measuring them takes seconds."""
    monkeypatch.setattr(roofline, "measure", lambda *rest: _CEILINGS)


def test_the_grid_follows_the_rule() -> None:
    grid = patterns.grid()
    assert len(set(grid)) == len(grid) == 422
    for item in grid:
        assert item.a == 1 or item.d == 1
        assert item.b in (item.c, 4 * item.c) or item.c == 4 * item.b
        assert {item.b, item.c} not in ({1024, 256}, {512, 128}, {256, 64})
        assert 25088 * max(item.inputs, item.outputs) < 2**31
    # 27 pairs (a, d) and 16 pairs (b, c) are 432; ten of their products are too large.
    sides = [1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128]
    pairs = [(a, d) for a in sides for d in sides if 1 in (a, d)]
    shapes = {(item.b, item.c) for item in grid}
    assert (len(pairs), len(shapes)) == (27, 16)
    every = {Pattern(a, b, c, d) for (a, d), (b, c) in itertools.product(pairs, shapes)}
    assert {max(item.a, item.d) for item in every - set(grid)} == {96, 128}
    assert {max(item.b, item.c) for item in every - set(grid)} == {768, 1024}


def test_samples_are_stratified_repeatable_and_nested() -> None:
    chosen = patterns.sample(60)
    assert chosen == patterns.sample(60)
    assert chosen[:12] == patterns.sample(12)
    assert len(set(chosen)) == 60
    assert set(chosen) <= set(patterns.grid())
    sides = Counter((item.a, item.d) for item in chosen)
    shapes = Counter((item.b, item.c) for item in chosen)
    assert (len(sides), min(sides.values()), max(sides.values())) == (27, 2, 3)
    assert (len(shapes), min(shapes.values()), max(shapes.values())) == (16, 3, 4)
    assert sorted(patterns.sample(10**6)) == sorted(patterns.grid())


@pytest.mark.parametrize("text", ["", "1,2,3", "1,2,3,4,5", "0,2,3,4", "1,2,x,4", "1, 2, 3, 4"])
def test_what_is_no_pattern_is_refused(text) -> None:
    with pytest.raises(kronop.ArgumentError, match="6,64,64,1"):
        patterns.parse([text])


def test_useful_bytes_and_operations() -> None:
    forward = Case(pattern=Pattern(2, 3, 5, 7), dtype="float32", layout="first", batch=11)
    both = Case(pattern=forward.pattern, dtype="float32", layout="first", batch=11, backward=True)
    x, y, w = 11 * 2 * 5 * 7, 11 * 2 * 3 * 7, 2 * 3 * 5 * 7
    assert forward.bytes(4) == 4 * (x + y + w)
    assert both.bytes(4) == 4 * (3 * x + 2 * y + 3 * w)
    assert forward.operations == 2 * 11 * w
    assert both.operations == 6 * 11 * w


def test_variants_with_their_own_numbers_of_rounds() -> None:
    seen: list[str] = []
    variants = {name: [lambda name=name: seen.append(name)] for name in ("a", "b")}
    times = rounds(variants, HostClock(), {"a": 3, "b": 1})
    assert {name: len(found) for name, found in times.items()} == {"a": 3, "b": 1}
    assert "".join(seen[4:]) == "abaa"


def _row(algorithm: str, ms: float | None = 1.0, **changes) -> Row:
    values = {
        "device": "a GPU",
        "versions": "kronop 1 torch 2",
        **dict(zip("abcd", (1, 48, 48, 4), strict=True)),
        "batch": 25088,
        "dtype": "float16",
        "layout": "first",
        "backward": False,
        "algorithm": algorithm,
        "ms": ms,
        "graph_ms": None,
        "floor_ms": 0.5,
        "bound": "1 pass",
        "error": 1e-4,
        "reason": "" if ms else "out of memory",
    }
    return Row(**{**values, **changes})


def test_rows_come_back_from_their_file(tmp_path) -> None:
    path = str(tmp_path / "rows.csv")
    assert rows.read(path) == []
    first = [_row("kernel", 0.125, graph_ms=0.1), _row("bsr", None, error=None, reason="a, b")]
    rows.append(path, first)
    rows.append(path, [_row("bmm", error=math.inf)])
    assert rows.read(path) == [*first, _row("bmm", error=math.inf)]


def test_a_line_that_was_cut_off_is_measured_again(tmp_path) -> None:
    path = tmp_path / "rows.csv"
    rows.append(str(path), [_row("kernel"), _row("bmm")])
    path.write_bytes(path.read_bytes()[:-9])
    assert rows.read(str(path)) == [_row("kernel")]
    rows.append(str(path), [_row("dense")])
    assert rows.read(str(path)) == [_row("kernel"), _row("dense")]


@pytest.mark.parametrize("text", ["a,b\n1,2\n", "{}\n"])
def test_other_files_are_refused(text, tmp_path) -> None:
    path = tmp_path / "other.csv"
    path.write_text(text)
    with pytest.raises(kronop.ArgumentError, match="columns device"):
        rows.read(str(path))


def _measured() -> list[Row]:
    """Four cases: ours wins three; it loses against dense in one of density 1/4."""
    told = []
    for d, ours, bmm, dense in ((1, 1.0, 2.0, 1.5), (4, 1.0, 4.0, 0.8), (8, 2.0, 6.0, 3.0)):
        told += [_row("kernel", ours, d=d), _row("bmm", bmm, d=d), _row("dense", dense, d=d)]
    told += [_row("kernel", 5.0, d=12, error=2e-4), _row("bmm", 10.0, d=12)]
    told += [_row("dense", None, d=12), _row("sparse", None, d=12)]
    return told


def test_the_figures_of_the_paper() -> None:
    (found,) = summary.summaries([*_measured(), _row("kernel", None, d=16)])
    gains = {gain.against: gain for gain in found.gains}
    assert set(gains) == {"best other", "bmm", "dense"}
    best = gains["best other"]
    assert (best.count, best.won, best.median, best.least) == (4, 0.75, 1.5, 0.8)
    assert best.where == "(1,48,48,4) float16 first"
    assert (gains["bmm"].median, gains["bmm"].won, gains["dense"].count) == (2.5, 1.0, 3)
    assert found.over_dense == pytest.approx(2 / 3)
    assert found.behind_dense == ("(1,48,48,4) float16 first",)
    assert found.roofline is not None
    shares = found.roofline.median, found.roofline.decile, found.roofline.least
    assert shares == pytest.approx((0.375, 0.1, 0.1))
    assert found.error == 2e-4
    assert found.cases == 4
    assert found.failed == ("(1,48,48,16) float16 first: out of memory",)
    text = summary.text(found)
    assert "best other    1.50x in the median, won  75.0% of 4, least 0.80x (1,48,48,4)" in text


def test_rows_in_front_of_a_pattern_are_those_of_x(capsys, tmp_path) -> None:
    path = str(tmp_path / "rows.csv")
    shapes = ["--patterns", "7:2,3,4,3", "2,3,4,3", "--layouts", "first", "--csv", path]
    tiny = ["bench", "ksparse", "--repeats", "1", "--dtype", "float32", "--algorithms", "kernel"]
    assert main([*tiny, *shapes]) == 0
    assert [row.batch for row in rows.read(path)] == [7, 256]


def test_types_layouts_and_directions_have_their_own_figures() -> None:
    changes = [{}, {"dtype": "float32"}, {"layout": "last"}, {"backward": True}]
    found = summary.summaries(_row("kernel", **change) for change in changes)
    assert [item.cases for item in found] == [1, 1, 1, 1]
    assert len({item.title for item in found}) == 4
    # Measured again, the later one counts.
    (last,) = summary.summaries([_row("kernel", 1.0), _row("kernel", 2.0)])
    assert last.roofline is not None
    assert last.roofline.median == 0.25


def test_the_summary_of_a_file(tmp_path, capsys) -> None:
    path = str(tmp_path / "rows.csv")
    rows.append(path, _measured())
    assert main(["bench", "ksparse", "--summary", path]) == 0
    assert capsys.readouterr().out == summary.text(summary.summaries(_measured())[0]) + "\n"
    assert main(["bench", "ksparse", "--summary", str(tmp_path / "none.csv")]) == 1
    assert "measure first" in capsys.readouterr().err


def test_a_line_tells_gains_and_reasons() -> None:
    told = layer_report.line([_row("kernel", 0.5), _row("bmm", 1.0), _row("dense", None)])
    line, reason = told.splitlines()
    assert "0.5" in line
    assert "1 (2.00x)" in line
    assert reason == "  dense: out of memory"
    assert layer_report.columns(["kernel", "bmm"]).endswith("bmm (gain)")


@pytest.mark.parametrize("layout", patterns.LAYOUTS)
@pytest.mark.parametrize("backward", [False, True])
def test_the_check_knows_right_from_wrong(layout, backward) -> None:
    case = Case(
        pattern=Pattern(2, 3, 5, 4),
        dtype="float64",
        layout=layout,
        batch=9,
        backward=backward,
    )
    inputs = layers.Inputs(case, TorchArrays("cpu"))
    check = layers.Check(inputs)
    x, weight = inputs.xs[0], inputs.weight.requires_grad_(backward)
    batch_first = x if layout == "first" else x.T
    y = torch.einsum("nikl,ijkl->nijl", batch_first.reshape(9, 2, 5, 4), weight).reshape(9, -1)
    y = y if layout == "first" else y.T
    results = [y.detach()]
    if backward:
        results += torch.autograd.grad(y, [x, weight], inputs.gs[0])
    assert check.error(results) < 1e-14
    for index in range(len(results)):
        wrong = [item.clone() for item in results]
        wrong[index] *= 1.01
        assert check.error(wrong) == pytest.approx(0.01)
        wrong[index][(-1,) * wrong[index].dim()] = math.nan
        assert check.error(wrong) == math.inf


@pytest.mark.parametrize("backward", [[], ["--backward"]])
def test_a_tiny_run_end_to_end(backward, capsys, tmp_path) -> None:
    path = str(tmp_path / "rows.csv")
    command = [*_TINY, *backward, "--patterns", "2,3,4,3", "1,5,2,1", "--csv", path]
    assert main(command) == 0
    printed = capsys.readouterr().out
    assert "4 cases, 0 of them measured before" in printed
    found = rows.read(path)
    assert len(found) == 4 * len(layers.ALGORITHMS)
    for row in found:
        assert row.reason == ""
        assert row.ms is not None
        assert row.ms > 0
        assert row.error is not None
        assert row.error < 1e-6
        assert row.backward is bool(backward)
    for layout in patterns.LAYOUTS:
        assert f"float32, batch {layout}" in printed


@pytest.mark.parametrize("dtype", _BYTES)
def test_types_of_one_byte_are_measured_and_others_say_why_not(dtype, capsys, tmp_path) -> None:
    path = str(tmp_path / "rows.csv")
    command = ["bench", "ksparse", "--rows", "6", "--repeats", "1", "--dtype", dtype]
    assert main([*command, "--patterns", "2,16,32,3", "--csv", path]) == 0
    found = rows.read(path)
    assert len(found) == 2 * len(layers.ALGORITHMS)
    for row in found:
        if row.algorithm == "kernel":
            assert row.ms is not None
            assert row.reason == ""
            assert row.error <= (0 if dtype == "int8" else 2**-8)
            # X and W of one byte, Y of two or four.
            bytes_of_y = 4 if dtype == "int8" else 2
            useful = 6 * 192 + 2 * 16 * 32 * 3 + bytes_of_y * 6 * 96
            assert row.case.bytes(1) == useful
        else:
            assert row.ms is None
            assert row.reason
    capsys.readouterr()
    assert main([*command, "--patterns", "2,16,32,3", "--backward"]) == 1
    assert f"types that have gradients, got {dtype}" in capsys.readouterr().err


@pytest.mark.parametrize("dtype", _BYTES)
def test_rates_of_one_byte(dtype, monkeypatch) -> None:
    arrays, clock = TorchArrays("cpu"), HostClock()
    assert roofline._product_rate(arrays, clock, dtype, 64) > 0
    operands = []
    name = "_int_mm" if dtype == "int8" else "_scaled_mm"

    def multiply(a, b, *rest, **more):
        operands.append((a.dtype, b.dtype))
        raise RuntimeError("not on this machine")

    monkeypatch.setattr(torch, name, multiply)
    monkeypatch.setattr(roofline, "_seconds", lambda calls, *rest: calls[0]().element_size())
    assert roofline._product_rate(arrays, clock, dtype, 64) == 2 * 64**3 / 2, "that of 16 bits"
    assert operands == [(torch.int8 if dtype == "int8" else torch.float8_e4m3fn,) * 2]


def test_what_is_in_the_file_is_not_measured_again(capsys, tmp_path) -> None:
    path = tmp_path / "rows.csv"
    command = [*_TINY, "--patterns", "2,3,4,3", "--csv", str(path)]
    assert main([*command, "--algorithms", "kernel", "bmm", "--layouts", "first"]) == 0
    before = path.read_text()
    assert main([*command, "--algorithms", "kernel", "bmm", "--layouts", "first"]) == 0
    assert path.read_text() == before
    assert "1 cases, 1 of them measured before" in capsys.readouterr().out
    assert main([*command, "--algorithms", "kernel", "bmm", "einsum"]) == 0
    added = rows.read(str(path))[2:]
    assert [(row.algorithm, row.layout) for row in added] == [
        ("einsum", "first"),
        *[(name, "last") for name in ("kernel", "bmm", "einsum")],
    ]


def test_what_does_not_fit_in_memory_is_told(monkeypatch, capsys, tmp_path) -> None:
    monkeypatch.setattr(layers, "free_bytes", lambda device: 60_000)
    path = str(tmp_path / "rows.csv")
    command = [*_TINY, "--patterns", "8,16,16,1", "--layouts", "first", "--csv", path]
    assert main([*command, "--algorithms", "kernel", "bmm", "dense"]) == 0
    kernel, bmm, dense = rows.read(path)
    assert kernel.ms is not None
    assert bmm.ms is not None
    assert (dense.ms, dense.reason) == (None, "needs 0.0 GB of memory, 0.0 GB are free")


def test_failures_are_rows(monkeypatch, capsys, tmp_path) -> None:
    made = layers.Inputs.layer

    def layer(self, algorithm):
        if algorithm == "bmm":
            raise torch.OutOfMemoryError("too much\nand more")
        return made(self, algorithm)

    monkeypatch.setattr(layers.Inputs, "layer", layer)
    path = str(tmp_path / "rows.csv")
    command = [*_TINY, "--patterns", "2,3,4,3", "--layouts", "first", "--csv", path]
    assert main([*command, "--algorithms", "kernel", "bmm", "einsum"]) == 0
    kernel, bmm, einsum = rows.read(path)
    assert kernel.ms is not None
    assert einsum.ms is not None
    assert (bmm.ms, bmm.reason) == (None, "out of memory")
    assert "bmm: out of memory" in capsys.readouterr().out


def test_what_does_not_fit_together_is_measured_alone(monkeypatch, tmp_path) -> None:
    timed = layer_case.medians

    def medians(variants, *rest):
        if len(variants) > 1:
            raise torch.OutOfMemoryError("too much")
        return timed(variants, *rest)

    monkeypatch.setattr(layer_case, "medians", medians)
    path = str(tmp_path / "rows.csv")
    command = [*_TINY, "--patterns", "2,3,4,3", "--layouts", "first", "--csv", path]
    assert main([*command, "--algorithms", "kernel", "bmm"]) == 0
    assert [(row.ms is None, row.reason) for row in rows.read(path)] == [(False, "")] * 2


def test_what_takes_long_is_timed_once(monkeypatch, tmp_path) -> None:
    monkeypatch.setattr(layer_case, "_BUDGET_MS", 0.0)
    monkeypatch.setattr(layer_case, "medians", lambda variants, *rest: dict.fromkeys(variants, 7))
    path = str(tmp_path / "rows.csv")
    command = [*_TINY, "--patterns", "2,3,4,3", "--layouts", "first", "--csv", path]
    assert main([*command, "--algorithms", "kernel"]) == 0
    (row,) = rows.read(path)
    assert row.ms is not None
    assert row.ms != 7


def test_a_lost_gpu_ends_the_run_which_goes_on_later(monkeypatch, capsys, tmp_path) -> None:
    made, lost = layers.Inputs.layer, []

    def layer(self, algorithm):
        if algorithm == "bmm":
            lost.append(True)
            raise RuntimeError("an illegal access")
        return made(self, algorithm)

    def wait(self):
        if lost:
            raise RuntimeError("an illegal access")

    monkeypatch.setattr(layers.Inputs, "layer", layer)
    monkeypatch.setattr(HostClock, "wait", wait)
    path = str(tmp_path / "rows.csv")
    command = [*_TINY, "--patterns", "2,3,4,3", "--layouts", "first", "--csv", path]
    command += ["--algorithms", "kernel", "bmm", "einsum"]
    assert main(command) == 1
    assert "start again" in capsys.readouterr().err
    (bmm,) = rows.read(path)
    assert (bmm.algorithm, bmm.reason) == ("bmm", "an illegal access")
    lost.clear()
    assert main(command) == 0
    assert [(row.algorithm, row.ms is None) for row in rows.read(path)] == [
        ("bmm", True),
        ("kernel", False),
        ("einsum", False),
    ]


def test_a_case_without_our_time_ends_with_an_error(monkeypatch, capsys) -> None:
    def layer(self, algorithm):
        raise RuntimeError("no such kernel")

    monkeypatch.setattr(layers.Inputs, "layer", layer)
    assert main([*_TINY, "--patterns", "2,3,4,3", "--algorithms", "kernel"]) == 1
    told = capsys.readouterr()
    assert "no time: (2,3,4,3) float32 first: no such kernel" in told.out
    assert "2 without" in told.err


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--sample", "0"], "at least 1"),
        (["--rows", "0"], "at least 1"),
        (["--repeats", "0"], "at least 1"),
        (["--patterns", "1,2"], "6,64,64,1"),
        (["--csv", "/nowhere/at/all.csv"], "make the folder first"),
    ],
)
def test_wrong_arguments_are_one_line(words, message, capsys) -> None:
    assert main(["bench", "ksparse", *words]) == 1
    told = capsys.readouterr()
    assert told.out == ""
    assert message in told.err
    assert len(told.err.splitlines()) == 1
