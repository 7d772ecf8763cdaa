"""The versions of compilers that are commands; asked for again when the compiler's files change."""

from __future__ import annotations

import contextlib
import os
import shlex
import shutil
import subprocess
from collections.abc import Callable, Sequence

from kronop.compiler.cache import Cache
from kronop.compiler.commands import advice, run
from kronop.compiler.keys import digest
from kronop.compiler.private_folder import private_folder
from kronop.compiler.rows import Memo
from kronop.errors import CompileError

_Stamp = tuple[tuple[str, int, int], ...]
_ELF = b"\x7fELF"
_answers: dict[tuple[str, ...], tuple[_Stamp, tuple[str, ...]]] = {}


def version_of(
    command: Sequence[str], *, certain: bool = False, cache: Callable[[], Cache] | None = None
) -> tuple[str, ...]:
    """The lines that `command --version` prints, without empty lines and lines that name a path.

    A remembered answer is used as long as the command's files have not changed. With `certain` the
    command is asked again, because a script may start any compiler. `cache` returns the cache with
    the answers given to earlier processes; it is used only for compilers that are no scripts.

    Raises:
        CompileError: the command can't be run, or prints no version.
    """
    key = tuple(command)
    stamp = _stamp(key)
    kept = _answers.get(key)
    if kept is not None and kept[0] == stamp and not certain:
        return kept[1]
    store = cache() if cache is not None and _is_program(key, stamp) else None
    lines = _recalled(store, key, stamp) if store is not None and not certain else ()
    if not lines:
        lines = _told(key)
        if store is not None:
            store.remember(_memo(key, stamp, lines))
    _answers[key] = stamp, lines
    return lines


def _is_program(command: tuple[str, ...], stamp: _Stamp) -> bool:
    """Whether the command is a compiler's own binary, not a script or a wrapper such as ccache."""
    if len(command) != 1 or len(stamp) != 1:
        return False
    path = stamp[0][0]
    if not any(name in os.path.basename(path) for name in ("g++", "clang")):
        return False
    try:
        with open(path, "rb") as file:
            return file.read(len(_ELF)) == _ELF
    except OSError:
        return False


def _recalled(cache: Cache, command: tuple[str, ...], stamp: _Stamp) -> tuple[str, ...]:
    memo = cache.recall(_place(command))
    is_same = memo is not None and memo.stamp == digest(stamp)
    return tuple(memo.identity.splitlines()) if memo is not None and is_same else ()


def _memo(command: tuple[str, ...], stamp: _Stamp, lines: tuple[str, ...]) -> Memo:
    identity = "\n".join(lines)
    return Memo(place=_place(command), library=command[0], stamp=digest(stamp), identity=identity)


def _place(command: tuple[str, ...]) -> str:
    return digest("--version", command)


def _told(command: tuple[str, ...]) -> tuple[str, ...]:
    done = _asked(command)
    lines = [line for line in done.stdout.splitlines() if line.strip() and ": /" not in line]
    if done.returncode != 0 or not lines:
        raise CompileError(
            f"{shlex.join(command)} --version: expected a version, got {done.stderr[:200]!r}; "
            "mend or reinstall the compiler"
        )
    return tuple(lines)


def _asked(command: tuple[str, ...]) -> subprocess.CompletedProcess[str]:
    """Runs `command --version` in an empty folder, because `python -m` also searches the current
    folder for packages."""
    try:
        with private_folder() as folder:
            return run([*command, "--version"], folder=str(folder))
    except OSError as error:
        hint = advice(error, otherwise="set TMPDIR to a folder of your own")
        raise CompileError(f"{command[0]} has no folder to work in ({error}); {hint}") from error


def _stamp(command: tuple[str, ...]) -> _Stamp:
    """(resolved path, size, time of modification) of each word that names a program.

    There may be several, as in `ccache g++`.
    """
    found = []
    for word in command:
        path = None if word.startswith("-") else shutil.which(word)
        if path is None:
            continue
        real = os.path.realpath(path)
        with contextlib.suppress(FileNotFoundError):
            status = os.stat(real)
            found.append((real, status.st_size, status.st_mtime_ns))
    return tuple(found)
