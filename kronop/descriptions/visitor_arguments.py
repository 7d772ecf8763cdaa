"""What a run of a visitor tree is given: scalars, operands and results, by name."""

from __future__ import annotations

import weakref
from collections.abc import Mapping, Sequence
from typing import Any

from kronop.descriptions.epilogue import Epilogue
from kronop.descriptions.scalars import EpilogueArguments, scalar
from kronop.descriptions.tile import whole
from kronop.errors import ArgumentError
from kronop.tensors import Tensor


class VisitorArguments(EpilogueArguments):
    """The scalars, operands and results of a visitor tree for one run.

    Attributes:
        epilogue: the tree with its types.
        first: the tree's name of D.
        scalars: in the order of the tree's parameters.
        tensors: the operands in memory, by name.
        results: the tensors of the results that were given, by name; D may be missing.
        problem_size: (M, N), or None.
    """

    epilogue: Epilogue
    first: str
    tensors: Mapping[str, Tensor]
    results: Mapping[str, Tensor]
    problem_size: tuple[int, int] | None

    @classmethod
    def of(
        cls,
        epilogue: Epilogue,
        operands: Sequence[str],
        results: Sequence[str],
        scalars: Sequence[float],
        given: Mapping[str, Any],
    ) -> VisitorArguments:
        """See `VisitorEpilogue.epilogue_type`; operands and results are those of its tree."""
        given, (first, *auxiliary) = dict(given), results
        if "D" in given and first != "D":
            own = given.pop("D")
            if given.setdefault(first, own) is not own:
                raise ArgumentError(
                    "D",
                    expected=f"the same tensor as {first}, which is the tree's name of D",
                    got="another one",
                    hint="give the first result once",
                )
        size = given.pop("problem_size", None)
        needed = [*operands, *auxiliary]
        missing = [name for name in needed if given.get(name) is None]
        unknown = [name for name in given if name not in (*needed, first)]
        if scalars or missing or unknown:
            got = ", ".join(given) or "none"
            raise ArgumentError(
                "epilogue_type of a visitor tree",
                expected=f"by their names {', '.join(needed) or 'no operands'}, and D",
                got=f"{len(scalars)} without a name and {got}" if scalars else got,
                hint=f"give {', '.join(missing)}" if missing else "give no others",
            )
        named, kind = epilogue.scalar_names, epilogue.element_epilogue
        made = cls(tuple(scalar(name, given[name], kind) for name in named), has_beta=False)
        made.epilogue, made.first = epilogue, first
        made.tensors = {name: given[name] for name in operands if name not in named}
        made.results = {name: given[name] for name in results if given.get(name) is not None}
        made.problem_size = None if size is None else _checked(size)
        made._runs = weakref.WeakSet()
        return made

    _runs: weakref.WeakSet[Any]

    # Identity: tensors do not compare.
    __eq__ = object.__eq__
    __hash__ = object.__hash__

    @property
    def alpha(self) -> float:
        """1: what a tree multiplies sums by, it says itself."""
        return 1.0

    @property
    def beta(self) -> float:
        """0: a tree has no source but its own operands."""
        return 0.0

    def attach(self, arguments: Any) -> None:
        """Tells whose runs `sync` waits for."""
        self._runs.add(arguments)

    def sync(self) -> None:
        """Waits for the last runs with these arguments, and copies results to host tensors."""
        for arguments in tuple(self._runs):
            arguments.sync()


def _checked(size: object) -> tuple[int, int]:
    found = [whole(item) for item in size] if isinstance(size, Sequence) else []
    extents = [item for item in found if isinstance(item, int) and item >= 0]
    if len(found) != 2 or found != extents:
        raise ArgumentError(
            "problem_size", expected="[M, N]", got=repr(size), hint="the extents of D"
        )
    return extents[0], extents[1]
