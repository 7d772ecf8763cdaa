"""What every compiler offers, and what those that are commands share."""

from __future__ import annotations

import os
import subprocess
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from kronop.artifacts import BinaryFormat, Resources, Source
from kronop.errors import CompileError
from kronop.target import Target

# Variables that change what a compiler makes of the same command: no key would notice them.
_HIDDEN_INPUTS = (
    "CPATH",
    "C_INCLUDE_PATH",
    "CPLUS_INCLUDE_PATH",
    "GCC_EXEC_PREFIX",
    "COMPILER_PATH",
    "LIBRARY_PATH",
    "LD_RUN_PATH",
    "CCC_OVERRIDE_OPTIONS",
    "NVCC_PREPEND_FLAGS",
    "NVCC_APPEND_FLAGS",
    "NVCC_CCBIN",
    "SOURCE_DATE_EPOCH",
)


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

    It runs in an empty folder of its own, so that no header of the current folder is picked up.

    Raises:
        RefusalError: the command failed.
        CompileError: it can't be run at all.
    """
    with tempfile.TemporaryDirectory(prefix="kronop-") as folder:
        Path(folder, source.file_name).write_text(source.text, encoding="utf-8")
        done = run([*command, "-o", output, source.file_name], folder=folder)
        log = done.stdout + done.stderr
        if done.returncode != 0:
            raise RefusalError(log or f"exit status {done.returncode}")
        return Path(folder, output).read_bytes(), log


def run(command: Sequence[str], *, folder: str | None = None) -> subprocess.CompletedProcess[str]:
    """`command` with its output captured, in an environment without hidden inputs.

    Raises:
        CompileError: the command can't be started.
    """
    environment = {name: text for name, text in os.environ.items() if name not in _HIDDEN_INPUTS}
    environment["LC_ALL"] = "C"
    try:
        return subprocess.run(
            command,
            cwd=folder,
            env=environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            check=False,
        )
    except OSError as error:
        raise CompileError(f"{command[0]} can't be run ({error}); mend or reinstall it") from error


def include_flags(source: Source) -> list[str]:
    """`-I` for each include directory, absolute because compilers run in a folder of their own."""
    return [f"-I{os.path.abspath(directory)}" for directory in source.include_directories]
