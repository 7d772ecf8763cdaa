"""Exports for GPUs: C that compiles with the driver's header, and what it asks of the driver."""

from __future__ import annotations

import os
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

import kronop
from kronop.args.view import Device, TensorView, contiguous_strides
from kronop.core.export.record import Symbolic
from kronop.core.operation import Served
from tests import support

_COMPILER = shutil.which("cc")
_DOUBLE = Path(__file__).parents[1] / "unit" / "driver_double.c"
_X, _FACTORS, _Y, _Z, _SCRATCH = (
    0x10000000,
    (0x20000000, 0x20010000),
    0x30000000,
    0x40000000,
    0x5100,
)
# Two steps, with an intermediate result in the workspace.
_FACTOR_SIZES = [(128, 128), (128, 128)]
_PROGRAM = """
#include <gpu.h>
#include <stdio.h>
#include <stdlib.h>
int main(int count, char** given) {
  const float* factors[] = {(float*)0x20000000, (float*)0x20010000};
  gpu_handle handle = NULL;
  size_t bytes = 0;
  const long rows = atol(given[1]);
  const double beta = atof(given[2]);
  int status = gpu_init(&handle);
  if (status == 0) status = gpu_sizes(handle, rows, NULL, &bytes);
  printf("workspace %zu\\n", bytes);
  if (status == 0)
    status = gpu_run(handle, rows, (float*)0x10000000, factors, (float*)0x30000000, 0.5, beta,
                     count > 3 ? NULL : (float*)0x40000000, (void*)0x5001, (void*)77);
  printf("status %d %s\\n", status, gpu_status_string(status));
  gpu_destroy(handle);
  return 0;
}
"""

pytestmark = pytest.mark.skipif(_COMPILER is None, reason="no C compiler")


def _cuda_headers() -> str:
    finder: Any = pytest.importorskip("cuda.pathfinder")
    found = finder.find_nvidia_header_directory("cudart")
    if found is None:
        pytest.skip("no CUDA headers")
    return str(found)


