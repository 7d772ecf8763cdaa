"""PyCUTLASS's programs: matrix products, each described, run and compared with NumPy.

They run on the GPU that torch finds, in a copy of NumPy's arrays, or else on the CPU. On a GPU the
interleaved int8 product needs CUTLASS's headers too: pip install -e '.[cutlass]'.

    pip install -e .
    python examples/matrix_products.py

Each prints its relative error to float64, which is that of rounding; those of integers are exact:

    target x86
    gemm               error 1.5e-07
    ...
    int8_with_clamp    error 0.0e+00
    int8_interleaved   error 0.0e+00
    visitor_tree       error 1.7e-07
    all 11 agree with NumPy
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from typing import Any

import numpy as np

import kronop

GemmCoord, Mode = kronop.gemm.GemmCoord, kronop.gemm.Mode
M, N, K = 96, 80, 64
FLOAT = kronop.float32
MATRIX = kronop.TensorDescription(FLOAT, kronop.RowMajor, 4)  # Aligned to 4 elements.
LINEAR = kronop.LinearCombination(FLOAT, 4, FLOAT, FLOAT)
RANDOM = np.random.default_rng(0)


def machine() -> str | int:
    if importlib.util.find_spec("torch") is not None:
        import torch

        if torch.cuda.is_available():
            return 90 if torch.cuda.get_device_capability()[0] == 9 else 80
    return "x86"


TARGET = machine()


def drawn(*shape: int) -> Any:
    return RANDOM.standard_normal(shape).astype(np.float32)


def product(a: Any, b: Any) -> Any:
    """A B in float64."""
    return np.matmul(a, b, dtype=np.float64)


def universal(epilogue: Any = LINEAR, **others: Any) -> kronop.GemmOperationUniversal:
    """The operation of float32 matrices, all of them row-major."""
    return kronop.GemmOperationUniversal(TARGET, None, MATRIX, MATRIX, MATRIX, epilogue, **others)


def run(operation: Any, **arguments: Any) -> Any:
    """D, or all of them."""
    made = kronop.GemmArguments(operation=operation, **arguments)
    operation.run(made)
    made.sync()
    return made.D


def gemm() -> tuple[Any, Any]:
    """D = 2 A B + 0.5 C, of tensors that PyCUTLASS's programs have: flat, with a problem size."""
    operation = universal(swizzling_functor=kronop.IdentitySwizzle1)
    a, b, c = drawn(M * K), drawn(K * N), drawn(M * N)
    d = np.empty(M * N, np.float32)
    output_op = operation.epilogue_type(2.0, 0.5)
    run(operation, problem_size=GemmCoord(M, N, K), A=a, B=b, C=c, D=d, output_op=output_op)
    expected = 2 * product(a.reshape(M, K), b.reshape(K, N)) + 0.5 * c.reshape(M, N)
    return d.reshape(M, N), expected


def layouts() -> tuple[Any, Any]:
    """Column-major operands: B is given as what its transpose is in memory."""
    turned = kronop.TensorDescription(FLOAT, kronop.ColumnMajor, 4)
    operation = kronop.GemmOperationUniversal(TARGET, None, MATRIX, turned, MATRIX, LINEAR)
    a, weight = drawn(M, K), drawn(N, K)
    return run(operation, A=a, B=weight.T), product(a, weight.T)


def batched() -> tuple[Any, Any]:
    """Five products of matrices that are equally far apart."""
    a, b = drawn(5, M, K), drawn(5, K, N)
    found = run(universal(), A=a, B=b, gemm_mode=Mode.Batched, batch=5)
    return found, product(a, b)


def array() -> tuple[Any, Any]:
    """Products of matrices anywhere in memory."""
    a, b = [drawn(M, K) for _ in range(3)], [drawn(K, N) for _ in range(3)]
    found = run(universal(), A=a, B=b, gemm_mode=Mode.Array, batch=3)
    return np.stack(found), product(np.stack(a), np.stack(b))


def split_k_serial() -> tuple[Any, Any]:
    """A long sum in four slices, which add to D one after the other."""
    a, b = drawn(M, 32 * K), drawn(32 * K, N)
    return run(universal(), A=a, B=b, gemm_mode=Mode.Gemm, split_k_slices=4), product(a, b)


def split_k_parallel() -> tuple[Any, Any]:
    """The slices' sums in scratch memory, which a reduction adds up."""
    a, b = drawn(M, 32 * K), drawn(32 * K, N)
    mode = Mode.GemmSplitKParallel
    return run(universal(), A=a, B=b, gemm_mode=mode, split_k_slices=4), product(a, b)


def flat(matrices: list[Any]) -> Any:
    return np.concatenate([item.ravel() for item in matrices])


