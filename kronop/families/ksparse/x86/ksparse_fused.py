"""Chains of Kronecker-sparse factors in one kernel on CPUs; see ksparse_chain.hpp."""

from __future__ import annotations

from collections.abc import Sequence

from kronop.artifacts import Field, KernelSignature, Launch, Scalar
from kronop.descriptions.datatype import ColumnMajor, RowMajor
from kronop.descriptions.strided import StridedMatrix
from kronop.emit.design import Constant, Flat
from kronop.emit.plan import Plan, Step
from kronop.emit.x86.planning import (
    LINE,
    aligned,
    element_types,
    far_rows,
    kernel_name,
    parameter_arguments,
    passing_rows,
    reaches,
    scalar_fields,
    shares,
)
from kronop.families.ksparse import chains
from kronop.families.ksparse.chain_description import KSparseChainDescription, KSparseChainProblem
from kronop.families.ksparse.x86.emitter import X86KSparseEmitter, patches
from kronop.target import Target

# What is between factors should take of the second-level cache, and the rows of a chunk: with
# fewer, weights are loaded too often from where they are; more gain nothing.
_MIDDLE_BYTES = 384 * 1024
_FEWEST_ROWS, _MOST_ROWS = 32, 96
# NOTE: where little is between factors, compared to what is read and written, there is nothing
# to gain: an eighth lost 2 %, a fifth won 5 %, twice as much 10 to 30 % (one AVX2 core, fp32).
_LEAST_SHARE = 1 / 6
# Packed weights of all factors, which every chunk reads.
_WEIGHT_BYTES = 2 << 20
_NO_MATRIX = StridedMatrix(pointer=0, row=0, column=0)
_SINGLE = X86KSparseEmitter()


def fused(description: KSparseChainDescription, target: Target) -> Plan | None:
    """All factors in one step; None where that does not pay, or the user's tile is to be taken."""
    if len(description.patterns) < 2 or description.tile is not None:
        return None
    layout = RowMajor if description.batch_last else ColumnMajor
    items = [
        chains.product(description, index, layout) for index in range(len(description.patterns))
    ]
    steps = [_SINGLE.plan(item, target).steps[0] for item in items]
    columns = [item.output_columns for item in items[:-1]]
    ends = description.input_columns + description.output_columns
    places = _places(steps, columns, description.X.element.bytes)
    if places is None or sum(columns) < _LEAST_SHARE * ends:
        return None
    step = _step(description, target, steps, places)
    return Plan(target=target, steps=chains.piece((step,), items[-1], len(items)))


def workspace_bytes(step: Step, rows: int, threads: int) -> int:
    """All packed weights, and one slice of scratch per thread; `rows` is the batch."""
    if rows == 0:
        return 0
    return _size(step, "kSlicesAt") + step.shared_bytes * _threads(step, rows, threads)


def launches(plan: Plan, problem: KSparseChainProblem) -> tuple[Launch, ...]:
    """One call, or none where the batch is 0."""
    if problem.rows == 0:
        return ()
    step, z = plan.steps[0], problem.z or _NO_MATRIX
    values: dict[str, int | Sequence[int] | Sequence[float]] = {
        "x": problem.x.pointer,
        "weights": [factor.pointer for factor in problem.weights],
        "z": z.pointer,
        "bias": problem.bias,
        "y": problem.y.pointer,
        "workspace": problem.workspace,
        "rows": problem.rows,
        "threads": _threads(step, problem.rows, problem.threads),
        "stream": reaches(step, "passing_rows", problem.rows),
        "ahead": reaches(step, "far_rows", problem.rows),
        "weight_strides": [stride for factor in problem.weights for stride in factor.strides],
        "bias_stride": problem.bias_stride,
        "slice": step.shared_bytes,
        "scalars": problem.scalars,
    }
    for name, matrix in (("x", problem.x), ("z", z), ("y", problem.y)):
        values[f"{name}_strides"] = (matrix.row, matrix.column)
    return (Launch(step=0, parameters=step.signature.pack(values)),)


