"""The units of the machine that a benchmark runs on.

A GPU is asked for its multiprocessors and its clock. The arithmetic of a CPU follows from the
measured matrix products, whose multiply-adds are vector operations like others. Rates of matrix
products and of memory are measured on both.
"""

from __future__ import annotations

import dataclasses

from kronop.bench.roofline import Ceilings
from kronop.emit.pipes import Pipes
from kronop.target import Target


def pipes_of(
    device: str, target: Target, ceilings: Ceilings, dtype: str, sums: str, bandwidth: float
) -> Pipes:
    """The pipes of "cpu", or of the current GPU, for elements and sums of these types; `bandwidth`
    in bytes per second."""
    units = _of_cpu(ceilings, sums) if device == "cpu" else _of_gpu(target, sums)
    products = ceilings.rate(dtype) / 2
    return dataclasses.replace(units, products=products, memory=bandwidth)


def _of_cpu(ceilings: Ceilings, sums: str) -> Pipes:
    return Pipes(arithmetic=ceilings.operations_per_second[sums] / 2)


def _of_gpu(target: Target, sums: str) -> Pipes:
    import torch
    from cuda.core import Device

    found = Device(torch.cuda.current_device()).properties
    return Pipes.of_gpu(target, sums, found.multiprocessor_count, 1e3 * found.clock_rate)
