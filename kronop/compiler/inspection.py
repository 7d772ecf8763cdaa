"""Ways to look inside: dumped and overridden sources, and what KRONOP_DEBUG prints of a binary."""

from __future__ import annotations

import dataclasses
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

from kronop import knobs
from kronop.artifacts import Binary, BinaryFormat, Source
from kronop.compiler.keys import digest
from kronop.compiler.nvcc_backend import find_cuda_tool


def file_name(emitted: Source) -> str:
    """The name under which an emitted source is dumped and its replacement looked for.

    Kernels of one entry may differ in what its short name leaves out (epilogue, layouts, tile): the
    digest of the emitted text, which an edit does not change, tells them apart.
    """
    return f"{emitted.entry}-{digest(emitted.text)[:8]}{emitted.language.value}"


def overridden(emitted: Source) -> Source:
    """`emitted`, with the text of the file of its name in the knob `override_dir`, if any."""
    folder = knobs.current().override_dir
    if folder is None or not (folder / file_name(emitted)).is_file():
        return emitted
    return dataclasses.replace(emitted, text=(folder / file_name(emitted)).read_text("utf-8"))


def dump(source: Source, name: str) -> None:
    """Write `source` as `name` into the knob `dump_dir`, where that is set."""
    folder = knobs.current().dump_dir
    if folder is not None:
        _write(folder, source, name)


def leave(source: Source, name: str) -> Path:
    """Write `source` for a person to look at, into `dump_dir` or a new temporary folder."""
    folder = knobs.current().dump_dir
    return _write(folder or Path(tempfile.mkdtemp(prefix="kronop-source-")), source, name)


def _write(folder: Path, source: Source, name: str) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / name
    path.write_text(source.text, encoding="utf-8")
    return path


def report(source: Source, name: str, binary: Binary, assembly: Callable[[], str]) -> None:
    """Print what the knob `debug` asks of a binary that was just compiled or read.

    `name` is the `file_name` of what was emitted; `source` is what was compiled.
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
    """SASS or x86 instructions of `binary`, or one line that says which tool is missing."""
    if binary.format is BinaryFormat.CUBIN:
        tools = [(find_cuda_tool("nvdisasm"), ()), (find_cuda_tool("cuobjdump"), ("-sass",))]
        missing = "neither nvdisasm nor cuobjdump was found; install the CUDA toolkit"
    else:
        tools = [(shutil.which("objdump"), ("--disassemble", "--no-show-raw-insn", "-C"))]
        missing = "objdump was not found; install binutils"
    for tool, flags in tools:
        if tool is not None:
            with tempfile.NamedTemporaryFile(suffix=f".{binary.format.value}") as file:
                file.write(binary.image)
                file.flush()
                done = subprocess.run(
                    [tool, *flags, file.name],
                    capture_output=True,
                    text=True,
                    errors="replace",
                    check=False,
                )
            return done.stdout if done.returncode == 0 else done.stderr
    return missing


def _say(text: str) -> None:
    print(f"kronop: {text}", file=sys.stderr, flush=True)
