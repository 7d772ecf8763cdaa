"""What a family of operations declares. All else is found from here, when it is first needed.

A family is a folder in `kronop/families/`, whose `__init__` holds its `Family`: names and places,
so that importing kronop imports neither planners nor arguments.
"""

from __future__ import annotations

import functools
import importlib
from collections.abc import Mapping
from dataclasses import field
from typing import Any

from kronop.emit.emitter import Emitter
from kronop.errors import DescriptionError, mismatch
from kronop.frozen import dataclass
from kronop.size import Rows, Size
from kronop.target import Target


@dataclass(frozen=True, slots=True)
class Later:
    """An object of a module that is imported when the object is first asked for."""

    module: str
    name: str

    def get(self) -> Any:
        return getattr(importlib.import_module(self.module), self.name)


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Kind:
    """One kind of operation.

    Attributes:
        name: what it is, in words: "Kronecker-sparse".
        description: the class of its descriptions. Their fields are `math`, `tile`, tensor
            descriptions by the names of the operands, `Y`, `epilogue`, and then what else decides
            it: sizes, sides, flags.
        emitters: the classes that plan it, by the target's backend.
        inputs: the operands that are described, without Y.
        size: the class of what may vary between runs of one operation.
        sample: what else a small description is made of, for the support matrix and for tests.
    """

    name: str
    description: Later
    emitters: Mapping[str, Later]
    inputs: tuple[str, ...]
    sample: Mapping[str, Any] = field(default_factory=dict)
    size: type[Size] = Rows

    def emitter(self, target: Target) -> Emitter[Any, Any]:
        """What plans it for a target.

        Raises:
            DescriptionError: there is no kernel of that kind for it.
        """
        found = self.emitters.get(target.backend)
        if found is None:
            raise DescriptionError(
                mismatch(
                    f"target of a {self.description.name.removesuffix('Description')}Operation",
                    expected=f"one of {', '.join(sorted(self.emitters))}",
                    got=target.name,
                    hint="no kernel of that family is there for this target",
                )
            )
        return _made(found)


@functools.cache
def _made(emitter: Later) -> Emitter[Any, Any]:
    made: Emitter[Any, Any] = emitter.get()()
    return made


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Family:
    """Kinds of operations that belong together.

    Attributes:
        name: in commands: `python -m kronop show kron ...`.
        kinds: its operations.
        exports: public names, and the module that has each.
        torch: the same of `kronop.torch`, whose modules import torch.
        command: how its operations are written on the command line, an object as `Command`; None
            where they are not.
        bench: the module of `python -m kronop bench <name>`, or None.
    """

    name: str
    kinds: tuple[Kind, ...]
    exports: Mapping[str, str]
    torch: Mapping[str, str] = field(default_factory=dict)
    command: Later | None = None
    bench: str | None = None
