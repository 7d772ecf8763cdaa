"""Planning Kronecker matmuls on CUDA: the passes, and the step of each."""

from __future__ import annotations

from kronop.artifacts import Status
from kronop.emit.cuda import operands
from kronop.emit.cuda.operands import splits_of
from kronop.emit.design import Constant
from kronop.emit.plan import Plan, Step
from kronop.errors import DescriptionError
from kronop.families.kron.cuda.mma import MmaTile
from kronop.families.kron.cuda.mma_step import mma_step
from kronop.families.kron.cuda.passes import Pass, split, variants
from kronop.families.kron.cuda.shapes import multiply_adds
from kronop.families.kron.cuda.tile import TileShape, tile_step
from kronop.families.kron.description import KronMatmulDescription, Side
from kronop.target import Target


def supports(description: KronMatmulDescription, target: Target) -> Status:
    """Whether `plan` will succeed, and the reason where not."""
    if splits_of(description.math) is None:
        status = operands.accept_math(description.math)
        if not status:
            return status
    passes, rejected = split(description, target)
    return Status.accept() if passes else Status.reject(rejected[-1][1])


def plan(description: KronMatmulDescription, target: Target, rows: int | None = None) -> Plan:
    """The passes as steps.

    Raises:
        DescriptionError: `supports` says no.
    """
    status = supports(description, target)
    if not status:
        raise DescriptionError(status.reason)
    passes, rejected = split(description, target, rows)
    steps = tuple(_step(description, passes, index, target) for index in range(len(passes)))
    return Plan(target=target, steps=steps, rejected=rejected)


def candidates(
    description: KronMatmulDescription,
    target: Target,
    count: int,
    rows: int | None = None,
) -> tuple[Plan, ...]:
    """The plan, then other tiles of its passes and other passes, the cheapest first.

    Raises:
        DescriptionError: `supports` says no.
    """
    first = plan(description, target, rows)
    if count == 1:
        return (first,)
    others = [
        tuple(_step(description, passes, index, target) for index in range(len(passes)))
        for passes in variants(description, target, rows)[1:count]
    ]
    return (first, *(Plan(target=target, steps=steps) for steps in others))


def _step(
    description: KronMatmulDescription, passes: tuple[Pass, ...], index: int, target: Target
) -> Step:
    this = passes[index]
    is_last = index == len(passes) - 1
    entry, note = _names(description, this, index, len(passes), target)
    launch: list[tuple[str, Constant]] = [
        ("first_digit", this.first),
        ("sizes", _sizes_before(description, passes[:index])),
        ("group", tuple(size for shape in this.shape.group for size in shape)),
        ("x_by_rows", this.ends.source_by_rows),
    ]
    splits = splits_of(description.math)
    if isinstance(this.choice.tile, MmaTile) and splits is not None:
        return mma_step(
            description,
            this.shape,
            this.ends,
            this.choice.tile,
            splits,
            target,
            entry=entry,
            note=note,
            launch=launch,
            last=is_last,
        )
    if isinstance(this.choice.tile, TileShape):
        return tile_step(
            description,
            this.shape,
            this.ends,
            this.choice.tile,
            target,
            entry=entry,
            note=note,
            launch=launch,
            last=is_last,
        )
    shape, ends = this.shape, this.ends
    from dataclasses import replace

    from kronop.families.kron.cuda.contract_pass import TempPass

    product = this.choice.tile
    product = replace(
        product, work=replace(product.work, epilogue=description.epilogue if is_last else None)
    )
    return Step(
        entry=entry,
        note=note,
        design=TempPass(product=product, own=tuple(launch)),
        bytes_per_row=shape.columns_in * ends.source.bytes + shape.columns_out * ends.output.bytes,
        operations_per_row=2 * multiply_adds(list(shape.group), shape.left, shape.right),
    )


def _sizes_before(description: KronMatmulDescription, earlier: tuple[Pass, ...]) -> tuple[int, ...]:
    """Size of every digit when a pass starts."""
    sizes = [contracted for contracted, _ in description.contractions]
    for item in earlier:
        end = item.first + len(item.shape.group)
        sizes[item.first : end] = [produced for _, produced in item.shape.group]
    return tuple(sizes)


def _names(
    description: KronMatmulDescription, this: Pass, index: int, count: int, target: Target
) -> tuple[str, str]:
    """The kernel's name and what it does."""
    group = this.shape.group
    x, y = description.X.element.short, description.Y.element.short
    tile = this.choice.tile
    kind = (
        "mma"
        if isinstance(tile, MmaTile)
        else "tile"
        if isinstance(tile, TileShape)
        else "contract"
    )
    side = "r" if description.side is Side.Right else "l"
    entry = (
        f"kron_{x}_{operands.shape_name(group)}_{kind}_{side}_d{this.first}of{len(description.factors)}"
        f"_s{index}of{count}_{y}_{description.epilogue.name}_{target.arch}"
    )
    end = this.first + len(group) - 1
    digits = f"digit {this.first}" if end == this.first else f"digits {this.first} to {end}"
    if isinstance(this.choice.tile, TileShape):
        shape = this.choice.tile
        how = f"tiles of {shape.rows} x {this.shape.group_in} x {shape.columns} in shared memory"
    else:
        how = f"tiles of {this.choice.tile}"
    return entry, f"{digits} of {len(description.factors)} ({operands.shape_name(group)}), {how}"
