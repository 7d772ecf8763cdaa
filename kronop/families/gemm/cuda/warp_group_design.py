"""Products by warp groups, with operands copied by tensor maps (TMA): gemm_warp_group.cuh."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from typing import Any, ClassVar

from kronop.artifacts import KernelSignature, Launch, Status
from kronop.descriptions.datatype import FLOAT8, DataType, bfloat16, float16, float32, int8
from kronop.descriptions.epilogue import Epilogue
from kronop.descriptions.math_instruction import MathInstruction
from kronop.descriptions.strided import Strided
from kronop.descriptions.summed import moved_bytes, parts_of
from kronop.descriptions.visitor import VisitorEpilogue
from kronop.emit.cuda import operands
from kronop.emit.cuda.machine import hertz, memory_bytes_per_cycle
from kronop.emit.design import Constant, Instantiation, members, named, package_folder
from kronop.emit.visit_design import repeating
from kronop.families.gemm.cuda import warp_group_cost, warp_group_stored, warp_group_visitor
from kronop.families.gemm.cuda.blocks import TREE_STYLES, GemmDesign
from kronop.families.gemm.cuda.warp_group_problem import (
    LINE_BYTES,
    MOST,
    PLANES,
    check_extents,
    parts,
    step_of,
    tensor_map,
)
from kronop.families.gemm.description import GemmProblem
from kronop.families.gemm.size import GemmSize
from kronop.frozen import dataclass
from kronop.machine import MEASURED
from kronop.target import Target
from kronop.tensor_map import TensorMap

_TEAM, _TEAMS = 128, 2
# 64 lines, the unit of operands and results.
_BLOCK_BYTES = 64 * LINE_BYTES
# Registers of a copying thread, and of a multiplying one: together nearly all of a multiprocessor.
_COPY_REGISTERS, _PRODUCT_REGISTERS = 24, 240
# Those of a converting thread, and of a multiplying one beside it.
_CONVERT_REGISTERS, _BESIDE = 88, 200
# Tiles along M that are processed before the next column of tiles.
_BAND = 16
# Bytes of barriers, at most.
_BARRIER_BYTES = 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class GemmWarpGroup(GemmDesign):
    """Two warp groups multiply what a third one copies.

    Attributes:
        source, output: types of the operands and of the result.
        m, n: rows and columns of a tile.
        stages: stages of the pipeline in shared memory.
        lines: lines of 128 bytes of a row of results that a team stores at once.
        buffers: pieces of so many lines that a team has room for, while others are stored.
        cluster: blocks of a cluster, each of which multicasts its share of B.
        alternate: teams alternate tiles (ping-pong), instead of sharing each (cooperative).
        turned_a, turned_b: A is contiguous along M, B along N.
        swapped: the transposed product is computed, since Y is contiguous along M.
        split: float32 operands are split. Unless they are turned, they are pairs of planes, those
            of all problems contiguous; the batch stride is that of pairs: see `warp_group_split`.
        copies: stages of what is copied, if it is converted.
    """

    styles: ClassVar[tuple[str, ...]] = (
        *("shared tiles", "tiles in turn", "clusters", "A along M", "B along N"),
        *("2-byte elements", "TF32", "int8", "8-bit floats", "swapped", "three TF32 products"),
        "six bfloat16 products",
        *TREE_STYLES,
    )
    ends = ("Y along rows", "Y along columns")
    kind, has_slices = "warp_group", False

    math: MathInstruction
    source: DataType
    output: DataType
    epilogue: Epilogue
    m: int
    n: int
    stages: int
    lines: int
    buffers: int
    cluster: int
    alternate: bool
    turned_a: bool
    turned_b: bool
    swapped: bool
    split: bool
    copies: int = 0

    def __str__(self) -> str:
        teams = "in turn" if self.alternate else "shared"
        clusters = f", clusters of {self.cluster}" if self.cluster > 1 else ""
        planes = "three planes of bfloat16" if self.converts else "two planes"
        split = f" of operands in {planes}" if self.split else ""
        tiles = f"tiles of {self.m} x {self.n} {teams}"
        return f"warp groups{split}, {tiles}, {self.stages} stages{clusters}"

    @property
    def threads(self) -> int:
        return _TEAM * (_TEAMS + 1 + self.converts)

    @property
    def converts(self) -> bool:
        """Whether a further warp group splits float32 operands: see gemm_warp_group_planes.cuh."""
        return self.split and self.turned_a

    @property
    def in_planes(self) -> bool:
        """Whether operands are read as pairs of planes."""
        return self.split and not self.converts

    @property
    def sizes(self) -> str:
        return f"{self.m}x{self.n}"

    @property
    def multiplied(self) -> DataType:
        return self.math.element_a

    @property
    def slab(self) -> int:
        """Contracted elements in a line."""
        return LINE_BYTES // self.source.bytes

    @property
    def stage_bytes(self) -> int:
        """Bytes of a slab of both operands as they are multiplied."""
        planes = PLANES if self.split else 1
        return self.copy_bytes * 3 // 2 if self.converts else self.copy_bytes * planes

    @property
    def copy_bytes(self) -> int:
        """The same of one plane, as it is copied."""
        return (self.m + self.n) * LINE_BYTES

    @property
    def shared_bytes(self) -> int:
        results = _TEAMS * (self.buffers * self.lines * _BLOCK_BYTES + self.fold_bytes)
        copies = self.copies * self.copy_bytes
        return self.stages * self.stage_bytes + copies + results + _BARRIER_BYTES

    @property
    def share(self) -> int:
        """Columns of B that a block of a cluster brings."""
        return self.n // self.cluster

    @property
    def team_tile(self) -> tuple[int, int]:
        """Rows and columns of a team's sums."""
        return self.m // (1 if self.alternate else _TEAMS), self.n

    @property
    def fold_bytes(self) -> int:
        """Bytes in which a team combines a visitor tree's reductions."""
        if self.tree is None:
            return 0
        return warp_group_visitor.fold_bytes(self.tree, self.team_tile, self.lines)

    @property
    def tree(self) -> VisitorEpilogue | None:
        """The epilogue, if it is a visitor tree."""
        return self.epilogue if isinstance(self.epilogue, VisitorEpilogue) else None

    @property
    def staged(self) -> DataType:
        """The element type of the lines: results, or sums for a visitor tree."""
        return self.output if self.tree is None else self.math.element_accumulator

    @property
    def signature(self) -> KernelSignature:
        if self.tree is not None:
            return warp_group_visitor.signature(self.tree)
        return warp_group_stored.signature(self.epilogue)

    def style(self, target: Target) -> Iterator[str]:
        yield "tiles in turn" if self.alternate else "shared tiles"
        of_bytes = "8-bit floats" if self.source in FLOAT8 else "int8"
        yield {1: of_bytes, 2: "2-byte elements", 4: "TF32"}[self.source.bytes]
        words = {
            "three TF32 products": self.in_planes,
            "six bfloat16 products": self.converts,
            "clusters": self.cluster > 1,
            "A along M": self.turned_a,
            "B along N": self.turned_b,
            "swapped": self.swapped,
        }
        yield from (word for word, has in words.items() if has)
        if self.tree is not None:
            yield TREE_STYLES[self.tree.tree.reduces]

    def status(self, target: Target) -> Status:
        """Whether the tensor cores multiply such operands from shared memory, and a tile fits."""
        if self.stages < 2:
            return Status.reject(
                f"{self.stages} stage: a slab is on its way while another one is multiplied"
            )
        if self.source not in (float16, bfloat16, float32, int8, *FLOAT8):
            return Status.reject(f"warp groups have no products of {self.source.name} here")
        if (self.turned_a or self.turned_b) and self.source.bytes != 2 and not self.converts:
            return Status.reject(
                f"warp groups read {self.source.name} contiguous along K alone: A by rows, B by"
                " columns"
            )
        if self.n * self.staged.bytes < LINE_BYTES:
            return Status.reject(
                f"{self.n} results of {self.staged.name} are no whole line of {LINE_BYTES} bytes"
            )
        if self.shared_bytes > target.shared_bytes:
            return Status.reject(
                f"a block takes {self.stages} stages of {self.stage_bytes} and {_TEAMS} x"
                f" {self.buffers * self.lines * _BLOCK_BYTES + self.fold_bytes} for results ="
                f" {self.shared_bytes} bytes of shared"
                f" memory, {target} has {target.shared_bytes}"
            )
        return Status.accept()

    def seconds(self, size: GemmSize, target: Target) -> float:
        """Modelled time of a problem of that size; infinite if problems may exceed the kernel's
        32-bit counts: a plan for a size serves problems of less than twice its extents."""
        if 2 * max(size.m, size.n, size.k, size.batch) > MOST:
            return math.inf
        m, n = (size.n, size.m) if self.swapped else (size.m, size.n)
        rounds = operands.cover(self.count_tiles(m, n, size.batch), self.blocks_at_once(target))
        each, last = self.cycles_of_tile(size.k)
        moved = ((m + n) * size.k * self.source.bytes + m * n * self.bytes_of_result) * size.batch
        cycles = rounds * each + last, moved / (memory_bytes_per_cycle(target) * target.cores)
        return max(cycles) / hertz(target) + MEASURED.launch

    def cycles_of_tile(self, k: int) -> tuple[float, float]:
        """Cycles of each tile, where sums have so many products, and what the last one adds."""
        tile, how = (self.m, self.n, self.alternate), (self.split, self.converts)
        step = warp_group_cost.cycles_of_step(tile, self.cluster, self.source, *how)
        multiply = operands.round_up(k, self.slab) * step
        results = self.cycles_of_results
        each = max(multiply, results) if self.alternate else multiply + results
        return each, results * self.alternate + warp_group_cost.CYCLES_OF_TILE

    @property
    def cycles_of_results(self) -> float:
        """Those of the end of a tile."""
        return self.m * self.n * warp_group_cost.cycles_of_result(self.epilogue, self.output)

    @property
    def bytes_of_result(self) -> int:
        """Bytes that are moved for a result."""
        if self.tree is None:
            return self.output.bytes
        return moved_bytes(self.tree) - self.tree.element_accumulator.bytes

    def instantiation(self, target: Target) -> Instantiation:
        return Instantiation(
            header="gemm_warp_group.cuh",
            parameters=self._parameters,
            types=(
                ("Input", self.source.cxx),
                ("Output", self.staged.cxx),
                ("Accumulator", self.math.element_accumulator.cxx),
            ),
            constants=(
                ("kThreads", self.threads),
                ("kBlocks", 1),
                *named(self, "m n", "kTile"),
                *named(self, "stages lines buffers cluster"),
                ("kBand", _BAND // self.cluster),
                ("kSharedBytes", self.shared_bytes),
                ("kCopyRegisters", _COPY_REGISTERS),
                *self._registers,
                *named(self, "alternate turned_a turned_b split"),
                *self._end,
            ),
            cluster=self.cluster,
            folders=(package_folder(__package__),),
        )

    @property
    def _parameters(self) -> str:
        """The C++ name of the parameter struct."""
        if self.tree is not None:
            return warp_group_visitor.parameters_of(self.tree)
        return warp_group_stored.parameters_of(self.epilogue)

    @property
    def _registers(self) -> tuple[tuple[str, Constant], ...]:
        """Constants of the groups of threads beside the one that copies."""
        if not self.converts:
            return (("kProductRegisters", _PRODUCT_REGISTERS),)
        registers = ("kProductRegisters", _BESIDE), ("kConvertRegisters", _CONVERT_REGISTERS)
        return (*registers, ("kCopies", self.copies))

    @property
    def _end(self) -> tuple[tuple[str, Constant], ...]:
        """The constants of the kernel's end, which stores results."""
        if self.tree is not None:
            return (("kFoldBytes", self.fold_bytes), ("kRepeating", repeating(self.tree)))
        return ()

    def workspace(self, size: GemmSize, target: Target, threads: int) -> int:
        """The partial results of a visitor tree's reductions."""
        if self.tree is None:
            return 0
        m, n = (size.n, size.m) if self.swapped else (size.m, size.n)
        return parts_of(self.tree, m, n, size.batch, self.team_tile)[1]

    def launches(self, problem: GemmProblem, target: Target) -> tuple[Launch, ...]:
        """One launch for problems along the longest dimension of the batch, for each index of the
        others; then one that combines partial results, if a visitor tree reduces.

        Raises:
            ArgumentError: an extent exceeds the kernel's 32-bit counts.
        """
        return tuple(
            launch
            for part in self.parts_of(self.oriented(problem))
            for launch in self._launches_of(part, target)
        )

    def oriented(self, problem: GemmProblem) -> GemmProblem:
        """The problem in the kernel's orientation; or, applied twice, the original."""
        return problem.transposed if self.swapped else problem

    def parts_of(self, problem: GemmProblem, most: int = MOST) -> Iterator[GemmProblem]:
        """Parts of a problem in the kernel's orientation, each of at most so many problems."""
        visited = () if self.tree is None else warp_group_visitor.element_bytes(self.tree)
        return parts(problem, self.source.bytes, self.output.bytes, most, visited)

    def _launches_of(self, part: GemmProblem, target: Target) -> Iterator[Launch]:
        values = self.values_of(part)
        blocks = min(self.tiles_of(part), self.blocks_at_once(target))
        yield operands.make_launch(self, blocks, values)
        for blocks, shares in self.joins_of(part):
            join = operands.make_launch(self, blocks, {**values, "joins": shares})
            yield replace(join, block=(_TEAM, 1, 1))

    def joins_of(self, part: GemmProblem) -> Iterator[tuple[int, int]]:
        """(blocks, threads for each result) of a launch that combines partial results, if a visitor
        tree reduces."""
        if self.tree is not None and self.tree.tree.reduces:
            yield warp_group_visitor.join_of(self.team_tile, part, self.cluster)

    def values_of(self, part: GemmProblem) -> dict[str, Any]:
        """The members of the parameter struct.

        Raises:
            ArgumentError: an extent exceeds the kernel's 32-bit counts.
        """
        check_extents(part)
        a, b = part.a, part.b.transposed
        return {
            "a_map": self._map(a, (part.k, part.m, part.problems), self.turned_a, self.m),
            "b_map": self._map(b, (part.k, part.n, part.problems), self.turned_b, self.share),
            **self.values_beside_operands(part),
        }

    def values_beside_operands(self, part: GemmProblem) -> dict[str, Any]:
        """Those but the maps of A and B."""
        if self.tree is None:
            stored = warp_group_stored.values_of(self.output, part)
        else:
            stored = warp_group_visitor.values_of(self.tree, self.team_tile, part)
        return {
            **members(part, "m n k problems scalars"),
            "a_repeats": int(not step_of(part.a)),
            "b_repeats": int(not step_of(part.b)),
            **stored,
        }

    def tiles_of(self, part: GemmProblem) -> int:
        """Tiles of all problems of a part, rounded up to whole clusters."""
        return self.count_tiles(part.m, part.n, part.problems)

    def count_tiles(self, m: int, n: int, count: int) -> int:
        rows = operands.cover(m, self.m * self.cluster) * self.cluster
        return rows * operands.cover(n, self.n) * count

    def blocks_at_once(self, target: Target) -> int:
        """Blocks that run at once, in whole clusters."""
        return target.cores // self.cluster * self.cluster

    def _map(
        self, item: Strided, extents: tuple[int, int, int], turned: bool, lines: int
    ) -> TensorMap | bytes:
        """The map of an operand of (K, wide, problems) elements, whose rows are wide indices."""
        depth, wide, problems = extents
        if not depth:
            return b""  # Nothing is read.
        count = problems if step_of(item) else 1
        if self.split:  # The planes of all problems are contiguous.
            count, item = PLANES * count, replace(item, batch=(wide * item.row,))
        along, across = (wide, depth) if turned else (depth, wide)
        step = item.column if turned else item.row
        box = (LINE_BYTES // self.source.bytes, self.slab if turned else lines, 1)
        rounds = self.source is float32 and not self.split
        return tensor_map(item, (along, across, count), step, box, self.source, rounds)
