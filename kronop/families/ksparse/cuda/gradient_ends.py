"""What follows the sums of `ksparse_gradient`: their shares are added up, and shared by factors."""

from __future__ import annotations

import math

from kronop.artifacts import Launch
from kronop.descriptions.epilogue import LinearCombination
from kronop.emit.cuda import operands
from kronop.emit.design import Flat
from kronop.emit.plan import Step
from kronop.families.ksparse.gradient_description import (
    KSparseGradientDescription,
    KSparseGradientProblem,
    StridedWeights,
)
from kronop.target import Target

_ADD = "kronop::add_shares"
_RESULT_AXES = 5
# Threads of a block, and those that share a result where there are few: as many as make work for
# all multiprocessors.
_ADD_THREADS, _MOST_SLICES, _BUSY = 256, 8, 1024
_ELEMENT_THREADS = 256
_NOWHERE = StridedWeights(pointer=0, strides=(0, 0, 0, 0, 0))


def end_steps(description: KSparseGradientDescription, target: Target) -> tuple[Step, ...]:
    """The steps after the sums."""
    adding = _add_step(description, target)
    return (adding, _factor_step(description, target)) if description.factors else (adding,)


def end_launches(
    steps: tuple[Step, ...], problem: KSparseGradientProblem, shares: int
) -> tuple[Launch, ...]:
    """The launches of `end_steps`, which are the last of `steps`."""
    at = next(index for index, step in enumerate(steps) if step.template == _ADD)
    if at == len(steps) - 1:
        return (_add_launch(at, steps[at], problem, shares),)
    # Each sum is written where its first share was: only the thread that writes it has read that.
    size = operands.integers(steps[at], "pattern")[2]
    sums = StridedWeights(pointer=problem.workspace, strides=(0, 0, 0, size, 1))
    return (
        _add_launch(at, steps[at], problem, shares, sums),
        _factor_launch(at + 1, steps[at + 1], problem),
    )


def _add_step(description: KSparseGradientDescription, target: Target) -> Step:
    epilogue, output = description.epilogue, description.Y.element
    accumulator = description.math.element_accumulator
    if description.factors:
        epilogue, output = LinearCombination(accumulator, 1, accumulator, accumulator), accumulator
    scalar = operands.scalar_kind(epilogue)
    a, b, c, d = description.pattern
    results = (description.products or 1) * b * c * (1 if description.tied else a * d)
    vector = operands.widest_divisor(operands.vector_of(accumulator), [c])
    wanted = operands.cover(target.cores * _BUSY * vector, results)
    slices = max(
        size for size in operands.powers_of_two(1, _MOST_SLICES) if size <= wanted or size == 1
    )
    return Step(
        entry=f"add_shares_{output.short}_{epilogue.name}_{target.arch}",
        bytes_per_row=0,
        operations_per_row=0,
        note=f"adds the shares of {results} results",
        design=Flat(
            header="kronop/add_shares.cuh",
            template=_ADD,
            parameters=f"kronop::AddSharesParameters<{scalar.cxx}>",
            types=operands.element_types(description.math, accumulator, output, epilogue),
            constants=(
                ("kThreads", _ADD_THREADS),
                ("kBlocks", 4),
                ("kSlices", slices),
                ("kVector", vector),
                ("kSaturate", operands.saturates(epilogue)),
            ),
            signature=operands.signature(
                "AddSharesParameters",
                scalar,
                [(name, 1) for name in ("partial", "y", "z")],
                [
                    ("shares", 1),
                    ("y_vector", 1),
                    *((name, _RESULT_AXES) for name in ("extent", "y_stride", "z_stride")),
                ],
            ),
            epilogue=epilogue,
            threads=_ADD_THREADS,
            shared_bytes=_ADD_THREADS * vector * accumulator.bytes if slices > 1 else 0,
            launch=(
                ("pattern", description.pattern),
                ("tied", description.tied),
                ("lead", description.products or 1),
            ),
        ),
    )


