"""Products by warp groups, whose operands come by tensor maps: gemm_group.cuh."""

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
from kronop.emit.cuda.machine import (
    hertz,
    memory_bytes_per_cycle,
)
from kronop.emit.cuda.visit_sums import shares_of_join
from kronop.emit.design import Constant, Design, Instantiation, package_folder
from kronop.emit.visit_design import repeating
from kronop.families.gemm.cuda import group_cost, group_stored, group_visitor
from kronop.families.gemm.cuda.blocks import TREE_STYLES
from kronop.families.gemm.cuda.group_problem import (
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
# 64 lines, of which operands and results consist.
_BLOCK_BYTES = 64 * LINE_BYTES
# Registers of a thread that brings slabs, and of one that multiplies: together nearly all that a
# multiprocessor has.
_COPY_REGISTERS, _PRODUCT_REGISTERS = 24, 240
# Tiles along M that are taken before the next column of tiles.
_BAND = 16
# Bytes of barriers, at most.
_BARRIER_BYTES = 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class GemmGroup(Design):
    """Two teams of four warps multiply what a third group brings.

    Attributes:
        source, output: types of the operands and of the result.
        m, n: rows and columns of a tile.
        stages: slabs of a tile's operands that are in shared memory at once.
        lines: lines of 128 bytes of a row of results that a team stores at once.
        cluster: blocks that bring each other's share of B.
        alternate: the teams take tiles in turn, instead of sharing each.
        turned_a, turned_b: A is contiguous along M, B along N.
        swapped: the transposed product is computed, since Y is contiguous along M.
        split: operands are pairs of planes, those of all problems one after the other; the stride
            of a batch leads from one pair to the next: see `group_split`.
    """

    styles: ClassVar[tuple[str, ...]] = (
        *("shared tiles", "tiles in turn", "clusters", "A along M", "B along N"),
        *("2-byte elements", "TF32", "int8", "8-bit floats", "swapped", "three TF32 products"),
        *TREE_STYLES,
    )
    ends = ("Y along rows", "Y along columns")

    math: MathInstruction
    source: DataType
    output: DataType
    epilogue: Epilogue
    m: int
    n: int
    stages: int
    lines: int
    cluster: int
    alternate: bool
    turned_a: bool
    turned_b: bool
    swapped: bool
    split: bool

    def __str__(self) -> str:
        teams = "in turn" if self.alternate else "shared"
        clusters = f", clusters of {self.cluster}" if self.cluster > 1 else ""
        split = " of operands in two planes" if self.split else ""
        tiles = f"tiles of {self.m} x {self.n} {teams}"
        return f"warp groups{split}, {tiles}, {self.stages} stages{clusters}"

    @property
    def threads(self) -> int:
        return _TEAM * (_TEAMS + 1)

    @property
    def slab(self) -> int:
        """Contracted elements in a line."""
        return LINE_BYTES // self.source.bytes

    @property
    def stage_bytes(self) -> int:
        """Bytes of a slab of both operands."""
        return (self.m + self.n) * LINE_BYTES * (PLANES if self.split else 1)

    @property
    def shared_bytes(self) -> int:
        results = _TEAMS * (self.lines * _BLOCK_BYTES + self.fold_bytes)
        return self.stages * self.stage_bytes + results + _BARRIER_BYTES

    @property
    def team_tile(self) -> tuple[int, int]:
        """Rows and columns whose sums a team has."""
        return self.m // (1 if self.alternate else _TEAMS), self.n

    @property
    def fold_bytes(self) -> int:
        """Bytes in which a team joins what a visitor tree reduces."""
        if self.tree is None:
            return 0
        return group_visitor.fold_bytes(self.tree, self.team_tile, self.lines)

    @property
    def tree(self) -> VisitorEpilogue | None:
        """The epilogue, if it is a visitor tree."""
        return self.epilogue if isinstance(self.epilogue, VisitorEpilogue) else None

    @property
    def staged(self) -> DataType:
        """What lies in the lines: results, or sums that a visitor tree is to take."""
        return self.output if self.tree is None else self.math.element_accumulator

    @property
    def signature(self) -> KernelSignature:
        if self.tree is not None:
            return group_visitor.signature(self.tree)
        return group_stored.signature(self.epilogue)

    def style(self, target: Target) -> Iterator[str]:
        yield "tiles in turn" if self.alternate else "shared tiles"
        of_bytes = "8-bit floats" if self.source in FLOAT8 else "int8"
        yield {1: of_bytes, 2: "2-byte elements", 4: "TF32"}[self.source.bytes]
        words = {
            "three TF32 products": self.split,
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
        if (self.turned_a or self.turned_b) and self.source.bytes != 2:
            return Status.reject(
                f"warp groups read {self.source.name} contiguous along K alone: A by rows, B by"
                " columns"
            )
        if self.shared_bytes > target.shared_bytes:
            return Status.reject(
                f"a block takes {self.stages} stages of {self.stage_bytes} and {_TEAMS} x"
                f" {self.lines * _BLOCK_BYTES + self.fold_bytes} for results ="
                f" {self.shared_bytes} bytes of shared"
                f" memory, {target} has {target.shared_bytes}"
            )
        return Status.accept()

    def seconds(self, size: GemmSize, target: Target) -> float:
        """Modelled time of a problem of that size; infinite where a problem may be beyond what
        the kernel counts: a plan for a size serves those of less than twice its extents."""
        if 2 * max(size.m, size.n, size.k, size.batch) > MOST:
            return math.inf
        m, n = (size.n, size.m) if self.swapped else (size.m, size.n)
        rounds = operands.cover(self._tiles(m, n, size.batch), self.places(target))
        tile = (self.m, self.n, self.alternate)
        step = group_cost.cycles_of_step(tile, self.cluster, self.source, split=self.split)
        multiply = operands.round_up(size.k, self.slab) * step
        results = self.m * self.n * group_cost.cycles_of_result(self.epilogue, self.output)
        each = max(multiply, results) if self.alternate else multiply + results
        cycles = rounds * each + results * self.alternate + group_cost.CYCLES_OF_TILE
        ends = self.output.bytes
        if self.tree is not None:
            ends = moved_bytes(self.tree) - self.tree.element_accumulator.bytes
        moved = ((m + n) * size.k * self.source.bytes + m * n * ends) * size.batch
        cycles = max(cycles, moved / (memory_bytes_per_cycle(target) * target.cores))
        return cycles / hertz(target) + MEASURED.launch

    def instantiation(self, target: Target) -> Instantiation:
        return Instantiation(
            header="gemm_group.cuh",
            template="kronop::gemm_group",
            parameters=self._parameters,
            types=(
                ("Input", self.source.cxx),
                ("Output", self.staged.cxx),
                ("Accumulator", self.math.element_accumulator.cxx),
            ),
            constants=(
                ("kThreads", self.threads),
                ("kBlocks", 1),
                ("kTileM", self.m),
                ("kTileN", self.n),
                ("kStages", self.stages),
                ("kLines", self.lines),
                ("kCluster", self.cluster),
                ("kBand", _BAND // self.cluster),
                ("kSharedBytes", self.shared_bytes),
                ("kCopyRegisters", _COPY_REGISTERS),
                ("kProductRegisters", _PRODUCT_REGISTERS),
                ("kAlternate", self.alternate),
                ("kTurnedA", self.turned_a),
                ("kTurnedB", self.turned_b),
                ("kSplit", self.split),
                *self._end,
            ),
            cluster=self.cluster,
            folders=(package_folder(__package__),),
        )

    @property
    def _parameters(self) -> str:
        """The C++ name of the parameter struct."""
        if self.tree is not None:
            return group_visitor.parameters_of(self.tree)
        return group_stored.parameters_of(self.epilogue)

    @property
    def _end(self) -> tuple[tuple[str, Constant], ...]:
        """What the way of results to memory has to know."""
        if self.tree is not None:
            return (("kFoldBytes", self.fold_bytes), ("kRepeating", repeating(self.tree)))
        return ()

    def workspace(self, size: GemmSize, target: Target, threads: int) -> int:
        """Parts of what a visitor tree reduces."""
        if self.tree is None:
            return 0
        m, n = (size.n, size.m) if self.swapped else (size.m, size.n)
        return parts_of(self.tree, m, n, size.batch, self.team_tile)[1]

    def launches(self, problem: GemmProblem, target: Target) -> tuple[Launch, ...]:
        """One launch for problems along the longest dimension of the batch, for each of the others;
        behind it one that joins parts, if a visitor tree reduces.

        Raises:
            ArgumentError: an extent is beyond what the kernel counts.
        """
        return tuple(
            launch
            for part in self.parts_of(self.oriented(problem))
            for launch in self._launches_of(part, target)
        )

    def oriented(self, problem: GemmProblem) -> GemmProblem:
        """The problem as the kernel computes it; or, of such a one, as it was before."""
        return problem.transposed if self.swapped else problem

    def parts_of(self, problem: GemmProblem, most: int = MOST) -> Iterator[GemmProblem]:
        """Parts of a problem in the kernel's orientation, each of at most so many problems."""
        visited = () if self.tree is None else group_visitor.element_bytes(self.tree)
        return parts(problem, self.source.bytes, self.output.bytes, most, visited)

    def _launches_of(self, part: GemmProblem, target: Target) -> Iterator[Launch]:
        values = self.values_of(part)
        blocks = min(self.tiles_of(part), self.places(target))
        yield operands.make_launch(self, blocks, values)
        if self.tree is not None and self.tree.tree.reduces:
            shares = shares_of_join(part.m, part.n, self.team_tile)
            blocks = part.problems * operands.cover(max(part.m, part.n), _TEAM // shares)
            blocks = operands.round_up(blocks, self.cluster)
            operands.check_blocks(blocks)
            join = operands.make_launch(self, blocks, {**values, "joins": shares})
            yield replace(join, block=(_TEAM, 1, 1))

    def values_of(self, part: GemmProblem) -> dict[str, Any]:
        """The members of the parameter struct.

        Raises:
            ArgumentError: an extent is beyond what the kernel counts.
        """
        check_extents(part)
        a, b, share = part.a, part.b.transposed, self.n // self.cluster
        if self.tree is None:
            stored = group_stored.values_of(self.output, part)
        else:
            stored = group_visitor.values_of(self.tree, self.team_tile, part)
        return {
            "a_map": self._map(a, (part.k, part.m, part.problems), self.turned_a, self.m),
            "b_map": self._map(b, (part.k, part.n, part.problems), self.turned_b, share),
            "m": part.m,
            "n": part.n,
            "k": part.k,
            "problems": part.problems,
            "a_repeats": int(not step_of(a)),
            "b_repeats": int(not step_of(b)),
            "scalars": part.scalars,
            **stored,
        }

    def tiles_of(self, part: GemmProblem) -> int:
        """Tiles of all problems of a part, in whole clusters."""
        return self._tiles(part.m, part.n, part.problems)

    def _tiles(self, m: int, n: int, count: int) -> int:
        rows = operands.cover(m, self.m * self.cluster) * self.cluster
        return rows * operands.cover(n, self.n) * count

    def places(self, target: Target) -> int:
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
        if self.split:  # The planes of all problems follow each other.
            count, item = PLANES * count, replace(item, batch=(wide * item.row,))
        along, across = (wide, depth) if turned else (depth, wide)
        step = item.column if turned else item.row
        box = (LINE_BYTES // self.source.bytes, self.slab if turned else lines, 1)
        rounds = self.source is float32 and not self.split
        return tensor_map(item, (along, across, count), step, box, self.source, rounds)
