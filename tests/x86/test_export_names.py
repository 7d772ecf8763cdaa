"""What exports refuse and how they say so, what the command asks for, and what a library holds."""

from __future__ import annotations

import subprocess
import threading
from typing import Any

import numpy as np
import pytest

import kronop
from kronop.__main__ import main
from kronop.core.export import api, places
from kronop.core.operation import Operation
from kronop.families.distance.size import DistanceSize
from tests import support
from tests.exported import Library


@pytest.fixture(scope="module")
def kron_operation() -> Any:
    return support.kron_operation("x86-avx2", kronop.float32, [(4, 4)])


@pytest.mark.parametrize(
    "name",
    ["kronop", "KRONOP", "kronop_types", "stdlib", "String", "omp", "cuda", "m", "c", "static"],
)
def test_names_of_others_are_refused(kron_operation, tmp_path, name) -> None:
    with pytest.raises(kronop.ArgumentError, match="a name of its own"):
        kron_operation.export(tmp_path, name=name)
    assert not any(tmp_path.iterdir())


def test_scalars_that_clash_are_refused(tmp_path) -> None:
    """The library would have a type or function of the parameter's name."""
    activation = kronop.leaky_relu(kronop.float32)
    epilogue = kronop.LinearCombinationGeneric(
        activation, kronop.float32, 1, kronop.float32, kronop.float32
    )
    operation = support.kron_operation("x86", kronop.float32, [(4, 4)], epilogue=epilogue)
    with pytest.raises(kronop.DescriptionError, match="parameters of an exported activation"):
        operation.export(tmp_path, name="leaky", rows=[1], threads=[1])


@pytest.mark.parametrize(
    "how",
    [
        {"rows": 5},
        {"rows": "12"},
        {"rows": [1.5]},
        {"rows": [True]},
        {"rows": [None]},
        {"threads": 4},
        {"threads": "12"},
        {"threads": [1.5]},
        {"threads": []},
        {"name": 3},
    ],
    ids=str,
)
def test_arguments_of_other_types_are_refused(kron_operation, tmp_path, how) -> None:
    with pytest.raises(kronop.KronopError, match=rf"(?s){next(iter(how))}.*expected"):
        kron_operation.export(tmp_path, **how)


@pytest.mark.parametrize("rows", [5, [5], [None], [], [(0, 8, 4)]], ids=str)
def test_distances_take_sizes_alone(tmp_path, rows) -> None:
    points = kronop.TensorDescription(kronop.float32)
    operation = kronop.DistanceOperation(
        "x86", None, points, points, points, support.linear(kronop.float32), kronop.kernels.Linear()
    )
    with pytest.raises(kronop.KronopError, match=r"rows of an export(?s:.*)expected"):
        operation.export(tmp_path, rows=rows)


def test_files_are_written_by_several_at_once(tmp_path) -> None:
    """No writer takes another one's file, and none is left behind."""
    failed: list[BaseException] = []

    def write(content: bytes) -> None:
        try:
            for _ in range(200):
                places.write(tmp_path, {"file": content})
        except kronop.ArgumentError as error:
            failed.append(error)

    contents = [bytes([at]) * 5000 for at in range(4)]
    threads = [threading.Thread(target=write, args=(content,)) for content in contents]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failed
    assert [path.name for path in tmp_path.iterdir()] == ["file"]
    assert (tmp_path / "file").read_bytes() in contents


def test_cpus_without_the_instructions_are_refused(kron_operation, tmp_path, monkeypatch) -> None:
    machine = api._machine
    lacking = "__builtin_cpu_supports(name) 0"
    monkeypatch.setattr(api, "_machine", lambda target: [lacking, *machine(target)])
    kron_operation.export(tmp_path, name="lacks", rows=[1], threads=[1])
    with pytest.raises(AssertionError, match="lacks the instructions"):
        Library(tmp_path, "lacks", kron_operation, 1)


@pytest.mark.optimised
def test_libraries_have_no_variables(tmp_path) -> None:
    operation = support.kron_operation("x86-generic", kronop.float32, [(64, 64)] * 2)
    operation.export(tmp_path, name="still", rows=[64], threads=[2])
    sizes = subprocess.run(
        ["size", "-A", str(tmp_path / "lib" / "libstill.a")],
        capture_output=True,
        text=True,
        check=True,
    )
    lines = [line.split() for line in sizes.stdout.splitlines() if line.startswith(".")]
    assert any(name == ".text" or name.startswith(".text.") for name, *_ in lines)
    variable = (".data", ".bss", ".tdata", ".tbss")
    held = {name: int(count) for name, count, _ in lines if int(count)}
    # Constants that hold addresses are written by the loader alone.
    assert not [
        name for name in held if name.startswith(variable) and not name.startswith(".data.rel.ro")
    ]


def test_symmetric_distances_take_points_once(tmp_path) -> None:
    where = ["--target", "x86-generic", "--threads", "1", "--out", str(tmp_path)]
    assert main(["export", "distance", "9x9x4", "--symmetric", "--direct", *where]) == 0
    points = kronop.TensorDescription(kronop.float32)
    operation = kronop.DistanceOperation(
        *("x86-generic", None, points, points, points, support.linear(kronop.float32)),
        kronop.kernels.PowerNorm(2.0),
        symmetric=True,
    )
    size = DistanceSize(9, 9, 4)
    library = Library(tmp_path, "distance", operation, size)
    x = np.random.default_rng(7).standard_normal((9, 4)).astype(np.float32)
    y = np.full((9, 9), np.nan, np.float32)
    assert library.status(9, {"X1": x}, y, (1.0, 0.0)) == 0
    library.close()
    expected = np.sqrt(((x[:, None].astype(float) - x) ** 2).sum(-1))
    # A sum of four squares of differences and its root: some ten roundings, halved by the root.
    np.testing.assert_allclose(y, expected, rtol=10 * np.finfo(np.float32).eps, atol=0)


@pytest.fixture
def asked(monkeypatch, tmp_path):
    """What the command asks an export for: (operation, rows), without making one."""
    calls: list[tuple[Any, Any]] = []

    def export(self: Any, folder: Any, *, rows: Any, **more: Any) -> Any:
        calls.append((self, rows))
        return tmp_path

    monkeypatch.setattr(Operation, "export", export)

    def ask(*words: str) -> tuple[Any, Any]:
        assert main(["export", *words, "--target", "x86-generic", "--out", str(tmp_path)]) == 0
        return calls.pop()

    return ask


def test_rows_that_are_named_prevail_over_the_shape(asked) -> None:
    assert asked("kron", "16:8^2", "--rows", "3")[1] == [3]
    assert asked("kron", "16:8^2")[1] == [16]
    assert asked("kron", "8^2")[1] is None
    assert [(size.m, size.n) for size in asked("distance", "8x8x4", "--rows", "3")[1]] == [(3, 8)]


def test_alignments_are_those_of_all_rows(asked) -> None:
    def alignments(*words: str) -> tuple[int, int]:
        what = asked("ksparse", "1,3,6,1", *words)[0].description
        return what.X.alignment, what.Y.alignment

    assert alignments("--batch-last", "--rows", "4", "8") == (4, 4)
    assert alignments("--batch-last", "--rows", "4", "6") == (2, 2)
    assert alignments("--batch-last", "--rows", "4", "5") == (1, 1)
    assert alignments("--batch-last") == (1, 1)
    assert alignments() == (2, 1)
