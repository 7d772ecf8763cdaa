"""The steps after the sums of a gradient: they add the shares up, and may turn the gradient of a
Kronecker product into those of its factors."""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator, Sequence

from kronop.artifacts import KernelSignature, Launch, Scalar
from kronop.descriptions.datatype import DataType
from kronop.descriptions.epilogue import Epilogue, LinearCombination
from kronop.descriptions.math_instruction import MathInstruction
from kronop.emit.cuda import operands
from kronop.emit.design import Design, Instantiation, package_folder
from kronop.emit.plan import Step
from kronop.families.ksparse.gradient_description import (
    KSparseGradientDescription,
    KSparseGradientProblem,
    StridedWeights,
)
from kronop.frozen import dataclass
from kronop.target import Target

_RESULT_AXES = 5
# If there are few results, up to _MOST_SLICES threads add up the shares of each, so that every
# multiprocessor has about _BUSY threads.
_MOST_SLICES, _BUSY = 8, 1024
_NOWHERE = StridedWeights(pointer=0, strides=(0, 0, 0, 0, 0))


@dataclass(frozen=True, slots=True, kw_only=True)
class _End(Design):
    """A step that reads the sums in the workspace.

    Attributes:
        math: the multiply-add.
        output: element type of the results.
        epilogue: the epilogue that is applied to the sums.
    """

    math: MathInstruction
    output: DataType
    epilogue: Epilogue

    @property
    def threads(self) -> int:
        return 256

    @property
    def accumulator(self) -> DataType:
        return self.math.element_accumulator

    @property
    def types(self) -> tuple[tuple[str, str], ...]:
        """The aliases of the trait struct."""
        return operands.element_types(self.math, self.accumulator, self.output, self.epilogue)


@dataclass(frozen=True, slots=True, kw_only=True)
class AddShares(_End):
    """The step that adds up the shares.

    Attributes:
        extents: extents of the results' axes (product, i, l, p, q).
        slices: how many threads add up the shares of one result.
    """

    styles = ("slices", "whole")

    extents: tuple[int, int, int, int, int]
    slices: int

    def style(self, target: Target) -> Iterator[str]:
        yield "slices" if self.slices > 1 else "whole"

    @property
    def vector(self) -> int:
        """How many neighbouring results a thread computes."""
        return _vector_of(self.accumulator, self.extents[-1])

    @property
    def shared_bytes(self) -> int:
        return self.threads * self.vector * self.accumulator.bytes if self.slices > 1 else 0

    @property
    def signature(self) -> KernelSignature:
        return _add_signature(operands.scalar_kind(self.epilogue))

    def instantiation(self, target: Target) -> Instantiation:
        scalar = operands.scalar_kind(self.epilogue)
        return Instantiation(
            header="add_shares.cuh",
            template="kronop::add_shares",
            parameters=f"kronop::AddSharesParameters<{scalar.cxx}>",
            types=self.types,
            constants=(
                ("kThreads", self.threads),
                ("kBlocks", 4),
                ("kSlices", self.slices),
                ("kVector", self.vector),
            ),
            folders=(package_folder(__package__),),
        )

    def launch(
        self,
        index: int,
        partial: int,
        shares: int,
        y: StridedWeights,
        z: StridedWeights | None,
        scalars: tuple[float, ...],
    ) -> Launch:
        """The launch that adds up `shares` shares, which lie at the address `partial`."""
        z = z or _NOWHERE
        values: dict[str, int | tuple[int, ...] | tuple[float, ...]] = {
            "partial": partial,
            "y": y.pointer,
            "z": z.pointer,
            "shares": shares,
            "y_vector": self._takes_vectors(y),
            "extent": self.extents,
            "y_stride": y.strides,
            "z_stride": z.strides,
            "scalars": scalars,
        }
        at_once = self.vector * self.threads // self.slices
        return operands.make_launch(
            index, self, operands.cover(math.prod(self.extents), at_once), values
        )

    def _takes_vectors(self, y: StridedWeights) -> int:
        """Whether a thread stores its neighbouring results in one access."""
        *rest, q = y.strides
        view = operands.View(pointer=y.pointer, strides={"rest": tuple(rest), "last": (q,)})
        sizes = {"rest": self.extents[:-1], "last": self.extents[-1:]}
        return operands.allows_vectors(view, sizes, "last", self.vector, self.output)


