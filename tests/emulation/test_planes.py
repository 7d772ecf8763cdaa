"""float32 as three numbers of bfloat16 (gemm_warp_group_planes.cuh), compiled for the CPU."""

from __future__ import annotations

import ctypes
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import kronop

_HERE, _PACKAGE = Path(__file__).parent, Path(kronop.__file__).parent
_TEXT = """
#include "gemm_warp_group_planes.cuh"
extern "C" void split(const float* x, unsigned* y, long count) {
  for (long i = 0; i < count; i += 2) {
    unsigned pairs[3];
    kronop::gemm::split_pair(x[i], x[i + 1], pairs);
    for (int plane = 0; plane < 3; ++plane) {
      y[plane * count + i] = pairs[plane] << 16;
      y[plane * count + i + 1] = pairs[plane] & 0xffff0000u;
    }
  }
}
"""


@pytest.fixture(scope="module")
def split(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """The function: float32 -> its three planes, as float32."""
    folder = tmp_path_factory.mktemp("planes")
    (folder / "unit.cpp").write_text(_TEXT)
    command = ["g++", "-std=c++20", "-w", "-O2", "-fPIC", "-shared", "-mf16c"]
    command += ["-include", str(_HERE / "emulation.hpp"), "-DKRONOP_HAS_WIDE_PRODUCTS"]
    command += [f"-I{_PACKAGE / 'emit/cuda/include'}", f"-I{_PACKAGE / 'families/gemm/cuda'}"]
    subprocess.run([*command, folder / "unit.cpp", "-o", folder / "unit.so"], check=True)
    library = ctypes.CDLL(str(folder / "unit.so"))

    def call(x: Any) -> Any:
        found = np.zeros((3, x.size), np.float32)
        pointers = (ctypes.c_void_p(item.ctypes.data) for item in (x, found))
        library.split(*pointers, ctypes.c_long(x.size))
        return found

    return call


def _drawn(count: int) -> Any:
    """Numbers of all bits, the least of them 2^-100."""
    bits = np.random.default_rng(3).integers(0, 2**32, count, np.uint32)
    x = bits.view(np.float32)
    return np.where(np.isfinite(x) & (np.abs(x) > 2.0**-100), x, np.float32(1.5))


def test_planes_add_up(split: Any) -> None:
    """To the number itself; each is at most half of the last bit of the one before it."""
    x = _drawn(2**20)
    planes = split(x).astype(np.float64)
    assert (planes.sum(0) == x).all()
    most = np.abs(x.astype(np.float64))
    for plane, bits in ((1, 8), (2, 17)):
        # Of numbers that would round to infinity, twice as much.
        assert (np.abs(planes[plane]) <= most * 2.0**-bits * (1 + (most > 3.38e38))).all()


def test_six_products(split: Any) -> None:
    """What is left out of a product is 2^-24 of it, and 2^-34."""
    x, y = (split(np.resize(_drawn(2**18), 2**18)[::step].copy()) for step in (1, -1))
    a, b = (np.ldexp(1.0, -140) * item.astype(np.float64) for item in (x, y))
    exact = a.sum(0) * b.sum(0)
    found = sum(a[i] * b[j] for i in range(3) for j in range(3 - i))
    assert (np.abs(found - exact) <= np.abs(exact) * 2.0**-23.9).all()


def test_what_is_not_a_number(split: Any) -> None:
    largest = np.finfo(np.float32).max
    x = np.array([largest, -largest, np.inf, -np.inf, np.nan, 0.0, -0.0, 2.0**-149], np.float32)
    planes = split(x)
    assert (planes[:, :2].astype(np.float64).sum(0) == x[:2]).all()
    assert np.isnan(planes[:, 2:5].sum(0)).all()
    assert (planes[:, 5:7] == 0).all()
    assert np.abs(planes[:, 7]).max() <= 2.0**-133
