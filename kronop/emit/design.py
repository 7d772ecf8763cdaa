"""Designs: the ways to run one step, each a class that knows its kernel from end to end."""

from __future__ import annotations

import functools
import importlib.util
from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import TYPE_CHECKING, ClassVar

from kronop.artifacts import KernelSignature
from kronop.descriptions.epilogue import Epilogue
from kronop.errors import DescriptionError, mismatch
from kronop.frozen import dataclass
from kronop.target import Target

Constant = int | bool | tuple[int, ...]
# Of matrices at an operation's ends: `Design.ends`.
ENDS = ("X along rows", "X along columns", "Y along rows", "Y along columns")


class Decision:
    """A base of the frozen dataclasses that plans are made of: what may be kept as text.

    Their fields are numbers, strings, element types, enumerations, math instructions, the
    operation's epilogue, other decisions, and tuples of these.
    """

    __slots__ = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Instantiation:
    """What a kernel's text is made from: one template with named arguments.

    Attributes:
        header: the header to include, as in the quoted include.
        template: the function template, `kronop::kron_tile`; its only argument is the trait struct.
        parameters: C++ name of the parameter struct in that header.
        types: alias -> C++ type, in the trait struct.
        constants: name -> value, in the trait struct; a tuple becomes an array. What only follows
            from others is `constexpr` in the header.
        cluster: blocks that come together; `kCluster` among the constants where there are several.
        folders: where quoted includes are looked for, before kronop's shared headers.
        options: of the compiler, besides those that all kernels have.
    """

    header: str
    template: str
    parameters: str
    types: tuple[tuple[str, str], ...]
    constants: tuple[tuple[str, Constant], ...]
    cluster: int = 1
    folders: tuple[str, ...] = ()
    options: tuple[str, ...] = ()


@functools.cache
def package_folder(package: str) -> str:
    """Where a Python package is, without importing it: a folder of headers."""
    spec = importlib.util.find_spec(package)
    if spec is None or not spec.submodule_search_locations:
        raise DescriptionError(
            mismatch("package of a kernel", expected="one to import", got=package, hint="name it")
        )
    return spec.submodule_search_locations[0]


class Design(Decision, ABC):
    """One way to run one step: a frozen dataclass of all that was decided.

    Besides what is asked here, each says whether it can be (`status`), what it costs, and how it is
    launched, in the words of its own problem.

    Attributes:
        epilogue: the functor to render; None where results stay in the workspace.
        threads: of a block; 0 on the host.
        shared_bytes: dynamic shared memory of a block, or scratch of one host thread.
        signature: the ABI of the parameter struct.

    What tests have to run, or they fail:

    Attributes:
        styles: words for all that `style` may say: both sides of what the kernel branches on, and
            "alone" where a design can be `inner` of others too.
        ends: of ENDS, those that the kernel reads and writes in place.
    """

    __slots__ = ()

    styles: ClassVar[tuple[str, ...]] = ("plain",)
    ends: ClassVar[tuple[str, ...]] = ()

    if TYPE_CHECKING:
        # Fields in some designs: what stood here at run time would be their default.
        @property
        def epilogue(self) -> Epilogue | None: ...

        @property
        def threads(self) -> int: ...

        @property
        def shared_bytes(self) -> int: ...

        @property
        def signature(self) -> KernelSignature: ...

    @property
    def inner(self) -> Design | None:
        """The design whose kernel this one runs, for another purpose."""
        return None

    def style(self, target: Target) -> Iterator[str]:
        """Which of `styles` it has."""
        yield from self.styles

    @abstractmethod
    def instantiation(self, target: Target) -> Instantiation:
        """The kernel's template and its arguments."""


class Wrapping(Design):
    """A design that runs the kernel of another one, `wrapped`, in words of its own."""

    __slots__ = ()

    styles: ClassVar[tuple[str, ...]] = ()  # Those of the wrapped design are declared by its class.

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
