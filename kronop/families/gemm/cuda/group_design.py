"""Products by warp groups, whose operands come by tensor maps: gemm_group.cuh."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any, ClassVar

from kronop.artifacts import (
    Block,
    Field,
    KernelSignature,
    Launch,
    Scalar,
    Status,
    TensorMap,
)
from kronop.descriptions.datatype import FLOAT8, DataType, bfloat16, float16, float32, int8
from kronop.descriptions.epilogue import Epilogue
from kronop.descriptions.math_instruction import MathInstruction
from kronop.descriptions.strided import StridedMatrix
from kronop.descriptions.summed import moved_bytes, parts_of
from kronop.descriptions.visitor import VisitorEpilogue
from kronop.emit.cuda import operands
from kronop.emit.cuda.machine import (
    SECONDS_OF_LAUNCH,
    hertz,
    memory_bytes_per_cycle,
)
from kronop.emit.design import Constant, Design, Instantiation, package_folder
from kronop.emit.visit_design import repeating
from kronop.families.gemm.cuda import group_cost, group_split, group_visitor
from kronop.families.gemm.cuda.blocks import TREE_STYLES
from kronop.families.gemm.cuda.group_problem import (
    GRANULE,
    MOST,
    check_extents,
    parts,
    step_of,
    strides_of,
    swapped,
    tensor_map,
    transposed,
)
from kronop.families.gemm.cuda.group_split import PLANES, GemmSplit, at_once, planes
from kronop.families.gemm.description import GemmProblem
from kronop.families.gemm.size import GemmSize
from kronop.frozen import dataclass
from kronop.target import Target

_TEAM, _TEAMS = 128, 2
LINE_BYTES = 128
_MAP_BYTES, _MAP_ALIGNMENT = 128, 64
# 64 lines, of which operands and results consist.
_BLOCK_BYTES = 64 * LINE_BYTES
# Registers of a thread that brings slabs, and of one that multiplies: together nearly all that a
# multiprocessor has.
_COPY_REGISTERS, _PRODUCT_REGISTERS = 24, 240
# Tiles along M that are taken before the next column of tiles.
_BAND = 16
# Bytes of barriers, at most.
_BARRIER_BYTES = 1024
_POINTERS = ("y", "z", "bias")
_NUMBERS = (
    *("m", "n", "k", "problems"),
    *("y_row", "y_column", "y_batch", "z_row", "z_column", "z_batch"),
    *("bias_row", "bias_column", "a_repeats", "b_repeats", "maps_y"),
)


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
        split: operands are planes in the workspace: see `group_split`.
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
    def scalars(self) -> str:
        """The type and number of scalars, as template arguments of parameter structs."""
        return f"{operands.scalar_kind(self.epilogue).cxx}, {len(self.epilogue.scalar_names)}"

    @property
    def signature(self) -> KernelSignature:
        if self.tree is not None:
            return group_visitor.signature(self.tree)
        scalars = operands.scalar_kind(self.epilogue)
        return KernelSignature(
            "GemmGroupParameters",
            (
                *(Block(f"{name}_map", _MAP_BYTES, _MAP_ALIGNMENT) for name in ("a", "b", "y")),
                *(Field(name, Scalar.POINTER) for name in _POINTERS),
                *(Field(name, Scalar.INT64) for name in _NUMBERS),
                Field("scalars", scalars, len(self.epilogue.scalar_names)),
            ),
        )

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
        rounds = operands.cover(self._tiles(m, n, size.batch), self._places(target))
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
        seconds = cycles / hertz(target) + SECONDS_OF_LAUNCH
        if not self.split:
            return seconds
        # Elements are read, written as two, and read again.
        moved = (m + n) * size.k * size.batch * 3 * self.source.bytes
        rate = memory_bytes_per_cycle(target) * target.cores * hertz(target)
        return seconds + moved / rate + SECONDS_OF_LAUNCH

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
        return f"kronop::GemmGroupParameters<{self.scalars}>"

    @property
    def _end(self) -> tuple[tuple[str, Constant], ...]:
        """What the way of results to memory has to know."""
        if self.tree is not None:
            return (("kFoldBytes", self.fold_bytes), ("kRepeating", repeating(self.tree)))
        return ()

    def launches(self, index: int, target: Target, problem: GemmProblem) -> Iterator[Launch]:
        """One launch for problems along the longest dimension of the batch, for each of the others;
        before it those that split the operands, by the step before this one."""
        problem = swapped(problem) if self.swapped else problem
        most = at_once(problem.m, problem.n, problem.k) if self.split else MOST
        visited = () if self.tree is None else group_visitor.element_bytes(self.tree)
        for part, count in parts(problem, self.source.bytes, self.output.bytes, most, visited):
            if self.split and part.k:
                yield from GemmSplit().launches(index - 1, target, part, count)
            if self.tree is not None:
                yield from self._visited_launches(index, target, part, count)
                continue
            values = self.values_of(part, count)
            tiles = self.tiles_of(part, count)
            yield self.launch_with(index, target, tiles, self.signature, values)

    def _visited_launches(
        self, index: int, target: Target, problem: GemmProblem, count: int
    ) -> Iterator[Launch]:
        """One launch, and one that joins parts if the tree reduces."""
        assert self.tree is not None
        end = group_visitor.End(tree=self.tree, tile=self.team_tile, used=self._used(problem))
        values = {
            **self._read_values(problem, count),
            **end.values_of(problem, count),
            "joins": 0,
        }
        tiles = self.tiles_of(problem, count)
        yield self.launch_with(index, target, tiles, self.signature, values)
        if self.tree.tree.reduces:
            shares = end.shares(problem)
            blocks = operands.round_up(end.blocks(problem, count, shares), self.cluster)
            operands.check_blocks(blocks)
            values["joins"] = shares
            yield Launch(
                parameters=self.signature.pack(values),
                blocks=self.signature.blocks(values),
                grid=(blocks, 1, 1),
                block=(_TEAM, 1, 1),
                shared_bytes=self.shared_bytes,
            )

    def workspace_bytes(self, size: GemmSize) -> int:
        """Planes of split operands, then parts of what a visitor tree reduces."""
        planes = group_split.workspace_bytes(size) if self.split else 0
        if self.tree is None:
            return planes
        m, n = (size.n, size.m) if self.swapped else (size.m, size.n)
        return planes + parts_of(self.tree, m, n, size.batch, self.team_tile)[1]

    def _used(self, problem: GemmProblem) -> int:
        """Where parts of reductions begin."""
        size = GemmSize(problem.m, problem.n, problem.k, math.prod(problem.batch))
        return group_split.workspace_bytes(size) if self.split else 0

    def values_of(self, problem: GemmProblem, count: int) -> dict[str, Any]:
        """The members of the parameter struct, for `count` problems that are equally far apart.

        Raises:
            ArgumentError: an extent is beyond what the kernel counts.
        """
        own = problem
        return {
            **self._read_values(own, count),
            "y_map": self._result_map(own, count),
            **strides_of("y", own.y),
            **strides_of("z", own.z),
            "bias": own.bias.pointer if own.bias else 0,
            "bias_row": own.bias.row if own.bias else 0,
            "bias_column": own.bias.column if own.bias else 0,
            "maps_y": int(self._maps(own)),
            "scalars": own.scalars,
        }

    def _read_values(self, own: GemmProblem, count: int) -> dict[str, Any]:
        """Those that say what is multiplied."""
        check_extents((own.m, own.n, own.k, count))
        share = self.n // self.cluster
        read = planes(own, count) if self.split else own
        a, b = read.a, transposed(read.b)
        return {
            "a_map": self._map(a, (own.k, own.m, self._count(own.a, count)), self.turned_a, self.m),
            "b_map": self._map(b, (own.k, own.n, self._count(own.b, count)), self.turned_b, share),
            "m": own.m,
            "n": own.n,
            "k": own.k,
            "problems": count,
            "a_repeats": int(not step_of(own.a)),
            "b_repeats": int(not step_of(own.b)),
        }

    def tiles_of(self, problem: GemmProblem, count: int) -> int:
        """Tiles of so many problems, in whole clusters."""
        return self._tiles(problem.m, problem.n, count)

    def _tiles(self, m: int, n: int, count: int) -> int:
        rows = operands.cover(m, self.m * self.cluster) * self.cluster
        return rows * operands.cover(n, self.n) * count

    def _places(self, target: Target) -> int:
        """Blocks that run at once, in whole clusters."""
        return target.cores // self.cluster * self.cluster

    def launch_with(
        self, index: int, target: Target, tiles: int, signature: KernelSignature, values: Any
    ) -> Launch:
        """The launch for so many tiles."""
        return Launch(
            parameters=signature.pack(values),
            blocks=signature.blocks(values),
            grid=(min(tiles, self._places(target)), 1, 1),
            block=(self.threads, 1, 1),
            shared_bytes=self.shared_bytes,
        )

    def _count(self, item: StridedMatrix, problems: int) -> int:
        """Matrices that an operand's map has: one for each problem, or its planes."""
        return (problems if step_of(item) else 1) * (PLANES if self.split else 1)

    def _map(
        self, item: StridedMatrix, extents: tuple[int, int, int], turned: bool, lines: int
    ) -> TensorMap | bytes:
        """The map of an operand of (K, wide, matrices) elements, whose rows are wide indices."""
        depth, wide, count = extents
        if not depth:
            return b""  # Nothing is read.
        along, across = (wide, depth) if turned else (depth, wide)
        step = item.column if turned else item.row
        box = (LINE_BYTES // self.source.bytes, self.slab if turned else lines)
        rounds = self.source is float32 and not self.split
        return tensor_map(item, (along, across, count), step, box, self.source, rounds)

    def _maps(self, problem: GemmProblem) -> bool:
        """Whether a map describes Y. Stores write whole granules, also at the end of a row."""
        y, each = problem.y, self.output.bytes
        multiples = (y.pointer, y.row * each, step_of(y) * each, problem.n * each)
        # Maps have no negative strides; those of the batch are none here: see `parts`.
        follows = y.row >= 0 and (y.column == 1 or problem.n == 1)
        return follows and each < 8 and not any(item % GRANULE for item in multiples)

    def _result_map(self, problem: GemmProblem, count: int) -> TensorMap | bytes:
        if not self._maps(problem):
            return b""
        box = (LINE_BYTES // self.output.bytes, 64)
        extents = (problem.n, problem.m, count)
        return tensor_map(problem.y, extents, problem.y.row, box, self.output, False)
