"""What compiled_cache.db holds: list it, show one kernel, clear it, carry tuning elsewhere."""

from __future__ import annotations

import argparse
import datetime
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path

from kronop import compiler
from kronop.commands import parsing
from kronop.commands.parsing import Examples
from kronop.compiler.rows import Winner
from kronop.core import tuning_table
from kronop.errors import ArgumentError

EXAMPLES = {
    "cache list": "the kernels that are kept, and what was tuned",
    "cache clear": "begin anew",
}
_ACTIONS: Mapping[str, tuple[str, Examples]] = {
    "list": (
        "a line for each kernel, and for what was tuned",
        {"cache list": "key, target, size, time to compile, last use, name"},
    ),
    "show": (
        "one kernel: resources, compiler, log and source",
        {"cache show 3f2a": "the kernel whose key begins so in `kronop cache list`"},
    ),
    "clear": (
        "remove every kernel, and what tuning found",
        {"cache clear": "kernels compile again when they are next needed"},
    ),
    "export-tuning": (
        "write what tuning found to a table (JSON)",
        {"cache export-tuning tuned.json": "for other machines with this device"},
    ),
    "import-tuning": (
        "keep what such a table says",
        {"cache import-tuning tuned.json": "what `export-tuning` wrote elsewhere"},
    ),
}


def configure(parser: argparse.ArgumentParser) -> None:
    actions = parser.add_subparsers(dest="action", required=True)
    made = {
        name: parsing.add(actions, name, summary, examples)
        for name, (summary, examples) in _ACTIONS.items()
    }
    made["show"].add_argument("key", help="the first characters of its key, or its name")
    made["export-tuning"].add_argument("file", help="to write or to replace")
    made["import-tuning"].add_argument(
        "file", help="of export-tuning, from a machine with the same device"
    )


def execute(options: argparse.Namespace) -> None:
    cache = compiler.default_cache()
    with warnings.catch_warnings():  # What `require` raises says it already.
        warnings.simplefilter("ignore")
        cache.require(writable=options.action in ("clear", "import-tuning"))
    if options.action == "list":
        _list(cache)
    elif options.action == "show":
        _show(cache.show(_key(cache.list(), options.key)))
    elif options.action == "export-tuning":
        _export(cache, options.file)
    elif options.action == "import-tuning":
        _import(cache, options.file)
    else:
        print(f"removed {_count(cache.clear())} from {cache.path}")


def _export(cache: compiler.Cache, file: str) -> None:
    text = tuning_table.export_table()
    try:
        Path(file).write_text(text)
    except OSError as error:
        raise _unusable(file, error) from error
    print(f"wrote what tuning found in {cache.path}, {_winners(len(cache.winners()))}, to {file}")


def _import(cache: compiler.Cache, file: str) -> None:
    try:
        text = Path(file).read_text()
    except (OSError, UnicodeError) as error:
        raise _unusable(file, error) from error
    taken = tuning_table.import_table(text)
    print(
        f"kept in {cache.path}: {_winners(taken.here)} for this machine's devices,"
        f" {taken.elsewhere} for others"
    )


def _unusable(file: str, error: Exception) -> ArgumentError:
    reason = getattr(error, "strerror", None) or error
    return ArgumentError(
        "file", expected="one that can be used", got=f"{file}: {reason}", hint="see --help"
    )


def _winners(count: int) -> str:
    return "1 winner" if count == 1 else f"{count} winners"


def _key(entries: Sequence[compiler.Entry], text: str) -> str:
    """The key of the only kernel with the name `text`; `text` itself if no kernel has that name."""
    keys = [entry.key for entry in entries if entry.entry == text]
    if len(keys) > 1:
        raise ArgumentError(
            "key",
            expected="the name of one cached kernel",
            got=f"{text!r}, the name of {len(keys)}",
            hint=f"give one of their keys: {', '.join(key[:12] for key in keys)}",
        )
    return keys[0] if keys else text


def _count(kernels: int) -> str:
    return "1 kernel" if kernels == 1 else f"{kernels} kernels"


def _list(cache: compiler.Cache) -> None:
    entries = cache.list()
    print(f"{cache.path}: {_count(len(entries))}, {sum(entry.size for entry in entries)} bytes")
    for entry in entries:
        print(
            f"{entry.key[:12]}  {entry.arch:8}  {entry.size:8} bytes  {entry.seconds:6.2f} s"
            f"  {_time(entry.last_used)}  {entry.entry}"
        )
    winners = cache.winners()
    if winners:
        print(f"\ntuned: {_winners(len(winners))}")
    for winner in winners:
        print(_tuned(winner))


def _tuned(winner: Winner) -> str:
    """A line for a winner: its times tuned and untuned, its size, and the chosen candidate."""
    ms, untuned = (value / 1e6 for value in (winner.nanoseconds, winner.untuned_nanoseconds))
    chosen = f"candidate {winner.place}" if winner.place else "the planner's choice"
    return (
        f"{ms:10.4f} ms, untuned {untuned:.4f}  {winner.size} (kept for {winner.serves})"
        f"  {winner.name}  ({chosen} on {winner.device})"
    )


def _show(record: compiler.Record) -> None:
    binary = record.binary
    rows = {
        "key": binary.key,
        "kernel": binary.entry,
        "arch": binary.arch,
        "compiler": binary.compiler,
        "image": f"{len(binary.image)} bytes of {binary.format.value}",
        "registers": binary.resources.registers,
        "spilled bytes": binary.resources.spill_bytes,
        "static shared bytes": binary.resources.static_shared_bytes,
        "compiled in": f"{binary.seconds:.2f} s",
        "created": _time(record.created),
        "last used": _time(record.last_used),
    }
    for name, value in rows.items():
        print(f"{name + ':':21}{'not told' if value is None else value}")
    print(f"\n{binary.log.strip() or 'the compiler printed nothing'}\n\n{record.source}")


def _time(seconds: float) -> str:
    return datetime.datetime.fromtimestamp(seconds).strftime("%Y-%m-%d %H:%M:%S")
