"""What compilers that are commands say of themselves, asked again when their files change."""

from __future__ import annotations

import contextlib
import os
import shlex
import shutil
import subprocess
from collections.abc import Sequence

from kronop.compiler.commands import advice, run
from kronop.compiler.private_folder import private_folder
from kronop.errors import CompileError

_Stamp = tuple[tuple[str, int, int], ...]
_answers: dict[tuple[str, ...], tuple[_Stamp, tuple[str, ...]]] = {}


def version_of(command: Sequence[str], *, certain: bool = False) -> tuple[str, ...]:
    """The lines that `command --version` prints, but empty ones and those that name a path.

    An earlier answer is taken as long as the command's files are the same; where it has to be
    `certain`, the command is asked, for a script may lead to any compiler.

    Raises:
        CompileError: it can't be run, or does not tell.
    """
    key = tuple(command)
    stamp = _stamp(key)
    kept = _answers.get(key)
    if kept is not None and kept[0] == stamp and not certain:
        return kept[1]
    done = _asked(key)
    lines = [line for line in done.stdout.splitlines() if line.strip() and ": /" not in line]
    if done.returncode != 0 or not lines:
        raise CompileError(
            f"{shlex.join(key)} --version: expected a version, got {done.stderr[:200]!r}; "
            "mend or reinstall the compiler"
        )
    _answers[key] = stamp, tuple(lines)
    return tuple(lines)


def _asked(command: tuple[str, ...]) -> subprocess.CompletedProcess[str]:
    """In an empty folder: `python -m` also looks for packages in the current one."""
    try:
        with private_folder() as folder:
            return run([*command, "--version"], folder=str(folder))
    except OSError as error:
        hint = advice(error, otherwise="set TMPDIR to a folder of your own")
        raise CompileError(f"{command[0]} has no folder to work in ({error}); {hint}") from error


def _stamp(command: tuple[str, ...]) -> _Stamp:
    """(path without links, size, time of change) of each word that names a program.

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
