"""The interface of all compilers, and helpers for compilers that are commands."""

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
    """The output of a compiler for one source."""

    image: bytes
    resources: Resources
    log: str
    is_ptx: bool = False


class RefusalError(Exception):
    """A compiler refused a source; `log` is its output."""

    def __init__(self, log: str) -> None:
        super().__init__(log)
        self.log = log


class Compiler(Protocol):
    """One compiler. Every method may raise CompileError when the compiler is missing."""

    @property
    def format(self) -> BinaryFormat: ...

    def identity(self, *, certain: bool = False) -> str:
        """The name and full version, without paths, so that equal compilers in different folders
        have equal identities.

        With `certain` the compiler itself is asked; else the answer may be a remembered one.
        """

    def flags(self, target: Target) -> tuple[str, ...]:
        """All flags except include directories; they are part of the cache key."""

    def completed(self, source: Source) -> Source:
        """The source with the folders of headers that this compiler has to be told."""

    def compile(self, source: Source, flags: tuple[str, ...]) -> Product:
        """The binary of `source`. Raises RefusalError with the log."""

    def assembly(self, source: Source, flags: tuple[str, ...]) -> str:
        """PTX or assembly of `source`, to be read. Raises RefusalError with the log."""


def run_compiler(command: Sequence[str], source: Source, output: str) -> tuple[bytes, str]:
    """(the contents of the file `output` that `command` makes from `source`, its printed output).

    The command runs in a new empty folder, so that it picks up no header from the current folder
    and no other user can replace the files that it reads and writes.

    Raises:
        RefusalError: the command failed, or succeeded without making a plain file `output`.
        CompileError: the command can't be run, or does not end in time.
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
    """The contents of `path`; None if it is not a plain file (missing, a link, a pipe, ...)."""
    if path.is_symlink() or not path.is_file():
        return None
    return path.read_bytes()


def include_flags(source: Source) -> list[str]:
    """`-I` for each include directory; absolute, because compilers run in another folder."""
    return [f"-I{os.path.abspath(directory)}" for directory in source.include_directories]
