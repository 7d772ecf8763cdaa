"""Kronecker-sparse products on AMX tiles: how one is cut up, and whether tiles are worth it.

See ksparse_amx.hpp for what a plan means.
"""

from __future__ import annotations

from dataclasses import dataclass

from kronop.descriptions.datatype import DataType, bfloat16
from kronop.descriptions.epilogue import Epilogue
from kronop.emit.x86 import amx
from kronop.emit.x86.planning import aligned, keeps_sums
from kronop.families.ksparse.x86 import ksparse_plan
from kronop.families.ksparse.x86.ksparse_plan import Candidate, Scratch, Setting, Way

# Two tiles of rows, which is what a block of sums has.
_VECTORS = 2
_LANES = _VECTORS * amx.TILE
# What a thread's X and its results in scratch should take of the second-level cache, and the most
# they may; packed weights of an item of work.
_STATE_BYTES, _MOST_STATE_BYTES, _PANEL_BYTES = 384 * 1024, 1 << 20, 1 << 20
_ROWS = {Way.Batch: 512, Way.Outputs: 128}
# Cycles of a tile of 256 sums, from its first operands to memory, and of each step of its
# contraction, of whole products (two cores of an Emerald Rapids, c = 64 to 768: 275 with 2 steps,
# 548 with 6, 1821 with 24); a number that is moved on its own (counted); multiply-adds a cycle of
# vector kernels.
_BLOCK, _EACH_STEP, _NUMBER, _VECTOR_RATE = 150, 65, 2.0, 16


@dataclass(frozen=True, slots=True, kw_only=True)
class TilePlan:
    """How a pattern goes through tiles.

    Attributes:
        cut: as that of vectors; a register tile is one of AMX, `depth` is all of k.
        scratch: the memory of a thread, in which `pitch` is in units of 32 bits.
        cycles: per row of the batch and i, as `ksparse_plan.cost` counts them.
    """

    cut: Candidate
    scratch: Scratch
    cycles: float

    @property
    def vector_work(self) -> int:
        """Multiply-adds that vectors do in the time of a row and i."""
        return int(self.cycles * _VECTOR_RATE)

    def __str__(self) -> str:
        cut = self.cut
        return (
            f"on tiles along the {cut.way.value}, {cut.row_tile} rows by {cut.blocks} blocks by"
            f" {cut.outputs} outputs by {cut.slices} slices"
        )


def plan(setting: Setting, element: DataType, bias_bytes: int) -> TilePlan:
    """The one way that tiles have for a pattern; `bias_bytes` for each of the bias's values."""
    in_rows = setting.d == 1 and not (setting.x_by_rows or setting.y_by_rows)
    way = Way.Outputs if in_rows else Way.Batch
    slices = ksparse_plan.slices_of(way, setting)
    lines = amx.lines(setting.c, element)
    outputs = _outputs(setting, element, slices)
    panel = slices * amx.factor_bytes(setting.c, outputs, element)
    # NOTE: an odd number of lines spreads over all sets of a cache.
    pitch = (slices | 1) * _LANES
    if in_rows:
        held, made = _LANES * lines, _LANES * outputs
        rows = _ROWS[way]
    else:
        held, made = lines * pitch, outputs * slices * _LANES
        fitting = max(1, _STATE_BYTES // ((held + made) * amx.UNIT_BYTES))
        rows = min(_ROWS[way], fitting * _LANES)
        held, made = held * rows // _LANES, made * rows // _LANES
    blocks = 1
    if not setting.x_by_rows:
        blocks = min(setting.pattern[0], max(1, ksparse_plan.GROUP_BYTES // panel))
    bias = blocks * panel
    begin = bias + aligned(blocks * outputs * slices * bias_bytes)
    results = begin + aligned(held * amx.UNIT_BYTES)
    return TilePlan(
        cut=Candidate(
            way=way,
            tile=amx.TILE,
            vectors=_VECTORS,
            blocks=blocks,
            slices=slices,
            outputs=outputs,
            depth=setting.c,
            row_tile=rows,
        ),
        scratch=Scratch(
            pitch=pitch,
            bias=bias,
            input=begin,
            results=results,
            size=results + made * amx.UNIT_BYTES,
        ),
        cycles=_cycles(setting, element, way, slices, lines),
    )


def reason_against(tiles: TilePlan, setting: Setting, vector_cycles: float) -> str:
    """Why vectors serve a pattern; empty where tiles do.

    Args:
        vector_cycles: of the best candidate on vectors, per row of the batch and i.
    """
    state = tiles.scratch.size - tiles.scratch.input
    if state > _MOST_STATE_BYTES:
        return f"takes {state} bytes for X and results in each thread, at most {_MOST_STATE_BYTES}"
    slowest = setting.b * setting.c * setting.d / _VECTOR_RATE
    cycles = max(vector_cycles, slowest)
    if tiles.cycles < cycles:
        return ""
    return f"{tiles.cycles:.0f} cycles per row and i, on vectors about {cycles:.0f}"


def is_direct(epilogue: Epilogue) -> bool:
    """Whether sums, or sums rounded to bf16, may be results, where alpha is 1 and nothing added."""
    is_float = epilogue.element_accumulator.kind == "float"
    return keeps_sums(epilogue, rounded=is_float and epilogue.element_output is bfloat16)


def _outputs(setting: Setting, element: DataType, slices: int) -> int:
    """Outputs of an item, in parts of about the same size: whole blocks, but for the last."""
    each = slices * amx.factor_bytes(setting.c, _LANES, element)
    most = max(1, _PANEL_BYTES // each)
    blocks = -(-setting.b // _LANES)
    parts = -(-blocks // most)
    return min(setting.b, -(-blocks // parts) * _LANES)


def _cycles(setting: Setting, element: DataType, way: Way, slices: int, lines: int) -> float:
    b, c, d = setting.b, setting.c, setting.d
    tiles = d * -(-b // amx.TILE) / amx.TILE
    arithmetic = tiles * (_BLOCK + _EACH_STEP * amx.steps(c, element))
    return arithmetic + _reading(setting, element, way, slices, lines) + _writing(setting, way)


def _reading(setting: Setting, element: DataType, way: Way, slices: int, lines: int) -> float:
    """Cycles per row that bring X to where tiles read it."""
    vectors = lines * setting.d / amx.TILE
    if way is Way.Outputs:
        in_place = lines * amx.UNIT_BYTES == setting.c * element.bytes
        return 0.0 if in_place else ksparse_plan.COPY * vectors
    if setting.x_by_rows:
        return ksparse_plan.COPY * vectors
    in_squares = slices >= amx.TILE or (slices == setting.d and amx.TILE % setting.d == 0)
    return ksparse_plan.TRANSPOSE * vectors if in_squares else _NUMBER * setting.c * setting.d


def _writing(setting: Setting, way: Way) -> float:
    """Cycles per row that take results from scratch to Y."""
    return setting.d * setting.b / amx.TILE * ksparse_plan.write_cycles(way, setting)
