"""Both results of a quantized product, where the caller gives them, in first and repeated calls."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import kronop


def _aligned(count: int) -> Any:
    """float32 numbers at a multiple of 64 bytes, as calls have to be for others to repeat them."""
    memory = np.zeros(4 * count + 64, np.uint8)
    start = -memory.ctypes.data % 64
    return memory[start : start + 4 * count].view(np.float32)


@pytest.mark.parametrize("calls", [0, 4])
@pytest.mark.parametrize("over", ["x", "factor", "q"])
def test_scales_over_other_tensors_are_refused(over: str, calls: int) -> None:
    memory, factor, apart = _aligned(48), _aligned(16), _aligned(16)
    memory[:12] = np.arange(12)
    factor[:] = 1
    x, matrix = memory[:12].reshape(3, 4), factor.reshape(4, 4)
    q = memory[16:19].view(np.int8).reshape(3, 4)

    def call(scales: Any) -> None:
        kronop.quantized_gemkm(x, [matrix], bits=8, out=(q, scales.reshape(3, 1)))

    for _ in range(calls):
        call(apart[:3])
    with pytest.raises(kronop.ArgumentError, match="separate memory"):
        call({"x": memory[4:7], "factor": factor[4:7], "q": memory[16:19]}[over])
    assert (x.ravel() == np.arange(12)).all()
    assert (factor == 1).all()


def test_torch_learns_that_both_were_written() -> None:
    torch: Any = pytest.importorskip("torch")
    x, factors = torch.ones(3, 4), [torch.ones(4, 4)]
    q, scales = torch.zeros(3, 2, dtype=torch.uint8), torch.zeros(3, 1)
    for times in range(1, 6):
        kronop.quantized_gemkm(x, factors, bits=4, out=(q, scales))
        assert (q._version, scales._version) == (times, times)
