"""Kernels compiled many at a time: headers are read, and what kernels share is made, once for all.

Before the first test of a file conftest.py has all of its tests tell which kernels they are about
to run (`gathering`), and builds those (`build_all`). A kernel that is not there yet when a test
runs it is built alone, so that what does not compile fails the tests that need it and no others.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import hashlib
import itertools
import os
import re
import shutil
import subprocess
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

# Each time takes as long as a kernel or two; with more at a time the compiler takes much memory.
_MOST = 96
# Nothing throws, and what would let it takes an eighth of the time.
_NO_EXCEPTIONS = ("-fno-exceptions", "-fno-asynchronous-unwind-tables")
_FLAGS = ("-std=c++20", "-w", "-mf16c", "-mfma", "-fPIC", "-shared", *_NO_EXCEPTIONS)
# Every kernel has a Step: constants of one must not stand for those of another.
_LOCAL = "-fno-gnu-unique"
_gathered: dict[str, Unit] | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Unit:
    """Text of a kernel, where `NAME` stands for what no other is called, and flags for it alone.

    Kernels of several shapes may differ in nothing but the comment that says which: they are one.
    """

    text: str
    flags: tuple[str, ...]

    @property
    def name(self) -> str:
        whole = "\0".join((*_code(self.text), *self.flags))
        return f"kernel_{hashlib.sha256(whole.encode()).hexdigest()[:16]}"

    @property
    def lines(self) -> tuple[list[str], list[str]]:
        """Those that include headers, and the others in a namespace of their own."""
        code = _code(self.text)
        heads = [line for line in code if line.startswith("#include")]
        body = [line for line in code if not line.startswith("#include")]
        # What it finds in the global namespace when it is alone.
        inside = re.sub(r"(?<![\w>])::", f"::in_{self.name}::", "\n".join(body))
        named = inside.replace("NAME", self.name)
        return heads, [f"namespace in_{self.name} {{", named, "}"]


@functools.cache
def _code(text: str) -> tuple[str, ...]:
    """Lines without comments."""
    lines = (line.partition("//")[0].rstrip() for line in text.splitlines())
    return tuple(line for line in lines if line)


def host_compiler() -> str | None:
    """A g++, whose extensions the emulation leans on; None where there is none."""
    return shutil.which(os.environ.get("CXX", "g++"))


def folder() -> Path:
    """For kernels of this run of the tests, shared by its processes: see tests/conftest.py."""
    shared = Path(os.environ["KRONOP_CACHE_DIR"], "emulation")
    shared.mkdir(mode=0o700, exist_ok=True)
    return shared


@contextlib.contextmanager
def gathering() -> Iterator[list[Unit]]:
    """Kernels that are asked for are noted, not built; the list is filled at the end."""
    global _gathered
    _gathered, noted = {}, []
    try:
        yield noted
    finally:
        noted += _gathered.values()
        _gathered = None


def is_gathering() -> bool:
    """Whether kernels are noted, not built."""
    return _gathered is not None


def note(units: Iterable[Unit]) -> bool:
    """Whether kernels are being gathered; if so, these are."""
    if _gathered is None:
        return False
    _gathered.update((item.name, item) for item in units)
    return True


def build_all(units: Iterable[Unit], folder: Path) -> None:
    """Builds those that are not there yet; what does not compile is left to its tests."""
    missing = [item for item in units if not (folder / f"{item.name}.so").exists()]

    def kind(item: Unit) -> tuple[tuple[str, ...], list[str]]:
        return item.flags, item.lines[0]

    for _, alike in itertools.groupby(sorted(missing, key=kind), key=lambda item: item.flags):
        units = list(alike)
        for first in range(0, len(units), _MOST):
            with contextlib.suppress(subprocess.CalledProcessError):
                _build(units[first : first + _MOST], folder)


def load(item: Unit, folder: Path) -> Any:
    """The function that is called as the kernel is."""
    library = folder / f"{item.name}.so"
    if not library.exists():
        _build([item], folder)
    return getattr(ctypes.CDLL(str(library)), item.name)


def _build(units: Sequence[Unit], folder: Path) -> None:
    """One library for all of them, which each of them has a link to."""
    parts = [item.lines for item in units]
    heads = dict.fromkeys(line for head, _ in parts for line in head)
    text = "\n".join([*heads, *(line for _, body in parts for line in body)])
    # Another process may build the same.
    name = f"{hashlib.sha256(text.encode()).hexdigest()[:16]}-{os.getpid()}"
    code, library = folder / f"{name}.cpp", folder / f"{name}.so"
    code.write_text(text)
    compiler = host_compiler()
    if compiler is None:
        raise FileNotFoundError("no g++ to build the emulation with")
    flags = _with_precompiled(compiler, (*_FLAGS, _LOCAL, *units[0].flags), folder)
    command = [compiler, *flags, str(code), "-o", str(library)]
    subprocess.run(command, check=True, capture_output=True, text=True)
    for item in units:
        with contextlib.suppress(FileExistsError):
            (folder / f"{item.name}.so").symlink_to(library)


def _with_precompiled(compiler: str, flags: tuple[str, ...], folder: Path) -> tuple[str, ...]:
    """The flags, with the header that they include compiled once for all libraries: it takes as
    long as two kernels."""
    if "-include" not in flags:
        return flags
    at = flags.index("-include") + 1
    others = [flag for flag in (*flags[: at - 1], *flags[at + 1 :]) if not flag.startswith("-I")]
    text = f'#include "{flags[at]}"\n'
    name = hashlib.sha256("\0".join((text, *others)).encode()).hexdigest()[:16]
    header = folder / f"{name}.hpp"
    compiled = header.with_suffix(".hpp.gch")
    if not compiled.exists():
        # Another process may do the same.
        mine = folder / f"{name}-{os.getpid()}.hpp"
        mine.write_text(text)
        made = mine.with_suffix(".gch")
        command = [compiler, *others, "-x", "c++-header", str(mine), "-o", str(made)]
        subprocess.run(command, check=True, capture_output=True, text=True)
        mine.replace(header)
        made.replace(compiled)
    return (*flags[:at], str(header), *flags[at + 1 :])
