"""The smallest shapes of every kernel, for compute-sanitizer:

    compute-sanitizer --tool memcheck  python -m tests.cuda.sanitize
    compute-sanitizer --tool racecheck python -m tests.cuda.sanitize

Tensors are single allocations without a pool, so that an access beyond one of them is seen.
"""

from __future__ import annotations

import cupy
import numpy as np

import kronop
from tests import support

_FACTORS = (
    [(8, 8)] * 3,
    [(2, 3), (5, 2), (6, 4)],
    [(1, 7)],
    [(33, 31)],
    [(127, 3)],
    [(5, 5)] * 4,
    [(16, 16)] * 3,
    [(40, 36), (3, 2)],
)
_PATTERNS = (
    (1, 2, 2, 1),
    (2, 9, 7, 1),
    (1, 12, 24, 2),
    (3, 5, 7, 5),
    (2, 2, 2, 64),
    (1, 33, 17, 3),
)
_ELEMENTS = (kronop.float32, kronop.float64, kronop.float16, kronop.int8)


def main() -> None:
    """Runs and checks every case; prints how many there were."""
    cupy.cuda.set_allocator(None)
    random = np.random.default_rng()
    count = 0
    for element in _ELEMENTS:
        for factors in _FACTORS:
            for side in kronop.Side:
                operation = support.kron_operation("sm_90a", element, factors, side=side)
                for rows in (1, 37):
                    _kron(random, operation, rows)
                    count += 1
        for pattern in _PATTERNS:
            for batch_last in (False, True):
                operation = support.ksparse_operation(
                    "sm_90a", element, pattern, batch_last=batch_last
                )
                for rows in (1, 37):
                    _ksparse(random, operation, rows)
                    count += 1
    print(f"{count} cases agree with the reference")


def _kron(random: np.random.Generator, operation: kronop.KronMatmulOperation, rows: int) -> None:
    element, output = operation.description.X.element, operation.description.Y.element
    x = support.random_array(random, operation.sizes(rows).x_shape, element)
    z = support.random_array(random, operation.sizes(rows).y_shape, output)
    factors = [
        support.random_array(random, shape, element) for shape in operation.description.factors
    ]
    output_op = operation.epilogue_type(2, -3)
    arguments = kronop.KronMatmulArguments(
        operation=operation,
        X=cupy.asarray(x),
        factors=list(map(cupy.asarray, factors)),
        Z=cupy.asarray(z),
        Y=cupy.asarray(support.poison(z.shape, output)),
        output_op=output_op,
    )
    operation.run(arguments)
    support.expected_kron(operation, x, factors, z, output_op).check(arguments.Y.get())


def _ksparse(random: np.random.Generator, operation: kronop.KSparseOperation, rows: int) -> None:
    element, output = operation.description.X.element, operation.description.Y.element
    x = support.random_array(random, operation.sizes(rows).x_shape, element)
    weights = support.random_array(random, operation.description.pattern, element)
    bias = support.random_array(random, (operation.description.output_columns,), output)
    y = support.poison(operation.sizes(rows).y_shape, output)
    arguments = kronop.KSparseArguments(
        operation=operation,
        X=cupy.asarray(x),
        W=cupy.asarray(weights),
        Y=cupy.asarray(y),
        bias=cupy.asarray(bias),
    )
    operation.run(arguments)
    support.expected_ksparse(operation, x, weights, None, bias).check(arguments.Y.get())


if __name__ == "__main__":
    main()
