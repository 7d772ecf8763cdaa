"""Designs: one class for each way to run a step, with everything about its kernel."""

from __future__ import annotations

import dataclasses
import functools
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from kronop.artifacts import Decision, KernelSignature, Launch
from kronop.descriptions.epilogue import Epilogue
from kronop.descriptions.graph import Graph
from kronop.descriptions.strided import NOTHING, padded
from kronop.errors import DescriptionError
from kronop.frozen import dataclass
from kronop.late import spec_of
from kronop.target import Target

Constant = int | bool | tuple[int, ...]
# Memory orders of an operation's X and Y: see `Design.ends`.
ENDS = ("X along rows", "X along columns", "Y along rows", "Y along columns")


@dataclass(frozen=True, slots=True, kw_only=True)
class Functor:
    """A struct in the trait struct, with one static function `value` that returns an expression.

    Attributes:
        name: the struct's name.
        parameters: the function's parameters in C++, whose names are inputs of the expression.
        result: the C++ type of the value and of all steps towards it.
        expression: what it returns.
    """

    name: str
    parameters: str
    result: str
    expression: Graph


@dataclass(frozen=True, slots=True, kw_only=True)
class Instantiation:
    """The input of a kernel's source: one template with named arguments.

    Attributes:
        header: the header to include, as in the quoted include.
        template: the function template, whose only argument is the trait struct; "" for the one
            with the header's name, `kronop::kron_tile` of "kron_tile.cuh".
        parameters: C++ name of the parameter struct in that header.
        types: alias -> C++ type, in the trait struct.
        constants: name -> value, in the trait struct; a tuple becomes an array. Values that follow
            from these are `constexpr` in the header.
        cluster, cluster_n: blocks of a cluster along x and y of a grid; `kCluster` and `kClusterN`
            are among the constants if there is more than one.
        folders: folders in which quoted includes are looked for, before kronop's shared headers.
        options: compiler options, in addition to those of all kernels.
        functors: structs of straight-line functions, in the trait struct, behind the constants.
        cuda_headers, cutlass_headers: whether the header includes some of CUDA's, of CUTLASS's.
    """

    header: str
    template: str = ""
    parameters: str
    types: tuple[tuple[str, str], ...]
    constants: tuple[tuple[str, Constant], ...]
    cluster: int = 1
    cluster_n: int = 1
    folders: tuple[str, ...] = ()
    options: tuple[str, ...] = ()
    functors: tuple[Functor, ...] = ()
    cuda_headers: bool = False
    cutlass_headers: bool = False

    def __post_init__(self) -> None:
        if not self.template:
            stem = self.header.rpartition("/")[2].partition(".")[0]
            object.__setattr__(self, "template", f"kronop::{stem}")


def named(values: object, names: str, prefix: str = "k") -> tuple[tuple[str, Any], ...]:
    """Attributes as constants of a trait struct: "tile_m" is its `kTileM`."""
    return tuple(
        (prefix + name.title().replace("_", ""), getattr(values, name)) for name in names.split()
    )


def arrays(values: Sequence[object], prefix: str, names: str) -> tuple[tuple[str, Constant], ...]:
    """The same of several values: their "rows", with the prefix "kTile", are `kTileRows[]`."""
    return tuple(
        (prefix + name.title().replace("_", ""), tuple(int(getattr(it, name)) for it in values))
        for name in names.split()
    )


def members(values: object, names: str) -> dict[str, Any]:
    """Attributes as the members of a parameter struct that have their names."""
    return {name: getattr(values, name) for name in names.split()}


def strided_values(problem: object, names: Iterable[str]) -> dict[str, Any]:
    """The members of parameter structs that say where a problem's operands of these names lie; all
    are 0 for one that is not there."""
    operands = {name: getattr(problem, name) or NOTHING for name in names}
    return {
        **{name: item.pointer for name, item in operands.items()},
        **{f"{name}_batch": padded(item.batch) for name, item in operands.items()},
        **{f"{name}_row": item.row for name, item in operands.items()},
        **{f"{name}_column": item.column for name, item in operands.items()},
    }


@functools.cache
def package_folder(package: str) -> str:
    """The folder of a Python package (for its headers), found without importing it."""
    spec = spec_of(package)
    if spec is None or not spec.submodule_search_locations:
        raise DescriptionError(
            "package of a kernel", expected="one to import", got=package, hint="name it"
        )
    return spec.submodule_search_locations[0]


