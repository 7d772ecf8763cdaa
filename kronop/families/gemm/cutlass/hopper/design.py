"""Matrix products by CUTLASS 3.x: hopper_gemm.cuh."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from kronop.artifacts import KernelSignature, Launch, Status
from kronop.descriptions.datatype import float32
from kronop.emit.cuda import operands
from kronop.emit.cuda.cutlass.hopper import PREPARED, SECONDS_OF_LAUNCHES, only_source
from kronop.emit.cuda.cutlass.hopper_checks import LINE_BYTES
from kronop.emit.design import Instantiation, members, package_folder
from kronop.errors import ArgumentError
from kronop.families.gemm.cuda.warp_group_problem import (
    MOST,
    check_extents,
    parts,
    strides_of,
    tensor_map,
)
from kronop.families.gemm.cutlass.design import seconds_of_tiles
from kronop.families.gemm.cutlass.hopper import checks
from kronop.families.gemm.cutlass.hopper.tile import HopperTile
from kronop.families.gemm.description import GemmProblem
from kronop.families.gemm.size import GemmSize
from kronop.frozen import dataclass
from kronop.machine import MEASURED
from kronop.target import Target

_NUMBERS = (
    *("m", "n", "k", "problems"),
    *(f"{name}_{axis}" for name in ("result", "source") for axis in ("row", "column", "batch")),
    "cores",
)
# The fraction of the wgmma rate that they reach. NOTE: measured on an H200 for float16 at 4096^3:
# 374 TFLOP/s, and 547 of kronop's own.
_SHARE = 0.706


@dataclass(frozen=True, slots=True, kw_only=True)
class CutlassHopper(HopperTile):
    """A kernel of CUTLASS 3.x: two warp groups multiply what a third one copies."""

    kind = "hopper"

    @property
    def signature(self) -> KernelSignature:
        return self._signature("HopperParameters", _NUMBERS)

    def status(self, target: Target) -> Status:
        """Whether CUTLASS has this kernel, it fits, and the headers are installed."""
        return checks.status(self, target)

    def seconds(self, size: GemmSize, target: Target) -> float:
        """Modelled time of a problem of that size."""
        rate = _SHARE * MEASURED.warp_group_products[self.source.bytes]
        return seconds_of_tiles(self, size, target, rate) + SECONDS_OF_LAUNCHES

    def instantiation(self, target: Target) -> Instantiation:
        return self._instantiation(
            "hopper_gemm.cuh",
            package_folder(__package__),
            constants=(("kAlternate", self.alternate),),
        )

    def workspace(self, size: GemmSize, target: Target, threads: int) -> int:
        """Bytes for what the first launch prepares."""
        return PREPARED

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
    if wrong is not None:
        name, expected, got = wrong
        raise ArgumentError(
            name,
            expected=f"{expected}, of a kernel of CUTLASS 3.x",
            got=got,
            hint="describe the operation without a tile",
        )


def _biased(problem: GemmProblem) -> GemmProblem:
    """The problem with its bias as the source."""
    bias = problem.bias and replace(problem.bias, batch=(0,) * len(problem.batch))
    source, scalars = only_source(problem.z, bias, problem.scalars)
    return replace(problem, z=source, bias=None, scalars=scalars)
