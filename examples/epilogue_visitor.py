"""Two layers whose epilogues are Python functions, which run in the kernels of their products.

The first layer is in float32. Its epilogue adds a bias, applies gelu, scales each row, adds a
residual, and finds the largest magnitude of each row, by which the rows are then rounded to int8.
The second layer multiplies in int8, and its epilogue scales the sums back, with one number for each
row and one for each column. Both are compared with float64.

    pip install -e .
    python examples/epilogue_visitor.py [--rows 4096]

It takes a few seconds, and prints

    float32 with gelu, gate and residual: error 8.7e-08
    largest magnitudes of 4096 rows: error 6.3e-08
    int8, scaled back: error 4.4e-08, with that of rounding to 8 bits 1.1e-02

docs/tutorials/custom-epilogue.md explains it.
"""

from __future__ import annotations

import argparse
import math
from typing import Any

import numpy as np

import kronop

INPUTS, HIDDEN, OUTPUTS = 64, 512, 256
FLOAT = kronop.float32


@kronop.epilogue_visitor(kinds={"bias": "row", "gate": "column", "residual": "tensor"})
def activated(accum: Any, bias: Any, gate: Any, residual: Any) -> Any:
    d = kronop.gelu(accum + bias) * gate + residual
    largest = kronop.maximum(kronop.maximum(d, -d), axis="row")
    return d, largest


@kronop.epilogue_visitor(kinds={"tokens": "column", "weights": "row", "bias": "row"})
def dequantized(accum: Any, tokens: Any, weights: Any, bias: Any) -> Any:
    return accum * tokens * weights + bias


def gelu(x: np.ndarray) -> np.ndarray:
    return 0.5 * x * (1 + np.vectorize(math.erf, otypes=[np.float64])(x / np.sqrt(2)))


def rounded(x: np.ndarray, scales: np.ndarray) -> np.ndarray:
    return np.rint(x / scales).astype(np.int8)


def error(found: np.ndarray, expected: np.ndarray) -> float:
    return float(np.linalg.norm(found - expected) / np.linalg.norm(expected))


def run(operation: Any, a: np.ndarray, b: np.ndarray, **named: Any) -> np.ndarray:
    """D; what the tree needs besides is named."""
    output_op = operation.epilogue_type(**named)
    arguments = kronop.GemmArguments(operation=operation, A=a, B=b, output_op=output_op)
    operation.run(arguments)
    return arguments.D


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=4096)
    rows = parser.parse_args().rows
    rng = np.random.default_rng(0)

    def drawn(*shape: int) -> np.ndarray:
        return rng.standard_normal(shape).astype(np.float32)

    x, weight, bias = drawn(rows, INPUTS), drawn(INPUTS, HIDDEN) / 8, drawn(HIDDEN)
    gate, residual = drawn(rows), drawn(rows, HIDDEN)
    matrix = kronop.TensorDescription(FLOAT, kronop.RowMajor, 4)
    functor = activated(FLOAT, 4, FLOAT, FLOAT)
    first = kronop.GemmOperationUniversal(
        "x86", None, matrix, matrix, matrix, functor, visitor=True
    )
    largest = np.empty(rows, np.float32)
    d = run(first, x, weight, bias=bias, gate=gate, residual=residual, largest=largest)
    expected = gelu(x.astype(np.float64) @ weight + bias) * gate[:, None] + residual
    print(f"float32 with gelu, gate and residual: error {error(d, expected):.1e}")
    magnitudes = error(largest, np.abs(expected).max(axis=1))
    print(f"largest magnitudes of {rows} rows: error {magnitudes:.1e}")

    weight, bias = drawn(HIDDEN, OUTPUTS), drawn(OUTPUTS)
    tokens = largest / np.float32(127)
    weights = np.abs(weight).max(axis=0) / np.float32(127)
    a, b = rounded(d, tokens[:, None]), rounded(weight, weights)
    byte = kronop.TensorDescription(kronop.int8)
    functor = dequantized(FLOAT, 4, kronop.int32, FLOAT)
    second = kronop.GemmOperationUniversal("x86", None, byte, byte, matrix, functor, visitor=True)
    y = run(second, a, b, tokens=tokens, weights=weights, bias=bias)
    exact = (a * tokens[:, None].astype(np.float64)) @ (b * weights) + bias
    print(f"int8, scaled back: error {error(y, exact):.1e}", end=", ")
    print(f"with that of rounding to 8 bits {error(y, expected @ weight + bias):.1e}")
    assert max(error(d, expected), magnitudes, error(y, exact)) < 1e-6


if __name__ == "__main__":
    main()
