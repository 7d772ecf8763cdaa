"""Products by warp groups: the candidate tiles, and their steps."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

from kronop.artifacts import Status
from kronop.descriptions.datatype import FLOAT8, ColumnMajor, DataType, RowMajor, float32, tfloat32
from kronop.descriptions.math_instruction import MathInstruction, MathOperation, OpClass
from kronop.descriptions.tile import (
    EpilogueScheduleType,
    KernelScheduleType,
    TileDescription,
    TileSchedulerType,
)
from kronop.descriptions.visitor import VisitorEpilogue
from kronop.families.gemm.cuda.warp_group_design import GemmWarpGroup
from kronop.families.gemm.cuda.warp_group_problem import GRANULE, LINE_BYTES
from kronop.families.gemm.cuda.warp_group_split import GemmSplit, SplitProduct
from kronop.families.gemm.description import GemmDescription
from kronop.machine import Feature
from kronop.target import Target

# (rows, columns, whether teams alternate tiles) of a tile.
_TILES = ((128, 256, False), (128, 128, True), (64, 256, True), (128, 128, False), (64, 128, True))
# Tiles for which a thread has registers for sums and a chain.
_CHAINED_TILES = ((128, 128, False),)
# Those of operands that are converted, of which three stages are multiplied.
_CONVERTED_TILES = ((128, 128, False), (128, 64, False), (64, 128, True), (64, 64, True))
_CONVERTED_STAGES = 3
_CLUSTERS, _LEAST_SHARE = (2, 1), 64
# Lines of results that a team stores at once. NOTE: slabs of split operands are twice as large.
_MOST_STAGES, _MOST_LINES, _SPLIT_LINES, _SHORT = 8, 4, 2, 64


def status(what: GemmDescription, target: Target) -> Status:
    """Whether warp groups can read the described operands."""
    if not target.has(Feature.warp_groups):
        return Status.reject(f"{target} has no warp-group products")
    if not splits(what.math) and not _multiplies(what.math):
        return Status.reject(f"warp groups do not multiply by {what.math}")
    for name, item in (("A", what.A), ("B", what.B)):
        # Operands that are split are first copied to where maps can read them.
        if not splits(what.math) and item.alignment * item.element.bytes < GRANULE:
            return Status.reject(
                f"tensor maps take addresses and strides in multiples of {GRANULE} bytes, and"
                f" {name} promises {item.alignment} elements"
            )
    return Status.accept()


def status_of_tile(what: GemmDescription, target: Target) -> Status:
    """Why warp groups don't have the user's tile, which only they could have."""
    found = status(what, target)
    return not_among(_every(what, target), target) if found else found


def not_among(every: Iterable[GemmWarpGroup], target: Target) -> Status:
    """A refusal of the user's tile, which none of the designs has."""
    designs = list(every)
    clusters = " or ".join(sorted({str(item.cluster) for item in designs}))
    return Status.reject(
        "clusters and schedules are of warp groups, which do not have this tile; theirs are"
        f" {_told(designs, target) or 'none'}, in clusters of {clusters} along M"
    )


def tiles_told(what: GemmDescription, target: Target) -> str:
    """The tiles that warp groups have for a description, in words; empty if there are none."""
    if what.interleaved or not status(what, target):
        return ""
    return _told(_every(what, target), target)


def _told(designs: Iterable[GemmWarpGroup], target: Target) -> str:
    own = [item for item in designs if item.cluster == 1 and item.status(target)]
    teams = {False: "8 warps that share them", True: "4 warps that take them in turn"}
    found = {
        alternate: sorted(
            f"{item.m} x {item.n} x {item.slab} (at most {item.stages} stages)"
            for item in own
            if item.alternate == alternate
        )
        for alternate in teams
    }
    return " and ".join(
        f"{', '.join(tiles)} of {teams[alternate]}" for alternate, tiles in found.items() if tiles
    )


def splits(math: MathInstruction) -> bool:
    """Whether operands are split in two planes."""
    return math.math_operation is MathOperation.multiply_add_fast_f32


def _multiplies(math: MathInstruction) -> bool:
    if math.opcode_class is not OpClass.TensorOp:
        return False
    if math.element_a in (float32, tfloat32):
        return math.math_operation is MathOperation.multiply_add
    plain = math.math_operation in (MathOperation.multiply_add, MathOperation.multiply_add_saturate)
    return plain and math.element_accumulator.bytes == 4


def designs(what: GemmDescription, target: Target) -> Iterator[GemmWarpGroup | SplitProduct]:
    """The designs for a description by warp groups, if there are any."""
    return map(with_split, products(what, target))


def with_split(product: GemmWarpGroup) -> GemmWarpGroup | SplitProduct:
    """The product, preceded by the kernel that splits its operands if they are split."""
    return SplitProduct(split=GemmSplit(), product=product) if product.split else product


