"""Products in a forked child, after the parent's threads have run, and while they run."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

_ROOT = Path(__file__).parents[2]
_SCRIPT = """
import os, signal, sys, threading, time
sys.path.insert(0, sys.argv[1])
import numpy as np
import kronop
from kronop.compiler import host_backend

host_backend._FLAGS = tuple("-O0" if flag == "-O3" else flag for flag in host_backend._FLAGS)
random = np.random.default_rng(7)
x = random.standard_normal((512, 4096), np.float32)
factors = [random.standard_normal((8, 8), np.float32) for _ in range(4)]
weights = random.standard_normal((16, 16, 16, 16), np.float32)

matrix = kronop.TensorDescription(kronop.float32)
epilogue = kronop.LinearCombination(kronop.float32, 1, kronop.float32, kronop.float32)
operation = kronop.KronMatmulOperation("x86", None, matrix, matrix, matrix, epilogue, [(8, 8)] * 4)
arguments = kronop.KronMatmulArguments(operation=operation, X=x, factors=factors)
operation.run(arguments)
expected, sparse = arguments.Y.copy(), kronop.ksmm(x, weights)

child = os.fork()
if child == 0:
    signal.alarm(60)  # What hangs must not stay.
    arguments.Y[...] = np.nan
    operation.run(arguments)
    packed_before = np.array_equal(arguments.Y, expected)
    packed_after = np.array_equal(kronop.gemkm(x, factors), expected)
    sparse_after = np.array_equal(kronop.ksmm(x, weights), sparse)
    left = kronop.gekmm([factor.T for factor in factors], x.T).T
    loaded_after = np.allclose(left, expected, rtol=1e-4, atol=1e-2)
    grandchild = os.fork()
    if grandchild == 0:
        signal.alarm(60)
        operation.run(arguments)
        os._exit(0)
    status = os.waitpid(grandchild, 0)[1]
    right = packed_before and packed_after and sparse_after and loaded_after and not status
    os._exit(0 if right else 1)
assert os.waitpid(child, 0)[1] == 0
operation.run(arguments)
assert np.array_equal(arguments.Y, expected)

# Another thread is in the middle of a run of the same arguments,
steps, inside, may_end = arguments._steps, threading.Event(), threading.Event()
arguments._steps = (lambda stream: inside.set() or may_end.wait(),)
running = threading.Thread(target=operation.run, args=[arguments])
running.start()
inside.wait()
arguments._steps = steps

# and one plans and compiles what the child needs too, which finds it in the cache, or compiles it.
def compile():
    half = factors[1][:4]
    return kronop.gemkm(x, [factors[0], half, half, factors[0], half])

compiling = threading.Thread(target=compile)
compiling.start()
for seconds in (0.01, 0.1, 0.2):
    time.sleep(seconds)
    child = os.fork()
    if child == 0:
        signal.alarm(60)
        arguments.Y[...] = np.nan
        operation.run(arguments)
        os._exit(0 if np.array_equal(arguments.Y, expected) and compile().shape else 1)
    assert os.waitpid(child, 0)[1] == 0
may_end.set()
running.join()
compiling.join()
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this system")
def test_a_forked_child_computes_what_its_parent_does() -> None:
    """Arguments of before the fork and of after it, and kernels that are loaded after it."""
    subprocess.run(
        [sys.executable, "-c", _SCRIPT, str(_ROOT)],
        env={**os.environ, "OMP_NUM_THREADS": "2"},
        timeout=300,
        check=True,
    )
