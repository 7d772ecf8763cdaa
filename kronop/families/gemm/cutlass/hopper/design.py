"""Matrix products by CUTLASS 3.x: hopper_gemm.cuh."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, ClassVar

from kronop.artifacts import Field, KernelSignature, Launch, Scalar, Status
from kronop.descriptions.datatype import float32
from kronop.emit.cuda import operands
from kronop.emit.cuda.cutlass.design import HOPPER_FOLDER, HOPPER_OPTIONS
from kronop.emit.cuda.cutlass.words import HOPPER_ELEMENTS
from kronop.emit.design import Instantiation, members, named, package_folder
from kronop.errors import ArgumentError
from kronop.families.gemm.cuda.warp_group_problem import (
    MOST,
    check_extents,
    map_blocks,
    parts,
    strides_of,
    tensor_map,
)
from kronop.families.gemm.cutlass.design import seconds_of_tiles
from kronop.families.gemm.cutlass.hopper import checks
from kronop.families.gemm.cutlass.hopper.checks import LINE_BYTES
from kronop.families.gemm.cutlass.hopper.tile import HopperTile
from kronop.families.gemm.description import GemmProblem
from kronop.families.gemm.size import GemmSize
from kronop.frozen import dataclass
from kronop.machine import MEASURED
from kronop.target import Target

_PREPARED = 2048  # Bytes of what the first launch prepares, at most.
_POINTERS = ("prepared", "result", "source")
_NUMBERS = (
    *("m", "n", "k", "problems"),
    *(f"{name}_{axis}" for name in ("result", "source") for axis in ("row", "column", "batch")),
    *("cores", "prepares"),
)
# The fraction of the wgmma rate that they reach, and seconds of two launches. NOTE: measured on an
# H200 for float16 at 4096^3: 374 TFLOP/s, and 547 of kronop's own.
_SHARE, _SECONDS_OF_LAUNCHES = 0.706, 1e-5


@dataclass(frozen=True, slots=True, kw_only=True)
class CutlassHopper(HopperTile):
    """A kernel of CUTLASS 3.x: two warp groups multiply what a third one copies."""

    # CUTLASS's code can't be emulated on a CPU: tests on a GPU run each kind.
    styles: ClassVar[tuple[str, ...]] = ()
    kind = "hopper"

    @property
    def signature(self) -> KernelSignature:
        return KernelSignature(
            "HopperParameters",
            (
                *map_blocks("ab"),
                *(Field(name, Scalar.POINTER) for name in _POINTERS),
                *(Field(name, Scalar.INT64) for name in _NUMBERS),
                operands.scalar_fields(self.epilogue),
            ),
        )

    def status(self, target: Target) -> Status:
        """Whether CUTLASS has this kernel, it fits, and the headers are installed."""
        return checks.status(self, target)

    def seconds(self, size: GemmSize, target: Target) -> float:
        """Modelled time of a problem of that size."""
        rate = _SHARE * MEASURED.warp_group_products[self.source.bytes]
        return seconds_of_tiles(self, size, target, rate) + _SECONDS_OF_LAUNCHES

    def instantiation(self, target: Target) -> Instantiation:
        scalar = operands.scalar_kind(self.epilogue).cxx
        sums = self.math.element_accumulator
        return Instantiation(
            header="hopper_gemm.cuh",
            parameters=f"kronop::HopperParameters<{scalar}>",
            types=(
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
                *named(self, "tile_m tile_n tile_k stages cluster shared_bytes"),
                ("kPreparedBytes", _PREPARED),
                ("kAlternate", self.alternate),
            ),
            cluster=self.cluster,
            folders=(package_folder(__package__), HOPPER_FOLDER),
            options=HOPPER_OPTIONS,
            cuda_headers=True,
            cutlass_headers=True,
        )

    def workspace(self, size: GemmSize, target: Target, threads: int) -> int:
        """Bytes for what the first launch prepares."""
        return _PREPARED

    def launches(self, problem: GemmProblem, target: Target) -> tuple[Launch, ...]:
        """Two launches for problems along the longest dimension of the batch, for each of the
        others: the first one prepares the parameters of the second one.

        Raises:
            ArgumentError: split-K is asked for, K is 0, an extent exceeds 32-bit counts, or there
                is a bias beside C.
        """
        _check(problem)
        # These kernels have batch strides for both operands.
        repeats = any(not all(item.batch) for item in (problem.a, problem.b))
        most = 1 if repeats else MOST
        found: list[Launch] = []
        for part in parts(_biased(problem), self.source.bytes, self.output.bytes, most):
            check_extents(part)
            values = self._values(part, target)
            tiles = operands.cover(part.m, self.tile_m * self.cluster) * self.cluster
            blocks = tiles * operands.cover(part.n, self.tile_n) * part.problems
            most_blocks = target.cores // self.cluster * self.cluster
            found += (
                operands.make_launch(self, self.cluster, {**values, "prepares": 1}),
                operands.make_launch(self, min(blocks, most_blocks), values),
            )
        return tuple(found)

    def _values(self, part: GemmProblem, target: Target) -> dict[str, Any]:
        a, b, rounds = part.a, part.b.transposed, self.source is float32
        depth, lines = LINE_BYTES // self.source.bytes, self.tile_n // self.cluster
        extents_a, extents_b = (part.k, part.m, part.problems), (part.k, part.n, part.problems)
        return {
            "a_map": tensor_map(a, extents_a, a.row, (depth, self.tile_m, 1), self.source, rounds),
            "b_map": tensor_map(b, extents_b, b.row, (depth, lines, 1), self.source, rounds),
            "prepared": part.workspace,
            **members(part, "m n k problems scalars"),
            **strides_of("result", part.y),
            **strides_of("source", part.z),
            "cores": target.cores,
            "prepares": 0,
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
            name,
            expected=f"{expected}, of a kernel of CUTLASS 3.x",
            got=got,
            hint="describe the operation without a tile",
        )


def _biased(problem: GemmProblem) -> GemmProblem:
    """The problem with its bias as the source, with beta 1."""
    bias = problem.bias
    if bias is None:
        return problem
    alpha, _, *more = problem.scalars
    source = replace(bias, batch=(0,) * len(problem.batch))
    return replace(problem, z=source, bias=None, scalars=(alpha, 1, *more))