def products(what: GemmDescription, target: Target) -> Iterator[GemmWarpGroup]:
    """Those of `designs` without the kernel that splits operands."""
    return products_of(what, target)


def products_of(
    what: GemmDescription, target: Target, further: tuple[tuple[int, int, bool], ...] = ()
) -> Iterator[GemmWarpGroup]:
    """The same, with `further` tiles of 16-bit types."""
    if not status(what, target):
        return
    for design in _every(what, target, further):
        yield from _steered(what.tile, design)


def _steered(tile: TileDescription | None, design: GemmWarpGroup) -> Iterator[GemmWarpGroup]:
    """The design, with the user's stages, if a tile describes it, or there is none."""
    if tile is None:
        yield design
        return
    steered = replace(design, stages=min(tile.stages or design.stages, design.stages))
    if _is_asked(tile, steered):
        yield steered


def _every(
    what: GemmDescription, target: Target, further: tuple[tuple[int, int, bool], ...] = ()
) -> Iterator[GemmWarpGroup]:
    """All of them, whatever the user's tile."""
    split = splits(what.math)
    tiles = _CHAINED_TILES if split or what.A.element in FLOAT8 else _TILES
    for m, n, alternate in tiles + (further if what.A.element.bytes == 2 else ()):
        for cluster in _CLUSTERS:
            # Each block of a cluster brings lines of 64 columns at least.
            if n // cluster >= _LEAST_SHARE:
                yield _design(what, target, (m, n, cluster), alternate, split)


def _design(
    what: GemmDescription, target: Target, tile: tuple[int, int, int], alternate: bool, split: bool
) -> GemmWarpGroup:
    m, n, cluster = tile
    swapped = what.Y.layout is ColumnMajor
    # In the transposed product, the left operand is B.
    left, right = (what.B, what.A) if swapped else (what.A, what.B)
    epilogue, staged = what.epilogue, what.Y.element
    if isinstance(epilogue, VisitorEpilogue):
        epilogue = epilogue.transposed if swapped else epilogue
        staged = what.math.element_accumulator
    lines = min(_lines(staged, n), _SPLIT_LINES if split else _MOST_LINES)
    empty = GemmWarpGroup(
        math=what.math,
        source=what.A.element,
        output=what.Y.element,
        epilogue=epilogue,
        m=m,
        n=n,
        stages=0,
        lines=lines,
        # Stores of short lines wait for each other's reads.
        buffers=2 if n == _SHORT and lines == 1 else 1,
        cluster=cluster,
        alternate=alternate,
        turned_a=not split and left.layout is (RowMajor if swapped else ColumnMajor),
        turned_b=not split and right.layout is (ColumnMajor if swapped else RowMajor),
        swapped=swapped,
        split=split,
    )
    room = target.shared_bytes - empty.shared_bytes
    return replace(empty, stages=min(_MOST_STAGES, room // empty.stage_bytes))


def converting(what: GemmDescription, target: Target) -> Iterator[GemmWarpGroup]:
    """The same of split operands, A by columns and B by rows, which are split in shared memory."""
    if not status(what, target):
        return
    for m, n, alternate in _CONVERTED_TILES:
        item = _design(what, target, (m, n, 1), alternate, True)
        # Results take the least room: what there is goes to copies, for which products wait.
        least = replace(item, turned_a=True, turned_b=True, lines=1, buffers=1)
        one = replace(least, stages=_CONVERTED_STAGES)
        room = target.shared_bytes - one.shared_bytes
        design = replace(one, copies=min(_MOST_STAGES, room // one.copy_bytes))
        yield from _steered(what.tile, design)


def _lines(staged: DataType, columns: int) -> int:
    """Lines of results, or of sums, that a team stores at once."""
    return max(1, min(columns * staged.bytes // LINE_BYTES, _MOST_LINES))


def _is_asked(tile: TileDescription, design: GemmWarpGroup) -> bool:
    """Whether the design is the one that a tile describes."""
    schedule = (
        KernelScheduleType.TmaWarpSpecializedPingpong
        if design.alternate
        else KernelScheduleType.TmaWarpSpecializedCooperative
    )
    return (
        tile.threadblock_shape == (design.m, design.n, design.slab)
        and tile.stages in (None, design.stages)
        and tile.warp_count in (None, ((4 if design.alternate else 8), 1, 1))
        and tile.cluster_shape in (None, (design.cluster, 1, 1))
        and tile.kernel_schedule in (KernelScheduleType.ScheduleAuto, schedule)
        and tile.epilogue_schedule is not EpilogueScheduleType.NoSmemWarpSpecialized
        and tile.tile_scheduler is not TileSchedulerType.StreamK
    )
