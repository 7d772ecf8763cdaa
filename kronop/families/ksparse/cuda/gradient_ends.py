"""The kernels after the sums of a gradient: one adds up the shares, one may compute the factors'
gradients from the gradient of a Kronecker product."""

from __future__ import annotations

import functools
import math
from abc import abstractmethod
from collections.abc import Iterator

from kronop.artifacts import KernelSignature, Launch, Scalar
from kronop.descriptions.datatype import DataType
from kronop.descriptions.epilogue import Epilogue, LinearCombination
from kronop.descriptions.math_instruction import MathInstruction
from kronop.descriptions.strided import Strided
from kronop.emit.cuda import operands
from kronop.emit.design import Design, Instantiation, members, named, package_folder
from kronop.emit.plan import Step
from kronop.families.ksparse.gradient_description import (
    KSparseGradientDescription,
    KSparseGradientProblem,
)
from kronop.frozen import dataclass
from kronop.target import Target

_RESULT_AXES = 5
# If there are few results, up to _MOST_SLICES threads add up the shares of each, so that every
# multiprocessor has about _BUSY threads.
_MOST_SLICES, _BUSY = 8, 1024
_NOWHERE = Strided(pointer=0, strides=(0, 0, 0, 0, 0))


@dataclass(frozen=True, slots=True, kw_only=True)
class _End(Design):
    """A step that reads the sums in the workspace.

    Attributes:
        math: the multiply-add.
        output: element type of the results.
        epilogue: the epilogue that is applied to the sums.
    """

    threads = 256

    math: MathInstruction
    output: DataType
    epilogue: Epilogue

    @property
    def accumulator(self) -> DataType:
        return self.math.element_accumulator

    @property
    def types(self) -> tuple[tuple[str, str], ...]:
        """The aliases of the trait struct."""
        return operands.element_types(self.math, self.accumulator, self.output, self.epilogue)

    @property
    @abstractmethod
    def told(self) -> tuple[str, str]:
        """The name of its step, without epilogue and target, and its note."""

    def step(self, target: Target) -> Step:
        name, note = self.told
        entry = f"{name}_{self.epilogue.name}_{target.arch}"
        return Step(entry=entry, note=note, design=self)


@dataclass(frozen=True, slots=True, kw_only=True)
class AddProblem:
    """Shares to add up, from the address `partial` on, and their results: see the problem of a
    gradient."""

    partial: int
    shares: int
    y: Strided
    z: Strided | None
    scalars: tuple[float, ...]


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
            parameters=f"kronop::AddSharesParameters<{scalar.cxx}>",
            types=self.types,
            constants=(("kThreads", self.threads), ("kBlocks", 4), *named(self, "slices vector")),
            folders=(package_folder(__package__),),
        )

    @property
    def results(self) -> int:
        return math.prod(self.extents)

    @property
    def told(self) -> tuple[str, str]:
        return f"add_shares_{self.output.short}", f"adds the shares of {self.results} results"

    def launches(self, problem: AddProblem, target: Target) -> tuple[Launch, ...]:
        y, z = problem.y, problem.z or _NOWHERE
        values: dict[str, int | tuple[int, ...] | tuple[float, ...]] = {
            **members(problem, "partial shares scalars"),
            "y": y.pointer,
            "z": z.pointer,
            "y_vector": self._takes_vectors(y),
            "extent": self.extents,
            "y_stride": y.strides,
            "z_stride": z.strides,
        }
        at_once = self.vector * self.threads // self.slices
        return (operands.make_launch(self, operands.cover(self.results, at_once), values),)

    def _takes_vectors(self, y: Strided) -> int:
        """Whether a thread stores its neighbouring results in one vectorised access."""
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

    @property
    def told(self) -> tuple[str, str]:
        shapes = "_".join(f"{rows}x{columns}" for rows, columns in self.factors)
        note = f"gives each of {len(self.factors)} factors its gradient"
        return f"factor_gradients_{self.output.short}_{shapes}", note

    def launches(self, problem: KSparseGradientProblem, target: Target) -> tuple[Launch, ...]:
        """One launch, which reads the sums from the beginning of the workspace."""
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
        return (operands.make_launch(self, elements, values),)


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


def ends_of(
    description: KSparseGradientDescription, target: Target
) -> tuple[AddShares, tuple[FactorGradients, ...]]:
    """The kernels after the sums: see `Gradient`."""
    output, epilogue = description.Y.element, description.epilogue
    if not description.factors:
        return _adding(description, output, epilogue, target), ()
    sums = description.math.element_accumulator
    plain = LinearCombination(sums, 1, sums, sums)
    last = FactorGradients(
        factors=description.factors, math=description.math, output=output, epilogue=epilogue
    )
    return _adding(description, sums, plain, target), (last,)


def _adding(
    description: KSparseGradientDescription, output: DataType, epilogue: Epilogue, target: Target
) -> AddShares:
    a, b, c, d = description.pattern
    outer = (1, 1) if description.tied else (a, d)
    extents = (description.products or 1, *outer, b, c)
    vector = _vector_of(description.math.element_accumulator, c)
    wanted = operands.cover(target.cores * _BUSY * vector, math.prod(extents))
    slices = max(
        size for size in operands.powers_of_two(1, _MOST_SLICES) if size <= wanted or size == 1
    )
    return AddShares(
        extents=extents, slices=slices, math=description.math, output=output, epilogue=epilogue
    )