@dataclass
class Built:
    """A program that runs the export, linked to the double of the driver."""

    operation: Any
    folder: Path
    program: Path

    def lines(self, *given: str, **environment: str) -> list[str]:
        done = subprocess.run(
            [str(self.program), *given],
            env={**os.environ, "LD_LIBRARY_PATH": str(self.program.parent), **environment},
            capture_output=True,
            check=True,
        )
        # What the double prints of a cubin is no text.
        return done.stdout.decode(errors="replace").splitlines()


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Built:
    headers = _cuda_headers()
    folder = tmp_path_factory.mktemp("gpu")
    operation = support.kron_operation("sm_90a", kronop.float32, _FACTOR_SIZES, alignment=4)
    operation.export(folder, name="gpu", rows=[16, 64])
    work = tmp_path_factory.mktemp("program")
    (work / "main.c").write_text(_PROGRAM)
    double = work / "libcuda.so.1"
    flags = ["-std=c99", "-Wall", "-Wextra", "-Werror", f"-I{folder}/include", f"-isystem{headers}"]
    sources = [str(work / "main.c"), str(folder / "src" / "gpu.c"), str(double)]
    for command in (
        ["-shared", "-fPIC", "-o", str(double), str(_DOUBLE)],
        [*flags, "-o", str(work / "main"), *sources],
    ):
        done = subprocess.run([str(_COMPILER), *command], capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
    return Built(operation, folder, work / "main")


def _tensor(pointer: int, shape: tuple[int, ...]) -> TensorView:
    return TensorView(
        pointer=pointer,
        shape=shape,
        strides=contiguous_strides(shape),
        element=kronop.float32,
        device=Device("sm_90a"),
        framework="numpy",
        writable=True,
        owner=None,
    )


def _rows(base: int, columns: int, start: int, count: int) -> TensorView:
    return _tensor(base + 4 * start * columns, (count, columns))


class _AtScratch(Symbolic):
    def workspace(self, nbytes: int) -> int:
        return _SCRATCH if nbytes else 0


def _expected(operation: Any, parts: list[int], beta: float) -> list[Any]:
    """What kronop launches for each part of the rows, at these addresses."""
    found, start = [], 0
    for rows in parts:
        arguments = kronop.KronMatmulArguments(
            operation=operation,
            X=_rows(_X, 128 * 128, start, rows),
            factors=[_tensor(*item) for item in zip(_FACTORS, _FACTOR_SIZES, strict=True)],
            Z=_rows(_Z, 128 * 128, start, rows) if beta else None,
            Y=_rows(_Y, 128 * 128, start, rows),
            output_op=operation.epilogue_type(0.5, beta),
        )
        served = Served(operation.plan_for(rows), ())
        found += arguments.launches(served, _AtScratch(0))
        start += rows
    return found


@pytest.mark.parametrize(("rows", "parts"), [(64, [64]), (16, [16]), (224, [64, 64, 64, 16, 16])])
@pytest.mark.parametrize("beta", [0.0, 2.0])
def test_launches_are_those_of_python(
    built: Built, rows: int, parts: list[int], beta: float
) -> None:
    expected = _expected(built.operation, parts, beta)
    count = max(len(item.parameters) // 8 for item in expected)
    lines = built.lines(str(rows), str(beta), DOUBLE_WORDS=str(count), DOUBLE_CONTEXT="1")
    launches = [line for line in lines if line.startswith("launch")]
    words = [int(line.split()[1], 16) for line in lines if line.startswith("word")]
    assert len(launches) == len(expected) == 2 * len(parts)
    for at, (line, item) in enumerate(zip(launches, expected, strict=True)):
        grid, block = (" ".join(map(str, counts)) for counts in (item.grid, item.block))
        assert f"grid {grid} block {block} shared {item.shared_bytes} stream 77 " in line
        assert ("attribute" in line) == item.overlaps
        own = memoryview(item.parameters).cast("Q").tolist()
        assert words[at * count : at * count + len(own)] == own
    assert "status 0 success" in lines
    assert lines[-1] == "unload 7"


def test_what_needs_much_shared_memory_asks_for_it_once(built: Built) -> None:
    launches = _expected(built.operation, [16], 0.0) + _expected(built.operation, [64], 0.0)
    much = {item.shared_bytes for item in launches if item.shared_bytes > 48 * 1024}
    lines = built.lines("64", "0", DOUBLE_CONTEXT="1")
    asked = [line for line in lines if line.startswith("attribute")]
    assert len(asked) == len(set(asked)) >= bool(much)
    for nbytes in much:
        assert any(f"= {nbytes} of" in line for line in asked)


def test_what_does_not_fit_launches_nothing(built: Built) -> None:
    for given, told in (
        (["8", "0"], "none that the export can run"),
        (["64", "1", "without Z"], "Z is NULL"),
    ):
        lines = built.lines(*given, DOUBLE_CONTEXT="1")
        assert not [line for line in lines if line.startswith("launch")]
        assert any(told in line for line in lines if line.startswith("status"))


_CMAKE = """
cmake_minimum_required(VERSION 3.16)
project(uses C)
add_library(CUDA::cuda_driver SHARED IMPORTED)
set_target_properties(CUDA::cuda_driver PROPERTIES
  IMPORTED_LOCATION ${DRIVER} INTERFACE_INCLUDE_DIRECTORIES ${HEADERS})
find_package(gpu REQUIRED)
add_executable(main main.c)
target_link_libraries(main gpu::gpu)
"""


@pytest.mark.skipif(not shutil.which("cmake"), reason="cmake is not installed")
def test_projects_find_the_source(built: Built, tmp_path: Path) -> None:
    (tmp_path / "CMakeLists.txt").write_text(_CMAKE)
    (tmp_path / "main.c").write_text(_PROGRAM)
    double, build = built.program.with_name("libcuda.so.1"), str(tmp_path / "build")
    defined = {"CMAKE_PREFIX_PATH": built.folder, "DRIVER": double, "HEADERS": _cuda_headers()}
    flags = [f"-D{name}={value}" for name, value in defined.items()]
    for command in (["-S", str(tmp_path), "-B", build, *flags], ["--build", build]):
        done = subprocess.run(["cmake", *command], capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
    made = Built(built.operation, built.folder, tmp_path / "build" / "main")
    lines = made.lines("16", "0", LD_LIBRARY_PATH=str(double.parent), DOUBLE_CONTEXT="1")
    assert "status 0 success" in lines
    assert "sources=${prefix}/src/gpu.c" in (built.folder / "lib/pkgconfig/gpu.pc").read_text()
