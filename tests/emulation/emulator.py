"""Runs the CUDA kernels of a plan on the CPU, from the same headers; see emulation.hpp."""

from __future__ import annotations

import ctypes
import hashlib
import os
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from kronop.artifacts import Launch, Source
from kronop.emit.plan import Plan
from kronop.emit.render import render

_HEADER = Path(__file__).with_name("emulation.hpp")
# A vector that is not aligned to its size ends the process here, as it ends a kernel on a GPU.
_CHECKS = ("-fsanitize=alignment", "-fsanitize-undefined-trap-on-error")
_WRAPPER = """
static const Parameters* kronop_parameters;
static void kronop_body() {{ {entry}(*kronop_parameters); }}
extern "C" unsigned emulate(const void* parameters, unsigned blocks, unsigned threads,
                            unsigned shared_bytes, unsigned cluster) {{
  kronop_parameters = static_cast<const Parameters*>(parameters);
  emulation::said = 0;
  emulation::run(kronop_body, blocks, threads, shared_bytes, cluster);
  return emulation::said;
}}
"""
# What kernels say of launches that overlap: see emulation.hpp.
_LETS_NEXT_BEGIN, _WAITS_FOR_BEFORE = 1, 2


def host_compiler() -> str | None:
    """A g++, whose extensions the emulation leans on; None where there is none."""
    return shutil.which(os.environ.get("CXX", "g++"))


class Emulator:
    """Compiles each step of a plan once, into `folder`, and runs launches."""

    def __init__(self, plan: Plan, folder: Path) -> None:
        self.kernels = [self._build(source, folder) for source in render(plan)]
        self.clusters = [dict(step.constants).get("kCluster", 1) for step in plan.steps]

    def run(self, launches: Sequence[Launch]) -> None:
        """Runs the launches in order, on pointers of this process.

        One that overlaps has to wait for the one before it, which does not overlap.
        """
        before = 0
        for launch in launches:
            said = self.kernels[launch.step](
                launch.parameters,
                launch.grid[0],
                launch.block[0],
                launch.shared_bytes,
                self.clusters[launch.step],
            )
            if launch.overlaps:
                assert before == _LETS_NEXT_BEGIN, "the launch before overlaps, or does not say so"
                assert said == _WAITS_FOR_BEFORE, "nobody waits for the launch before"
            before = said if not launch.overlaps else 0

    def _build(self, source: Source, folder: Path) -> Any:
        text = source.text + _WRAPPER.format(entry=source.entry)
        name = hashlib.sha256(text.encode()).hexdigest()[:16]
        library = folder / f"{name}.so"
        if not library.exists():
            own = folder / f"{name}-{os.getpid()}"  # Another process may build the same.
            code, built = own.with_suffix(".cpp"), own.with_suffix(".so")
            code.write_text(text)
            compiler = host_compiler()
            if compiler is None:
                raise FileNotFoundError("no g++ to build the emulation with")
            includes = [f"-I{directory}" for directory in source.include_directories]
            # Every kernel has a Step: constants of one must not stand for those of another.
            local = ["-fPIC", "-shared", "-fno-gnu-unique"]
            flags = ["-std=c++20", "-O1", "-w", "-mf16c", "-mfma", *local, *_CHECKS]
            files = ["-include", str(_HEADER), *includes, str(code), "-o", str(built)]
            command = [compiler, *flags, *files]
            subprocess.run(command, check=True, capture_output=True, text=True)
            built.replace(library)
        function = ctypes.CDLL(str(library)).emulate
        function.argtypes = [ctypes.c_char_p, *[ctypes.c_uint] * 4]
        function.restype = ctypes.c_uint
        return function
