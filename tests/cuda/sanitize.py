"""The smallest shapes of every kernel, for compute-sanitizer:

    compute-sanitizer --tool memcheck  python -m tests.cuda.sanitize
    compute-sanitizer --tool racecheck python -m tests.cuda.sanitize

`products`, `bytes`, `gradients`, `many`, `distances` and `quantized` behind it, one or several, run
these alone.

Tensors are single allocations without a pool, so that an access beyond one of them is seen.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from functools import partial
from itertools import chain, product
from typing import Any

import cupy
import numpy as np
import torch

import kronop
from kronop import kernels
from tests import support
from tests.cuda import test_quantized_cuda as quantized
from tests.families.distances import drawn
from tests.families.distances import gradients_cases as gradients
from tests.families.distances import matrices_cases as matrices
from tests.families.distances import products_cases as matrix_free

Case = Callable[[np.random.Generator], None]

_FACTORS = (
    [(8, 8)] * 3,
    [(2, 3), (5, 2), (6, 4)],
    [(1, 7)],
    [(33, 31)],
    [(127, 3)],
    [(5, 5)] * 4,
    [(16, 16)] * 3,
    [(40, 36), (3, 2)],
    [(131, 17), (3, 3)],
)
_PATTERNS = (
    (1, 2, 2, 1),
    (2, 9, 7, 1),
    (1, 12, 24, 2),
    (3, 5, 7, 5),
    (2, 2, 2, 64),
    (1, 33, 17, 3),
)
# Of 8 bits those whose copies are whole accesses, too.
_PATTERNS_OF_BYTES = (*_PATTERNS, (2, 32, 48, 1), (1, 24, 64, 4), (1, 32, 32, 32))
# Whose tiles have fewer pieces than threads.
_WIDE = (2, 96, 96, 1)
_GRADIENTS_OF_MANY_ROWS = ((6, 64, 256, 1), (1, 48, 40, 8))
_GRADIENTS_OF_FACTORS = (((8, 8), (8, 8)), ((2, 3), (5, 1), (3, 4)))
_FLOATS = (kronop.float32, kronop.float64, kronop.float16)
_ROWS = (1, 37)
_MANY_ROWS = 2051
_PATTERNS_OF_MANY_ROWS = (
    (2, 48, 64, 1),
    (1, 40, 34, 1),
    (1, 48, 32, 8),
    (1, 64, 48, 3),
    (1, 32, 64, 40),
)
_CHAIN = [(2, 48, 192, 1), (1, 192, 48, 2)]
_KERNELS = (
    kernels.PowerNorm(1.0),
    kernels.PowerNorm(1.3),
    kernels.PowerNorm(float("inf")),
    kernels.Matern(1.5, 0.7) + kernels.Linear() * kernels.Cosine(),
)
_POINTS = ((37, 70, 9), (130, 197, 70))
_QUANTIZED = (
    ([(64, 64)] * 2, 450),
    ([(8, 8)] * 4, 37),
    ([(60, 33), (7, 26)], 37),
    ([(3, 5), (1, 4), (2, 2)], 9),
    ([(200, 66)], 9),
)
# More plans for squared distances than there are.
_PLANS = 16


def main(chosen: list[str]) -> None:
    """Runs and checks every case; prints how many there were."""
    groups = {
        "products": _products,
        "bytes": _products_of_bytes,
        "gradients": _gradients,
        "many": _many_rows,
        "distances": _distances,
        "quantized": _quantized,
    }
    cupy.cuda.set_allocator(None)
    random = np.random.default_rng()
    count = 0
    for case in chain.from_iterable(groups[name]() for name in chosen or groups):
        case(random)
        count += 1
    print(f"{count} cases agree with the reference")


def _products() -> Iterator[Case]:
    for element in (*_FLOATS, kronop.int8):
        for factors, side in product(_FACTORS, kronop.Side):
            kron = support.kron_operation("sm_90a", element, factors, side=side)
            yield from (partial(_kron, operation=kron, rows=rows) for rows in _ROWS)
        for pattern, batch_last in product(_PATTERNS, (False, True)):
            ksparse = support.ksparse_operation("sm_90a", element, pattern, batch_last=batch_last)
            yield from (partial(_ksparse, operation=ksparse, rows=rows) for rows in _ROWS)


def _products_of_bytes() -> Iterator[Case]:
    """8-bit floats, whose results are float32 here: CuPy has that type."""
    single = kronop.LinearCombination(kronop.float32, 1, kronop.float32, kronop.float32)
    for element in support.FLOAT8:
        for pattern, batch_last in product(_PATTERNS_OF_BYTES, (False, True)):
            operation = support.ksparse_operation(
                "sm_90a", element, pattern, batch_last=batch_last, epilogue=single
            )
            for rows in (*_ROWS, 64):
                yield partial(_ksparse, operation=operation, rows=rows)


def _gradients() -> Iterator[Case]:
    for element in _FLOATS:
        for pattern, batch_last, tied in product((*_PATTERNS, _WIDE), (False, True), (False, True)):
            for products, rows in ((None, 37), (3, 1)):
                operation = support.gradient_operation(
                    "sm_90a",
                    element,
                    pattern,
                    tied=tied,
                    batch_last=batch_last,
                    products=products,
                )
                yield partial(_gradient, operation=operation, rows=rows)
        # Those of warp groups, and those whose lanes are moved apart for them.
        for pattern, batch_last in product(_GRADIENTS_OF_MANY_ROWS, (False, True)):
            operation = support.gradient_operation(
                "sm_90a", element, pattern, batch_last=batch_last, alignment=16 // element.bytes
            )
            yield partial(_gradient, operation=operation, rows=2048)
        for factors, batch_last in product(_GRADIENTS_OF_FACTORS, (False, True)):
            rows, columns = (int(np.prod(sizes)) for sizes in zip(*factors, strict=True))
            operation = support.gradient_operation(
                "sm_90a",
                element,
                (2, columns, rows, 3),
                tied=True,
                batch_last=batch_last,
                factors=factors,
            )
            yield partial(_gradient, operation=operation, rows=37)


def _many_rows() -> Iterator[Case]:
    """What plans for many rows are made of: warp groups, moved lanes, packed weights, chains."""
    for element, pattern, batch_last in product(
        (np.float16, np.float32), _PATTERNS_OF_MANY_ROWS, (False, True)
    ):
        yield partial(_chain, element=element, patterns=[pattern], batch_last=batch_last)
    for element, batch_last in product((np.float16, np.float32), (False, True)):
        yield partial(_chain, element=element, patterns=_CHAIN, batch_last=batch_last)


def _distances() -> Iterator[Case]:
    """Every plan for squared distances, and plans for other kernels, their products and gradients.

    The tensors are torch's: PYTORCH_NO_CUDA_MEMORY_CACHING=1 makes each an allocation.
    """
    elements = ("float32", "float16", "float64")
    squares = kernels.PowerNorm(2.0, root=False)
    for element, same, plan in product(elements, (False, True), range(_PLANS)):
        yield partial(_matrix, _POINTS[1], squares, element, same, plan)
    for element, kernel, points in product(elements, _KERNELS, _POINTS):
        yield partial(_matrix, points, kernel, element, False, None)
        for columns in (1, 16):
            yield partial(_product, points, kernel, element, columns)
    for element, p, points in product(elements, (1, 1.3, 2), _POINTS):
        yield partial(_gradient_of_points, points, p, element)


def _matrix(
    points: tuple[int, int, int],
    kernel: kernels.Kernel,
    element: str,
    same: bool,
    plan: int | None,
    random: np.random.Generator,
) -> None:
    m, n, k = points
    x1 = drawn.points(random, (m, k), element)
    x2 = x1 if same else drawn.points(random, (n, k), element)
    mode = f"{'donot_' * (plan is None)}use_mm_for_euclid_dist"
    layouts = (0, 0, 0)
    case = matrices.Case((x1, x2), kernel.bound(0), mode, element, same, layouts, 0, plan)
    assert not case.run("cuda"), case


def _product(
    points: tuple[int, int, int],
    kernel: kernels.Kernel,
    element: str,
    columns: int,
    random: np.random.Generator,
) -> None:
    m, n, k = points
    x1, x2, v = (drawn.points(random, shape, element) for shape in ((m, k), (n, k), (n, columns)))
    case = matrix_free.Case((x1, x2), v, kernel.bound(0), element, (0, 0, 0, 0))
    assert not case.run("cuda"), case


def _gradient_of_points(
    points: tuple[int, int, int], p: float, element: str, random: np.random.Generator
) -> None:
    k, n, m = points
    shapes = ((k, m), (n, k), (2, k), (n, m))
    operands = [drawn.points(random, shape, element) for shape in shapes]
    case = gradients.Case((*operands,), p, element, (0,) * 5)
    assert not case.run("cuda"), case


def _quantized() -> Iterator[Case]:
    """One kernel for odd and even sizes, of which the first has several rows for a block; two."""
    for factors, rows in _QUANTIZED:
        for kind, bits in product((torch.bfloat16, torch.float32), (4, 8)):
            yield partial(_quantized_rows, factors, rows, kind, bits)


def _quantized_rows(
    factors: list[tuple[int, int]], rows: int, kind: Any, bits: int, random: np.random.Generator
) -> None:
    quantized.check(*quantized.drawn(factors, rows, kind), bits)


def _chain(
    random: np.random.Generator,
    element: Any,
    patterns: list[tuple[int, int, int, int]],
    batch_last: bool,
) -> None:
    (a, _, c, d), rows = patterns[0], _MANY_ROWS
    x = random.standard_normal((a * c * d, rows) if batch_last else (rows, a * c * d))
    weights = [random.standard_normal(pattern) / pattern[2] ** 0.5 for pattern in patterns]
    found = kronop.ksmm(
        cupy.asarray(x.astype(element)),
        [cupy.asarray(weight.astype(element)) for weight in weights],
        batch_last=batch_last,
    )
    expected = x.T if batch_last else x
    for weight, (a, _, c, d) in zip(weights, patterns, strict=True):
        groups = expected.reshape(rows, a, c, d)
        expected = np.einsum("nikl,ijkl->nijl", groups, weight, optimize=True).reshape(rows, -1)
    error = np.linalg.norm(
        found.get().astype(np.float64) - (expected.T if batch_last else expected)
    )
    # Inputs and, in chains, what is between factors are rounded to the element type.
    assert error < 3 * np.finfo(element).eps * np.linalg.norm(expected), (patterns, batch_last)


def _on_gpu(array: Any) -> Any:
    """The same values in memory of their own; of types that CuPy has not, as a tensor of torch."""
    if array.dtype.isbuiltin == 1:
        return cupy.asarray(array)
    bits = cupy.asarray(array.view(np.uint8))
    return torch.from_dlpack(bits).view(getattr(torch, array.dtype.name))


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
        X=_on_gpu(x),
        W=_on_gpu(weights),
        Y=cupy.asarray(y),
        bias=cupy.asarray(bias),
    )
    operation.run(arguments)
    support.expected_ksparse(operation, x, weights, None, bias).check(arguments.Y.get())


def _gradient(
    random: np.random.Generator, operation: kronop.KSparseGradientOperation, rows: int
) -> None:
    what = operation.description
    element = what.X.element
    shapes = (what.x_shape(rows), what.shapes(rows)["G"], what.y_shape(rows))
    x, g, z = (support.random_array(random, shape, element) for shape in shapes)
    matrices = [support.random_array(random, shape, element) for shape in what.factors]
    output_op = operation.epilogue_type(0.5, -1.5)
    arguments = kronop.KSparseGradientArguments(
        operation=operation,
        X=cupy.asarray(x),
        G=cupy.asarray(g),
        Z=cupy.asarray(z),
        Y=cupy.asarray(support.poison(z.shape, element)),
        output_op=output_op,
        factors=list(map(cupy.asarray, matrices)),
    )
    operation.run(arguments)
    support.expected_gradient(operation, x, g, z, output_op, matrices).check(arguments.Y.get())


if __name__ == "__main__":
    main(sys.argv[1:])
