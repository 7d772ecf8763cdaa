"""Who compilers say they are, and what of the environment reaches them."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from kronop.compiler import Cache, host_backend, versions
from kronop.compiler.commands import run
from kronop.compiler.nvcc_backend import NvccCompiler
from kronop.compiler.versions import version_of
from kronop.errors import CompileError

pytestmark = pytest.mark.skipif(os.name != "posix", reason="compilers are shell scripts here")


def script(path: Path, text: str) -> str:
    path.parent.mkdir(exist_ok=True)
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o700)
    return str(path)


def test_an_answer_holds_until_a_file_changes_or_it_has_to_be_certain(tmp_path: Path) -> None:
    log = tmp_path / "asked"
    command = [script(tmp_path / "cxx", f"echo x >> {log}; echo compiler 1; echo In: /bin")]

    def asked(expected: str, *, certain: bool = False) -> int:
        assert version_of(command, certain=certain) == (expected,)
        return log.read_text().count("x")

    assert [asked("compiler 1"), asked("compiler 1")] == [1, 1]
    assert asked("compiler 1", certain=True) == 2
    script(tmp_path / "cxx", f"echo x >> {log}; echo compiler 11")
    assert [asked("compiler 11"), asked("compiler 11")] == [3, 3]


def test_a_link_that_is_turned_and_a_wrapped_compiler_are_noticed(tmp_path: Path) -> None:
    wrapper = script(tmp_path / "wrapper", 'exec "$@"')
    for version in ("1", "2"):
        target = script(tmp_path / f"cxx-{version}", f"echo compiler {version}")
        os.utime(target, (1, 1))
    link = tmp_path / "cxx"
    for version in ("1", "2"):
        link.unlink(missing_ok=True)
        link.symlink_to(tmp_path / f"cxx-{version}")
        assert version_of([str(link)]) == (f"compiler {version}",)
        assert version_of([wrapper, str(link)]) == (f"compiler {version}",)


@pytest.mark.parametrize("answer", ["exit 1", "true", "echo In: /bin"])
def test_a_compiler_that_does_not_tell_is_an_error(tmp_path: Path, answer: str) -> None:
    with pytest.raises(CompileError, match="--version: expected a version"):
        version_of([script(tmp_path / "cxx", answer)])


def test_a_program_is_believed_by_later_processes_until_its_file_changes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[tuple[str, ...]] = []

    def told(command: tuple[str, ...]) -> tuple[str, ...]:
        asked.append(command)
        return (f"compiler {len(asked)}", "of two lines")

    monkeypatch.setattr(versions, "_told", told)
    cache = Cache(tmp_path / "cache")

    def version(path: Path, *, certain: bool = False) -> str:
        versions._answers.clear()  # As a new process.
        return version_of([str(path)], certain=certain, cache=lambda: cache)[0]

    program = tmp_path / "g++-12"
    program.write_bytes(b"\x7fELF")
    program.chmod(0o700)
    assert [version(program), version(program)] == ["compiler 1", "compiler 1"]
    assert [version(program, certain=True), version(program)] == ["compiler 2", "compiler 2"]
    program.write_bytes(b"\x7fELF another")
    assert version(program) == "compiler 3"
    # What may lead to any compiler is asked every time.
    wrapper, launcher = tmp_path / "clang++", tmp_path / "ccache"
    script(wrapper, "true")
    launcher.write_bytes(b"\x7fELF")
    launcher.chmod(0o700)
    assert [version(wrapper), version(wrapper)] == ["compiler 4", "compiler 5"]
    assert [version(launcher), version(launcher)] == ["compiler 6", "compiler 7"]


def test_who_misses_a_compiler_learns_whose_the_cached_kernels_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("CXX", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(host_backend, "_has_zig_wheel", lambda: False)
    with pytest.raises(CompileError, match=r"no C\+\+ compiler: .* belong to the version"):
        host_backend.HostCompiler().identity()


def test_nvcc_is_told_with_the_host_compiler_that_it_calls(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CUDA_HOME", str(tmp_path))
    monkeypatch.setenv("PATH", f"{tmp_path / 'host'}:/usr/bin:/bin")
    release = "echo 'nvcc: driver'; echo 'release 13.0, V13.0.88'; echo Build cuda_13.0"
    script(tmp_path / "bin/nvcc", release)
    script(tmp_path / "host/gcc", "echo gcc 12.2; echo Copyright")
    assert NvccCompiler().identity() == "nvcc release 13.0, V13.0.88, Build cuda_13.0, gcc 12.2"
    script(tmp_path / "host/gcc", "echo gcc 13.1.0")
    assert NvccCompiler().identity().endswith(", gcc 13.1.0")
    script(tmp_path / "bin/nvcc", release.replace("13.0", "13.1.0"))
    assert NvccCompiler().identity(certain=True).startswith("nvcc release 13.1.0,")


@pytest.mark.parametrize(
    "name", ["CPATH", "LIBRARY_PATH", "LD_RUN_PATH", "NVCC_CCBIN", "NVCC_APPEND_FLAGS"]
)
def test_variables_that_no_key_holds_do_not_reach_a_compiler(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(name, "planted")
    monkeypatch.setenv("ORDINARY", "kept")
    code = f"import os; print(os.environ.get({name!r}), os.environ.get('ORDINARY'))"
    assert run([sys.executable, "-c", code]).stdout.split() == ["None", "kept"]
