"""Three convolutions in a row in int8: each scales its sums back to 8 bits in its kernel.

Weights are rounded with a number for each filter, images and results with one for all. A visitor
tree adds the bias, applies relu and rounds; only 8-bit tensors are between the layers.

    pip install -e .
    python examples/int8_inference.py

It prints

    layer 1: (4, 32, 32, 32), error 1.6e-02
    layer 2: (4, 16, 16, 64), error 2.1e-02
    layer 3: (4, 16, 16, 64), error 2.2e-02
    bytes between the layers: 196608, of float32 786432

where errors are those of rounding to 8 bits, against the same layers in float64.
"""

from __future__ import annotations

from typing import Any

import numpy as np

import kronop

INT8, FLOAT = kronop.int8, kronop.float32
# Filters, their pixels along each axis, and the stride of each layer.
LAYERS = ((32, 3, 1), (64, 3, 2), (64, 1, 1))
IMAGES = (4, 32, 32, 16)


@kronop.epilogue_visitor(kinds={"scale": "row", "bias": "row"})
def requantized(accum: Any, scale: Any, bias: Any) -> Any:
    return kronop.relu(accum * scale + bias)


def layer(x: Any, w: Any, stride: int) -> kronop.conv.Conv2dProblemSize:
    """Padded by half a filter."""
    four, two, pad = kronop.Tensor4DCoord, kronop.MatrixCoord, w.shape[1] // 2
    return kronop.conv.Conv2dProblemSize(
        four(*x.shape), four(*w.shape), four(pad, pad, pad, pad), two(stride, stride), two(1, 1)
    )


def exact(x: Any, w: Any, bias: Any, size: kronop.conv.Conv2dProblemSize) -> Any:
    """The layer in float64."""
    pads = ((0, 0), (size.pad_h, size.pad_h), (size.pad_w, size.pad_w), (0, 0))
    padded, sums = np.pad(x, pads), np.zeros((size.N, size.P, size.Q, size.K))
    for r, s in np.ndindex(size.R, size.S):
        rows = slice(r, r + size.stride_h * size.P, size.stride_h)
        columns = slice(s, s + size.stride_w * size.Q, size.stride_w)
        sums += padded[:, rows, columns] @ w[:, r, s].T
    return np.maximum(sums + bias, 0)


def rounded(x: Any, scale: Any) -> Any:
    return np.clip(np.rint(x / scale), -127, 127).astype(np.int8)


def main() -> None:
    rng = np.random.default_rng(0)
    byte = kronop.TensorDescription(INT8, kronop.TensorNHWC, 16)
    operation = kronop.Conv2dOperation(
        kronop.conv.Operator.fprop,
        None,
        "x86",  # or "cuda"
        None,
        byte,
        byte,
        byte,
        None,
        requantized(INT8, 16, kronop.int32, FLOAT, elements={"scale": FLOAT, "bias": FLOAT}),
    )
    wide = rng.standard_normal(IMAGES)
    scale = np.abs(wide).max() / 127
    x, between = rounded(wide, scale), 0
    for number, (filters, pixels, stride) in enumerate(LAYERS, 1):
        channels = x.shape[3]
        w = rng.standard_normal((filters, pixels, pixels, channels))
        w /= np.sqrt(w[0].size)
        bias = rng.standard_normal(filters) / 4
        size = layer(x, w, stride)
        wide = exact(wide, w, bias, size)
        # The scale of results is that of what they are in float64, as measured beforehand.
        scales, after = np.abs(w).max(axis=(1, 2, 3)) / 127, wide.max() / 127
        output_op = operation.epilogue_type(
            scale=(scale * scales / after).astype(np.float32),
            bias=(bias / after).astype(np.float32),
        )
        weights = rounded(w, scales[:, None, None, None])
        arguments = kronop.Conv2dArguments(operation, size, x, weights, output_op=output_op)
        operation.run(arguments)
        arguments.sync()
        x, scale = arguments.D, after
        between += x.nbytes if number < len(LAYERS) else 0
        error = np.linalg.norm(x * scale - wide) / np.linalg.norm(wide)
        print(f"layer {number}: {x.shape}, error {error:.1e}")
        assert error < 0.03
    print(f"bytes between the layers: {between}, of float32 {4 * between}")


if __name__ == "__main__":
    main()
