"""What every compiler offers, and what those that are commands share."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

from kronop.artifacts import BinaryFormat, Resources, Source
from kronop.compiler.commands import advice, run
from kronop.compiler.private_folder import private_folder, sweep
from kronop.errors import CompileError
from kronop.frozen import dataclass
from kronop.target import Target


@dataclass(frozen=True, slots=True, kw_only=True)
class Product:
    """What a compiler gave for one source."""

    image: bytes
    resources: Resources
    log: str


class RefusalError(Exception):
    """A compiler did not take a source; `log` is what it printed."""

    def __init__(self, log: str) -> None:
        super().__init__(log)
        self.log = log


class Compiler(Protocol):
    """One compiler. Every method may raise CompileError when the compiler is missing."""

    @property
    def format(self) -> BinaryFormat: ...

    def identity(self, *, certain: bool = False) -> str:
        """Name and full version, without paths: two identities are equal if the binaries are.

        Unless it has to be `certain`, it may be what an earlier process was told.
        """

    def flags(self, target: Target) -> tuple[str, ...]:
        """Every flag but include directories; they are part of the key."""

    def compile(self, source: Source, flags: tuple[str, ...]) -> Product:
        """The binary of `source`. Raises RefusalError with the log."""

    def assembly(self, source: Source, flags: tuple[str, ...]) -> str:
        """PTX or assembly of `source`, for people. Raises RefusalError with the log."""


def run_compiler(command: Sequence[str], source: Source, output: str) -> tuple[bytes, str]:
    """What `command` writes to `output` for `source`, and what it prints.

    It runs in an empty folder of its own, so that no header of the current folder is picked up and
    no other user can exchange what it reads and writes.

    Raises:
        RefusalError: the command failed, or ended well without a plain file `output`.
        CompileError: it can't be run at all, or does not end in time.
    """
    sweep()
    try:
        with private_folder() as folder:
            (folder / source.file_name).write_text(source.text, encoding="utf-8")
            done = run([*command, "-o", output, source.file_name], folder=str(folder))
            log = done.stdout + done.stderr
            if done.returncode != 0:
                raise RefusalError(log or f"exit status {done.returncode}")
            image = _plain_file(folder / output)
    except OSError as error:
        hint = advice(error, otherwise="set TMPDIR to a folder of your own")
        raise CompileError(f"{command[0]} has no folder to work in ({error}); {hint}") from error
    if image is None:
        raise RefusalError(f"{log}expected a file {output}, got none though the command ended well")
    return image, log


def _plain_file(path: Path) -> bytes | None:
    """The contents of `path`, or None where it is missing, a link, a pipe or anything the like."""
    if path.is_symlink() or not path.is_file():
        return None
    return path.read_bytes()


def include_flags(source: Source) -> list[str]:
    """`-I` for each include directory, absolute because compilers run in a folder of their own."""
    return [f"-I{os.path.abspath(directory)}" for directory in source.include_directories]
