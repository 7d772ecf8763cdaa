"""Figures of a multiprocessor that the cost models share.

The models were measured on one H200; for other GPUs its figures are scaled.
"""

from __future__ import annotations

from kronop.descriptions.datatype import DataType
from kronop.machine import H200, MEASURED, Feature, Gpu
from kronop.target import Target

# MMAs for one float32 product, if each operand is split in two.
PRODUCTS_OF_SPLIT = 3


def gpu_of(target: Target) -> Gpu:
    """The GPU of a target."""
    assert target.gpu is not None
    return target.gpu


def memory_share(target: Target) -> float:
    """Bytes of memory traffic in a cycle of one multiprocessor, over those of an H200."""
    card, known = gpu_of(target), H200.gpu
    each = card.bandwidth / (target.cores * card.hertz)
    return each / (known.bandwidth / (H200.cores * known.hertz))


def memory_bytes_per_cycle(target: Target) -> float:
    """Bytes of memory traffic in a cycle of one multiprocessor."""
    return MEASURED.memory * memory_share(target)


def bytes_of_multiply_adds(target: Target, sums: DataType) -> float:
    """The bytes that memory moves in the time of one multiply-add of an ordinary core."""
    card, known = gpu_of(target), H200.gpu
    cycles = memory_share(target)
    share = card.float32 / known.float32
    if sums.kind == "int":
        share = card.int32 / known.int32
    elif sums.bytes == 8:
        share = card.float64 / known.float64
    return sums.bytes / 4 * MEASURED.multiply_add * (cycles / share)


def hertz(target: Target) -> float:
    """Clock rate while products are computed."""
    return MEASURED.hertz * (gpu_of(target).hertz / H200.gpu.hertz)


def hertz_of_copies(target: Target) -> float:
    """Clock rate of kernels that are limited by memory."""
    return MEASURED.hertz_of_copies * (gpu_of(target).hertz / H200.gpu.hertz)


def memory_rate(target: Target) -> float:
    """Bytes of memory traffic in a second at the clock rate of products."""
    return memory_bytes_per_cycle(target) * target.cores * hertz(target)


def warp_products(target: Target, multiplied_bytes: int) -> float:
    """Multiply-adds of a multiprocessor in a cycle by warp-level MMAs: at most an H200's, since
    Blackwell's full speed needs instructions that kronop does not use."""
    most = MEASURED.warp_products[multiplied_bytes]
    if target.has(Feature.warp_groups):
        return most
    card = gpu_of(target)
    cycles = target.cores * card.hertz
    if multiplied_bytes == 8:
        return min(most, card.double_products / cycles)
    return min(most, card.products / cycles * 2 / multiplied_bytes)


def ordinary_products(target: Target, kind: str, sum_bytes: int) -> float:
    """Multiply-adds of a multiprocessor's ordinary cores in a cycle, by kind and bytes of sums; one
    of 64-bit integers is about four of 32 bits."""
    card = gpu_of(target)
    if kind == "int":
        return card.int32 * (1 if sum_bytes == 4 else 1 / 4)
    return card.float32 if sum_bytes == 4 else card.float64


def warp_slowness(target: Target) -> float:
    """How many times as many cycles as on an H200 warp-level MMAs occupy the tensor cores."""
    return MEASURED.warp_products[2] / max(1.0, warp_products(target, 2))
