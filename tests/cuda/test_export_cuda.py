"""An exported library on a GPU, called from C through the driver alone."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import kronop
from tests import support

pytestmark = [
    pytest.mark.cuda,
    pytest.mark.skipif(not shutil.which("cc"), reason="no C compiler"),
]

_FACTORS = [(8, 8)] * 3
_PROGRAM = """
#include <cuda.h>
#include <gpu.h>
#include <stdio.h>
#include <stdlib.h>

#define CHECK(call) if ((call) != 0) return printf("%s failed\\n", #call), 1

enum { ROWS = 1000, COLUMNS = 512 };

int main(void) {
  static float x[ROWS * COLUMNS], f[64], y[ROWS * COLUMNS];
  const float* factors[3];
  CUdevice device;
  CUcontext context;
  CUdeviceptr X, Y, F, workspace = 0;
  gpu_handle handle;
  size_t bytes;
  for (int i = 0; i < ROWS * COLUMNS; ++i) x[i] = (float)(i % 7 - 3), y[i] = (float)(i % 5);
  for (int i = 0; i < 64; ++i) f[i] = (float)(i % 3 - 1);
  CHECK(cuInit(0));
  CHECK(cuDeviceGet(&device, 0));
  CHECK(cuDevicePrimaryCtxRetain(&context, device));
  CHECK(cuCtxSetCurrent(context));
  CHECK(cuMemAlloc(&X, sizeof x));
  CHECK(cuMemAlloc(&Y, sizeof y));
  CHECK(cuMemAlloc(&F, sizeof f));
  CHECK(cuMemcpyHtoD(X, x, sizeof x));
  CHECK(cuMemcpyHtoD(Y, y, sizeof y));
  CHECK(cuMemcpyHtoD(F, f, sizeof f));
  for (int i = 0; i < 3; ++i) factors[i] = (const float*)F;
  CHECK(gpu_init(&handle));
  CHECK(gpu_sizes(handle, ROWS, NULL, &bytes));
  if (bytes) CHECK(cuMemAlloc(&workspace, bytes));
  int status = gpu_run(handle, ROWS, (float*)X, factors, (float*)Y, 0.5, BETA, (float*)Y,
                       (void*)workspace, NULL);
  if (status) return puts(gpu_status_string(status)), 1;
  CHECK(cuStreamSynchronize(NULL));
  CHECK(cuMemcpyDtoH(y, Y, sizeof y));
  fwrite(y, sizeof *y, ROWS * COLUMNS, stdout);
  gpu_destroy(handle);
  return 0;
}
"""


@pytest.mark.parametrize("beta", [0, 2])
@pytest.mark.parametrize("rows", [None, [1000]], ids=["in parts", "at once"])
def test_a_program_in_c(tmp_path: Path, beta: int, rows: Any) -> None:
    finder: Any = pytest.importorskip("cuda.pathfinder")
    operation = support.kron_operation(support.cuda_target(), kronop.float32, _FACTORS, alignment=4)
    operation.export(tmp_path, name="gpu", rows=rows)
    (tmp_path / "main.c").write_text(_PROGRAM.replace("BETA", str(beta)))
    command = ["cc", "-O1", "-o", str(tmp_path / "main"), str(tmp_path / "main.c")]
    command += [str(tmp_path / "src" / "gpu.c"), f"-I{tmp_path}/include"]
    command += [f"-I{finder.find_nvidia_header_directory('cudart')}", "-l:libcuda.so.1"]
    built = subprocess.run(command, capture_output=True, text=True, check=False)
    assert built.returncode == 0, built.stderr
    done = subprocess.run([str(tmp_path / "main")], capture_output=True, check=False)
    assert done.returncode == 0, done.stdout
    y = np.frombuffer(done.stdout, np.float32).reshape(1000, 512)
    count = np.arange(1000 * 512)
    x, z = ((count % n - less).reshape(1000, 512) for n, less in ((7, 3), (5, 0)))
    factors = [(np.arange(64) % 3 - 1).reshape(8, 8)] * 3
    output_op = operation.epilogue_type(0.5, beta)
    expected = operation.description.reference(x, factors, z if beta else None, output_op)
    # Sums of small whole numbers and halves, which TF32's parts hold exactly.
    np.testing.assert_array_equal(y, expected)
