"""Compilers that hang, die with their caller, write nothing, or can't be started."""

from __future__ import annotations

import contextlib
import os
import resource
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

import kronop
from kronop import compiler, knobs
from kronop.artifacts import Language, Source
from kronop.compiler import commands, inheritance, private_folder
from kronop.compiler.backend import RefusalError, run_compiler
from kronop.compiler.commands import run
from kronop.compiler.versions import version_of
from kronop.errors import CompileError
from kronop.target import Target

pytestmark = pytest.mark.skipif(os.name != "posix", reason="compilers are shell scripts here")
SOURCE = Source(entry="kernel", text="text", language=Language.CXX, include_directories=())


def script(path: Path, text: str) -> str:
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o700)
    return str(path)


def hanging(path: Path) -> str:
    """A command that leaves its process id and its child's, and does not end."""
    return script(path, f"sleep 60 & echo $$ $! > {path}.new; mv {path}.new {path}.ids; wait")


def wait_for(condition: object, seconds: float = 5.0) -> bool:
    assert callable(condition)
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.005)
    return True


def runs(process: int) -> bool:
    try:
        state = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state != "Z"


def all_end(path: str) -> bool:
    left = [int(word) for word in Path(f"{path}.ids").read_text().split()]
    assert len(left) == 2
    return wait_for(lambda: not any(runs(process) for process in left))


def test_a_command_that_hangs_is_killed_with_all_it_started(tmp_path: Path) -> None:
    command = hanging(tmp_path / "cxx")
    with knobs.using(compile_seconds=0.2), pytest.raises(CompileError) as caught:
        version_of([command])
    assert f"{command}: expected an end within 0.2 s, got none" in str(caught.value)
    assert "KRONOP_COMPILE_SECONDS" in str(caught.value)
    assert all_end(command)


def test_a_daemon_that_keeps_the_output_open_does_not_hang_the_caller(tmp_path: Path) -> None:
    command = script(tmp_path / "cxx", f"setsid sh -c 'echo $$ > {tmp_path}/id; sleep 60' & wait")
    start = time.monotonic()
    with knobs.using(compile_seconds=0.3), pytest.raises(CompileError, match=r"within 0\.3 s"):
        run([command])
    assert time.monotonic() - start < 5
    os.killpg(int((tmp_path / "id").read_text()), signal.SIGKILL)


def test_what_a_command_leaves_running_ends_with_it(tmp_path: Path) -> None:
    command = script(tmp_path / "cxx", "sleep 60 > /dev/null 2>&1 & echo $!")
    left = int(run([command]).stdout)
    assert wait_for(lambda: not runs(left))


@pytest.mark.usefixtures("own_cache")
def test_a_compilation_that_hangs_gives_its_claim_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    answer = 'case "$*" in *--version) echo 1; exit;; *-o\\ kernel.so*) ;; *) exit 1;; esac'
    monkeypatch.setenv("CXX", script(tmp_path / "cxx", f"{answer}; sleep 60"))
    start = time.monotonic()
    for _ in range(2):
        with knobs.using(compile_seconds=0.3), pytest.raises(CompileError, match="an end within"):
            compiler.compile_sources([SOURCE], Target.parse("x86-generic"))
    assert time.monotonic() - start < 10
    assert list(compiler.default_cache().folder.glob("*.claim")) == []


CALLER = """
import sys
from kronop.compiler.backend import run_compiler
from kronop.artifacts import Language, Source
source = Source(entry="kernel", text="text", language=Language.CXX, include_directories=())
run_compiler([sys.argv[1]], source, "kernel.so")
"""


def test_a_compiler_ends_with_a_caller_that_is_killed_and_its_folder_is_swept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    command, temporary = hanging(tmp_path / "cxx"), tmp_path / "temporary"
    temporary.mkdir(mode=0o700)
    root = str(Path(kronop.__file__).parents[1])
    environment = {**os.environ, "TMPDIR": str(temporary), "PYTHONPATH": root}
    with subprocess.Popen([sys.executable, "-c", CALLER, command], env=environment) as caller:
        assert wait_for(Path(f"{command}.ids").exists, 20)
        (folder,) = temporary.iterdir()
        monkeypatch.setattr("tempfile.tempdir", str(temporary))
        private_folder.sweep()
        assert [path.name for path in folder.iterdir()] == ["kernel.cpp"]
        caller.kill()
    assert all_end(command)
    os.utime(folder, (0, 0))
    with pytest.raises(RefusalError):
        run_compiler(["/bin/true"], SOURCE, "kernel.so")
    assert list(temporary.iterdir()) == []


def test_a_forked_child_does_not_keep_what_tells_of_its_parents_end() -> None:
    reading, writing = os.pipe()
    inheritance.hold(writing)
    stay, leave = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(leave)
        os.read(stay, 1)
        os._exit(0)
    inheritance.close(writing)
    ready, _, _ = select.select([reading], [], [], 2.0)
    os.close(leave)
    os.waitpid(child, 0)
    os.close(reading)
    os.close(stay)
    assert ready == [reading]


def test_a_machine_without_a_shell_has_the_limit_all_the_same(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(commands, "_SHELL", "/nowhere/sh")
    assert run([sys.executable, "-c", "print(1)"]).stdout == "1\n"
    with knobs.using(compile_seconds=0.1), pytest.raises(CompileError, match=r"within 0\.1 s"):
        run(["/bin/sleep", "60"])


@contextlib.contextmanager
def few_handles() -> Iterator[None]:
    """No more than the files that are open now."""
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    lowest_free = os.dup(0)
    os.close(lowest_free)
    resource.setrlimit(resource.RLIMIT_NOFILE, (lowest_free, limits[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)


def test_too_few_handles_are_not_blamed_on_the_compiler(tmp_path: Path) -> None:
    command = [script(tmp_path / "cxx", "echo 1")]
    knobs.current()
    for call in (lambda: version_of(command), lambda: run_compiler(command, SOURCE, "kernel.so")):
        with few_handles(), pytest.raises(CompileError, match="ulimit -n") as caught:
            call()
        assert "reinstall" not in str(caught.value)
    (tmp_path / "cxx").chmod(0o600)
    with pytest.raises(CompileError, match=r"can't be run .*; mend or reinstall it"):
        run(command)


@pytest.mark.parametrize(
    "left", ["true", "mkdir kernel.so", "ln -s / kernel.so", "mkfifo kernel.so"]
)
def test_a_compiler_that_ends_well_without_a_file_is_a_refusal(tmp_path: Path, left: str) -> None:
    command = script(tmp_path / "cxx", f"echo a warning; {left}")
    with pytest.raises(RefusalError, match=r"expected a file kernel\.so, got none") as caught:
        run_compiler([command], SOURCE, "kernel.so")
    assert caught.value.log.startswith("a warning\n")
