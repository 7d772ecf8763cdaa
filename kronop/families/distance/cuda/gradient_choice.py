"""Plans of gradients of distances on GPUs."""

from __future__ import annotations

from kronop.artifacts import Status
from kronop.descriptions.datatype import float64
from kronop.emit.cuda import operands
from kronop.emit.plan import Plan
from kronop.families.distance import steps
from kronop.families.distance.cuda import gradient_products
from kronop.families.distance.cuda.gradient_design import GradientTile
from kronop.families.distance.cuda.gradient_products import GradientProducts
from kronop.families.distance.form import GENERAL_POWERS
from kronop.families.distance.gradient_description import DistanceGradientDescription
from kronop.families.distance.gradient_size import USUAL, GradientSize
from kronop.target import Target

# Columns of a tile, and those of a thread, which it loads as a vector.
_LEAST_M, _MOST_M, _ITEMS_M = 64, 256, 4
# Registers for the sums of a block, and rows of a tile.
_SUMS, _LEAST_N, _MOST_N = 128 * 128, 8, 64


def supports(description: DistanceGradientDescription, target: Target) -> Status:
    """Whether the ordinary (SIMT) cores have the math."""
    return operands.accept_math(description.math)


def plans(
    description: DistanceGradientDescription, target: Target, count: int, size: GradientSize | None
) -> tuple[Plan, ...]:
    """The plan for a size."""
    what, size = description, size or USUAL
    if gradient_products.status(what, target, size):
        outputs = min(size.outputs, gradient_products.MOST_OUTPUTS)
        products = GradientProducts(math=what.math, epilogue=what.epilogue, outputs=outputs)
        return (steps.gradient_plan(what, target, products, outputs, expanded=True),)
    return (steps.gradient_plan(what, target, _design(what, target, size), size.outputs),)


def _design(what: DistanceGradientDescription, target: Target, size: GradientSize) -> GradientTile:
    # A thread's sums fill its registers, together with what powers need; those of float64 take two
    # registers each.
    words = size.outputs * (2 if what.math.element_accumulator is float64 else 1)
    if what.power in GENERAL_POWERS:
        words = max(2, 2 * words)
    tile = _tile(size, words, target.cores)
    return GradientTile(
        math=what.math,
        source=what.A.element,
        output=what.Y.element,
        epilogue=what.epilogue,
        power=what.power,
        outputs=size.outputs,
        tile=tile,
        threads_m=tile[1] // _ITEMS_M,
        blocks=3 if words <= 2 else 2,
    )


def _tile(size: GradientSize, words: int, cores: int) -> tuple[int, int]:
    """N and M of a tile with `words` registers of sums for each pair."""
    pairs = min(_SUMS // words, _MOST_N * _LEAST_M)
    n = min(max(1 << (size.n - 1).bit_length(), _LEAST_N), _MOST_N, pairs // _LEAST_M)
    m = min(pairs // n, _MOST_M)
    # A multiprocessor needs further blocks to hide the latency of one.
    others = size.batch * operands.cover(size.o, size.outputs) * operands.cover(size.m, m)
    while n > 2 * _LEAST_N and 2 * others * operands.cover(size.n, n) < 3 * cores:
        n //= 2
    return n, m
