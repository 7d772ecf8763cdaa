"""Plans of Kronecker matmuls on CUDA: each pass becomes one step."""

from __future__ import annotations

from kronop.artifacts import Status
from kronop.emit.cuda import operands
from kronop.emit.cuda.operands import splits_of
from kronop.emit.plan import Plan, Step
from kronop.families.kron.cuda.pass_design import KronPass
from kronop.families.kron.cuda.passes import split, variants
from kronop.families.kron.cuda.pipeline import KronPasses
from kronop.families.kron.description import KronMatmulDescription, Side
from kronop.target import Target


def supports(description: KronMatmulDescription, target: Target) -> Status:
    """Whether `plans` will succeed, or the reason why it won't."""
    if splits_of(description.math) is None:
        status = operands.accept_math(description.math)
    else:
        status = operands.accept_products(description.math, target)
    if not status:
        return status
    passes, rejected = split(description, target)
    return Status.accept() if passes else Status.reject(rejected[-1][1])


def plans(
    description: KronMatmulDescription, target: Target, count: int, rows: int | None
) -> tuple[Plan, ...]:
    """The best plan, then plans with other tiles and other passes, the cheapest first."""
    passes, rejected = split(description, target, rows)
    others = variants(description, target, rows)[1:count] if count > 1 else []
    return (
        _plan(description, passes, target, rejected),
        *(_plan(description, item, target) for item in others),
    )


def _plan(
    description: KronMatmulDescription,
    passes: tuple[KronPass, ...],
    target: Target,
    rejected: tuple[tuple[str, str], ...] = (),
) -> Plan:
    placed, steps = [], []
    for index, way in enumerate(passes):
        work = way.work
        entry, note = _names(description, way, index, len(passes), target)
        epilogue = description.epilogue if index == len(passes) - 1 else None
        placed.append(way.placed(epilogue))
        steps.append(Step(entry=entry, design=placed[-1], per_row=work.per_row, note=note))
    pipeline = KronPasses(passes=tuple(placed))
    return Plan(target=target, steps=tuple(steps), rejected=rejected, pipeline=pipeline)


def _names(
    description: KronMatmulDescription, way: KronPass, index: int, count: int, target: Target
) -> tuple[str, str]:
    """The kernel's name, and a description of the pass."""
    x, y, factors = description.X, description.Y, len(description.factors)
    shape = operands.shape_name(way.work.shape.factors)
    side = "r" if description.side is Side.Right else "l"
    entry = (
        f"kron_{x.element.short}_{shape}_{way.kind}_{side}_d{way.first}of{factors}"
        f"_s{index}of{count}_{y.element.short}_{description.epilogue.name}_{target.arch}"
    )
    end = way.first + len(way.work.shape.factors) - 1
    digits = f"digit {way.first}" if end == way.first else f"digits {way.first} to {end}"
    return entry, f"{digits} of {factors} ({shape}), {way.how}"
