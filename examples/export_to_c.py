"""A Kronecker product as a C library: exported, called from a program in C, and compared."""

import shutil
import subprocess
import tempfile
from pathlib import Path

import numpy as np

import kronop

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

X = kronop.TensorDescription(kronop.float32, kronop.RowMajor, 4)
F = kronop.TensorDescription(kronop.float32)
epilogue = kronop.LinearCombination(kronop.float32, 4, kronop.float32, kronop.float32)
operation = kronop.KronMatmulOperation("x86", None, X, F, X, epilogue, factors=[(6, 6)] * 3)

compiler = shutil.which("cc")
if compiler is None:
    print("This example needs a C compiler: install gcc or clang.")
else:
    with tempfile.TemporaryDirectory() as work:
        folder = operation.export(Path(work) / "kron", name="kron", threads=[1, 2])
        for path in sorted(item for item in folder.rglob("*") if item.is_file()):
            print(path.relative_to(work), path.stat().st_size, "bytes")

        (Path(work) / "main.c").write_text(PROGRAM)
        command = [compiler, "main.c", "-o", "main", "-Ikron/include", "-Lkron/lib", "-lkron"]
        subprocess.run([*command, f"-Wl,-rpath,{folder}/lib"], cwd=work, check=True)
        printed = subprocess.run(["./main"], cwd=work, check=True, capture_output=True).stdout

    y = np.frombuffer(printed, np.float32).reshape(100, 216)
    x = (np.arange(100 * 216) % 11 - 5).reshape(100, 216)
    f = (np.arange(36) % 4 - 1).reshape(6, 6)
    print("largest difference from NumPy:", np.abs(y - x @ np.kron(np.kron(f, f), f)).max())
