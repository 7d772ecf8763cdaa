"""Kernels for 64-bit ARM: every family's by zig, and exported libraries of every kind by qemu."""

from __future__ import annotations

import importlib.util
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import kronop
from kronop import compiler
from kronop.compiler import host_backend, libraries
from kronop.core.export.operands import RESULT, SOURCE, operands_of
from kronop.core.export.text import replaced
from kronop.core.family import Family
from kronop.errors import CompileError
from kronop.families import FAMILIES
from kronop.size import Rows
from kronop.target import Target
from tests import support
from tests.families import samples

_TARGET = Target.parse("arm64")
_GXX = "aarch64-linux-gnu-g++"
# NOTE: not for programs: zig takes a minute to build the C library that they link statically.
_ZIG = (sys.executable, "-P", "-m", "ziglang", "c++", "-target", "aarch64-linux-gnu")
_HAS_ZIG = importlib.util.find_spec("ziglang") is not None
_QEMU = shutil.which("qemu-aarch64") or shutil.which("qemu-aarch64-static")
# Reads operands and poisoned results from stdin, writes results to stdout.
_PROGRAM = """
#include <stdio.h>
#include <stdlib.h>
@INCLUDES@

static void* take(size_t bytes) {
  void* memory = aligned_alloc(64, (bytes + 64) / 64 * 64);
  if (fread(memory, 1, bytes, stdin) != bytes) exit(9);
  return memory;
}

static int failed(const char* name, const char* told) {
  fprintf(stderr, "%s: %s", name, told);
  return 1;
}

int main(void) {
@RUNS@
  return 0;
}
"""
_RUN = """  {
    @NAME@_handle handle;
    size_t workspace_bytes, result_bytes;
    int status = @NAME@_init(&handle);
    if (status == 0) status = @NAME@_sizes(handle, @ROWS@, &result_bytes, &workspace_bytes);
    if (status != 0) return failed("@NAME@", @NAME@_status_string(status));
@TAKEN@
    void* workspace = malloc(workspace_bytes);
    status = @NAME@_run(handle, @ROWS@, @ARGUMENTS@, workspace, NULL);
    if (status != 0) return failed("@NAME@", @NAME@_status_string(status));
    fwrite(Y, 1, result_bytes, stdout);
    @NAME@_destroy(handle);
  }
"""


def _kinds(family: Family) -> list[Any]:
    return [kind for kind in family.kinds if "x86" in kind.emitters]


@pytest.mark.optimised
@pytest.mark.skipif(not _HAS_ZIG, reason="ziglang, a wheel, is not installed")
@pytest.mark.parametrize("family", FAMILIES, ids=lambda family: family.name)
def test_zig_makes_kernels_of_every_family(family: Family, monkeypatch: Any) -> None:
    """The last kind of each; conversions are instructions of the core."""
    monkeypatch.setenv("CXX", shlex.join(_ZIG))
    operation = samples.operation(_kinds(family)[-1], _TARGET.name, kronop.float16)
    made, expected = host_backend.HostCompiler(), {"fmla", "fcvtl", ".4s"}
    text = "".join(made.assembly(item, made.flags(_TARGET)) for item in operation.sources)
    assert {name for name in expected if name in text} == expected


@pytest.mark.skipif(shutil.which("g++") is None, reason="no g++")
def test_a_compiler_for_other_cpus_is_refused(monkeypatch: Any) -> None:
    monkeypatch.setenv("CXX", "g++")
    other = Target.parse("x86-generic" if support.cpu_targets() == ["arm64"] else "arm64")
    operation = support.kron_operation(other.name, kronop.float32, [(2, 2)])
    told = r"the C\+\+ compiler .*g\+\+: expected one that makes code for .*set CXX"
    with pytest.raises(CompileError, match=told):
        compiler.compile_sources(operation.sources, other)
    with pytest.raises(CompileError, match=told):
        libraries.object_file(operation.sources[0], other)


