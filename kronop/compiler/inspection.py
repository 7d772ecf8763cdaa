"""Debugging aids: dumped and overridden sources, and the reports that KRONOP_DEBUG prints."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import shutil
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

from kronop import knobs
from kronop.artifacts import Binary, BinaryFormat, Source
from kronop.compiler.commands import run
from kronop.compiler.folders import UntrustedError, cache_folder, make_private_folder
from kronop.compiler.keys import digest
from kronop.compiler.nvcc_backend import find_cuda_tool
from kronop.compiler.private_folder import private_folder

_LEFT_AT_MOST = 16


def file_name(emitted: Source) -> str:
    """The name of the file to which an emitted source is dumped, and that may override it.

    Kernels with the same entry name may differ in epilogue, layouts or tile, so the file name has a
    digest of the text as it was emitted; editing the dumped file does not change its name.
    """
    return f"{emitted.entry}-{digest(emitted.text)[:8]}{emitted.language.value}"


def overridden(emitted: Source) -> Source:
    """`emitted`; its text is replaced if the folder `override_dir` (a knob) has a file for it."""
    folder = knobs.current().override_dir
    if folder is None or not (folder / file_name(emitted)).is_file():
        return emitted
    return dataclasses.replace(emitted, text=(folder / file_name(emitted)).read_text("utf-8"))


def dump(source: Source, name: str) -> None:
    """Writes `source` to the file `name` in the folder `dump_dir`, if that knob is set."""
    folder = knobs.current().dump_dir
    if folder is not None:
        _write(folder, source, name)


def leave(source: Source, name: str) -> Path:
    """Writes `source` to a file for a person to read, in `dump_dir` or beside the cache.

    Beside the cache only the latest files are kept. If that folder can't be used, the file goes
    into a temporary folder of this process.
    """
    chosen = knobs.current().dump_dir
    if chosen is not None:
        return _write(chosen, source, name)
    try:
        make_private_folder(cache_folder())
        folder = cache_folder() / "refused"
        make_private_folder(folder)
        path = _write(folder, source, name)
    except (OSError, UntrustedError):
        return _write(_temporary_folder(), source, name)
    _drop_oldest(folder)
    return path


@functools.cache
def _temporary_folder() -> Path:
    return Path(tempfile.mkdtemp(prefix="kronop-source-"))


def _drop_oldest(folder: Path) -> None:
    with contextlib.suppress(OSError):  # Another process may delete the same files.
        oldest_first = sorted(folder.iterdir(), key=lambda path: path.stat().st_mtime_ns)
        for path in oldest_first[:-_LEFT_AT_MOST]:
            path.unlink()


def _write(folder: Path, source: Source, name: str) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / name
    path.write_text(source.text, encoding="utf-8")
    return path


def report(source: Source, name: str, binary: Binary, assembly: Callable[[], str]) -> None:
    """Prints what the knob `debug` asks for about a binary that was just compiled or read.

    `name` is the `file_name` of the emitted source; `source` is the compiled one, which may be an
    override.
    """
    level = knobs.current().debug
    if level >= 2:
        replaced = "" if file_name(source) == name else " (overridden)"
        _say(f"{_summary(binary)}, source {name}{replaced}")
    if level >= 4:
        _say(f"source of {binary.entry}:\n{source.text}")
    if level >= 5:
        _say(f"assembly of {binary.entry}:\n{assembly()}")
    if level >= 6:
        _say(f"machine code of {binary.entry}:\n{disassemble(binary)}")


def _summary(binary: Binary) -> str:
    taken = binary.resources
    parts = [f"{binary.origin.value}", f"compilation {binary.seconds * 1e3:.1f} ms"]
    if taken.registers is not None:
        parts.append(f"{taken.registers} registers")
    if taken.spill_bytes is not None:
        parts.append(f"{taken.spill_bytes} bytes spilled")
    if taken.static_shared_bytes is not None:
        parts.append(f"{taken.static_shared_bytes} bytes of static shared memory")
    return f"{binary.entry} [{binary.arch}] {binary.key[:12]}: {', '.join(parts)}"


def disassemble(binary: Binary) -> str:
    """The SASS or x86 instructions of `binary`, or one line that says which tool is missing.

    The tools are nvdisasm or cuobjdump of the CUDA toolkit for GPUs, and objdump for CPUs.

    Example:
        >>> tensor = kronop.TensorDescription(kronop.float32)
        >>> epilogue = kronop.LinearCombination(kronop.float32, 1, kronop.float32, kronop.float32)
        >>> operation = kronop.KronMatmulOperation(
        ...     "x86", None, tensor, tensor, tensor, epilogue, factors=((4, 4), (4, 4))
        ... )
        >>> (binary,) = kronop.compiler.compile_sources(operation.sources, operation.target)
        >>> text = kronop.compiler.disassemble(binary)
        >>> "<kron_f32_4x4p2_" in text or "objdump was not found" in text
        True
    """
    if binary.format is BinaryFormat.PTX:
        return binary.image.decode(errors="replace").rstrip("\0")
    if binary.format is BinaryFormat.CUBIN:
        tools = [(find_cuda_tool("nvdisasm"), ()), (find_cuda_tool("cuobjdump"), ("-sass",))]
        missing = "neither nvdisasm nor cuobjdump was found; install the CUDA toolkit"
    else:
        tools = [(shutil.which("objdump"), ("--disassemble", "--no-show-raw-insn", "-C"))]
        missing = "objdump was not found; install binutils"
    for tool, flags in tools:
        if tool is not None:
            with private_folder() as folder:
                name = f"kernel.{binary.format.value}"
                (folder / name).write_bytes(binary.image)
                done = run([tool, *flags, name], folder=str(folder))
            return done.stdout if done.returncode == 0 else done.stderr
    return missing


def _say(text: str) -> None:
    print(f"kronop: {text}", file=sys.stderr, flush=True)
