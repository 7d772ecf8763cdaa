"""What the kernels that apply visitor trees to sums have in common: see `visiting`."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, ClassVar

from kronop.artifacts import Field, KernelSignature, Scalar, Status
from kronop.descriptions.datatype import DataType
from kronop.descriptions.strided import MOST_BATCH_DIMENSIONS, Strided, padded
from kronop.descriptions.summed import VisitProblem
from kronop.descriptions.visitor import VisitorEpilogue
from kronop.emit.design import Design, members
from kronop.frozen import dataclass
from kronop.target import Target


@dataclass(frozen=True, kw_only=True)
class VisitDesign(Design):
    """A way to apply a visitor tree to sums in memory.

    Attributes:
        sums: type of the sums.
        along_rows: whether sums of a row are contiguous in memory, else those of a column.
        epilogue: the tree.
    """

    styles: ClassVar[tuple[str, ...]] = (
        *("sums along rows", "sums along columns"),
        *("reduces", "no reductions"),
    )

    sums: DataType
    along_rows: bool
    epilogue: VisitorEpilogue

    @abstractmethod
    def status(self, target: Target) -> Status:
        """Whether the kernel can run the tree on a target."""

    def style(self, target: Target) -> Iterator[str]:
        yield "sums along rows" if self.along_rows else "sums along columns"
        yield "reduces" if self.epilogue.tree.reduces else "no reductions"

    @property
    def visited(self) -> tuple[int, int]:
        """How many operands and results in memory the tree has, and how many results."""
        results = len(self.epilogue.tree.results)
        return len(self.epilogue.tree.tensors) + results, results

    def signature_with(
        self, workspace: str, own: tuple[str, ...], scalars: Field
    ) -> KernelSignature:
        """The parameter struct.

        Args:
            workspace: the name of the workspace's member.
            own: further integers of this kernel.
            scalars: the field of the tree's scalars.
        """
        whole, batch = Scalar.INT64, MOST_BATCH_DIMENSIONS
        visited, results = self.visited
        return KernelSignature(
            "VisitSumsParameters",
            (
                *(Field(name, Scalar.POINTER) for name in ("sums", workspace)),
                Field("visited", Scalar.POINTER, visited),
                *(Field(name, whole) for name in ("m", "n")),
                *(Field(name, whole, batch) for name in ("batch", "sums_batch")),
                *(Field(name, whole) for name in ("sums_row", "sums_column")),
                *visited_strides(visited),
                *(Field(name, whole) for name in own),
                Field("folds", whole, results),
                scalars,
            ),
        )

    def values_with(
        self, workspace: str, own: Mapping[str, int], problem: VisitProblem, folds: tuple[int, ...]
    ) -> dict[str, Any]:
        """The values of that struct's members.

        Args:
            workspace, own: as in `signature_with`, here with values.
            problem: in the kernel's orientation.
            folds: where the partial results of each reduction begin.
        """
        sums = problem.sums
        return {
            "sums": sums.pointer,
            workspace: problem.workspace,
            **members(problem, "m n scalars"),
            "batch": padded(problem.batch, 1),
            "sums_batch": padded(sums.batch),
            "sums_row": sums.row,
            "sums_column": sums.column,
            **visited_values((*problem.operands, *problem.results)),
            **own,
            "folds": folds,
        }


def visited_strides(visited: int) -> tuple[Field, ...]:
    """The members of parameter structs for the strides of so many operands and results."""
    whole = Scalar.INT64
    return (
        Field("visited_batch", whole, visited * MOST_BATCH_DIMENSIONS),
        Field("visited_row", whole, visited),
        Field("visited_column", whole, visited),
    )


def visited_values(visited: Sequence[Strided]) -> dict[str, Any]:
    """The values of those members for a tree's operands, then its results."""
    return {
        "visited": tuple(item.pointer for item in visited),
        "visited_batch": tuple(stride for item in visited for stride in padded(item.batch)),
        "visited_row": tuple(item.row for item in visited),
        "visited_column": tuple(item.column for item in visited),
    }


def repeating(epilogue: VisitorEpilogue) -> int:
    """A bit for each operand in memory: whether it is broadcast along rows."""
    return sum(1 << at for at, item in enumerate(epilogue.tree.tensors) if item.kind == "column")
