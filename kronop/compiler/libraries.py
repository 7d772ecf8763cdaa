"""Host libraries for other programs: objects, shared libraries and archives of several sources."""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence

from kronop.artifacts import Source
from kronop.compiler.backend import RefusalError
from kronop.compiler.commands import run
from kronop.compiler.host_backend import HostCompiler
from kronop.compiler.private_folder import private_folder
from kronop.errors import CompileError
from kronop.target import Target

# Libraries need no C++ library at run time, and show no names but those that a header exports.
_OWN_FLAGS = ("-c", "-fvisibility=hidden", "-fno-exceptions", "-fno-rtti")


def object_file(source: Source, target: Target, options: Sequence[str] = ()) -> bytes:
    """The object of one source, for position-independent code.

    Raises:
        CompileError: there is no compiler, or it refused the source.
    """
    compiler = HostCompiler()
    compiler.identity(certain=True)
    flags = [flag for flag in compiler.flags(target) if flag != "-shared"]
    every = [*flags, *source.options, *_OWN_FLAGS, *options]
    try:
        return compiler.made(source, every, "kernel.o")[0]
    except RefusalError as refusal:
        told = f"{compiler.command[0]} refused it\n{refusal.log.rstrip()}"
        raise CompileError(f"{source.entry} for {target}: {told}", log=refusal.log) from None


def openmp_library(target: Target) -> str | None:
    """The name of the OpenMP runtime that objects need; None if kernels have one thread."""
    compiler = HostCompiler()
    if "-fopenmp" not in compiler.flags(target):
        return None
    return "omp" if "clang" in compiler.identity() else "gomp"


def shared_library(objects: Mapping[str, bytes], name: str, target: Target) -> bytes:
    """The objects, by file name, linked to the shared library `name`.

    Raises:
        CompileError: the linker refused them.
    """
    compiler = HostCompiler()
    flags = [flag for flag in compiler.flags(target) if flag in ("-fopenmp", "-nostdlib")]
    own = ["-shared", "-Wl,--as-needed", f"-Wl,-soname,{name}", *flags]
    return _made([*compiler.command, *own, "-o", name], objects, name, ["-lm", "-lc"])


def archive(objects: Mapping[str, bytes], name: str) -> bytes:
    """The objects, by file name, in the static library `name`.

    Raises:
        CompileError: there is no `ar`.
    """
    if shutil.which("ar") is None:
        raise CompileError(
            "a static library",
            expected="the program ar on PATH",
            got="none",
            hint="install binutils",
        )
    return _made(["ar", "rcs", name], objects, name, [])


def _made(
    command: Sequence[str], objects: Mapping[str, bytes], output: str, last: Sequence[str]
) -> bytes:
    with private_folder() as folder:
        for name, content in objects.items():
            (folder / name).write_bytes(content)
        done = run([*command, *objects, *last], folder=str(folder))
        if done.returncode:
            log = done.stdout + done.stderr
            raise CompileError(f"{output}: {command[0]} refused it\n{log.rstrip()}", log=log)
        return (folder / output).read_bytes()
