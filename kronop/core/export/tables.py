"""Recorded variants as the constant tables of a C file."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from kronop.core.export.record import CASES, Call, Recorder, Variant, every_case
from kronop.frozen import dataclass
from kronop.size import Size

_MOST_COLUMNS = 120


@dataclass(frozen=True, slots=True, kw_only=True)
class Tables:
    """All variants of an export.

    Attributes:
        variants: the distinct ones.
        choice: for each number of rows and of threads, the variant of each case; -1 where
            there is no such case.
    """

    variants: tuple[Variant, ...]
    choice: tuple[tuple[tuple[int, ...], ...], ...]

    def most_words(self) -> int:
        return max(len(call.words) for item in self.variants for call in item.calls)


def recorded(
    recorder: Recorder, sizes: Sequence[Size], threads: Sequence[int], has_bias: bool
) -> Tables:
    """The variants of all sizes, numbers of threads and cases."""
    known: dict[Variant, int] = {}

    def one(size: Size, count: int) -> tuple[int, ...]:
        row = [-1] * CASES
        for case in every_case(has_bias):
            variant = recorder.variant(size, count, case)
            row[case.index] = known.setdefault(variant, len(known))
        return tuple(row)

    choice = tuple(tuple(one(size, count) for count in threads) for size in sizes)
    return Tables(variants=tuple(known), choice=choice)


class _Pool:
    """Rows of values in one long array, equal runs of them once."""

    def __init__(self) -> None:
        self.items: list[str] = []
        self._places: dict[tuple[str, ...], int] = {}

    def place(self, items: Iterable[str]) -> int:
        key = tuple(items)
        if key not in self._places:
            self._places[key] = len(self.items)
            self.items += key
        return self._places[key]


def table_text(tables: Tables, step_of: Mapping[tuple[int, int], int]) -> str:
    """The tables in C. `step_of` is the exported step of (plan, step of the plan)."""
    words, patches, calls = _Pool(), _Pool(), _Pool()
    variants = []
    for item in tables.variants:
        own = [_call(call, step_of[item.plan, call.step], words, patches) for call in item.calls]
        variants.append(f"{{{calls.place(own)}, {len(own)}, {item.workspace_bytes}ull}}")
    counts, teams = len(tables.choice), len(tables.choice[0])
    every = [str(place) for rows in tables.choice for team in rows for place in team]
    return "\n".join(
        [
            _array("uint64_t kronop_words[]", words.items),
            _array("KronopPatch kronop_patches[]", patches.items or ["{0}"]),
            _array("KronopCall kronop_calls[]", calls.items),
            _array("KronopVariant kronop_variants[]", variants),
            _array(f"int32_t kronop_choice[{counts}][{teams}][{CASES}]", _nested(every, teams)),
        ]
    )


def _nested(items: Sequence[str], teams: int) -> list[str]:
    rows = [", ".join(items[at : at + CASES]) for at in range(0, len(items), CASES)]
    rows = [f"{{{row}}}" for row in rows]
    return [f"{{{', '.join(rows[at : at + teams])}}}" for at in range(0, len(rows), teams)]


def _call(call: Call, step: int, words: _Pool, patches: _Pool) -> str:
    own = [f"{{{at}, {slot}, 0, {offset}}}" for at, slot, offset in call.addresses]
    own += [f"{{{at}, {index}, 1, 0}}" for at, index in call.scalars]
    first_word = words.place(f"{word:#x}" if word > 9 else str(word) for word in call.words)
    return (
        f"{{{step}, {len(call.words)}, {len(own)}, {int(call.overlaps)}, {first_word},"
        f" {patches.place(own)}, {_three(call.grid)}, {_three(call.block)}, {call.shared_bytes}}}"
    )


def _three(counts: tuple[int, int, int]) -> str:
    return f"{{{', '.join(map(str, counts))}}}"


def _array(declared: str, items: Sequence[str]) -> str:
    return f"static const {declared} = {{\n{filled(items)}\n}};"


def filled(items: Sequence[str]) -> str:
    """The items with commas between them, in lines that are as full as can be."""
    lines, line = [], "   "
    for item in items:
        if len(line) + len(item) > _MOST_COLUMNS and line.strip():
            lines.append(line)
            line = "   "
        line += f" {item},"
    return "\n".join([*lines, line])
