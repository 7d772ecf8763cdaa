"""Matrix products by CUTLASS 3.x: hopper_gemm.cuh."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any, ClassVar

from kronop.artifacts import Block, Field, KernelSignature, Launch, Scalar, Status
from kronop.descriptions.datatype import AnyLayout, DataType, float32
from kronop.descriptions.epilogue import Epilogue
from kronop.descriptions.math_instruction import MathInstruction
from kronop.descriptions.strided import StridedMatrix
from kronop.descriptions.tile import (
    EpilogueScheduleType,
    KernelScheduleType,
    TileSchedulerType,
)
from kronop.emit.cuda import operands
from kronop.emit.cuda.machine import hertz, memory_bytes_per_cycle
from kronop.emit.design import Design, Instantiation, package_folder
from kronop.errors import ArgumentError, mismatch
from kronop.families.gemm.cuda.group_problem import (
    MOST,
    check_extents,
    parts,
    step_of,
    tensor_map,
    transposed,
)
from kronop.families.gemm.cutlass import words
from kronop.families.gemm.cutlass.hopper import checks
from kronop.families.gemm.cutlass.hopper.checks import ELEMENTS, IN_TURN, LINE_BYTES
from kronop.families.gemm.description import GemmProblem
from kronop.families.gemm.size import GemmSize
from kronop.frozen import dataclass
from kronop.machine import MEASURED
from kronop.target import Target

# Threads of a group of warps; groups of a block, one of which copies.
_GROUP, _GROUPS = 128, 3
_MAP_BYTES, _MAP_ALIGNMENT = 128, 64
# Bytes of shared memory for barriers, and of what a launch prepares, at most.
_BARRIERS, _PREPARED = 1024, 2048
_POINTERS = ("prepared", "result", "source")
_NUMBERS = (
    *("m", "n", "k", "problems"),
    *(f"{name}_{axis}" for name in ("result", "source") for axis in ("row", "column", "batch")),
    *("cores", "prepares"),
)
# Assertions are calls, across which products of warp groups do not overlap. NVRTC warns of
# constants that become definitions, of defaulted functions and of unused variables.
_OPTIONS = ("-DNDEBUG", "-diag-suppress=20044", "-diag-suppress=20012", "-diag-suppress=177")
# The share of what products of warp groups reach, and seconds of two launches. NOTE: measured on an
# H200 for float16 at 4096^3: 374 TFLOP/s, and 547 of kronop's own.
_SHARE, _SECONDS_OF_LAUNCHES = 0.706, 1e-5


@dataclass(frozen=True, slots=True, kw_only=True)
class CutlassHopper(Design):
    """A kernel of CUTLASS 3.x: two groups of four warps multiply what a third one brings.

    Attributes:
        source, output: types of the operands and of the result.
        tile_m, tile_n, tile_k: rows, columns and steps of a tile.
        layout_a, layout_b, alignment_a, alignment_b: layouts and alignments of A and B.
        stages: tiles of operands that are in shared memory at once.
        warps: warps along each, as described.
        cluster_shape: blocks that bring each other's share of B.
        kernel_schedule, epilogue_schedule, tile_scheduler: what was described.
    """

    # CUTLASS's code can't be emulated on a CPU: tests on a GPU run each kind.
    styles: ClassVar[tuple[str, ...]] = ()

    math: MathInstruction
    source: DataType
    output: DataType
    epilogue: Epilogue
    tile_m: int
    tile_n: int
    tile_k: int
    layout_a: AnyLayout
    layout_b: AnyLayout
    alignment_a: int
    alignment_b: int
    stages: int
    warps: tuple[int, int, int]
    cluster_shape: tuple[int, int, int]
    kernel_schedule: KernelScheduleType
    epilogue_schedule: EpilogueScheduleType
    tile_scheduler: TileSchedulerType

    def __str__(self) -> str:
        teams = "in turn" if self.alternate else "shared"
        clusters = f", clusters of {self.cluster}" if self.cluster > 1 else ""
        tile = f"{self.tile_m} x {self.tile_n} x {self.tile_k}"
        return f"CUTLASS 3.x, tiles of {tile} {teams}, {self.stages} stages{clusters}"

    @property
    def alternate(self) -> bool:
        """Whether groups take tiles in turn (ping-pong), instead of sharing each."""
        return self.warps == IN_TURN

    @property
    def cluster(self) -> int:
        """Blocks of a cluster, which are along M."""
        return self.cluster_shape[0]

    @property
    def threads(self) -> int:
        return _GROUP * _GROUPS

    @property
    def stage_bytes(self) -> int:
        """Bytes of one stage of both operands."""
        return (self.tile_m + self.tile_n) * self.tile_k * self.source.bytes

    @property
    def shared_bytes(self) -> int:
        return self.stages * self.stage_bytes + _BARRIERS

    @property
    def signature(self) -> KernelSignature:
        return KernelSignature(
            "HopperParameters",
            (
                *(Block(f"{name}_map", _MAP_BYTES, _MAP_ALIGNMENT) for name in ("a", "b")),
                *(Field(name, Scalar.POINTER) for name in _POINTERS),
                *(Field(name, Scalar.INT64) for name in _NUMBERS),
                Field("scalars", operands.scalar_kind(self.epilogue), operands.SCALARS),
            ),
        )

    def status(self, target: Target) -> Status:
        """Whether CUTLASS has this kernel, it fits, and the headers are installed."""
        return checks.status(self, target)

    def seconds(self, size: GemmSize, target: Target) -> float:
        """Modelled time of a problem of that size."""
        tiles = operands.cover(size.m, self.tile_m) * operands.cover(size.n, self.tile_n)
        rounds = operands.cover(tiles * size.batch, target.cores)
        steps = operands.round_up(size.k, self.tile_k)
        rate = _SHARE * MEASURED.group_products[self.source.bytes]
        multiply = rounds * self.tile_m * self.tile_n * steps / rate
        elements = (size.m + size.n) * size.k * self.source.bytes
        moved = size.batch * (elements + size.m * size.n * self.output.bytes)
        memory = moved / (memory_bytes_per_cycle(target) * target.cores)
        return max(multiply, memory) / hertz(target) + _SECONDS_OF_LAUNCHES

    def instantiation(self, target: Target) -> Instantiation:
        scalar = operands.scalar_kind(self.epilogue).cxx
        own, sums = package_folder(__package__), self.math.element_accumulator
        return Instantiation(
            header="hopper_gemm.cuh",
            template="kronop::hopper_gemm",
            parameters=f"kronop::HopperParameters<{scalar}>",
            types=(
                ("Element", ELEMENTS[self.source]),
                ("ElementOutput", ELEMENTS[self.output]),
                ("ElementAccumulator", ELEMENTS[sums]),
                ("Output", self.output.cxx),
                ("Accumulator", sums.cxx),
                ("Scalar", scalar),
            ),
            constants=(
                ("kThreads", self.threads),
                ("kBlocks", 1),
                ("kTileM", self.tile_m),
                ("kTileN", self.tile_n),
                ("kTileK", self.tile_k),
                ("kStages", self.stages),
                ("kCluster", self.cluster),
                ("kSharedBytes", self.shared_bytes),
                ("kPreparedBytes", _PREPARED),
                ("kAlternate", self.alternate),
            ),
            cluster=self.cluster,
            # What stands in for headers of CUTLASS is found before them.
            folders=(own, package_folder(words.__package__), f"{own}/overrides"),
            options=_OPTIONS,
            cuda_headers=True,
            cutlass_headers=True,
        )

    def workspace_bytes(self, size: GemmSize, target: Target) -> int:
        """Bytes for what a launch prepares."""
        return _PREPARED

    def launches(self, index: int, target: Target, problem: GemmProblem) -> Iterator[Launch]:
        """Two launches for problems along the longest dimension of the batch, for each of the
        others: the first one prepares the second one.

        Raises:
            ArgumentError: sums are to be sliced, there are none, an extent is beyond what kernels
                count, or there is a bias beside C.
        """
        _check(problem)
        # These kernels step along a batch in both operands.
        repeats = any(not all(item.batch) for item in (problem.a, problem.b))
        most = 1 if repeats else MOST
        for part, count in parts(_biased(problem), self.source.bytes, self.output.bytes, most):
            check_extents((part.m, part.n, part.k, count))
            values = self._values(part, count, target)
            tiles = operands.cover(part.m, self.tile_m * self.cluster) * self.cluster
            blocks = tiles * operands.cover(part.n, self.tile_n) * count
            most_blocks = target.cores // self.cluster * self.cluster
            yield self._launch(index, self.cluster, {**values, "prepares": 1})
            yield self._launch(index, min(blocks, most_blocks), values)

    def _launch(self, index: int, blocks: int, values: dict[str, Any]) -> Launch:
        return Launch(
            step=index,
            parameters=self.signature.pack(values),
            blocks=self.signature.blocks(values),
            grid=(blocks, 1, 1),
            block=(self.threads, 1, 1),
            shared_bytes=self.shared_bytes,
        )

    def _values(self, problem: GemmProblem, count: int, target: Target) -> dict[str, Any]:
        a, b, rounds = problem.a, transposed(problem.b), self.source is float32
        depth, lines = LINE_BYTES // self.source.bytes, self.tile_n // self.cluster
        source = problem.z or StridedMatrix(pointer=0, row=0, column=0)
        extents_a, extents_b = (problem.k, problem.m, count), (problem.k, problem.n, count)
        return {
            "a_map": tensor_map(a, extents_a, a.row, (depth, self.tile_m), self.source, rounds),
            "b_map": tensor_map(b, extents_b, b.row, (depth, lines), self.source, rounds),
            "prepared": problem.workspace,
            "result": problem.y.pointer,
            "source": source.pointer,
            "m": problem.m,
            "n": problem.n,
            "k": problem.k,
            "problems": count,
            "result_row": problem.y.row,
            "result_column": problem.y.column,
            "result_batch": step_of(problem.y),
            "source_row": source.row,
            "source_column": source.column,
            "source_batch": step_of(source),
            "cores": target.cores,
            "prepares": 0,
            "scalars": problem.scalars,
        }


def _check(problem: GemmProblem) -> None:
    wrong: tuple[str, str, object] | None = None
    if problem.slices > 1:
        wrong = ("split_k_slices", "1", problem.slices)
    elif not problem.k:
        wrong = ("K", "at least 1", 0)
    elif problem.bias is not None and problem.z is not None:
        wrong = ("bias", "none beside C", "both")
    if wrong is not None:
        name, expected, got = wrong
        raise ArgumentError(
            mismatch(
                name,
                expected=f"{expected}, of a kernel of CUTLASS 3.x",
                got=got,
                hint="describe the operation without a tile",
            )
        )


def _biased(problem: GemmProblem) -> GemmProblem:
    """The problem with its bias as the source, whose beta is 1."""
    bias = problem.bias
    if bias is None:
        return problem
    alpha, _, *more = problem.scalars
    source = replace(bias, batch=(0,) * len(problem.batch))
    return replace(problem, z=source, bias=None, scalars=(alpha, 1, *more))