class Runnable(Decision, ABC):
    """What computes a problem: one kernel, or several in order.

    A frozen dataclass of the planner's decisions. It has no target: callers pass the plan's.

    Attributes:
        writes_sums_of_nothing: whether it launches even if a contracted extent is 0: the results,
            which are then sums of nothing, are written all the same.
    """

    __slots__ = ()

    writes_sums_of_nothing: ClassVar[bool] = False

    @property
    @abstractmethod
    def designs(self) -> tuple[Design, ...]:
        """The kernels, in the order in which they first run."""

    def workspace(self, size: Any, target: Target, threads: int) -> int:
        """Bytes of scratch memory for a problem of that size, on a host with so many threads."""
        return 0

    def seconds(self, size: Any, target: Target) -> float:
        """Modelled time of a problem of that size (of one thread on a host). Only classes among
        which planners choose implement it."""
        raise NotImplementedError

    @abstractmethod
    def launches(self, problem: Any, target: Target) -> tuple[Launch, ...]:
        """The launches in order, for a problem with non-empty results; the step of each is its
        kernel's index in `designs`."""


class Pipeline(Runnable):
    """Several kernels, one after the other, with intermediates in the workspace."""

    __slots__ = ()

    @property
    @abstractmethod
    def parts(self) -> tuple[Runnable, ...]:
        """The runnables, each once, in the order of the plan's steps."""

    @property
    def designs(self) -> tuple[Design, ...]:
        return tuple(design for part in self.parts for design in part.designs)

    def launches_of(self, place: int, problem: Any, target: Target) -> tuple[Launch, ...]:
        """The launches of `parts[place]`, with their steps as in the pipeline."""
        before = sum(len(part.designs) for part in self.parts[:place])
        return tuple(
            dataclasses.replace(launch, step=before + launch.step)
            for launch in self.parts[place].launches(problem, target)
        )

    def launches_of_all(self, problem: Any, target: Target) -> tuple[Launch, ...]:
        """The launches of all parts in order, if they take the same problem."""
        every = (self.launches_of(at, problem, target) for at in range(len(self.parts)))
        return tuple(launch for launches in every for launch in launches)


class Design(Runnable):
    """One kernel as a way to run a step.

    Each design also has a method `status`, which tells whether its kernel can run it. Its
    parameters depend on the family, so it is not declared here.

    Attributes:
        epilogue: the functor to render; None if results stay in the workspace.
        threads: threads of a block; 0 on the host.
        shared_bytes: dynamic shared memory of a block, or scratch of one host thread.
        signature: the ABI of the parameter struct.

    Tests fail unless they have run every one of these:

    Attributes:
        styles: all words that `style` may yield: one for each side of the kernel's compile-time
            branches, and "alone" if the design can also be the `inner` one of others.
        ends: those of ENDS that the kernel reads and writes in place (without a copy).
    """

    __slots__ = ()

    styles: ClassVar[tuple[str, ...]] = ("plain",)
    ends: ClassVar[tuple[str, ...]] = ()

    if TYPE_CHECKING:
        # Fields in some designs: a property defined here at run time would become their default.
        @property
        def epilogue(self) -> Epilogue | None: ...

        @property
        def threads(self) -> int: ...

        @property
        def shared_bytes(self) -> int: ...

        @property
        def signature(self) -> KernelSignature: ...

    @property
    def designs(self) -> tuple[Design, ...]:
        return (self,)

    @property
    def inner(self) -> Design | None:
        """The design whose kernel this one reuses, if any."""
        return None

    def style(self, target: Target) -> Iterator[str]:
        """Those of `styles` that this design has."""
        yield from self.styles

    @abstractmethod
    def instantiation(self, target: Target) -> Instantiation:
        """The kernel's template and its arguments."""


class InWorkspace(Design):
    """A design whose results stay in the workspace: it has no epilogue."""

    __slots__ = ()

    @property
    def epilogue(self) -> None:
        return None


class Wrapping(Design):
    """A design that runs the kernel of another one, `wrapped`, with its own kind of problem."""

    __slots__ = ()

    styles: ClassVar[tuple[str, ...]] = ()  # The class of the wrapped design declares its styles.

    if TYPE_CHECKING:
        # A field.
        @property
        def wrapped(self) -> Design: ...

    @property
    def inner(self) -> Design:
        return self.wrapped

    @property
    def threads(self) -> int:
        return self.wrapped.threads

    @property
    def shared_bytes(self) -> int:
        return self.wrapped.shared_bytes

    @property
    def signature(self) -> KernelSignature:
        return self.wrapped.signature

    def instantiation(self, target: Target) -> Instantiation:
        return self.wrapped.instantiation(target)