def _add_launch(
    at: int,
    step: Step,
    problem: KSparseGradientProblem,
    shares: int,
    sums: StridedWeights | None = None,
) -> Launch:
    """Adds into `sums`, as they are; into the result where None."""
    a, b, c, d = operands.integers(step, "pattern")
    outer = (1, 1) if step.constant("tied") else (a, d)
    extents = (operands.integer(step, "lead"), *outer, b, c)
    y = sums or problem.y
    z = (problem.z if sums is None else None) or _NOWHERE
    values: dict[str, int | tuple[int, ...] | tuple[float, ...]] = {
        "partial": problem.workspace,
        "y": y.pointer,
        "z": z.pointer,
        "shares": shares,
        "y_vector": _takes_vectors(step, y, extents),
        "extent": extents,
        "y_stride": y.strides,
        "z_stride": z.strides,
        "scalars": problem.scalars if sums is None else (1.0, 0.0),
    }
    at_once = operands.integer(step, "kVector") * _ADD_THREADS // operands.integer(step, "kSlices")
    return operands.make_launch(at, step, operands.cover(math.prod(extents), at_once), values)


def _takes_vectors(step: Step, y: StridedWeights, extents: tuple[int, ...]) -> int:
    """Whether neighbours along the last axis are stored at once."""
    lead, i, lane, p, q = y.strides
    view = operands.View(pointer=y.pointer, strides={"rest": (lead, i, lane, p), "last": (q,)})
    sizes = {"rest": extents[:-1], "last": extents[-1:]}
    width = operands.integer(step, "kVector")
    return operands.allows_vectors(view, sizes, "last", width, operands.element_of(step, "Output"))


def _factor_step(description: KSparseGradientDescription, target: Target) -> Step:
    epilogue, output = description.epilogue, description.Y.element
    scalar = operands.scalar_kind(epilogue)
    accumulator, factors = description.math.element_accumulator, description.factors
    count = len(factors)
    shapes = "_".join(f"{rows}x{columns}" for rows, columns in factors)
    return Step(
        entry=f"factor_gradients_{output.short}_{shapes}_{epilogue.name}_{target.arch}",
        bytes_per_row=0,
        operations_per_row=0,
        note=f"gives each of {count} factors its gradient",
        design=Flat(
            header="kronop/factor_gradients.cuh",
            template="kronop::factor_gradients",
            parameters=f"kronop::FactorGradientsParameters<{scalar.cxx}, {count}>",
            types=operands.element_types(description.math, accumulator, output, epilogue),
            constants=(
                ("kThreads", _ELEMENT_THREADS),
                ("kBlocks", 2),
                ("kFactors", count),
                ("kRows", tuple(rows for rows, _ in factors)),
                ("kColumns", tuple(columns for _, columns in factors)),
                ("kAllRows", math.prod(rows for rows, _ in factors)),
                ("kSaturate", operands.saturates(epilogue)),
            ),
            signature=operands.signature(
                "FactorGradientsParameters",
                scalar,
                [*((name, 1) for name in ("sums", "y", "z")), ("factor", count)],
                [("factor_row", count), ("factor_column", count), ("y_stride", 1), ("z_stride", 1)],
            ),
            epilogue=epilogue,
            threads=_ELEMENT_THREADS,
            shared_bytes=_ELEMENT_THREADS * accumulator.bytes,
            launch=(("elements", sum(rows * columns for rows, columns in factors)),),
        ),
    )


def _factor_launch(at: int, step: Step, problem: KSparseGradientProblem) -> Launch:
    z = problem.z or _NOWHERE
    values: dict[str, int | tuple[int, ...] | tuple[float, ...]] = {
        "sums": problem.workspace,
        "y": problem.y.pointer,
        "z": z.pointer,
        "factor": tuple(item.pointer for item in problem.factors),
        "factor_row": tuple(item.row for item in problem.factors),
        "factor_column": tuple(item.column for item in problem.factors),
        "y_stride": problem.y.strides[-1],
        "z_stride": z.strides[-1],
        "scalars": problem.scalars,
    }
    return operands.make_launch(at, step, operands.integer(step, "elements"), values)
