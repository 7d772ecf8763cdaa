"""Convolutions of images: fprop with bias and relu as one operation, then with a visitor tree, and
the gradients.

They run on the GPU that torch finds, in a copy of NumPy's arrays, or else on the CPU.

    pip install -e .
    python examples/convolution.py

All are compared with a sum over the filter's pixels in float64:

    target x86
    fprop with bias and relu: (8, 14, 14, 64), error 2.0e-07
    by a visitor tree, with a residual: error 1.5e-07
    sums of 64 channels, for a normalisation: error 2.0e-07
    dgrad: error 2.3e-07
    wgrad: error 6.9e-07

docs/conv2d.md explains it.
"""

from __future__ import annotations

import importlib.util
from typing import Any

import numpy as np

import kronop

N, H, W, C, K = 8, 28, 28, 32, 64  # Images (N, H, W, C) and K filters of 3 x 3 pixels.
FLOAT, Operator = kronop.float32, kronop.conv.Operator
TENSOR = kronop.TensorDescription(FLOAT, kronop.TensorNHWC, 4)  # Aligned to 4 elements.
LINEAR = kronop.LinearCombination(FLOAT, 4, FLOAT, FLOAT)


def machine() -> str | int:
    if importlib.util.find_spec("torch") is not None:
        import torch

        if torch.cuda.is_available():
            return "cuda"
    return "x86"


@kronop.epilogue_visitor(kinds={"bias": "row", "residual": "tensor"})
def added(accum: Any, bias: Any, residual: Any) -> Any:
    d = kronop.relu(accum + bias) + residual
    total = kronop.sum(d, axis="column")  # One number for each channel of the results.
    return d, total


def problem() -> kronop.conv.Conv2dProblemSize:
    """Stride 2 and a padding of 1 in both directions."""
    four, two = kronop.Tensor4DCoord, kronop.MatrixCoord
    return kronop.conv.Conv2dProblemSize(
        four(N, H, W, C), four(K, 3, 3, C), four(1, 1, 1, 1), two(2, 2), two(1, 1)
    )


def described(target: Any, kind: Operator, epilogue: Any) -> kronop.Conv2dOperation:
    """What is left out, the planner chooses: CUTLASS's iterator, the tile, which strides."""
    return kronop.Conv2dOperation(kind, None, target, None, TENSOR, TENSOR, TENSOR, None, epilogue)


def run(operation: kronop.Conv2dOperation, a: Any, b: Any, **named: Any) -> Any:
    arguments = kronop.Conv2dArguments(operation, problem(), a, b, **named)
    operation.run(arguments)
    arguments.sync()
    return arguments.D


def taps() -> Any:
    """For each of the filter's pixels its place, and the pixels of a padded image under it."""
    for r, s in np.ndindex(3, 3):
        yield r, s, (slice(None), slice(r, r + H, 2), slice(s, s + W, 2))


def error(found: Any, expected: Any) -> float:
    return float(np.linalg.norm(found - expected) / np.linalg.norm(expected))


def main() -> None:
    rng, target, size = np.random.default_rng(0), machine(), problem()

    def drawn(*shape: int) -> Any:
        return rng.standard_normal(shape).astype(np.float32)

    x, w, bias = drawn(N, H, W, C), drawn(K, 3, 3, C) / 17, drawn(K)
    residual = drawn(N, size.P, size.Q, K)
    padded = np.pad(x.astype(np.float64), ((0, 0), (1, 1), (1, 1), (0, 0)))
    sums = sum(padded[patch] @ w[:, r, s].T for r, s, patch in taps())
    activated = np.maximum(sums + bias, 0)

    print(f"target {target}")
    relu = kronop.LinearCombinationGeneric(kronop.relu(FLOAT), FLOAT, 4, FLOAT, FLOAT)
    y = run(described(target, Operator.fprop, relu), x, w, bias=bias)
    errors = [error(y, activated)]
    print(f"fprop with bias and relu: {y.shape}, error {errors[-1]:.1e}")

    operation = described(target, Operator.fprop, added(FLOAT, 4, FLOAT, FLOAT))
    total = np.empty(K, np.float32)
    output_op = operation.epilogue_type(bias=bias, residual=residual, total=total)
    y = run(operation, x, w, output_op=output_op)
    errors.append(error(y, activated + residual))
    print(f"by a visitor tree, with a residual: error {errors[-1]:.1e}")
    errors.append(error(total, (activated + residual).sum(axis=(0, 1, 2))))
    print(f"sums of {K} channels, for a normalisation: error {errors[-1]:.1e}")

    grad = drawn(N, size.P, size.Q, K)
    images, filters = np.zeros(padded.shape), np.empty(w.shape)
    for r, s, patch in taps():
        images[patch] += grad @ w[:, r, s].astype(np.float64)
        filters[:, r, s] = np.tensordot(grad, padded[patch], axes=((0, 1, 2), (0, 1, 2)))
    dx = run(described(target, Operator.dgrad, LINEAR), grad, w)
    errors.append(error(dx, images[:, 1:-1, 1:-1]))
    print(f"dgrad: error {errors[-1]:.1e}")
    dw = run(described(target, Operator.wgrad, LINEAR), grad, x)
    errors.append(error(dw, filters))
    print(f"wgrad: error {errors[-1]:.1e}")
    assert max(errors) < 2e-6


if __name__ == "__main__":
    main()
