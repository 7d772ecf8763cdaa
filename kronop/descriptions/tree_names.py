"""The names in a visitor tree: of parameters and of results. Kernels have none of them."""

from __future__ import annotations

from collections.abc import Sequence

from kronop.descriptions.identifiers import is_identifier
from kronop.errors import DescriptionError, shown

ACCUMULATOR = "accumulator"
# Names that `epilogue_type` takes for something else, and what graphs call the sums.
_KEPT_NAMES = frozenset({"D", "problem_size", "self"})
_OWN_NAMES = _KEPT_NAMES | {ACCUMULATOR}


def check(operands: Sequence[str], results: Sequence[object]) -> None:
    """Raises DescriptionError for a name that is there twice, that `epilogue_type` takes for
    something else, or that a parameter of a function in C or C++ cannot have."""
    taken: set[object] = set()
    for name in operands:
        if not is_identifier(name) or name in {*taken, *_OWN_NAMES}:
            raise _misnamed(
                f"parameter {shown(name)}",
                "a name of C++ that is there once, without two underscores in a row or one in"
                " front",
                _OWN_NAMES,
            )
        taken.add(name)
    for place, result in enumerate(results):
        kept = _KEPT_NAMES - {"D"} if place == 0 else _KEPT_NAMES
        if not isinstance(result, str) or not result.isidentifier() or result in {*taken, *kept}:
            raise _misnamed(f"result {shown(result)}", "a name that is there once", kept)
        taken.add(result)


def _misnamed(what: str, expected: str, kept: frozenset[str]) -> DescriptionError:
    return DescriptionError(
        "a name in a visitor tree",
        expected=f"{expected}; none of {', '.join(sorted(kept))}",
        got=what,
        hint="rename the parameter or the result",
    )
