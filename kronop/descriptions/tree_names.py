"""The names in a visitor tree: of parameters, which emitted code has too, and of results."""

from __future__ import annotations

from collections.abc import Sequence

from kronop.descriptions.expression import is_identifier
from kronop.errors import DescriptionError, mismatch

ACCUMULATOR = "accumulator"
# Names that `epilogue_type` takes for something else, and those of the emitted functor besides.
_KEPT_NAMES = frozenset({"D", "problem_size", "self"})
_OWN_NAMES = _KEPT_NAMES | {
    *(ACCUMULATOR, "at", "scalars", "math", "kronop"),
    *("Compute", "Scalar", "At", "Epilogue", "Operands", "Results", "kOperands", "kResults"),
}


def check(operands: Sequence[str], results: Sequence[object]) -> None:
    """Raises DescriptionError for a name that is there twice, that `epilogue_type` or the emitted
    code has for something else, or that a parameter in C++ cannot have."""
    taken: set[object] = set()
    for name in operands:
        if not is_identifier(name) or name in {*taken, *_OWN_NAMES}:
            raise _misnamed(
                f"parameter {name!r}",
                "a name of C++ that is there once, without two underscores in a row or one in"
                " front, and not v0, v1, ...",
                _OWN_NAMES,
            )
        taken.add(name)
    for place, result in enumerate(results):
        kept = _KEPT_NAMES - {"D"} if place == 0 else _KEPT_NAMES
        # Emitted code has no names of results.
        if not str(result).isidentifier() or result in {*taken, *kept}:
            raise _misnamed(f"result {result!r}", "a name that is there once", kept)
        taken.add(result)


def _misnamed(what: str, expected: str, kept: frozenset[str]) -> DescriptionError:
    return DescriptionError(
        mismatch(
            "a name in a visitor tree",
            expected=f"{expected}; none of {', '.join(sorted(kept))}",
            got=what,
            hint="rename the parameter or the result",
        )
    )
