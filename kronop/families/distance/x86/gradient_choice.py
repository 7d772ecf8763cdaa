"""Plans of gradients of distances on the host."""

from __future__ import annotations

from kronop.artifacts import Status
from kronop.emit.plan import Plan
from kronop.emit.x86.planning import common_status
from kronop.families.distance import steps
from kronop.families.distance.gradient_description import DistanceGradientDescription
from kronop.families.distance.gradient_size import USUAL, GradientSize
from kronop.families.distance.x86.gradient_design import GradientTiles
from kronop.target import Target

_MOST_ROWS = 4


def supports(description: DistanceGradientDescription, target: Target) -> Status:
    """Whether vectors can do the math."""
    return common_status(description.math, None, target)


def plans(
    description: DistanceGradientDescription, target: Target, count: int, size: GradientSize | None
) -> tuple[Plan, ...]:
    """The plan for a size."""
    what, outputs = description, (size or USUAL).outputs
    rows, vectors = _tile(outputs, target.registers)
    design = GradientTiles(
        math=what.math,
        source=what.A.element,
        output=what.Y.element,
        epilogue=what.epilogue,
        power=what.power,
        outputs=outputs,
        vector_bytes=target.vector_bytes,
        rows=rows,
        vectors=vectors,
    )
    return (steps.gradient_plan(what, target, design, outputs),)


# NOTE: measured on Zen 3, with 16 registers and four outputs: tiles of one vector took three
# quarters of the time of those of two.
def _tile(outputs: int, registers: int) -> tuple[int, int]:
    """Rows and vectors of a tile, with at most as many sums as there are registers."""
    vectors = 2 if 2 * _MOST_ROWS * outputs <= registers else 1
    return max(1, min(_MOST_ROWS, registers // (vectors * outputs))), vectors
