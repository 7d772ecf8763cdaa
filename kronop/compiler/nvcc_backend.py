"""CUDA C++ to cubin through nvcc."""

from __future__ import annotations

import functools
import importlib
import os
import shutil

from kronop import knobs
from kronop.artifacts import BinaryFormat, Source
from kronop.compiler.backend import Product, include_flags, run, run_compiler
from kronop.compiler.ptxas import resources_of
from kronop.errors import CompileError
from kronop.target import Target


class NvccCompiler:
    """The CUDA toolkit's command; it needs a host compiler beside it."""

    format = BinaryFormat.CUBIN

    def identity(self, *, certain: bool = False) -> str:
        return _identity(find_cuda_tool("nvcc"))

    def flags(self, target: Target) -> tuple[str, ...]:
        line_info = ("-lineinfo",) if knobs.current().line_info else ()
        return (*target.flags, "-std=c++20", "-Xptxas", "-v", *line_info)

    def compile(self, source: Source, flags: tuple[str, ...]) -> Product:
        image, log = self._run("-cubin", source, flags)
        return Product(image=image, resources=resources_of(source.entry, log), log=log)

    def assembly(self, source: Source, flags: tuple[str, ...]) -> str:
        return self._run("-ptx", source, flags)[0].decode(errors="replace")

    def _run(self, mode: str, source: Source, flags: tuple[str, ...]) -> tuple[bytes, str]:
        command = [_required(find_cuda_tool("nvcc")), mode, *flags, *include_flags(source)]
        return run_compiler(command, source, "kernel.out")


def find_cuda_tool(name: str) -> str | None:
    """Path of a CUDA command: under $CUDA_HOME, on PATH, in PyPI's wheels, or None."""
    home = os.environ.get("CUDA_HOME")
    found = shutil.which(name, path=os.path.join(home, "bin")) if home else None
    found = found or shutil.which(name)
    if found:
        return found
    try:
        wheels = importlib.import_module("cuda.pathfinder")
        path = wheels.find_nvidia_binary_utility(name)
    except (ImportError, AttributeError, RuntimeError, ValueError):
        return None
    return str(path) if path else None


def _required(nvcc: str | None) -> str:
    if nvcc is None:
        raise CompileError(
            "nvcc was not found under $CUDA_HOME/bin, on PATH or among the Python packages; "
            "install the CUDA toolkit 13, or use NVRTC: kronop.compiler.nvrtc()"
        )
    return nvcc


@functools.cache
def _identity(nvcc: str | None) -> str:
    lines = run([_required(nvcc), "--version"]).stdout.splitlines()
    version = [line.strip() for line in lines if "release" in line or line.startswith("Build")]
    if not version:
        raise CompileError(
            f"{nvcc} --version: expected a release, got {lines}; reinstall the CUDA toolkit"
        )
    return "nvcc " + ", ".join(version)
