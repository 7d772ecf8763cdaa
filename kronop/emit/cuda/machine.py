"""Figures of a multiprocessor that the cost models share.

The models were measured on one H200; other cards take their figures in proportion to its.
"""

from __future__ import annotations

from kronop.descriptions.datatype import DataType
from kronop.machine import GENERATIONS, Feature, Gpu
from kronop.target import Target

# Bytes of shared memory in a cycle: each of 32 banks delivers 4.
SHARED_BYTES_PER_CYCLE = 128
# Products of the tensor cores for one float32 product, if each operand is split in two.
PRODUCTS_OF_SPLIT = 3
# What a launch takes.
SECONDS_OF_LAUNCH = 4e-6
# Of the H200: bytes of memory traffic in a cycle of a multiprocessor, 0.87 of the speed of plain
# copies, as reached by kernels that do other work as well; the bytes that memory moves in the time
# of one multiply-add, of which it does about 25 T/s in float32; cycles in a second while it
# computes products.
H200_BYTES_PER_CYCLE = 16.0
_BYTES_OF_MULTIPLY_ADD, _HERTZ = 0.17, 1.6e9
# Of the H200 too: multiply-adds of a multiprocessor's tensor cores in a cycle by bytes of what is
# multiplied, for products of warps: some 0.62 of what those of warp groups reach.
_WARP_PRODUCTS = {8: 128.0, 4: 620.0, 2: 1240.0, 1: 2480.0}
H200 = GENERATIONS["sm_90a"]


def gpu_of(target: Target) -> Gpu:
    """The card of a GPU's target."""
    assert target.gpu is not None
    return target.gpu


def memory_share(target: Target) -> float:
    """Bytes of memory traffic in a cycle of one multiprocessor, over those of an H200."""
    card, known = gpu_of(target), H200.gpu
    each = card.bandwidth / (target.cores * card.hertz)
    return each / (known.bandwidth / (H200.cores * known.hertz))


def memory_bytes_per_cycle(target: Target) -> float:
    """Bytes of memory traffic in a cycle of one multiprocessor."""
    return H200_BYTES_PER_CYCLE * memory_share(target)


def bytes_of_multiply_adds(target: Target, sums: DataType) -> float:
    """The bytes that memory moves in the time of one multiply-add of the ordinary cores."""
    card, known = gpu_of(target), H200.gpu
    cycles = memory_share(target)
    share = card.float32 / known.float32
    if sums.kind == "int":
        share = card.int32 / known.int32
    elif sums.bytes == 8:
        share = card.float64 / known.float64
    return sums.bytes / 4 * _BYTES_OF_MULTIPLY_ADD * (cycles / share)


def hertz(target: Target) -> float:
    """Cycles in a second while products are computed."""
    return _HERTZ * (gpu_of(target).hertz / H200.gpu.hertz)


def warp_products(target: Target, multiplied_bytes: int) -> float:
    """Multiply-adds of a multiprocessor's tensor cores in a cycle, for products of warps: at most
    an H200's, since Blackwell's full speed takes instructions that kronop does not use."""
    most = _WARP_PRODUCTS[multiplied_bytes]
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
    """How many times as long as on an H200 products of warps keep the tensor cores, in cycles."""
    return _WARP_PRODUCTS[2] / max(1.0, warp_products(target, 2))
