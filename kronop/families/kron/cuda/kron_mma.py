"""The `kron_mma` pass, on the tensor cores: its tile, and the position of its digits in X."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from kronop.artifacts import Status
from kronop.descriptions.epilogue import Epilogue
from kronop.emit.design import ENDS, Constant, arrays, named
from kronop.families.kron.cuda import half
from kronop.families.kron.cuda.half import HalfStyle
from kronop.families.kron.cuda.mma import MmaPhase, MmaTile
from kronop.families.kron.cuda.pass_design import TiledPass
from kronop.frozen import dataclass
from kronop.target import Target

_AHEAD_THREADS = 512


@dataclass(frozen=True, slots=True, kw_only=True)
class KronMma(TiledPass):
    """A pass on the tensor cores. Digit i of the tile is the product of `runs[i]` neighbouring
    factors."""

    kernel = "kron_mma"
    kind = "mma"
    styles = (
        *("plain", "split", "half", "staged", "in memory", "staged in", "staged out"),
        *("single", "pairs", "wgmma", "cluster", "buffers", "merged", "exchanged"),
    )
    ends = ENDS

    runs: tuple[int, ...]
    tile: MmaTile

    def style(self, target: Target) -> Iterator[str]:
        style = self.tile.style
        yield "half" if isinstance(style, HalfStyle) else "split" if style.splits else "plain"
        ends = style.staged_in, style.staged_out
        yield {(1, 1): "staged", (0, 0): "in memory", (1, 0): "staged in"}.get(ends, "staged out")
        yield "pairs" if style.pairs else "single"
        also = {
            "wgmma": any(phase.wgmma for phase in self.tile.phases),
            "cluster": self.cluster > 1,
            "buffers": style.buffers > 1,
            "merged": max(self.runs) > 1,
            "exchanged": self.exchanged(target) > 0,
        }
        yield from (word for word, has in also.items() if has)

    def placed(self, epilogue: Epilogue | None) -> KronMma:
        return replace(self, epilogue=epilogue)

    @property
    def rows(self) -> int:
        return self.tile.rows

    @property
    def columns(self) -> int:
        return self.tile.columns

    @property
    def threads(self) -> int:
        return self.tile.threads

    @property
    def cluster(self) -> int:
        return self.tile.style.cluster

    @property
    def shared_bytes(self) -> int:
        return self.tile.shared_bytes

    @property
    def vectors(self) -> tuple[int, int]:
        ends = self.work.ends
        x, y = ends.source_alignment, ends.output_alignment
        return self.tile.vector(x, produced=0), self.tile.vector(y, produced=1)

    def status(self, target: Target) -> Status:
        return self.tile.status(target)

    def blocks(self, target: Target) -> int:
        return self.tile.blocks(target)

    def grid(self, tiles: int, target: Target) -> int:
        """As many blocks as run at once: each prepares the factors once, and iterates over many
        tiles (persistent blocks)."""
        cluster, cores = self.cluster, target.cores
        # NOTE: an H200 has 132 multiprocessors, in GPCs of 16 and 18: clusters of 4 and 8 blocks
        # fit on 128 of them.
        most = self.blocks(target) * (cores // 16 * 16 if cluster > 2 else cores)
        return min(tiles, most // cluster) * cluster

    def strides_as_planned(self, digit: int, size: int, by_rows: bool) -> bool:
        # The kernel's vectors assume the digit stride that was compiled in.
        return size == 1 or self._digit(by_rows) in (0, digit)

    def _digit(self, by_rows: bool) -> int:
        """The stride of the last digit if it is known at compile time; else 0."""
        return 0 if by_rows else self.work.shape.right

    def constants(self, target: Target) -> tuple[tuple[str, Constant], ...]:
        tile, style, phases = self.tile, self.tile.style, self.tile.phases
        return (
            *self._block_constants(target),
            ("kSplit", style.splits),
            ("kHalf", isinstance(style, HalfStyle)),
            ("kReadVector", half.vector(style.digits[phases[0].digit][0])),
            ("kWriteVector", half.vector(style.digits[phases[-1].digit][1])),
            *self._factor_constants(),
            *_tile_constants(tile),
            *_phase_constants(phases),
        )

    def _ahead(self, target: Target) -> bool:
        """Whether a warp loads the elements of its next round while it multiplies this one's."""
        return self.tile.reads_ahead and self.threads * self.blocks(target) <= _AHEAD_THREADS

    def exchanged(self, target: Target) -> int:
        """`tile.exchanged` if it pays, else 0: several blocks of a multiprocessor overlap
        anyway."""
        alone = self._ahead(target) and self.blocks(target) == 1
        return self.tile.exchanged if alone and min(self.vectors) > 1 else 0

    def _block_constants(self, target: Target) -> tuple[tuple[str, Constant], ...]:
        """Constants of a block's threads, and of their memory accesses."""
        ends, (x_vector, y_vector) = self.work.ends, self.vectors
        return (
            ("kThreads", self.threads),
            ("kBlocks", self.blocks(target)),
            ("kAhead", self._ahead(target)),
            ("kExchange", self.exchanged(target)),
            ("kXVector", x_vector),
            ("kYVector", y_vector),
            ("kXDigit", self._digit(ends.source_by_rows)),
            ("kYDigit", self._digit(ends.output_by_rows)),
        )

    def _factor_constants(self) -> tuple[tuple[str, Constant], ...]:
        """Constants of the factors, and which of them are multiplied to each digit."""
        factors, runs = self.work.shape.factors, self.runs
        return (
            ("kFactorFirst", tuple(sum(runs[:index]) for index in range(len(runs) + 1))),
            ("kFactorContracted", tuple(p for p, _ in factors)),
            ("kFactorProduced", tuple(q for _, q in factors)),
        )


def _tile_constants(tile: MmaTile) -> tuple[tuple[str, Constant], ...]:
    style = tile.style
    at, sizes = tile.offset_tiles * tile.offset_bytes, style.factors_bytes()
    ins, outs = [p for p, _ in style.digits], [q for _, q in style.digits]
    return (
        *named(style, "staged_in staged_out"),
        ("kRegular", tile.powers),
        ("kCluster", style.cluster),
        *named(tile, "offset_bytes rows columns"),
        ("kContracted", tuple(ins)),
        ("kProduced", tuple(outs)),
        ("kStride", tile.strides),
        ("kRowStride", tile.row_stride),
        ("kFactorBytesAt", tuple(at + sum(sizes[:index]) for index in range(len(sizes)))),
        ("kBuffers", style.buffers),
        ("kTileBytesAt", at + sum(sizes) + style.spare_bytes),
    )


def _phase_constants(phases: Sequence[MmaPhase]) -> tuple[tuple[str, Constant], ...]:
    ends = [0]
    for phase in phases:
        ends.append(ends[-1] + len(phase.axes))
    axes = [axis for phase in phases for axis in phase.axes]
    return (
        ("kPhaseDigit", tuple(phase.digit for phase in phases)),
        ("kPhaseOther", tuple(-1 if phase.other is None else phase.other for phase in phases)),
        *arrays(phases, "kPhase", "lanes wgmma neighbours"),
        ("kPhaseAxis", tuple(ends)),
        *arrays(axes, "kAxis", "extent shared row digit column"),
    )
