"""The benchmark of distances: cases, work, floors, checks, a tiny run end to end."""

from __future__ import annotations

import dataclasses
import json
import math
from types import SimpleNamespace

import numpy as np
import pytest

import kronop
from kronop.__main__ import main
from kronop.bench import report, roofline
from kronop.bench.arrays import NumpyArrays, TorchArrays
from kronop.bench.distances import case, gradient, matmul, matrix, peers
from kronop.bench.pipes import pipes_of
from kronop.bench.roofline import Ceilings
from kronop.bench.timing import PeerUnavailableError, Timing
from kronop.emit.pipes import PipeFloor, Pipes, Work, floor_of

_CEILINGS = Ceilings(
    copy_bytes_per_second=4.28e12,
    operations_per_second={"float32": 5.1e13, "float64": 6.2e13, "tf32": 3.43e14, "float16": 6e14},
    size=8192,
)
_PRODUCT = "100000x100000x3x1"
_LARGE, _NARROW, _GRADIENT = "30000x30000x1024", "20000x20000x32", "4x2000x2000x512"


def _floor(name: str, size: str = _LARGE, dtype: str = "float32") -> PipeFloor:
    kind = {_GRADIENT: gradient, _PRODUCT: matmul}.get(size, matrix)
    problem = kind.problem_of(name, size, 1, dtype)
    units = problem.sums == "float32"
    target = kronop.Target.parse("sm_90a")
    pipes = dataclasses.replace(
        Pipes.of_gpu(target, problem.sums, 132, 1.98e9),  # those of an H200
        products=_CEILINGS.rate(dtype) / 2,
        memory=_CEILINGS.copy_bytes_per_second,
    )
    return floor_of(problem.work(units=units), pipes)


@pytest.mark.parametrize(
    ("name", "size", "ms", "bound"),
    [
        ("1", _LARGE, 55.1, "arithmetic"),
        ("inf", _LARGE, 55.1, "arithmetic"),
        ("2", _LARGE, 55.1, "arithmetic"),
        ("2/expanded", _LARGE, 16.1, "matrix products"),
        ("1.3", _LARGE, 255, "special units"),
        ("0.5", _LARGE, 220.6, "special units"),
        ("1.5", _LARGE, 220.6, "special units"),
        ("3", _LARGE, 82.7, "arithmetic"),
        ("4", _LARGE, 82.7, "arithmetic"),
        ("1/symmetric", _LARGE, 27.5, "arithmetic"),
        ("2/expanded", _NARROW, 0.375, "memory"),
        ("gaussian", _NARROW, 0.79, "arithmetic"),
        ("1", _GRADIENT, 0.367, "arithmetic"),
        ("2", _GRADIENT, 0.143, "matrix products"),
        ("1.3", _GRADIENT, 0.718, "arithmetic"),
        ("gaussian", _PRODUCT, 1.47, "arithmetic"),
    ],
)
def test_floors_of_an_h200(name, size, ms, bound) -> None:
    floor = _floor(name, size)
    assert floor.ms == pytest.approx(ms, rel=0.01)
    assert floor.bound == bound


def test_exponentials_are_shared_between_units() -> None:
    parts = _floor("1.3").parts
    assert parts["arithmetic"] == pytest.approx(parts["special units"], rel=0.02)
    # Two special operations for each feature of a pair, if none moved.
    assert parts["special units"] < 0.6 * 2 * 30000**2 * 1024 / (16 * 132 * 1.98e9) * 1e3


def test_types_have_their_own_floors() -> None:
    assert _floor("1", dtype="float64").ms == pytest.approx(2 * 1.5 * _floor("1").ms, rel=0.01)
    assert "special units" not in _floor("1.3", dtype="float64").parts
    assert _floor("2/expanded", dtype="float16").bound == "matrix products"
    assert _floor("2/expanded", dtype="float16").ms < 4


def test_a_cpu_has_no_special_units() -> None:
    target = kronop.Target.parse("x86-avx2")
    pipes = pipes_of("cpu", target, _CEILINGS, "float32", "float32", 1e12)
    work = matrix.problem_of("1.3", "10x10x10", 1, "float32").work(units=False)
    assert work.special == work.movable == 0
    floor = floor_of(work, pipes)
    assert set(floor.parts) == {"arithmetic", "matrix products", "memory"}
    assert floor.parts["arithmetic"] == pytest.approx(1e3 * work.arithmetic / 2.55e13)


