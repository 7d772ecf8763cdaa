"""Copies by tensor maps that the driver encodes, of one to five axes, of boxes and of pixels."""

from __future__ import annotations

import functools
from typing import Any

import pytest

from kronop import compiler
from kronop.args.device import default_device, target_of_device
from kronop.compiler.cuda_kernel import CudaKernel, load_cuda
from kronop.machine import Feature
from kronop.target import Target
from tests.tensor_map_cases import CASES, SOURCE, Case

pytestmark = pytest.mark.cuda


@functools.cache
def _kernel() -> CudaKernel:
    target = Target.parse(target_of_device(default_device()))
    if not target.has(Feature.clusters):
        pytest.skip(f"{target} has no tensor maps")
    (binary,) = compiler.compile_sources((SOURCE,), target)
    return load_cuda(binary)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_copies(case: Case) -> None:
    torch: Any = pytest.importorskip("torch")
    kernel = _kernel()
    room = torch.from_numpy(case.tensor()[0].view("u1")).cuda()
    copied = torch.full((case.expected().nbytes,), 90, dtype=torch.uint8, device="cuda")
    launch = kernel.bind(case.launch(room.data_ptr(), copied.data_ptr()))
    launch(torch.cuda.current_stream().cuda_stream)
    torch.cuda.synchronize()
    case.check(copied.cpu().numpy())
