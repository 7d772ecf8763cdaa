"""KronProblem -> launches: intermediates, batches folded into rows, and the packed parameters."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from kronop.artifacts import Launch
from kronop.descriptions.strided import MOST_BATCH_DIMENSIONS, StridedMatrix
from kronop.emit.cuda import operands
from kronop.emit.plan import Plan, Step
from kronop.families.kron.description import KronProblem

_NOTHING = StridedMatrix(pointer=0, row=0, column=0)
_ALIGNMENT = 256
# NOTE: parts that would stay in the level-2 cache (16 to 64 MB) cost 1.1 to 2 times the time on an
# H200: launches of some microseconds fill and drain the chip. This only bounds the memory.
_PART_BYTES = 1 << 30
_LEAST_CONTIGUOUS = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class _Pass:
    """A step's digits, from its constants."""

    first: int
    group: tuple[tuple[int, int], ...]
    left: int
    right: int

    @property
    def columns_out(self) -> int:
        return self.left * math.prod(q for _, q in self.group) * self.right


def _pass_of(step: Step) -> _Pass:
    flat, sizes = operands.integers(step, "group"), operands.integers(step, "sizes")
    first, group = (
        operands.integer(step, "first_digit"),
        tuple(zip(flat[::2], flat[1::2], strict=True)),
    )
    return _Pass(
        first=first,
        group=group,
        left=math.prod(sizes[:first]),
        right=math.prod(sizes[first + len(group) :]),
    )


def _buffers(plan: Plan, rows: int) -> tuple[int, int]:
    """Bytes of the intermediates of even and of odd steps; each has room for a padded row count."""
    sizes = [0, 0]
    for index, step in enumerate(plan.steps[:-1]):
        element = operands.element_of(step, "Output")
        padded = operands.round_up(rows, operands.vector_of(element))
        wanted = operands.round_up(_pass_of(step).columns_out * padded * element.bytes, _ALIGNMENT)
        sizes[index % 2] = max(sizes[index % 2], wanted)
    return sizes[0], sizes[1]


def workspace_bytes(plan: Plan, rows: int) -> int:
    """Bytes of the intermediates for `rows` rows (M times the batch), a part at a time."""
    return sum(_buffers(plan, rows_at_once(plan, rows)))