def test_a_gpu_is_asked_for_its_processors_and_its_clock(monkeypatch) -> None:
    torch, core = pytest.importorskip("torch"), pytest.importorskip("cuda.core")
    properties = SimpleNamespace(multiprocessor_count=132, clock_rate=1_980_000)
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 0)
    monkeypatch.setattr(core, "Device", lambda index: SimpleNamespace(properties=properties))
    target = kronop.Target.parse("sm_90a")
    found = pipes_of("cuda", target, _CEILINGS, "float32", "float32", 4e12)
    ours = Pipes.of_gpu(target, "float32", 132, 1.98e9)
    tf32 = _CEILINGS.operations_per_second["tf32"]
    assert found == dataclasses.replace(ours, products=tf32 / 3 / 2, memory=4e12)
    assert found.arithmetic == 8 * found.special == pytest.approx(3.345e13, rel=1e-3)


def test_useful_bytes() -> None:
    size = "10x20x3"
    assert matrix.problem_of("1", size, 1, "float64").work(units=False).bytes == 8 * (200 + 90)
    same = matrix.problem_of("1/symmetric", size, 1, "float32").work(units=False)
    assert same == Work(arithmetic=3 * 55 * 3, bytes=4 * (100 + 30))


@pytest.mark.parametrize(
    "text", ["", "-1", "nan", "1/foo", "1/expanded", "foo", "gaussian/", "linear/expanded"]
)
def test_what_is_no_case_is_refused(text) -> None:
    with pytest.raises(kronop.ArgumentError, match=r"case|kernel|p:"):
        matrix.problem_of(text, "4x4x4", 1, "float32")


@pytest.mark.parametrize("name", [*matrix.CASES, "matern:1.5", "gaussian/expanded"])
def test_the_check_knows_right_from_wrong(name) -> None:
    arrays = NumpyArrays()
    problem = matrix.problem_of(name, "30x20x5", 1, "float64")
    operands = problem.operands(arrays)
    assert (operands[0] is operands[1]) == ("symmetric" in name)
    right = arrays.poisoned(problem.result, "float64")
    problem.call(operands, right)()
    check = case._Check(problem, arrays, operands)
    assert check.error(right) < 1e-13
    wrong = right.copy()
    wrong[-1, -2] += 0.01
    assert 1e-5 < check.error(wrong) < 1e-1
    wrong[3, 3] = np.nan
    assert check.error(wrong) == math.inf
    assert check.error(right[:-1]) == math.inf


@pytest.mark.parametrize(
    ("kind", "name", "size", "halved"),
    [
        *((gradient, name, "2x5x30x20", "2x5x15x10") for name in ("1", "2", "1.3")),
        (matmul, "gaussian", "30x20x5x3", "15x10x5x3"),
        (matmul, "matern:1.5", "30x20x5x9", "15x10x5x9"),
    ],
)
def test_the_check_of_sums(kind, name, size, halved) -> None:
    arrays = NumpyArrays()
    problem = kind.problem_of(name, size, 0.5, "float64")
    assert problem.label == halved
    operands = problem.operands(arrays)
    right = arrays.poisoned(problem.result, "float64")
    problem.call(operands, right)()
    check = case._Check(problem, arrays, operands)
    assert check.error(right) < 1e-13
    assert check.error(-right) == pytest.approx(2)


def test_peers_say_why_they_can_not_take_part() -> None:
    arrays, x = NumpyArrays(), np.ones((3, 2))
    asked = {"p": 1.0, "bandwidth": None, "dtype": "float64", "expanded": False}
    with pytest.raises(PeerUnavailableError, match="GPUs"):
        peers.call_of("kermac", peers.Asked(**asked), arrays, x, x)
    with pytest.raises(PeerUnavailableError, match="alone"):
        _ = peers.Asked(**asked | {"p": None}).gamma
    pytest.importorskip("scipy")
    for p in (1.0, 2.0, 1.3, math.inf):
        found = peers.call_of("scipy", peers.Asked(**asked | {"p": p}), arrays, x, 2 * x)()
        assert found == pytest.approx(kronop.cdist(x, 2 * x, p=p))


