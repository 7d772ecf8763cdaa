"""Exported libraries on this machine: from C and C++ through CMake, and every case by ctypes."""

from __future__ import annotations

import re
import shutil
import subprocess
import threading
from pathlib import Path

import numpy as np
import pytest

import kronop
from kronop.__main__ import main
from kronop.families.distance import kernels
from kronop.families.distance.size import DistanceSize
from tests import support
from tests.exported import Library, placed

FACTORS = [(3, 2), (5, 4), (1, 3)]
PATTERN = (2, 5, 4, 2)
ROWS = [1, 4, 32]


@pytest.fixture(scope="module")
def kron_operation():
    return support.kron_operation("x86", kronop.float32, FACTORS)


@pytest.fixture(scope="module")
def sparse_operation():
    activation = kronop.LinearCombinationGeneric(
        kronop.leaky_relu(kronop.float64), kronop.float64, 1, kronop.float64, kronop.float64
    )
    return support.ksparse_operation("x86", kronop.float64, PATTERN, epilogue=activation)


@pytest.fixture(scope="module")
def folder(tmp_path_factory, kron_operation, sparse_operation) -> Path:
    """The folder of two libraries."""
    found = tmp_path_factory.mktemp("exported")
    kron_operation.export(found, name="kron", rows=ROWS, threads=[1, 2])
    return sparse_operation.export(str(found), name="sparse", rows=ROWS, threads=[3])


@pytest.fixture
def kron(folder, kron_operation):
    library = Library(folder, "kron", kron_operation, 1)
    yield library
    library.close()


def _kron_inputs(rows: int, offset: int = 0):
    random = np.random.default_rng(rows)
    made = [support.random_array(random, s, kronop.float32) for s in ((rows, 15), *FACTORS)]
    z = support.random_array(random, (rows, 24), kronop.float32)
    x, *factors = (placed(array, offset) for array in made)
    return {"X": x, "factors": factors}, placed(z, offset)


@pytest.mark.parametrize("rows", [1, 3, 4, 32, 45, 300])
@pytest.mark.parametrize("offset", [0, 4], ids=["aligned", "unaligned"])
@pytest.mark.parametrize("scalars", [(1, 0), (0.5, 0), (1, -2), (0.25, 1.5)], ids=str)
def test_any_number_of_rows_at_any_address(kron, kron_operation, rows, offset, scalars) -> None:
    given, z = _kron_inputs(rows, offset)
    source = z if scalars[1] else None
    actual = kron.run(rows, given, scalars, source)
    output_op = kron_operation.epilogue_type(*scalars)
    support.expected_kron(kron_operation, *given.values(), source, output_op).check(actual)


def test_z_may_be_y_and_threads_may_be_set(kron, kron_operation) -> None:
    given, z = _kron_inputs(200)
    expected = support.expected_kron(
        kron_operation, *given.values(), z, kron_operation.epilogue_type(2.0, 3.0)
    )
    for threads in (1, 2, 7):
        assert kron.set_threads(threads) == 0
        y = z.copy()
        assert kron.status(200, given, y, (2.0, 3.0), y) == 0
        expected.check(y)


def test_sizes_are_those_of_the_operation(kron, kron_operation) -> None:
    kron.set_threads(2)
    for rows in ROWS:
        status, result, workspace = kron.sizes(rows)
        needed = kron_operation.workspace_bytes(rows, 2)
        assert (status, result) == (0, rows * 24 * 4)
        assert needed <= workspace < needed + 64
    assert kron.sizes(0) == (0, 0, 0)
    assert kron.sizes(45)[:2] == (0, 45 * 24 * 4)
    most = (2**63 - 1) // (24 * 4)  # Y has the longest rows.
    assert kron.sizes(most)[:2] == (0, most * 24 * 4)


