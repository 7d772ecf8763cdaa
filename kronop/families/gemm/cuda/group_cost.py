"""Figures of products by warp groups: what steps of the sum and results take."""

from __future__ import annotations

from kronop.descriptions.datatype import DataType
from kronop.descriptions.epilogue import Epilogue
from kronop.descriptions.expression import Expression
from kronop.emit.cuda.machine import PRODUCTS_OF_SPLIT

# Multiply-adds of a multiprocessor in a cycle, by bytes of an element, as torch's products reach on
# an H200.
_PRODUCTS_PER_CYCLE = {4: 850, 2: 1700, 1: 3400}
# The share of that rate that tiles (rows, columns, taken in turn) reach. NOTE: the first three are
# measured at 4096^3 in float16 on an H200: 0.181, 0.190 and 0.204 ms; smaller tiles load more bytes
# for each product.
_RATES = {
    (128, 256, False): 1.0,
    (128, 128, True): 0.95,
    (64, 256, True): 0.89,
    (128, 128, False): 0.85,
    (64, 128, True): 0.7,
}
# Cycles for a byte of a tile's results; for a tile besides.
_CYCLES_OF_BYTE, CYCLES_OF_TILE = 0.02, 1500
# Instructions for a result besides its epilogue, and for functions in that; results that a
# multiprocessor's schedulers issue an instruction for in a cycle.
_INSTRUCTIONS, _LANES = 4, 128
_OF_FUNCTIONS = {
    "erf": 25,
    "tanh": 25,
    "exp": 8,
    "divide": 10,
    "log": 10,
    "power": 40,
    "sqrt": 8,
    "gelu_of_16_bits": 15,
    "sigmoid_of_16_bits": 4,
}


def cycles_of_step(tile: tuple[int, int, bool], source: DataType, *, split: bool) -> float:
    """Cycles for one step of the sums of a tile: rows, columns, whether taken in turn."""
    rate = _PRODUCTS_PER_CYCLE[source.bytes] / (PRODUCTS_OF_SPLIT if split else 1)
    return tile[0] * tile[1] / rate / _RATES[tile]


def cycles_of_result(epilogue: Epilogue, output: DataType) -> float:
    """For one result: what the epilogue issues, and the bytes that leave."""
    issued = _INSTRUCTIONS + sum(map(_instructions, _nodes(epilogue.expression)))
    return issued / _LANES + output.bytes * _CYCLES_OF_BYTE


def _nodes(expression: Expression) -> set[Expression]:
    """The operations of an expression, each once."""
    below = [item for item in expression.operands if isinstance(item, Expression)]
    own = {expression} if below else set()
    return own.union(*map(_nodes, below))


def _instructions(node: Expression) -> int:
    return _OF_FUNCTIONS.get(node.operation, 1)