def test_torch_takes_part() -> None:
    torch = pytest.importorskip("torch")
    arrays = TorchArrays("cpu")
    x = torch.randn(5, 3, dtype=torch.float64)
    gaussian = peers.Asked(p=None, bandwidth=0.7, dtype="float64", expanded=False)
    product = peers.product_of("torch", gaussian, arrays, x, x, x[:, :2])()
    matrix_of_pairs = kronop.kernel_matrix(x, x, kronop.kernels.Gaussian(0.7))
    assert torch.allclose(product, matrix_of_pairs @ x[:, :2])
    for p, bandwidth in ((1.3, None), (2.0, None), (None, 0.7)):
        asked = peers.Asked(p=p, bandwidth=bandwidth, dtype="float64", expanded=False)
        found = peers.call_of("torch", asked, arrays, x, x)()
        if p is None:
            expected = kronop.kernel_matrix(x, x, kronop.kernels.Gaussian(bandwidth))
        else:
            expected = kronop.cdist(x, x, p=p)
        assert torch.allclose(found, expected)


def test_lines_of_the_table() -> None:
    problem = matrix.problem_of("1.3", "64x32x8", 1, "float32")
    result = case.Result(problem=problem, dtype="float32")
    result.kronop = Timing(reason="out of memory")
    assert result.row(case.TABLE).endswith("failed: out of memory")
    result.kronop = Timing(ms=2.0, error=1e-7)
    result.floor = PipeFloor({"arithmetic": (1.0, 1e3), "memory": (1.0, 2e3)})
    result.peers = {"torch": Timing(ms=5.0, error=1e-7), "scipy": Timing(reason="not installed")}
    table = case.TABLE.beside(["torch", "scipy"])
    line = result.row(table)
    assert line.split()[:7] == ["64x32x8", "1.3", "float32", "2", "-", "0.50", "1"]
    assert "arithmetic" in line
    assert "5 (2.50x)" in line
    assert len(table.heading()) > line.index("5 (2.50x)")
    assert report.notes([result]) == ["scipy: not installed (64x32x8 1.3)"]
    assert report.notes([result, result]) == ["scipy: not installed (all)"]


def test_a_tiny_run(capsys, monkeypatch, tmp_path) -> None:
    monkeypatch.setattr(roofline, "measure", lambda *rest: _CEILINGS)
    monkeypatch.setattr(roofline, "copy_bandwidth", lambda *rest: 1e10)
    file = tmp_path / "found.jsonl"
    words = ["--shapes", "640x640x3", "--scale", "0.1", "--repeats", "1", "--json", str(file)]
    words += ["--cases", "1", "2/expanded/symmetric", "--peers"]
    assert main(["bench", "distance", *words]) == 0
    first, second = capsys.readouterr().out.splitlines()[-2:]
    assert first.split()[:2] == ["64x64x3", "1"]
    assert second.split()[:2] == ["64x64x3", "2/expanded/symmetric"]
    machine, *lines = map(json.loads, file.read_text().splitlines())
    assert machine["ceilings"]["matrix_size"] == 8192
    assert [line["case"] for line in lines] == ["1", "2/expanded/symmetric"]
    for line in lines:
        assert (line["m"], line["n"], line["k"]) == (64, 64, 3)
        assert line["kronop"]["error"] < 1e-6
        assert line["roofline"] == line["floor"]["ms"] / line["kronop"]["ms"]


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--repeats", "0"], "--repeats"),
        (["--scale", "0"], "--scale"),
        (["--scale", "nan"], "--scale"),
        (["--shapes", "4x4"], "M x N x K"),
        (["--cases", "2/foo"], "case"),
        (["gradient", "--shapes", "4x4x2"], "O x N x K x M"),
        (["matmul", "--shapes", "4x4x2"], "M x N x K x C"),
        (["--json", "/nowhere/at/all.jsonl"], "output"),
    ],
)
def test_what_can_not_be_timed(words, told, capsys) -> None:
    assert main(["bench", "distance", *words]) == 1
    assert told in capsys.readouterr().err


def test_a_case_that_fails_is_told_at_the_end(capsys, monkeypatch) -> None:
    def fail(self, operands, result):
        raise kronop.DeviceError("no such kernel")

    monkeypatch.setattr(roofline, "measure", lambda *rest: _CEILINGS)
    monkeypatch.setattr(matrix.Matrix, "call", fail)
    assert main(["bench", "distance", "--shapes", "4x4x2", "--cases", "1", "--peers"]) == 1
    told = capsys.readouterr()
    assert "failed: no such kernel" in told.out
    assert "4x4x2 1 failed" in told.err
