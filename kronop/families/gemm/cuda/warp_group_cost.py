"""Figures of products by warp groups: the time of steps and results."""

from __future__ import annotations

from kronop.descriptions.datatype import DataType
from kronop.descriptions.epilogue import Epilogue
from kronop.descriptions.graph import Graph
from kronop.descriptions.summed import moved_bytes
from kronop.descriptions.visitor import VisitorEpilogue
from kronop.emit.cuda.machine import PRODUCTS_OF_SPLIT
from kronop.machine import ISSUED, MEASURED

# The fraction of the best wgmma rate that tiles (rows, columns, alternating) reach. NOTE: measured
# in float16 and bfloat16, the first three: 0.181, 0.190 and 0.204 ms at 4096^3 on an H200; the
# second over the first: 0.88 and 0.94 at 8192^3, 0.98 and 0.98 at 4096^3, 0.84 in a group of
# sixteen 1020 x 2048 x 2048 on an H100. Smaller tiles load more bytes for each product.
_RATES = {
    (128, 256, False): 1.0,
    (128, 128, True): 0.92,
    (64, 256, True): 0.89,
    (128, 128, False): 0.85,
    (64, 128, True): 0.7,
    (256, 128, False): 1.0,
    (256, 64, False): 0.75,
    (128, 64, True): 0.65,
}
# The fraction of that rate without a cluster, whose blocks multicast operands. NOTE: measured on an
# H100: 0.87 and 0.9 at 8192^3, 0.98 and 1.01 at 4096^3, 0.92 and 0.98 at 16384 x 4096 x 1024, 0.85
# in a group of 64 of random sizes. Tiles of 128 x 256 are as fast alone.
_ALONE = {(128, 128, True): 0.9, (64, 256, True): 0.95}
# Products of three planes of bfloat16, and the fraction of their best rate that tiles reach beside
# copies and conversions, which move bytes of shared memory too. NOTE: measured on an H200 with all
# multiprocessors busy: 138, 171, 194 and 249 us for 2048 x 1024 sums of 3136 products.
_PRODUCTS_OF_PLANES = 6
_CONVERTED_RATES = {
    (128, 128, False): 0.86,
    (64, 128, True): 0.68,
    (128, 64, False): 0.6,
    (64, 64, True): 0.47,
}
# Cycles for a byte of a tile's results; further cycles of a tile.
_CYCLES_OF_BYTE, CYCLES_OF_TILE = 0.02, 1500
# Instructions for a result, without the functions of its epilogue.
_INSTRUCTIONS = 4
# Instructions to address, load or store a visitor tree's operand or result.
_INSTRUCTIONS_OF_VISITED = 6
_OF_FUNCTIONS = {
    "erf": 25,
    "tanh": 25,
    "exp": 8,
    "divide": 10,
    "times_log": 13,
    "power": 40,
    "sqrt": 8,
    "fade": 3,
    "sigmoid": 20,
    "silu": 21,
    "gelu": 29,
    "sigmoid_of_16_bits": 4,
    "silu_of_16_bits": 5,
    "gelu_of_16_bits": 15,
}


def cycles_of_step(
    tile: tuple[int, int, bool], cluster: int, source: DataType, split: bool, converts: bool
) -> float:
    """Cycles for one step of a tile: rows, columns, whether teams alternate. Operands may be split,
    and be converted for it in shared memory."""
    m, n, _ = tile
    if converts:
        rate = MEASURED.warp_group_products[2] / _PRODUCTS_OF_PLANES
        return m * n / rate / _CONVERTED_RATES[tile]
    rate = MEASURED.warp_group_products[source.bytes] / (PRODUCTS_OF_SPLIT if split else 1)
    alone = _ALONE.get(tile, 1.0) if cluster == 1 else 1.0
    return m * n / rate / _RATES[tile] / alone


def cycles_of_result(epilogue: Epilogue, output: DataType) -> float:
    """Cycles for one result: instructions of the epilogue, and bytes that are stored."""
    if isinstance(epilogue, VisitorEpilogue):
        return _cycles_of_tree(epilogue)
    issued = _INSTRUCTIONS + _instructions(epilogue.expression)
    return issued / ISSUED + output.bytes * _CYCLES_OF_BYTE


def _cycles_of_tree(epilogue: VisitorEpilogue) -> float:
    tree = epilogue.tree
    visited = _INSTRUCTIONS_OF_VISITED * (1 + len(tree.in_memory))
    issued = _INSTRUCTIONS + visited + _instructions(tree.graph)
    moved = moved_bytes(epilogue) - epilogue.element_accumulator.bytes
    return issued / ISSUED + moved * _CYCLES_OF_BYTE


def _instructions(graph: Graph) -> int:
    counted = graph.operations.items()
    return sum(_OF_FUNCTIONS.get(operation, 1) * count for operation, count in counted)
