"""The base class of designs on a host: work, instantiation and launch of a kernel."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import TYPE_CHECKING, ClassVar, Protocol

from kronop.artifacts import Decision, Launch
from kronop.descriptions.datatype import DataType
from kronop.descriptions.epilogue import Epilogue
from kronop.descriptions.strided import NOTHING, Strided
from kronop.emit.design import Constant, Design, Instantiation, members, package_folder
from kronop.emit.plan import PerRow, Step
from kronop.emit.x86.planning import element_types, is_far, parameter_arguments, passes_caches
from kronop.frozen import dataclass
from kronop.target import Target

Values = dict[str, int | Sequence[int] | Sequence[float]]


class Problem(Protocol):
    """The attributes of the problems of all families."""

    @property
    def rows(self) -> int: ...
    @property
    def x(self) -> Strided: ...
    @property
    def z(self) -> Strided | None: ...
    @property
    def y(self) -> Strided: ...
    @property
    def scalars(self) -> tuple[float, ...]: ...
    @property
    def workspace(self) -> int: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class HostWork(Decision):
    """The work of a kernel, and the vectors that it uses.

    Attributes:
        element, output, accumulator: element types of X, of Y, and of sums.
        vector_bytes: bytes of the target's vectors.
    """

    element: DataType
    output: DataType
    accumulator: DataType
    epilogue: Epilogue
    vector_bytes: int

    if TYPE_CHECKING:

        @property
        def input_columns(self) -> int: ...

        @property
        def output_columns(self) -> int: ...

    @property
    def bytes(self) -> int:
        """Bytes of a sum."""
        return self.accumulator.bytes

    @property
    def width(self) -> int:
        """Sums in a vector."""
        return self.vector_bytes // self.accumulator.bytes

    @property
    def converts(self) -> bool:
        """Whether X has another element type than the sums."""
        return self.element != self.accumulator


class HostDesign(Design):
    """A way to run a step on a host.

    Attributes:
        package: the package in whose folder the header is.
        header, template, parameters: the kernel's names, without the common namespace.
        work: the work of the kernel.
        multiply_adds: multiply-adds for a row.
        vector_work: multiply-adds of a row in units of time of vector kernels; it decides how many
            threads are worth starting.
    """

    threads = 0
    __slots__ = ()

    package: ClassVar[str]
    header: ClassVar[str]
    template: ClassVar[str]
    parameters: ClassVar[str]

    if TYPE_CHECKING:

        @property
        def work(self) -> HostWork: ...

        @property
        def multiply_adds(self) -> int: ...

        @property
        def vector_work(self) -> int: ...

    @property
    def epilogue(self) -> Epilogue:
        return self.work.epilogue

    @property
    def arguments(self) -> tuple[int, ...]:
        """The first template arguments of the parameter struct."""
        return ()

    @property
    def stores_in_parts(self) -> bool:
        """Whether results are stored contiguously, so that even vectors shorter than a cache line
        may bypass the caches (streaming stores)."""
        return False

    @property
    def row_bytes(self) -> tuple[int, int]:
        """Bytes of a row of X, and of a row of Y."""
        work = self.work
        return work.input_columns * work.element.bytes, work.output_columns * work.output.bytes

    @property
    @abstractmethod
    def constants(self) -> tuple[tuple[str, Constant], ...]:
        """The constants of the trait struct."""

    def instantiation(self, target: Target) -> Instantiation:
        work = self.work
        arguments = (*map(str, self.arguments), parameter_arguments(work.epilogue))
        return Instantiation(
            header=self.header,
            template=f"kronop::{self.template}",
            parameters=f"kronop::{self.parameters}<{', '.join(arguments)}>",
            types=element_types(work.element, work.output, work.accumulator),
            constants=self.constants,
            folders=(package_folder(self.package),),
        )

    def step(self, entry: str, note: str) -> Step:
        return Step(
            entry=entry,
            per_row=PerRow(bytes=sum(self.row_bytes), operations=2 * self.multiply_adds),
            note=note,
            design=self,
        )

    @abstractmethod
    def threads_for(self, rows: int, threads: int) -> int:
        """How many of `threads` threads a call with `rows` rows uses."""

    def workspace(self, size: int, target: Target, threads: int) -> int:
        """One slice of scratch memory for each thread that has some of the `size` rows."""
        return self.shared_bytes * self.threads_for(size, threads) if size else 0

    def launch_with(self, problem: Problem, all_rows: int, own: Values) -> Launch:
        """The launch; `own` are the values of this kernel's own members."""
        read, written = self.row_bytes
        passes = passes_caches(
            all_rows, written, self.work.vector_bytes, in_parts=self.stores_in_parts
        )
        values: Values = {
            **members(problem, "workspace rows scalars"),
            "stream": int(passes),
            "ahead": int(is_far(all_rows, read)),
            "slice": self.shared_bytes,
            **own,
        }
        for name, item in (("x", problem.x), ("z", problem.z), ("y", problem.y)):
            matrix = item or NOTHING
            values[name] = matrix.pointer
            values[f"{name}_strides"] = (matrix.row, matrix.column)
        return Launch(parameters=self.signature.pack(values))