@dataclass(frozen=True, slots=True, kw_only=True)
class FactorGradients(_End):
    """The step that computes the gradients of factors from that of their Kronecker product.

    Attributes:
        factors: (rows, columns) of each factor.
    """

    factors: tuple[tuple[int, int], ...]

    @property
    def shared_bytes(self) -> int:
        return self.threads * self.accumulator.bytes

    @property
    def signature(self) -> KernelSignature:
        return _factor_signature(operands.scalar_kind(self.epilogue), len(self.factors))

    def instantiation(self, target: Target) -> Instantiation:
        scalar, count = operands.scalar_kind(self.epilogue), len(self.factors)
        rows, columns = zip(*self.factors, strict=True)
        return Instantiation(
            header="factor_gradients.cuh",
            template="kronop::factor_gradients",
            parameters=f"kronop::FactorGradientsParameters<{scalar.cxx}, {count}>",
            types=self.types,
            constants=(
                ("kThreads", self.threads),
                ("kBlocks", 2),
                ("kRows", rows),
                ("kColumns", columns),
            ),
            folders=(package_folder(__package__),),
        )

    def launch(self, index: int, problem: KSparseGradientProblem) -> Launch:
        """The launch; it reads the sums from the beginning of the workspace."""
        z = problem.z or _NOWHERE
        values: dict[str, int | tuple[int, ...] | tuple[float, ...]] = {
            "sums": problem.workspace,
            "y": problem.y.pointer,
            "z": z.pointer,
            "factor": tuple(item.pointer for item in problem.factors),
            "factor_row": tuple(item.row for item in problem.factors),
            "factor_column": tuple(item.column for item in problem.factors),
            "y_stride": problem.y.strides[-1],
            "z_stride": z.strides[-1],
            "scalars": problem.scalars,
        }
        elements = sum(rows * columns for rows, columns in self.factors)
        return operands.make_launch(self, elements, values)


@functools.cache
def _add_signature(scalar: Scalar) -> KernelSignature:
    return operands.signature(
        "AddSharesParameters",
        scalar,
        [(name, 1) for name in ("partial", "y", "z")],
        [
            ("shares", 1),
            ("y_vector", 1),
            *((name, _RESULT_AXES) for name in ("extent", "y_stride", "z_stride")),
        ],
    )


@functools.cache
def _factor_signature(scalar: Scalar, count: int) -> KernelSignature:
    return operands.signature(
        "FactorGradientsParameters",
        scalar,
        [*((name, 1) for name in ("sums", "y", "z")), ("factor", count)],
        [("factor_row", count), ("factor_column", count), ("y_stride", 1), ("z_stride", 1)],
    )


def _vector_of(accumulator: DataType, columns: int) -> int:
    """Neighbouring results that a thread of `add_shares` computes."""
    return operands.widest_divisor(operands.vector_of(accumulator), [columns])


def end_steps(description: KSparseGradientDescription, target: Target) -> tuple[Step, ...]:
    """The steps after the sums."""
    epilogue, output = description.epilogue, description.Y.element
    accumulator, factors = description.math.element_accumulator, description.factors
    if not factors:
        return (_add_step(description, output, epilogue, target),)
    plain = LinearCombination(accumulator, 1, accumulator, accumulator)
    shapes = "_".join(f"{rows}x{columns}" for rows, columns in factors)
    shared = Step(
        entry=f"factor_gradients_{output.short}_{shapes}_{epilogue.name}_{target.arch}",
        bytes_per_row=0,
        operations_per_row=0,
        note=f"gives each of {len(factors)} factors its gradient",
        design=FactorGradients(
            factors=factors, math=description.math, output=output, epilogue=epilogue
        ),
    )
    return _add_step(description, accumulator, plain, target), shared


def _add_step(
    description: KSparseGradientDescription, output: DataType, epilogue: Epilogue, target: Target
) -> Step:
    a, b, c, d = description.pattern
    outer = (1, 1) if description.tied else (a, d)
    extents = (description.products or 1, *outer, b, c)
    results = math.prod(extents)
    vector = _vector_of(description.math.element_accumulator, c)
    wanted = operands.cover(target.cores * _BUSY * vector, results)
    slices = max(
        size for size in operands.powers_of_two(1, _MOST_SLICES) if size <= wanted or size == 1
    )
    return Step(
        entry=f"add_shares_{output.short}_{epilogue.name}_{target.arch}",
        bytes_per_row=0,
        operations_per_row=0,
        note=f"adds the shares of {results} results",
        design=AddShares(
            extents=extents, slices=slices, math=description.math, output=output, epilogue=epilogue
        ),
    )


def end_launches(
    steps: Sequence[Step], problem: KSparseGradientProblem, shares: int
) -> tuple[Launch, ...]:
    """The launches of `end_steps`, which are the last of `steps`."""
    last, design = len(steps) - 1, steps[-1].design
    if isinstance(design, AddShares):
        return (
            design.launch(last, problem.workspace, shares, problem.y, problem.z, problem.scalars),
        )
    adding = steps[-2].design
    assert isinstance(design, FactorGradients)
    assert isinstance(adding, AddShares)
    # Each sum overwrites its own first share, which no other thread reads.
    sums = StridedWeights(pointer=problem.workspace, strides=(0, 0, 0, adding.extents[-1], 1))
    return (
        adding.launch(last - 1, problem.workspace, shares, sums, None, (1.0, 0.0)),
        design.launch(last, problem),
    )