def _places(
    steps: Sequence[Step], columns: Sequence[int], element_bytes: int
) -> dict[str, Constant] | None:
    """Where everything is in the workspace, for `columns` features between factors."""
    lanes = max(_size(step, "kWidth") * _size(step, "kVectors") for step in steps)
    buffers = [max(columns[::2]), max(columns[1::2], default=0)]
    fitting = _MIDDLE_BYTES // (sum(buffers) * element_bytes)
    chunk = min(fitting, _MOST_ROWS) // lanes * lanes
    packed = [patches(step) * _size(step, "kInputAt") for step in steps]
    if chunk < _FEWEST_ROWS or sum(packed) > _WEIGHT_BYTES:
        return None
    # NOTE: an odd number of lines spreads over all sets of a cache.
    pitch = (aligned(chunk * element_bytes) // LINE | 1) * LINE // element_bytes
    even, odd = (aligned(pitch * count * element_bytes) for count in buffers)
    return {
        "kFactors": len(steps),
        "kLanes": lanes,
        "kChunk": chunk,
        "kPackedAt": tuple(sum(packed[:index]) for index in range(len(steps))),
        "kSlicesAt": sum(packed),
        "kMiddleAt": tuple(index % 2 * even for index in range(len(columns))),
        "kMiddlePitch": pitch,
        "kWorkAt": even + odd,
    }


def _step(
    description: KSparseChainDescription,
    target: Target,
    steps: Sequence[Step],
    places: dict[str, Constant],
) -> Step:
    element, output = description.X.element, description.Y.element
    sizes = "_then_".join("_".join(map(str, pattern)) for pattern in description.patterns)
    each = {name: tuple(int(_size(step, name)) for step in steps) for name, _ in steps[0].constants}
    # What is between factors stays in the caches.
    each["kStreams"] = (*[0] * (len(steps) - 1), each["kStreams"][-1])
    work = max(step.shared_bytes - _size(step, "kInputAt") for step in steps)
    arguments = f"{len(steps)}, {parameter_arguments(description.epilogue)}"
    return Step(
        entry=kernel_name(
            "ksparse_chain", element, sizes + "_last" * description.batch_last, target
        ),
        bytes_per_row=description.input_columns * element.bytes
        + description.output_columns * output.bytes,
        operations_per_row=sum(step.operations_per_row for step in steps),
        note=f"{len(steps)} Kronecker-sparse factors, {places['kChunk']} rows at once: "
        + "; ".join(step.note.partition(": ")[2] for step in steps),
        design=Flat(
            header="kronop_x86/ksparse_chain.hpp",
            template="kronop::ksparse_chain",
            parameters=f"kronop::KSparseChainParameters<{arguments}>",
            types=element_types(element, output, description.math.element_accumulator),
            constants=(
                *places.items(),
                ("kAlongOutputs", tuple(int("outputs" in step.template) for step in steps)),
                *each.items(),
            ),
            signature=_signature(description),
            epilogue=description.epilogue,
            threads=0,
            shared_bytes=_count(places["kWorkAt"]) + work,
            launch=(
                ("passing_rows", passing_rows(description.output_columns * output.bytes, target)),
                ("far_rows", far_rows(description.input_columns * element.bytes)),
            ),
        ),
    )


def _signature(description: KSparseChainDescription) -> KernelSignature:
    whole, factors = Scalar.INT64, len(description.patterns)
    return KernelSignature(
        "KSparseChainParameters",
        (
            Field("x", Scalar.POINTER),
            Field("weights", Scalar.POINTER, factors),
            *(Field(name, Scalar.POINTER) for name in ("z", "bias", "y", "workspace")),
            *(Field(name, whole) for name in ("rows", "threads", "stream", "ahead")),
            *(Field(f"{name}_strides", whole, 2) for name in "xzy"),
            Field("weight_strides", whole, 4 * factors),
            Field("bias_stride", whole),
            Field("slice", whole),
            scalar_fields(description.epilogue),
        ),
    )


def _threads(step: Step, rows: int, threads: int) -> int:
    """Threads that a run takes of those that it may: every one has rows."""
    blocks = -(-rows // _size(step, "kLanes"))
    return shares(step.operations_per_row // 2 * rows, blocks, threads)


def _size(step: Step, name: str) -> int:
    return _count(step.constant(name))


def _count(value: Constant) -> int:
    if not isinstance(value, int):
        raise TypeError(f"expected an integer, got {value}")
    return value