def grouped() -> tuple[Any, Any]:
    """Products of different sizes in one operation."""
    operation = kronop.GemmOperationGrouped(
        TARGET, None, MATRIX, MATRIX, MATRIX, LINEAR, precompute_mode=kronop.SchedulerMode.Device
    )
    sizes = [GemmCoord(M, N, K), GemmCoord(32, 16, 48), GemmCoord(8, 128, 4)]
    a = [drawn(item.m, item.k) for item in sizes]
    b = [drawn(item.k, item.n) for item in sizes]
    arguments = kronop.GemmGroupedArguments(operation, sizes, a, b)
    operation.run(arguments)
    arguments.sync()
    expected = [product(x, y) for x, y in zip(a, b, strict=True)]
    return flat(arguments.D), flat(expected)


def activation() -> tuple[Any, Any]:
    """D = relu(A B + bias)."""
    function = kronop.relu(FLOAT)
    operation = universal(kronop.LinearCombinationGeneric(function, FLOAT, 4, FLOAT, FLOAT))
    a, b, bias = drawn(M, K), drawn(K, N), drawn(N)
    return run(operation, A=a, B=b, bias=bias), np.maximum(product(a, b) + bias, 0)


def int8_with_clamp() -> tuple[Any, Any]:
    """Integers: exact sums in 32 bits, scaled in float32, rounded, and clamped to 8 bits."""
    operand = kronop.TensorDescription(kronop.int8, kronop.RowMajor, 16)
    operation = kronop.GemmOperationUniversal(
        TARGET,
        None,
        operand,
        kronop.TensorDescription(kronop.int8, kronop.ColumnMajor, 16),
        operand,
        kronop.FastLinearCombinationClamp(kronop.int8, 16),
    )
    a, weight = (RANDOM.integers(-128, 128, shape, np.int8) for shape in ((M, K), (N, K)))
    found = run(operation, A=a, B=weight.T, output_op=operation.epilogue_type(1 / 256))
    return found, np.clip(np.rint(product(a, weight.T) / 256), -128, 127)


def int8_interleaved() -> tuple[Any, Any]:
    """The same sums of panels of 32, which lie in memory as kernels read and write them.

    On a GPU these kernels are CUTLASS's: pip install 'kronop[cutlass]'.
    """
    columns, rows = kronop.ColumnMajorInterleaved32, kronop.RowMajorInterleaved32
    operation = kronop.GemmOperationUniversal(
        TARGET,
        None,
        kronop.TensorDescription(kronop.int8, columns, 16),
        kronop.TensorDescription(kronop.int8, rows, 16),
        kronop.TensorDescription(kronop.int8, columns, 8),
        kronop.FastLinearCombinationClamp(kronop.int8, 8),
    )
    a, b = (RANDOM.integers(-128, 128, shape, np.int8) for shape in ((M, K), (K, 3 * 32)))
    panels = {
        "A": kronop.gemm.interleave(a, columns),  # (K/32, M, 32)
        "B": kronop.gemm.interleave(b, rows),  # (K/32, N, 32)
    }
    found = run(operation, **panels, output_op=operation.epilogue_type(1 / 256))
    expected = np.clip(np.rint(product(a, b) / 256), -128, 127)
    return kronop.gemm.deinterleave(found, columns), expected


@kronop.epilogue_visitor(kinds={"bias": "row", "scale": "column"})
def scaled_tanh(accum: Any, bias: Any, scale: Any) -> Any:
    d = kronop.tanh(accum + bias) * scale
    row_max = kronop.maximum(d, axis="row")
    return d, row_max


def visitor_tree() -> tuple[Any, Any]:
    """An epilogue written in Python: broadcast operands, and the maximum of each row beside D."""
    operation = universal(scaled_tanh(FLOAT, 4, FLOAT, FLOAT), visitor=True)
    a, b, bias, scale = drawn(M, K), drawn(K, N), drawn(N), drawn(M)
    d, row_max = np.empty((M, N), np.float32), np.empty(M, np.float32)
    output_op = operation.epilogue_type(D=d, bias=bias, scale=scale, row_max=row_max)
    run(operation, A=a, B=b, output_op=output_op)
    expected = np.tanh(product(a, b) + bias) * scale[:, None]
    found = np.column_stack([d, row_max])
    return found, np.column_stack([expected, expected.max(axis=1)])


PROGRAMS: tuple[Callable[[], tuple[Any, Any]], ...] = (
    *(gemm, layouts, batched, array, split_k_serial, split_k_parallel),
    *(grouped, activation, int8_with_clamp, int8_interleaved, visitor_tree),
)


def main() -> None:
    print(f"target {TARGET}")
    for program in PROGRAMS:
        found, expected = program()
        error = np.linalg.norm(found - expected) / np.linalg.norm(expected)
        print(f"{program.__name__:18} error {error:.1e}")
        assert error < 1e-6
    print(f"all {len(PROGRAMS)} agree with NumPy")


if __name__ == "__main__":
    main()