def test_what_does_not_fit_has_a_status(kron) -> None:
    given, z = _kron_inputs(4)
    y = np.zeros((4, 24), np.float32)

    def run(rows):
        return kron.status(rows, given, y, (1.0, 0.0))

    def sizes(rows):
        return kron.sizes(rows)[0]

    for status, told in (
        (kron.status(4, given, y, (1.0, 1.0)), "beta is not 0 and Z is NULL"),
        (kron.status(4, given, None, (1.0, 0.0)), "NULL"),
        (kron.status(4, given | {"X": None}, y, (1.0, 0.0)), "NULL"),
        (kron.status(4, given | {"factors": [None] * 3}, y, (1.0, 0.0)), "NULL"),
        (kron.status(-1, given, y, (1.0, 0.0)), "rows"),
        (kron.sizes(-1)[0], "rows"),
        (kron.sizes(-(2**63))[0], "rows"),
        *((of(rows), "fewer rows") for rows in (2**63 - 1, 2**63 // 96 + 1) for of in (run, sizes)),
        (kron.set_threads(0), "at least 1"),
    ):
        assert status
        assert told in kron.told(status)
    assert kron.status(0, given, y, (1.0, 0.0)) == 0
    assert not y.any()
    assert "no status" in kron.told(99)
    assert z is not None


def test_threads_share_a_handle(kron, kron_operation) -> None:
    cases = [(_kron_inputs(rows)[0], rows) for rows in (64, 65, 66, 67)]
    results: list[list[np.ndarray]] = [[] for _ in cases]

    def work(at: int) -> None:
        given, rows = cases[at]
        results[at] += [kron.run(rows, given, (1.0, 0.0)) for _ in range(20)]

    threads = [threading.Thread(target=work, args=(at,)) for at in range(len(cases))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for (given, _), every in zip(cases, results, strict=True):
        expected = support.expected_kron(kron_operation, *given.values())
        assert len(every) == 20
        for actual in every:
            expected.check(actual)


@pytest.mark.parametrize("has_bias", [False, True], ids=["", "bias"])
@pytest.mark.parametrize("scalars", [(1.0, 0.0, 0.5), (3.0, -1.0, 0.125)], ids=str)
def test_bias_and_activation(folder, sparse_operation, has_bias, scalars) -> None:
    random, library = np.random.default_rng(1), Library(folder, "sparse", sparse_operation, 1)
    x, w = random.standard_normal((37, 16)), random.standard_normal(PATTERN)
    z = random.standard_normal((37, 20)) if scalars[1] else None
    bias = random.standard_normal(20) if has_bias else None
    actual = library.run(37, {"X": x, "W": w, "bias": bias}, scalars, z)
    output_op = sparse_operation.epilogue_type(*scalars)
    support.expected_ksparse(sparse_operation, x, w, z, bias, output_op).check(actual)
    library.close()


def test_integers_from_the_left_run_the_exported_rows_alone(tmp_path) -> None:
    operation = support.kron_operation("x86", kronop.int8, [(3, 2), (4, 5)], side=kronop.Side.Left)
    operation.export(tmp_path, name="left", rows=[6, 9], threads=[1])
    random, library = np.random.default_rng(2), Library(tmp_path, "left", operation, 6)
    factors = [support.random_array(random, s, kronop.int8) for s in ((3, 2), (4, 5))]
    for rows in (6, 9):
        x = support.random_array(random, (10, rows), kronop.int8)
        z = random.integers(-9, 9, (12, rows)).astype(np.int32)
        actual = library.run(rows, {"X": x, "factors": factors}, (7, -3), z)
        output_op = operation.epilogue_type(7, -3)
        support.expected_kron(operation, x, factors, z, output_op).check(actual)
    for rows in (7, -1):
        told = library.told(library.sizes(rows)[0])
        assert "is negative, or none that the export can run" in told


def test_chains_of_16_bits(tmp_path) -> None:
    patterns = [(2, 4, 3, 1), (1, 6, 8, 1)]
    operation = support.chain_operation("x86", kronop.bfloat16, patterns)
    operation.export(tmp_path, name="chain", rows=[1, 16], threads=[2])
    random, library = np.random.default_rng(3), Library(tmp_path, "chain", operation, 1)
    x, *weights = (
        support.random_array(random, shape, kronop.bfloat16) for shape in ((19, 6), *patterns)
    )
    actual = library.run(19, {"X": x, "weights": weights, "bias": None}, (1.0, 0.0))
    support.expected_chain(operation, x, weights).check(actual)


def test_distances_of_one_size(tmp_path) -> None:
    kernel = kernels.Gaussian(0.75)
    points = kronop.TensorDescription(kronop.float64)
    operation = kronop.DistanceOperation(
        "x86", None, points, points, points, support.linear(kronop.float64), kernel
    )
    size = DistanceSize(21, 13, 5)
    operation.export(tmp_path, name="gauss", rows=[size], threads=[1], kernel=kernel)
    random, library = np.random.default_rng(4), Library(tmp_path, "gauss", operation, size)
    x1, x2 = random.standard_normal((21, 5)), random.standard_normal((13, 5))
    y = np.full((21, 13), np.nan)
    assert library.status(21, {"X1": x1, "X2": x2}, y, (1.0, 0.0)) == 0
    # The same kernel runs; only the way to it is another.
    np.testing.assert_allclose(y, kronop.kernel_matrix(x1, x2, kernel), rtol=1e-14, atol=0)
    with pytest.raises(kronop.ArgumentError, match=r"tuples \(m, n, k, batch"):
        operation.export(tmp_path)


@pytest.mark.parametrize(
    ("how", "told"),
    [
        ({"name": "8x8"}, "letters"),
        ({"rows": []}, "at least 1"),
        ({"rows": [0]}, "at least 1"),
        ({"threads": [0]}, "at least 1"),
    ],
    ids=str,
)
def test_exports_that_are_refused(kron_operation, tmp_path, how, told) -> None:
    with pytest.raises(kronop.ArgumentError, match=told):
        kron_operation.export(tmp_path, **how)
    assert not any(tmp_path.iterdir())


def test_aligned_descriptions_are_kept(tmp_path, capsys) -> None:
    """The command describes rows as aligned as they are."""
    where = ["--rows", "2", "--threads", "1", "--out", str(tmp_path)]
    assert main(["export", "kron", "4,4", "--target", "x86-generic", *where]) == 0
    assert str(tmp_path / "include" / "kron.h") in capsys.readouterr().out.splitlines()
    operation = support.kron_operation("x86-generic", kronop.float32, [(4, 4)] * 2, alignment=4)
    library = Library(tmp_path, "kron", operation, 1)
    random = np.random.default_rng(5)
    made = [support.random_array(random, s, kronop.float32) for s in ((5, 16), (4, 4), (4, 4))]
    x, *factors = (placed(array, 0) for array in made)
    # Factors are described without a promise.
    anywhere = {"X": x[:4], "factors": [placed(factor, 4) for factor in factors]}
    actual = library.run(4, anywhere, (1.0, 0.0))
    support.expected_kron(operation, *anywhere.values()).check(actual)
    shifted = placed(x, 4)
    y = placed(np.zeros((4, 16), np.float32), 0)
    status = library.status(4, {"X": shifted[:4], "factors": factors}, y, (1.0, 0.0))
    assert "16 bytes" in library.told(status)
    library.close()


def test_parts_begin_where_their_rows_do(tmp_path) -> None:
    """Rows of 12 bytes are promised to be aligned to 4; other memory leaves Y as it was."""
    where = ["--rows", "1", "2", "4", "--threads", "1", "--out", str(tmp_path)]
    how = ["--dtype", "float16", "--target", "x86-generic"]
    assert main(["export", "kron", "2x2,3x3", *how, *where]) == 0
    sizes = [(2, 2), (3, 3)]
    operation = support.kron_operation("x86-generic", kronop.float16, sizes, alignment=2)
    library, random = Library(tmp_path, "kron", operation, 1), np.random.default_rng(6)
    x, *factors = (
        placed(support.random_array(random, shape, kronop.float16), 0)
        for shape in ((11, 6), *sizes)
    )
    for rows, offset in ((2, 0), (3, 0), (7, 4), (11, 8)):
        given = {"X": placed(x[:rows], offset), "factors": factors}
        y = placed(np.zeros((rows, 6), np.float16), offset)
        assert library.status(rows, given, y, (1.0, 0.0)) == 0
        support.expected_kron(operation, *given.values()).check(y)
        for one, other in ((offset, 2), (2, offset)):
            y = placed(np.full((rows, 6), 9, np.float16), other)
            given["X"] = placed(x[:rows], one)
            status = library.status(rows, given, y, (1.0, 0.0))
            assert "promises" in library.told(status)
            assert (y == 9).all()
    library.close()


def test_a_later_part_that_is_not_aligned_leaves_y(tmp_path) -> None:
    """One row of 12 bytes keeps any promise; the next one does not."""
    sizes = [(2, 2), (3, 3)]
    operation = support.kron_operation("x86-generic", kronop.float16, sizes, alignment=8)
    operation.export(tmp_path, name="one", rows=[1], threads=[1])
    library = Library(tmp_path, "one", operation, 1)
    x, y = (placed(np.full((2, 6), 9, np.float16), 0) for _ in range(2))
    given = {"X": x, "factors": [np.ones(shape, np.float16) for shape in sizes]}
    assert "promises" in library.told(library.status(2, given, y, (1.0, 0.0)))
    assert (y == 9).all()
    assert library.status(1, given, y, (1.0, 0.0)) == 0
    assert not (y[0] == 9).any()
    library.close()


_C = """
#include <kron.h>
#include <stdio.h>
#include <stdlib.h>

int main(void) {
  enum { ROWS = 45 };
  static float x[ROWS * 15], f1[6], f2[20], f3[3], y[ROWS * 24];
  const float* factors[] = {f1, f2, f3};
  kron_handle handle;
  size_t result_bytes, workspace_bytes;
  int i, status = kron_init(&handle);
  if (status) return puts(kron_status_string(status)), 1;
  for (i = 0; i < ROWS * 15; ++i) x[i] = (float)(i % 7 - 3);
  for (i = 0; i < 6; ++i) f1[i] = (float)(i % 4 - 1);
  for (i = 0; i < 20; ++i) f2[i] = (float)(i % 5 - 2);
  for (i = 0; i < 3; ++i) f3[i] = (float)(i + 1);
  kron_sizes(handle, ROWS, &result_bytes, &workspace_bytes);
  if (result_bytes != sizeof y) return 2;
  void* workspace = malloc(workspace_bytes);
  status = kron_run(handle, ROWS, x, factors, y, 0.5, 0, NULL, workspace, NULL);
  if (status) return puts(kron_status_string(status)), 1;
  for (i = 0; i < ROWS * 24; ++i) printf("%.9g\\n", y[i]);
  free(workspace);
  kron_destroy(handle);
  return 0;
}
"""
_CXX = """
#include <kron.h>
#include <sparse.h>

#include <cstdio>
#include <vector>

int main() {
  sparse_handle handle;
  kron_handle other;
  if (sparse_init(&handle) != 0 || kron_init(&other) != 0) return 1;
  const int rows = 9;
  std::vector<double> x(rows * 16), w(2 * 5 * 4 * 2), bias(20, 0.5), y(rows * 20);
  for (std::size_t i = 0; i < x.size(); ++i) x[i] = double(i % 7) - 3;
  for (std::size_t i = 0; i < w.size(); ++i) w[i] = double(i % 5) - 2;
  std::size_t bytes = 0;
  if (sparse_sizes(handle, rows, nullptr, &bytes) != 0) return 2;
  std::vector<char> workspace(bytes);
  const int status = sparse_run(handle, rows, x.data(), w.data(), bias.data(), y.data(), 2.0, 0.0,
                                0.25, nullptr, workspace.data(), nullptr);
  if (status != 0) return std::puts(sparse_status_string(status)), 3;
  for (double value : y) std::printf("%.17g\\n", value);
  sparse_destroy(handle);
  kron_destroy(other);
}
"""
_CMAKE = """
cmake_minimum_required(VERSION 3.16)
project(uses C CXX)
find_package(kron REQUIRED)
find_package(sparse REQUIRED)
find_package(PkgConfig REQUIRED)
pkg_check_modules(KRON REQUIRED IMPORTED_TARGET kron)
add_executable(in_c in_c.c)
target_link_libraries(in_c kron::kron)
add_executable(by_pkg_config in_c.c)
target_link_libraries(by_pkg_config PkgConfig::KRON)
add_executable(in_cxx in_cxx.cpp)
target_link_libraries(in_cxx kron::static sparse::static)
"""


@pytest.mark.skipif(not shutil.which("cmake"), reason="cmake is not installed")
@pytest.mark.skipif(not shutil.which("pkg-config"), reason="pkg-config is not installed")
def test_programs_in_c_and_cxx(folder, tmp_path, monkeypatch, kron_operation, sparse_operation):
    for name, text in (("CMakeLists.txt", _CMAKE), ("in_c.c", _C), ("in_cxx.cpp", _CXX)):
        (tmp_path / name).write_text(text)
    monkeypatch.setenv("PKG_CONFIG_PATH", str(folder / "lib" / "pkgconfig"))
    build = str(tmp_path / "build")
    flags = ["-DCMAKE_C_FLAGS=-Wall -Werror", f"-DCMAKE_PREFIX_PATH={folder}"]
    for command in (
        ["cmake", "-S", str(tmp_path), "-B", build, "-DCMAKE_CXX_FLAGS=-Wall -Werror", *flags],
        ["cmake", "--build", build, "-j2"],
    ):
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr

    def printed(name: str) -> np.ndarray:
        environment = {"LD_LIBRARY_PATH": str(folder / "lib"), "OMP_NUM_THREADS": "2"}
        done = subprocess.run(
            [f"{build}/{name}"], env=environment, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return np.array(done.stdout.split(), np.float64)

    def counted(shape: tuple[int, ...], modulus: int, less: int) -> np.ndarray:
        return (np.arange(np.prod(shape)) % modulus - less).reshape(shape)

    x = counted((45, 15), 7, 3)
    factors = [counted((3, 2), 4, 1), counted((5, 4), 5, 2), counted((1, 3), 9, -1)]
    expected = kron_operation.description.reference(x, factors) / 2
    for name in ("in_c", "by_pkg_config"):  # Halves of small integers are exact.
        np.testing.assert_array_equal(printed(name), expected.ravel())
    output_op = sparse_operation.epilogue_type(2.0, 0.0, 0.25)
    expected = sparse_operation.description.reference(
        counted((9, 16), 7, 3), counted(PATTERN, 5, 2), None, np.full(20, 0.5), output_op
    )
    np.testing.assert_array_equal(printed("in_cxx"), expected.ravel())


@pytest.mark.skipif(not shutil.which("pkg-config"), reason="pkg-config is not installed")
def test_the_program_of_the_documentation(tmp_path) -> None:
    page = (Path(__file__).parents[2] / "docs" / "export.md").read_text()
    (program,) = re.findall(r"```c\n(#include[^`]*int main[^`]*)```", page)
    (by_pkg_config,) = re.findall(r"```console\n(export PKG_CONFIG[^`]*)```", page)
    (static,) = re.findall(r"`(cc program.c [^`]*)`", page)
    where = ["--rows", "1", "64", "--threads", "1", "--out", str(tmp_path / "kron8")]
    assert main(["export", "kron", "8^5", *where]) == 0
    (tmp_path / "program.c").write_text(program)
    for command in (by_pkg_config, f"{static} && ./program"):
        done = subprocess.run(
            command, shell=True, cwd=tmp_path, capture_output=True, text=True, check=False
        )
        assert (done.returncode, done.stdout) == (0, "done\n32\n"), done.stderr