class Programs:
    """Exported libraries, and one program that calls each of them once."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._names: list[str] = []
        self._runs: list[str] = []
        self._input: list[Any] = []
        self._expected: list[tuple[str, Any, Any]] = []

    def add(self, operation: Any, sizes: list[Any], random: Any) -> None:
        """Exports an operation, to be run for each size; of rows, in parts."""
        name = f"library_{len(self._names)}"
        self._names.append(name)
        planned = [1, 4, 32] if isinstance(sizes[0], int) else sizes
        operation.export(self._folder, name=name, rows=planned, threads=[1, 2])
        for at, size in enumerate(sizes):
            self._run(name, operation, size, [(2, -3), (1, 0)][at % 2], random)

    def _run(self, name: str, operation: Any, size: Any, scalars: Any, random: Any) -> None:
        what, element = operation.description, samples.element_of(operation)
        given = {
            key: samples.array(random, shape, element) for key, shape in what.operands(size).items()
        }
        z = support.random_array(random, what.y_shape(size), what.Y.element)
        y = support.poison(z.shape, what.Y.element)
        every = {**given, RESULT: y, **({SOURCE: z} if scalars[1] else {})}
        taken, arguments = [], []
        for item in {item.name: item for item in operands_of(operation, size)}.values():
            if item.name in every:
                arrays = every[item.name] if item.is_listed else [every[item.name]]
                takes = ", ".join(f"take({array.nbytes})" for array in arrays)
                value = f"[] = {{{takes}}}" if item.is_listed else f" = {takes}"
                taken.append(f"    void* {item.name}{value};")
                self._input += arrays
            arguments.append(f"(void*){item.name}" if item.name in every else "NULL")
            if item.name == RESULT:
                arguments += map(str, scalars)
        run = {
            "NAME": name,
            "ROWS": str(operation._size(size).rows),
            "TAKEN": "\n".join(taken),
            "ARGUMENTS": ", ".join(arguments),
        }
        self._runs.append(replaced(_RUN, run))
        value = samples.expected(what, [*given.values()], z, operation.epilogue_type(*scalars))
        self._expected.append((f"{operation.plan_for(size)} {size} {scalars}", y, value))

    def check(self) -> None:
        """Runs the program, and compares all results."""
        includes = "\n".join(f"#include <{name}.h>" for name in self._names)
        texts = {"INCLUDES": includes, "RUNS": "".join(self._runs)}
        (self._folder / "main.c").write_text(replaced(_PROGRAM, texts))
        made = host_backend.HostCompiler()
        openmp = [flag for flag in made.flags(_TARGET) if flag == "-fopenmp"]
        archives = [f"lib/lib{name}.a" for name in self._names]
        inputs = ["-x", "c", "main.c", "-x", "none", *archives]
        subprocess.run(
            [*made.command, "-static", "-Iinclude", *inputs, *openmp, "-lm", "-o", "main"],
            check=True,
            cwd=self._folder,
        )
        assert _QEMU
        done = subprocess.run(
            [_QEMU, str(self._folder / "main")],
            input=b"".join(array.tobytes() for array in self._input),
            capture_output=True,
            env={"OMP_NUM_THREADS": "2"},
            timeout=100,
        )
        assert done.returncode == 0, done.stderr.decode()
        place = 0
        for about, y, value in self._expected:
            there = np.frombuffer(done.stdout, y.dtype, y.size, place).reshape(y.shape)
            place += y.nbytes
            print(about)  # of the case that fails
            value.check(there)
        assert place == len(done.stdout)


def _exported() -> Iterator[Any]:
    for family in FAMILIES:
        yield from (kind for kind in _kinds(family) if kind.arguments is not None)


@pytest.mark.skipif(_QEMU is None, reason="qemu-aarch64, of qemu-user, is not installed")
@pytest.mark.skipif(shutil.which(_GXX) is None, reason=f"{_GXX} is not installed")
def test_exported_libraries_run(tmp_path: Path, monkeypatch: Any) -> None:
    """Of every kind that is exported for CPUs; element types in turn."""
    monkeypatch.setenv("CXX", _GXX)
    random, programs = np.random.default_rng(8), Programs(tmp_path)
    for at, kind in enumerate(_exported()):
        elements = samples.elements(kind, _TARGET.name)
        operation = samples.operation(kind, _TARGET.name, elements[at % len(elements)])
        sizes = [45, 3] if kind.size is Rows else [kind.size(37, 29, 11), kind.size(64, 32, 48)]
        programs.add(operation, sizes, random)
    programs.check()
