"""Tuning results as a table in JSON, for other machines that have the same device.

An entry holds what was tuned, the winner's place among the planner's candidates, and digests. No
part of it is ever run: like a winner found on this machine, it is believed only if the planner's
candidate at that place has the entry's digest of sources.
"""

from __future__ import annotations

import dataclasses
import json

from kronop import compiler
from kronop.args.device import default_device
from kronop.compiler.keys import SCHEMA
from kronop.compiler.rows import Winner, checked_winner
from kronop.core import winners
from kronop.errors import ArgumentError, DescriptionError
from kronop.frozen import dataclass
from kronop.target import Target
from kronop.version import __version__

_KIND = "kronop tuning table"
# Above the numbers of an entry, which SQLite keeps in 64 bits.
_MOST = 1 << 63


@dataclass(frozen=True, slots=True, kw_only=True)
class Imported:
    """How many entries were imported: for the devices of this machine, and for other devices."""

    here: int
    elsewhere: int


def export_table() -> str:
    """All tuning results in compiled_cache.db, as JSON."""
    entries = [
        {**dataclasses.asdict(item), "checksum": item.checksum}
        for item in compiler.default_cache().winners()
    ]
    head = {"kind": _KIND, "kronop": __version__, "schema": SCHEMA}
    return json.dumps({**head, "winners": entries}, indent=1) + "\n"


def import_table(text: str) -> Imported:
    """Stores the entries of an exported table; they replace what was found here for the same key.

    An entry for the same GPU model as this machine's is stored for this machine's driver version.

    Raises:
        ArgumentError: the text is not such a table, is from another version of kronop, or has a
            damaged entry. Nothing is stored then.
    """
    found = [_checked(index, entry) for index, entry in enumerate(_entries(text))]
    own = [_adopted(item) for item in found]
    for item, adopted in zip(found, own, strict=True):
        winners.keep(adopted or item)
    here = sum(item is not None for item in own)
    return Imported(here=here, elsewhere=len(found) - here)


def _entries(text: str) -> list[object]:
    try:
        table = json.loads(text)
    except (ValueError, TypeError, RecursionError) as error:
        raise _refused(f"no JSON ({error})", "export it again") from error
    if not isinstance(table, dict) or table.get("kind") != _KIND:
        raise _refused("something else", "give a file of `cache export-tuning`")
    version, schema = (table.get(name) for name in ("kronop", "schema"))
    if (version, schema) != (__version__, SCHEMA):
        is_told = _is_shown(version) and type(schema) is int and 0 <= schema < 1000
        of = f"kronop {version}, schema {schema}" if is_told else "no version of kronop"
        raise _refused(f"one of {of}", "tune with this version and export")
    entries = table.get("winners")
    if not isinstance(entries, list):
        raise _refused("one without a list of winners", "export it again")
    return entries


def _checked(index: int, entry: object) -> Winner:
    found = checked_winner(entry) if isinstance(entry, dict) else None
    if found is None or found.key != winners.key_of(
        found.description, found.target, found.device, found.size
    ):
        raise _refused(f"entry {index}, which is not what its digest is of", "export it again")
    # A digest says nothing about who wrote the entry.
    values = dataclasses.astuple(found)
    if not all(_is_shown(it) if isinstance(it, str) else it < _MOST for it in values):
        got = f"entry {index} with text that is not printed or a number beyond 64 bits"
        raise _refused(got, "export it again")
    try:
        _target_of(found)
    except DescriptionError as error:
        raise _refused(f"entry {index} ({error})", "tune with this version and export") from error
    return found


def _target_of(found: Winner) -> Target:
    """The target of that name, for whatever card of it."""
    return Target.parse(found.target.partition(":")[0])


def _is_shown(text: object) -> bool:
    """Whether it is text that terminals only print: without escape sequences and the like."""
    return isinstance(text, str) and text.isprintable()


def _refused(got: str, hint: str) -> ArgumentError:
    expected = f"a {_KIND} of kronop {__version__}, schema {SCHEMA}"
    return ArgumentError("tuning table", expected=expected, got=got, hint=hint)


def _adopted(found: Winner) -> Winner | None:
    """The entry rewritten for this machine's device; None if that is of another model."""
    target = _target_of(found)
    if target.backend == "cuda" and not compiler.cuda_devices():
        return None
    index = default_device().index if target.backend == "cuda" else 0
    device = winners.machine(target, index)
    if winners.model(device) != winners.model(found.device):
        return None
    return winners.on_device(found, device)
