"""A Kronecker product as a library without Python: called from C, and from C++ with CMake.

    pip install -e .
    python examples/export_to_c.py

It needs a C compiler, and CMake for its second half, which builds the project in examples/deploy;
docs/tutorials/deploy-to-c++.md explains that one. It prints

    kron/include/kron.h 2483 bytes
    ...
    C: largest difference from NumPy 0.0
    C++: largest difference from NumPy 9.5e-06
    34 microseconds a call of 100 rows
"""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from pathlib import Path

import numpy as np

import kronop

ROWS = 100
PROJECT = Path(__file__).parent / "deploy"
PROGRAM = """
#include <kron.h>
#include <stdio.h>
#include <stdlib.h>

int main(void) {
  enum { M = 100 };                      /* any number of rows */
  static float x[M * 216], f[36], y[M * 216];
  const float* factors[] = {f, f, f};    /* 6 x 6 each */
  kron_handle handle;
  size_t workspace_bytes;
  for (int i = 0; i < M * 216; ++i) x[i] = (float)(i % 11 - 5);
  for (int i = 0; i < 36; ++i) f[i] = (float)(i % 4 - 1);

  int status = kron_init(&handle);
  if (status == 0) status = kron_sizes(handle, M, NULL, &workspace_bytes);
  if (status != 0) return puts(kron_status_string(status)), 1;
  void* workspace = malloc(workspace_bytes);
  status = kron_run(handle, M, x, factors, y, 1.0, 0.0, NULL, workspace, NULL);
  if (status != 0) return puts(kron_status_string(status)), 1;
  fwrite(y, sizeof *y, M * 216, stdout);
  free(workspace);
  kron_destroy(handle);
  return 0;
}
"""


def product() -> kronop.KronMatmulOperation:
    """Rows of 216 elements times three factors of 6 x 6."""
    X = kronop.TensorDescription(kronop.float32, kronop.RowMajor, 4)
    F = kronop.TensorDescription(kronop.float32)
    epilogue = kronop.LinearCombination(kronop.float32, 4, kronop.float32, kronop.float32)
    return kronop.KronMatmulOperation("x86", None, X, F, X, epilogue, factors=[(6, 6)] * 3)


def kron(factors: np.ndarray) -> np.ndarray:
    return np.kron(np.kron(factors[0], factors[1]), factors[2])


def call_from_c(work: Path, compiler: str) -> None:
    (work / "main.c").write_text(PROGRAM)
    command = [compiler, "main.c", "-o", "main", "-Ikron/include", "-Lkron/lib", "-lkron"]
    subprocess.run([*command, f"-Wl,-rpath,{work}/kron/lib"], cwd=work, check=True)
    printed = subprocess.run(["./main"], cwd=work, check=True, capture_output=True).stdout

    y = np.frombuffer(printed, np.float32).reshape(ROWS, 216)
    x = (np.arange(ROWS * 216) % 11 - 5).reshape(ROWS, 216)
    f = (np.arange(36) % 4 - 1).reshape(6, 6)
    print("C: largest difference from NumPy", np.abs(y - x @ kron(np.stack([f] * 3))).max())


def call_from_cpp(work: Path, cmake: str) -> None:
    rng = np.random.default_rng(0)
    factors = rng.standard_normal((3, 6, 6)).astype(np.float32)
    x = rng.standard_normal((ROWS, 216)).astype(np.float32)
    factors.tofile(work / "factors.bin")
    x.tofile(work / "x.bin")

    build = work / "build"
    prefix = f"-DCMAKE_PREFIX_PATH={work}/kron"
    for command in (
        [cmake, "-S", PROJECT, "-B", build, prefix, "-DCMAKE_BUILD_TYPE=Release"],
        [cmake, "--build", build],
    ):
        subprocess.run(command, check=True, capture_output=True)
    run = subprocess.run([build / "program", work], check=True, capture_output=True, text=True)

    y = np.fromfile(work / "y.bin", np.float32).reshape(ROWS, 216)
    error = np.abs(y - x.astype(np.float64) @ kron(factors.astype(np.float64))).max()
    print(f"C++: largest difference from NumPy {error:.1e}")
    print(run.stdout.splitlines()[-1], f"of {ROWS} rows")


def main() -> None:
    compiler, cmake = shutil.which("cc"), shutil.which("cmake")
    with tempfile.TemporaryDirectory() as name:
        work = Path(name)
        folder = product().export(work / "kron", name="kron")
        for path in sorted(item for item in folder.rglob("*") if item.is_file()):
            print(path.relative_to(work), path.stat().st_size, "bytes")
        if compiler is None:
            print("The rest of this example needs a C compiler: install gcc or clang.")
            return
        call_from_c(work, compiler)
        if cmake is None:
            print("The rest of this example needs CMake.")
            return
        call_from_cpp(work, cmake)


if __name__ == "__main__":
    main()
