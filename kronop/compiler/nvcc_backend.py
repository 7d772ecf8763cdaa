"""CUDA C++ to cubin through nvcc."""

from __future__ import annotations

import os
import shutil

from kronop import knobs
from kronop.artifacts import BinaryFormat, Source
from kronop.compiler.backend import Product, include_flags, run_compiler
from kronop.compiler.ptxas import resources_of
from kronop.compiler.versions import version_of
from kronop.errors import CompileError
from kronop.late import imported
from kronop.target import Target, is_of_ptx

# Device code calls constexpr functions, which nvcc takes for host functions and NVRTC for both.
_OPTIONS = ("-std=c++20", "--expt-relaxed-constexpr", "-Xptxas", "-v")


class NvccCompiler:
    """The CUDA toolkit's nvcc, which needs a host compiler (gcc) on PATH."""

    format = BinaryFormat.CUBIN

    def identity(self, *, certain: bool = False) -> str:
        """The versions of nvcc and of the host compiler, which preprocesses for nvcc."""
        nvcc = version_of([_required(find_cuda_tool("nvcc"))], certain=certain)
        told = [line for line in nvcc if "release" in line or line.startswith("Build")] or [*nvcc]
        host = shutil.which("gcc")
        if host is not None:
            told.append(version_of([host], certain=certain)[0])
        return "nvcc " + ", ".join(told)

    def flags(self, target: Target) -> tuple[str, ...]:
        line_info = ("-lineinfo",) if knobs.current().line_info else ()
        return (*target.flags, *_OPTIONS, *line_info)

    def completed(self, source: Source) -> Source:
        return source

    def compile(self, source: Source, flags: tuple[str, ...]) -> Product:
        is_ptx = any(map(is_of_ptx, flags))
        image, log = self._run("-ptx" if is_ptx else "-cubin", source, flags)
        resources = resources_of(source.entry, log)
        return Product(image=image, resources=resources, log=log, is_ptx=is_ptx)

    def assembly(self, source: Source, flags: tuple[str, ...]) -> str:
        return self._run("-ptx", source, flags)[0].decode(errors="replace")

    def _run(self, mode: str, source: Source, flags: tuple[str, ...]) -> tuple[bytes, str]:
        command = [_required(find_cuda_tool("nvcc")), mode, *flags, *include_flags(source)]
        return run_compiler(command, source, "kernel.out")


def find_cuda_tool(name: str) -> str | None:
    """The path of a CUDA command under $CUDA_HOME, on PATH or in PyPI's wheels; None if missing."""
    home = os.environ.get("CUDA_HOME")
    found = shutil.which(name, path=os.path.join(home, "bin")) if home else None
    found = found or shutil.which(name)
    if found:
        return found
    try:
        wheels = imported("cuda.pathfinder")
        path = wheels.find_nvidia_binary_utility(name)
    except (ImportError, AttributeError, RuntimeError, ValueError):
        return None
    return str(path) if path else None


def _required(nvcc: str | None) -> str:
    if nvcc is None:
        raise CompileError(
            "nvcc was not found under $CUDA_HOME/bin, on PATH or among the Python packages; "
            "install the CUDA toolkit, 12.4 or later, or use NVRTC: kronop.compiler.nvrtc()"
        )
    return nvcc