def rows_at_once(plan: Plan, rows: int) -> int:
    """How many rows go through all steps before the next ones.

    So many that their intermediates take a gigabyte at most, and that the parts are alike.
    """
    if len(plan.steps) == 1 or rows == 0:
        return rows
    of_a_row = max(
        _pass_of(step).columns_out * operands.element_of(step, "Output").bytes
        for step in plan.steps[:-1]
    )
    by_rows = operands.integer(plan.steps[0], "x_by_rows")
    least = _LEAST_CONTIGUOUS if by_rows else 1
    parts = operands.cover(rows, max(least, _PART_BYTES // of_a_row))
    return min(rows, operands.round_up(operands.cover(rows, parts), least))


def launch_steps(plan: Plan, problem: KronProblem) -> tuple[Launch, ...]:
    """One launch per step for each part of the rows, in order; none where there are no rows."""
    rows = problem.rows * math.prod(problem.batch)
    if rows == 0:
        return ()
    most = rows_at_once(plan, rows)
    buffers = _buffers(plan, most)
    starts = (problem.workspace, problem.workspace + buffers[0])
    sizes = {
        "x": operands.element_of(plan.steps[0], "Input").bytes,
        "y": operands.element_of(plan.steps[-1], "Output").bytes,
        "factor": operands.element_of(plan.steps[0], "Factor").bytes,
    }
    return tuple(
        launch
        for part in _parts(_fold(problem), most, sizes)
        for launch in _launches(plan, part, starts)
    )


def _launches(plan: Plan, problem: KronProblem, starts: tuple[int, int]) -> Iterator[Launch]:
    """One launch per step; intermediates take turns in the two halves of the workspace."""
    rows = problem.rows * math.prod(problem.batch)
    x = problem.x
    for index, step in enumerate(plan.steps):
        is_last = index == len(plan.steps) - 1
        y = problem.y if is_last else _intermediate(step, problem, rows, starts[index % 2])
        z = (problem.z or _NOTHING) if is_last else _NOTHING
        scalars = problem.scalars if is_last else ()
        moved = replace(problem, x=x, y=y, z=z, scalars=scalars)
        yield _launch(index, step, moved, plan.target)
        x = y


def _parts(problem: KronProblem, most: int, sizes: Mapping[str, int]) -> Iterator[KronProblem]:
    """The problem in parts of at most `most` rows: of the first batch axis, or of M."""
    rows = problem.rows * math.prod(problem.batch)
    if rows <= most:
        yield problem
        return
    extent = problem.batch[0] if problem.batch else problem.rows
    step = max(1, most // (rows // extent))
    for start in range(0, extent, step):
        count = min(step, extent - start)
        yield from _parts(_slice(problem, start, count, sizes), most, sizes)


def _slice(problem: KronProblem, start: int, count: int, sizes: Mapping[str, int]) -> KronProblem:
    """`count` of the first batch axis, which goes where it is one, or of the rows."""
    batched = bool(problem.batch)
    single = batched and count == 1

    def moved(item: StridedMatrix, size: int) -> StridedMatrix:
        stride = item.batch[0] if batched else item.row
        batch = item.batch[1:] if single else item.batch
        return replace(item, pointer=item.pointer + start * stride * size, batch=batch)

    x, y = moved(problem.x, sizes["x"]), moved(problem.y, sizes["y"])
    z = None if problem.z is None else moved(problem.z, sizes["y"])
    if not batched:
        return replace(problem, rows=count, x=x, y=y, z=z)
    return replace(
        problem,
        batch=problem.batch[1:] if single else (count, *problem.batch[1:]),
        x=x,
        y=y,
        z=z,
        factors=tuple(moved(item, sizes["factor"]) for item in problem.factors),
    )


def _intermediate(step: Step, problem: KronProblem, rows: int, pointer: int) -> StridedMatrix:
    """Dense in the workspace, contiguous along what is contiguous in X."""
    columns = _pass_of(step).columns_out
    inner = [
        math.prod(problem.batch[axis + 1 :]) * problem.rows for axis in range(len(problem.batch))
    ]
    if operands.integer(step, "x_by_rows"):
        column = operands.round_up(rows, operands.vector_of(operands.element_of(step, "Output")))
        return StridedMatrix(pointer=pointer, row=1, column=column, batch=tuple(inner))
    return StridedMatrix(
        pointer=pointer, row=columns, column=1, batch=tuple(size * columns for size in inner)
    )


def _fold(problem: KronProblem) -> KronProblem:
    """Last batch dimensions become rows where no factor depends on them and strides allow it."""
    while problem.batch and all(factor.batch[-1] == 0 for factor in problem.factors):
        extent = problem.batch[-1]
        matrices = [problem.x, problem.y, *([] if problem.z is None else [problem.z])]
        if problem.rows > 1 and any(item.batch[-1] != item.row * problem.rows for item in matrices):
            return problem
        single = problem.rows == 1

        def drop(item: StridedMatrix, single: bool = single) -> StridedMatrix:
            return replace(item, row=item.batch[-1] if single else item.row, batch=item.batch[:-1])

        problem = replace(
            problem,
            rows=problem.rows * extent,
            batch=problem.batch[:-1],
            x=drop(problem.x),
            y=drop(problem.y),
            z=None if problem.z is None else drop(problem.z),
            factors=tuple(replace(item, batch=item.batch[:-1]) for item in problem.factors),
        )
    return problem


def _launch(index: int, step: Step, problem: KronProblem, cores: int) -> Launch:
    if step.template in ("kronop::kron_tile", "kronop::kron_mma"):
        return _tile_launch(index, step, problem, cores.cores)
    return _contract_launch(index, step, problem, cores)


def _four(strides: Sequence[int], filler: int = 0) -> tuple[int, ...]:
    return (*strides, *([filler] * (MOST_BATCH_DIMENSIONS - len(strides))))


def _tile_launch(index: int, step: Step, problem: KronProblem, cores: int) -> Launch:
    this = _pass_of(step)
    columns = operands.integer(step, "kColumns")
    groups = {
        name: operands.integer(step, "kGroupIn" if name == "x" else "kGroupOut") for name in "xyz"
    }
    factors = problem.factors[this.first : this.first + len(this.group)]
    views, extents = _tile_views(step, this, problem, factors, groups)
    along = "digit" if columns == 1 else "inner"

    def flag(name: str, width: str, alias: str) -> int:
        if not _digit_as_planned(step, name, views[name], groups[name]):
            return 0
        sizes = {**extents, "digit": (groups[name],)}
        vector, element = operands.integer(step, width), operands.element_of(step, alias)
        return operands.allows_vectors(views[name], sizes, along, vector, element)

    values: dict[str, int | tuple[int, ...] | tuple[float, ...]] = {
        "x_vector": flag("x", "kXVector", "Input"),
        "y_vector": flag("y", "kYVector", "Output")
        and (views["z"].pointer == 0 or flag("z", "kYVector", "Output")),
        "factor": tuple(item.pointer for item in factors),
        "factor_row": tuple(item.row for item in factors),
        "factor_column": tuple(item.column for item in factors),
        "factor_batch": tuple(stride for item in factors for stride in _four(item.batch)),
        "scalars": problem.scalars,
    }
    for name, item in views.items():
        values |= item.field(name)
    values |= {f"{name}_extent": size for name, size in extents.items()}
    across = operands.cover(extents["inner"][0], columns)
    down = operands.cover(math.prod(extents["outer"]), operands.integer(step, "kRows"))
    blocks = across * down * math.prod(extents["batch"])
    values["tiles"] = (across, down, blocks)
    if step.template == "kronop::kron_mma":
        # Each block prepares the factors once, and then walks over many tiles.
        cluster = operands.integer(step, "kCluster")
        # NOTE: an H200 has 132 multiprocessors, in groups of 16 and 18: clusters of 4 and 8 blocks
        # find room on 128 of them.
        most = operands.integer(step, "kBlocks") * (cores // 16 * 16 if cluster > 2 else cores)
        blocks = min(blocks, most // cluster) * cluster
    return operands.make_launch(index, step, blocks, values)


def _tile_views(
    step: Step,
    this: _Pass,
    problem: KronProblem,
    factors: Sequence[StridedMatrix],
    groups: Mapping[str, int],
) -> tuple[dict[str, operands.View], dict[str, tuple[int, ...]]]:
    """X, Y and Z as the kernel walks them, and the extents of the free indices.

    Batch axes that become rows of the tile keep an extent of 1.
    """
    by_rows = operands.integer(step, "x_by_rows")
    outer = [this.left, this.right] if by_rows else [problem.rows, this.left]
    absorbed = _absorbed(outer, [item.batch for item in factors], len(problem.batch))
    batch = list(problem.batch)
    for axis, source in absorbed.items():
        outer[axis], batch[source] = batch[source], 1

    def view(item: StridedMatrix, group: int) -> operands.View:
        digit, left = this.right * item.column, group * this.right * item.column
        rows = [left, item.column] if by_rows else [item.row, left]
        for axis, source in absorbed.items():
            rows[axis] = item.batch[source] if item.batch else 0
        strides = {
            "outer": tuple(rows),
            "inner": (item.row if by_rows else item.column,),
            "digit": (digit,),
            "batch": _four(item.batch),
        }
        return operands.View(pointer=item.pointer, strides=strides)

    inner = problem.rows if by_rows else this.right
    items = {"x": problem.x, "y": problem.y, "z": problem.z or _NOTHING}
    views = {name: view(item, groups[name]) for name, item in items.items()}
    return views, {"outer": tuple(outer), "inner": (inner,), "batch": _four(batch, 1)}


def _absorbed(
    outer: Sequence[int], factors: Sequence[Sequence[int]], batches: int
) -> dict[int, int]:
    """Which batch axes become free rows of the tile: outer axis -> batch axis, last ones first.

    A tile's rows never cross a batch, and a batch of one row leaves the rest of a tile empty.
    """
    result: dict[int, int] = {}
    for axis in (1, 0):
        source = batches - 1 - len(result)
        if outer[axis] == 1 and source >= 0 and all(strides[source] == 0 for strides in factors):
            result[axis] = source
    return result


def _digit_as_planned(step: Step, name: str, view: operands.View, group: int) -> bool:
    """Whether the stride of the digits is the constant that the step's vector accesses have."""
    if step.template != "kronop::kron_mma" or group == 1:
        return True
    constant = operands.integer(step, "kXDigit" if name == "x" else "kYDigit")
    return constant in (0, view.strides["digit"][0])


def _contract_launch(index: int, step: Step, problem: KronProblem, target) -> Launch:
    # They bring all that plans contractions, and few plans have one.
    from kronop.emit.cuda.contraction.work import Order

    this = _pass_of(step)
    ((contracted, produced),) = this.group
    # What is contiguous along rows is so along the last axis of them, the fastest. Where nothing is
    # behind the digit, X in digits is read along the digit, in whatever order its rows are.
    y_by_rows = step.design.product.work.y_order is Order.Rows
    by_rows = operands.integer(step, "x_by_rows") or (this.right == 1 and y_by_rows)
    rows = (
        (this.left, this.right, problem.rows) if by_rows else (problem.rows, this.left, this.right)
    )

    def view(item: StridedMatrix, own: str, size: int) -> operands.View:
        digit, left = this.right * item.column, size * this.right * item.column
        strides = {
            "row": (left, item.column, item.row) if by_rows else (item.row, left, item.column),
            own: (digit,),
            "lane": (0,),
            "group": _four(item.batch),
        }
        return operands.View(pointer=item.pointer, strides=strides)

    factor = problem.factors[this.first]
    nothing = operands.View(
        pointer=0, strides={"produced": (0,), "lane": (0,), "group": (0, 0, 0, 0)}
    )
    views = {
        "x": view(problem.x, "contracted", contracted),
        "w": operands.View(
            pointer=factor.pointer,
            strides={
                "contracted": (factor.row,),
                "produced": (factor.column,),
                "lane": (0,),
                "group": _four(factor.batch),
            },
        ),
        "y": view(problem.y, "produced", produced),
        "z": view(problem.z or _NOTHING, "produced", produced),
        "bias": nothing,
    }
    extents = {
        "row": rows,
        "contracted": (contracted,),
        "produced": (produced,),
        "lane": (1,),
        "group": _four(problem.batch, 1),
    }
    return step.design.product.launch(index, target, views, extents, problem.scalars)
