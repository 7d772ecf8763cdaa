"""The chain of Kronecker-sparse factors that comes nearest to a matrix.

The factors are X_1 ... X_L, from the left. A product of two neighbours contracts a middle index t,
and is a sum of one term for each t: column t of the left factor times row t of the right one. The
column is zero outside a set of rows R(t), and the row is zero outside a set of columns C(t). Two
such sets R are equal or disjoint, and so are two such sets C. The product therefore consists of
disjoint blocks R x C, and each block is the sum of the terms t that have this R and C, hence a
matrix whose rank is at most their number. So the nearest product of two factors takes the best
approximation of each block with that rank: its truncated singular value decomposition. This holds
for all patterns.

Patterns chain as butterflies do where a_1 divides a_2, d_2 divides d_1 and a_1 c_1 / a_2 = b_2 d_2
/ d_1 is whole: products of such neighbours are Kronecker-sparse again, with the pattern (a_1,
b_1 d_1 / d_2, a_2 c_2 / a_1, d_2). If that holds for all neighbours, the chain is cut into two
halves. The products of both halves are found as above, and each is then factored by its own half of
the chain. A matrix that is such a product is recovered: the factors of each block are unique up to
a matrix that mixes the block's terms, and the other factors of each half absorb that matrix.

    L. Zheng, E. Riccietti, R. Gribonval: Efficient identification of butterfly sparse matrix
    factorizations. SIAM Journal on Mathematics of Data Science 5 (2023).
    Q.-T. Le, L. Zheng, E. Riccietti, R. Gribonval: Butterfly factorization with error guarantees.
    arXiv 2411.04506 (2024).

For other chains of three and more factors no such method is known: they start from random factors.
These chains, and chains of butterfly type whose error is not zero, are then improved by alternating
least squares: conjugate gradients improve one factor after another while the others are fixed.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import torch
from torch import Tensor

from kronop.families.ksparse.description import Pattern
from kronop.torch.nn.algorithms import dense_product

# Sweeps over all factors stop if a sweep reduces the error by less than the part _LEAST_GAIN, if
# the relative error is below _ROUNDING, or after _MOST_SWEEPS. In each sweep a factor gets _STEPS
# steps of conjugate gradients.
_LEAST_GAIN, _ROUNDING, _MOST_SWEEPS, _STEPS = 1e-3, 1e-13, 100, 12


def project(matrix: Tensor, patterns: Sequence[Pattern]) -> list[Tensor]:
    """The weights (a, b, c, d) of the factors, the right-most factor first.

    Args:
        matrix: (out, in), float64, on the CPU.
        patterns: the factors' patterns, the right-most first; they chain, and their product has the
            shape of the matrix.
    """
    chain = [*reversed(patterns)]
    if len(chain) < 3 or is_butterfly(chain):
        found = _hierarchical(matrix, chain)
    else:
        generator = torch.Generator().manual_seed(0)
        found = [
            torch.randn(pattern, dtype=matrix.dtype, generator=generator) * pattern[2] ** -0.5
            for pattern in chain
        ]
    found.reverse()
    return found if len(chain) < 3 else _improved(matrix, found)


def is_butterfly(chain: Sequence[Pattern]) -> bool:
    """Whether all products of neighbours are Kronecker-sparse; `chain` is from the left."""
    return all(
        a2 % a1 == 0 and d1 % d2 == 0 and a1 * c1 % a2 == 0 and a1 * c1 * d1 == a2 * b2 * d2
        for (a1, _, c1, d1), (a2, b2, _, d2) in itertools.pairwise(chain)
    )


def _product_pattern(chain: Sequence[Pattern]) -> Pattern:
    """The pattern of the product of a chain of butterfly type."""
    a, rows, _, d = chain[0]
    *_, last_a, _, columns, last_d = (size for pattern in chain for size in pattern)
    return a, rows * d // last_d, last_a * columns // a, last_d


def _hierarchical(matrix: Tensor, chain: Sequence[Pattern]) -> list[Tensor]:
    """The factors, from the left, by recursive decomposition of blocks."""
    if len(chain) == 1:
        return [entries(matrix, chain[0])]
    cut = len(chain) // 2
    halves = chain[:cut], chain[cut:]
    left, right = _two_factors(matrix, *(_product_pattern(half) for half in halves))
    every: list[Tensor] = []
    for half, found in zip(halves, (left, right), strict=True):
        if len(half) == 1:
            every.append(found)
        else:
            every += _hierarchical(dense_product([found]), half)
    return every


def entries(matrix: Tensor, pattern: Pattern) -> Tensor:
    """The weights (a, b, c, d) of the nearest Kronecker-sparse matrix: the entries of `matrix` at
    the places that the pattern has."""
    a, b, c, d = pattern
    digits = matrix.reshape(a, b, d, a, c, d)
    return digits.diagonal(dim1=0, dim2=3).diagonal(dim1=1, dim2=3).permute(2, 0, 1, 3)


def _two_factors(matrix: Tensor, left: Pattern, right: Pattern) -> tuple[Tensor, Tensor]:
    """The nearest product of two factors, by a singular value decomposition of each block."""
    (a1, b1, c1, d1), (a2, b2, c2, d2) = left, right
    middle = torch.arange(a1 * c1 * d1)
    i1, k1, l1 = middle // (c1 * d1), middle // d1 % c1, middle % d1
    i2, j2, l2 = middle // (b2 * d2), middle // d2 % b2, middle % d2
    name = ((i1 * d1 + l1) * a2 + i2) * d2 + l2  # A number for the block of each t.
    names, block, count = name.unique(return_inverse=True, return_counts=True)
    first = name.argsort(stable=True)[count.cumsum(0) - count]  # A middle index of each block.
    blocks = matrix.reshape(a1, b1, d1, a2, c2, d2).permute(0, 2, 3, 5, 1, 4)
    blocks = blocks[i1[first], l1[first], i2[first], l2[first]]
    u, values, v = torch.linalg.svd(blocks, full_matrices=False)
    place = _place_in_block(block, len(names))
    some = place < min(b1, c2)  # A block has at most so many singular values.
    block, place = block[some], place[some]
    share = values[block, place].sqrt()[:, None]
    of_left = matrix.new_zeros(a1, c1, d1, b1)
    of_left[i1[some], k1[some], l1[some]] = share * u[block, :, place]
    of_right = matrix.new_zeros(a2, b2, d2, c2)
    of_right[i2[some], j2[some], l2[some]] = share * v[block, place]
    return of_left.permute(0, 3, 1, 2), of_right.permute(0, 1, 3, 2)


def _place_in_block(block: Tensor, count: int) -> Tensor:
    """For each middle index, how many earlier ones belong to the same block."""
    order = block.argsort(stable=True)
    sizes = torch.bincount(block, minlength=count)
    starts = (sizes.cumsum(0) - sizes).repeat_interleave(sizes)
    place = torch.empty_like(block)
    place[order] = torch.arange(len(block)) - starts
    return place


def _improved(matrix: Tensor, found: list[Tensor]) -> list[Tensor]:
    """The factors (the right-most first), improved by alternating least squares."""
    error = float((matrix - dense_product(found)).norm())
    for _ in range(_MOST_SWEEPS):
        if error <= _ROUNDING * float(matrix.norm()):
            break
        before = error
        for at in range(len(found)):
            behind = dense_product(found[:at]) if at else None
            front = dense_product(found[at + 1 :]) if at + 1 < len(found) else None
            found[at], error = _least_squares(matrix, front, found[at], behind)
        if error > (1 - _LEAST_GAIN) * before:
            break
    return found


def _least_squares(
    matrix: Tensor, front: Tensor | None, weight: Tensor, behind: Tensor | None
) -> tuple[Tensor, float]:
    """(improved weights of X in |matrix - front X behind|, the error), by conjugate gradients.

    None for `front` or `behind` means an identity. The error never grows.
    """

    def forward(item: Tensor) -> Tensor:
        result = dense_product([item])
        result = result if front is None else front @ result
        return result if behind is None else result @ behind

    def backward(item: Tensor) -> Tensor:
        item = item if front is None else front.mT @ item
        return entries(item if behind is None else item @ behind.mT, tuple(weight.shape))

    rest = matrix - forward(weight)
    slope = direction = backward(rest)
    size = float(slope.square().sum())
    for _ in range(_STEPS):
        image = forward(direction)
        length = float(image.square().sum())
        if not length:
            break
        weight = weight + (size / length) * direction
        rest = rest - (size / length) * image
        slope = backward(rest)
        before, size = size, float(slope.square().sum())
        direction = slope + (size / before) * direction
    return weight, float(rest.norm())
