"""Designs of gradients of distances on the host."""

from __future__ import annotations

import math

from kronop.artifacts import KernelSignature, Launch
from kronop.emit.design import Instantiation, named, package_folder
from kronop.emit.x86 import planning
from kronop.families.distance import parts
from kronop.families.distance.form import TermKind
from kronop.families.distance.gradient_description import GradientProblem
from kronop.families.distance.x86.design import RegisterTiles
from kronop.frozen import dataclass
from kronop.target import Target

# A block's differences take 32 KB in float32, as do its sums of each output and a slab of rows.
_BLOCK_ROWS, _BLOCK_LANES = 32, 128
_SLAB_BYTES = 1024


@dataclass(frozen=True, kw_only=True)
class GradientTiles(RegisterTiles):
    """A register tile whose rows are features and whose columns are points.

    Attributes:
        power: the kind of the power.
        outputs: rows of coefficients at once.
    """

    power: TermKind
    outputs: int

    @property
    def signature(self) -> KernelSignature:
        return parts.gradient_signature(self._scalars)

    def instantiation(self, target: Target) -> Instantiation:
        return Instantiation(
            header="gradient.hpp",
            template="kronop::distance_gradient",
            parameters=parts.gradient_parameters_of(self._scalars),
            types=self.types,
            constants=(
                *named(self, "power outputs width rows vectors"),
                ("kDepth", _SLAB_BYTES // self.math.element_accumulator.bytes),
                ("kBlockRows", _BLOCK_ROWS),
                ("kBlockLanes", _BLOCK_LANES),
            ),
            folders=(package_folder(__package__),),
        )

    def launches(self, problem: GradientProblem, target: Target) -> tuple[Launch, ...]:
        pairs = problem.m * problem.n * math.prod(problem.batch)
        operations = pairs * max(problem.k, 1) * problem.o
        threads = planning.shares(operations, pairs * problem.o, problem.threads)
        values = parts.gradient_values_of(problem, threads)
        return (Launch(parameters=self.signature.pack(values)),)
