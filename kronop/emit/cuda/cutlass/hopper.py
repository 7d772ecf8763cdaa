"""What all kernels of CUTLASS 3.x have in common, for matrix products and convolutions: tiles that
warp groups multiply, and parameters of their own that a first launch computes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from kronop.artifacts import Field, KernelSignature, Scalar
from kronop.descriptions.datatype import DataType
from kronop.descriptions.epilogue import Epilogue
from kronop.descriptions.math_instruction import MathInstruction
from kronop.descriptions.strided import Strided
from kronop.descriptions.tile import EpilogueScheduleType, KernelScheduleType, TileSchedulerType
from kronop.emit.cuda import operands
from kronop.emit.cuda.cutlass.design import HOPPER_FOLDER, HOPPER_OPTIONS
from kronop.emit.cuda.cutlass.words import HOPPER_ELEMENTS
from kronop.emit.design import Constant, Design, Instantiation, named
from kronop.errors import ArgumentError
from kronop.frozen import dataclass

PREPARED = 2048
"""Bytes of what the first launch prepares, at most."""
SECONDS_OF_LAUNCHES = 1e-5
"""Of both."""
WARP_GROUP = 128
"""Threads of a warp group."""
# Bytes of shared memory for barriers, at most.
_BARRIERS = 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class HopperDesign(Design):
    """A kernel of CUTLASS 3.x for sm_90a: warp groups multiply what another one copies.

    Attributes:
        source, output: types of the operands and of the result.
        tile_m, tile_n, tile_k: rows, columns and steps of a tile.
        alignment_a, alignment_b: alignments of A and B.
        stages: stages of the pipeline in shared memory.
        warps: warps along each index, as described.
        cluster_shape: blocks of a cluster: along M each multicasts its share of B, along N of A.
        kernel_schedule, epilogue_schedule, tile_scheduler: as described.
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
    alignment_a: int
    alignment_b: int
    stages: int
    warps: tuple[int, int, int]
    cluster_shape: tuple[int, int, int]
    kernel_schedule: KernelScheduleType
    epilogue_schedule: EpilogueScheduleType
    tile_scheduler: TileSchedulerType

    def _told(self, teams: str = "") -> str:
        m, n, _ = self.cluster_shape
        across = f"{m} x {n}" if n > 1 else f"{m}"
        clusters = f", clusters of {across}" if m * n > 1 else ""
        tile = f"{self.tile_m} x {self.tile_n} x {self.tile_k}"
        return f"CUTLASS 3.x, tiles of {tile}{teams}, {self.stages} stages{clusters}"

    @property
    def cluster(self) -> int:
        """Blocks of a cluster, along M."""
        return self.cluster_shape[0]

    @property
    def cluster_n(self) -> int:
        """Blocks of a cluster, along N."""
        return self.cluster_shape[1]

    @property
    def stage_bytes(self) -> int:
        """Bytes of one stage of both operands."""
        return (self.tile_m + self.tile_n) * self.tile_k * self.source.bytes

    @property
    def shared_bytes(self) -> int:
        return self.stages * self.stage_bytes + _BARRIERS

    def _signature(self, name: str, numbers: Sequence[str]) -> KernelSignature:
        """Of a parameter struct: tensor maps, pointers, `numbers`, scalars."""
        pointers = ("prepared", "result", "source")
        return KernelSignature(
            name,
            (
                *operands.map_blocks("ab"),
                *(Field(item, Scalar.POINTER) for item in pointers),
                *(Field(item, Scalar.INT64) for item in (*numbers, "prepares")),
                operands.scalar_fields(self.epilogue),
            ),
        )

    def _instantiation(
        self,
        header: str,
        folder: str,
        types: tuple[tuple[str, str], ...] = (),
        constants: tuple[tuple[str, Constant], ...] = (),
    ) -> Instantiation:
        """Of a header in a folder, whose types and constants are added to those of all kernels."""
        scalar = operands.scalar_kind(self.epilogue).cxx
        sums = self.math.element_accumulator
        return Instantiation(
            header=header,
            parameters=f"kronop::{self.signature.struct_name}<{scalar}>",
            types=(
                *types,
                ("Element", HOPPER_ELEMENTS[self.source]),
                ("ElementOutput", HOPPER_ELEMENTS[self.output]),
                ("ElementAccumulator", HOPPER_ELEMENTS[sums]),
                ("Output", self.output.cxx),
                ("Accumulator", sums.cxx),
                ("Scalar", scalar),
            ),
            constants=(
                ("kThreads", self.threads),
                ("kBlocks", 1),
                *named(self, "tile_m tile_n tile_k stages cluster cluster_n shared_bytes"),
                ("kPreparedBytes", PREPARED),
                *constants,
            ),
            cluster=self.cluster,
            cluster_n=self.cluster_n,
            folders=(folder, HOPPER_FOLDER),
            options=HOPPER_OPTIONS,
            cuda_headers=True,
            cutlass_headers=True,
        )


def only_source(
    z: Strided | None, bias: Strided | None, scalars: tuple[float, ...]
) -> tuple[Strided | None, tuple[float, ...]]:
    """The one operand that epilogues read besides sums, and the scalars: a bias is the source, with
    a `beta` of 1, in all problems of a batch.

    Raises:
        ArgumentError: there are both.
    """
    if bias is None:
        return z, scalars
    if z is not None:
        raise ArgumentError(
            "bias",
            expected="none beside C, of a kernel of CUTLASS 3.x",
            got="both",
            hint="describe the operation without a tile",
        )
    alpha, _, *more = scalars
    return bias, (alpha, 1, *more)
