"""How a Kronecker-sparse product is cut up on a CPU: candidates, legality, cost."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from kronop.artifacts import Status
from kronop.emit.x86.planning import NEAR_BYTES, panel_elements, tile_height
from kronop.target import Target

_MOST_SLICES = 64
# Cycles per vector; see the kernel's header for where each arises.
_ISSUE, _STORE, _TRANSPOSE, _COPY, _NEAR, _FAR = 0.5, 1.0, 5.0, 1.0, 1.0, 6.0
_TYPICAL_ROWS = 64
_ROW_TILE = 256


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """One way to serve a pattern.

    Attributes:
        vectors: vectors of lanes (rows of the batch) that a state holds.
        slices: indices l taken together.
        outputs: indices j whose weights are packed together.
        depth: indices k that the state of X holds.
        tile: outputs of the register tile.
        row_tile: rows of one item of work.
    """

    vectors: int
    slices: int
    outputs: int
    depth: int
    tile: int
    row_tile: int

    def panel_elements(self, setting: Setting) -> int:
        return self.slices * panel_elements(setting.c, self.outputs, self.tile)

    def lanes(self, setting: Setting) -> int:
        return self.vectors * setting.width

    def __str__(self) -> str:
        return (
            f"{self.row_tile} rows by {self.outputs} outputs by {self.slices} slices,"
            f" {self.depth} contraction steps at once, {self.vectors} vectors"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """What candidates are made for: the pattern, the machine, and the user's tile (None: any).

    `x_by_rows` and `y_by_rows`: contiguous along the batch rather than along the features.
    """

    pattern: tuple[int, int, int, int]
    target: Target
    width: int
    bytes: int
    x_by_rows: bool
    y_by_rows: bool
    shape: tuple[int, int, int] | None

    @property
    def b(self) -> int:
        return self.pattern[1]

    @property
    def c(self) -> int:
        return self.pattern[2]

    @property
    def d(self) -> int:
        return self.pattern[3]


def candidates(setting: Setting) -> Iterator[Candidate]:
    """Every way that is worth a look, legal or not."""
    rows, outputs_most, depth = setting.shape or (_ROW_TILE, setting.b, setting.c)
    depth = min(depth, setting.c)
    for vectors in (1, 2):
        for slices in sorted({1, min(setting.d, setting.width), min(setting.d, _MOST_SLICES)}):
            tallest = tile_height(min(outputs_most, setting.b), vectors, setting.target.registers)
            for outputs in _output_choices(
                min(outputs_most, setting.b), tallest, setting.shape is not None
            ):
                tile = tile_height(outputs, vectors, setting.target.registers)
                if depth < setting.c:
                    tile = max(size for size in range(1, tile + 1) if outputs % size == 0)
                yield Candidate(
                    vectors=vectors,
                    slices=slices,
                    outputs=outputs,
                    depth=depth,
                    tile=tile,
                    row_tile=rows,
                )


def _output_choices(most: int, tile: int, fixed: bool) -> list[int]:
    if fixed:
        return [most]
    return sorted({most, *(tile * count for count in (8, 32) if tile * count < most)})


def legality(candidate: Candidate, setting: Setting) -> Status:
    """Whether a tile's rows are whole vectors, and its weights no more than a cache holds."""
    lanes = candidate.lanes(setting)
    if candidate.row_tile % lanes:
        return Status.reject(
            f"Tile_M of {candidate.row_tile} rows is no multiple of {lanes} lanes;"
            f" use a multiple of {setting.width} in threadblock_shape[0]"
        )
    size = candidate.panel_elements(setting) * setting.bytes
    smallest = candidate.slices == 1 and (
        setting.shape is not None or candidate.outputs <= 8 * candidate.tile
    )
    if size > setting.target.shared_bytes // 2 and not smallest:
        return Status.reject(f"{size} bytes of packed weights, over half of the second-level cache")
    return Status.accept()


def cost(candidate: Candidate, setting: Setting) -> float:
    """Cycles per row of the batch, for one i."""
    lanes = candidate.lanes(setting)
    rows = min(candidate.row_tile, _TYPICAL_ROWS)
    waste = -(-rows // lanes) * lanes / rows
    output_parts = -(-setting.b // candidate.outputs)
    blocks = output_parts * -(-candidate.outputs // candidate.tile)
    loads = (candidate.tile + candidate.vectors) / candidate.vectors
    depth_parts = -(-setting.c // candidate.depth)
    step = _ISSUE * max(candidate.tile, loads)
    arithmetic = setting.d * blocks * (setting.c * step + depth_parts * candidate.tile * 2 * _STORE)
    state = lanes * candidate.slices * (candidate.depth + candidate.outputs) * setting.bytes
    level = (
        0.0 if state <= NEAR_BYTES else _NEAR if state <= setting.target.shared_bytes // 2 else _FAR
    )
    moved = setting.d * (setting.c * output_parts + setting.b) * level
    reading = (
        setting.d * setting.c * output_parts * _transfer(setting.x_by_rows, candidate, setting)
    )
    writing = setting.d * setting.b * _transfer(setting.y_by_rows, candidate, setting)
    return (arithmetic + moved + reading + writing) * waste / setting.width


def _transfer(by_rows: bool, candidate: Candidate, setting: Setting) -> float:
    """Cycles per vector between memory and a state."""
    if by_rows:
        return _COPY
    run = candidate.slices if candidate.slices < setting.d else candidate.slices * setting.b
    if run < setting.width or (candidate.slices == 1 and setting.d > 1):
        return 2.0 * setting.width
    return _TRANSPOSE
