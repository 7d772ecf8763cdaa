"""The declarations of a family of operations: everything else of it is found through them.

A family is a folder in `kronop/families/`, whose `declaration.py` holds its `Family`. That names
modules and objects, so that importing kronop imports neither planners nor arguments.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from typing import Any

from kronop.descriptions.datatype import DataType, Layout
from kronop.descriptions.tensor import TensorDescription
from kronop.emit.emitter import Emitter
from kronop.errors import DescriptionError
from kronop.frozen import dataclass
from kronop.late import Later
from kronop.size import Rows, Size
from kronop.target import Target


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Kind:
    """One kind of operation.

    Attributes:
        name: what it is, in words: "Kronecker-sparse".
        description: the class of its descriptions. Their fields are `math`, `tile`, a tensor
            description for each operand (named like it), `Y`, `epilogue`, and then the fields of
            this kind alone: sizes, sides, flags.
        emitters: the emitter for each backend of targets.
        inputs: the names of the described operands, without Y.
        size: the class of the extents that may vary between runs of one operation.
        sample: values for the fields of this kind alone, of the small description that the
            support matrix and tests ask about; a `Later` stands for the object that it names.
            `Y` and `epilogue` may be among them, if results are not of X's type, or not scaled and
            added as by a LinearCombination; tests of the family itself then run the samples.
        arguments: the class of its arguments; None if operations of this kind can't be exported.
        operation: the class of its operations; None if it is named like the description.
        names: what operations call a field of descriptions, where that is another name.
        argument_names: what arguments call Z and Y, likewise.
        layout: that of all its tensors, of a class of its own; None for matrices.
        ahead: the fields of descriptions that operations take before the target.
        visits: whether its own kernels take visitor trees; else a pass over their sums does.
    """

    name: str
    description: Later
    emitters: Mapping[str, Emitter]
    inputs: tuple[str, ...]
    sample: Mapping[str, Any] = field(default_factory=dict)
    size: type[Size] = Rows
    arguments: Later | None = None
    operation: Later | None = None
    names: Mapping[str, str] = field(default_factory=dict)
    argument_names: Mapping[str, str] = field(default_factory=dict)
    layout: Later | None = None
    ahead: tuple[str, ...] = ()
    visits: bool = False

    @property
    def operation_name(self) -> str:
        """The name of the class of its operations."""
        if self.operation is not None:
            return self.operation.name
        return self.description.name.removesuffix("Description") + "Operation"

    @property
    def sample_fields(self) -> dict[str, Any]:
        """The values of `sample`."""
        return {
            name: item.get() if isinstance(item, Later) else item
            for name, item in self.sample.items()
        }

    def tensor(self, element: DataType, alignment: int = 1) -> TensorDescription:
        """The usual description of a tensor of operations of this kind."""
        layout = Layout.RowMajor if self.layout is None else self.layout.get()
        return TensorDescription(element, layout, alignment)

    def emitter(self, target: Target) -> Emitter:
        """The emitter that plans this kind for a target.

        Raises:
            DescriptionError: there is no kernel of this kind for the target.
        """
        found = self.emitters.get(target.backend)
        if found is None:
            raise DescriptionError(
                f"target of a {self.operation_name}",
                expected=f"one of {', '.join(sorted(self.emitters))}",
                got=target.name,
                hint="no kernel of that family is there for this target",
            )
        return found


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Family:
    """Kinds of operations that belong together.

    Attributes:
        name: its name in commands: `python -m kronop show kron ...`.
        kinds: its kinds of operation.
        bases: the names of the families that it builds on; it imports from no others.
        exports: the names it adds to `kronop`, each with the module that defines it.
        torch: the names it adds to `kronop.torch`, likewise; these modules import torch.
        layers: the names it adds to `kronop.torch.nn`, likewise.
        jax: the names it adds to `kronop.jax`, likewise; these modules import JAX.
        command: its `Command` object for the command line; None if it has none.
        bench: the module behind `python -m kronop bench <name>`, or None.
    """

    name: str
    kinds: tuple[Kind, ...]
    bases: tuple[str, ...] = ()
    exports: Mapping[str, str]
    torch: Mapping[str, str] = field(default_factory=dict)
    layers: Mapping[str, str] = field(default_factory=dict)
    jax: Mapping[str, str] = field(default_factory=dict)
    command: Later | None = None
    bench: str | None = None
