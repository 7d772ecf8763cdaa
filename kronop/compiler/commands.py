"""Runs commands that are sure to end: by themselves, at a time limit, or when this process dies."""

from __future__ import annotations

import contextlib
import errno
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence

from kronop import knobs
from kronop.compiler import inheritance
from kronop.errors import CompileError

# Environment variables that change what a compiler makes of the same command. They are removed,
# because the cache key does not include them.
_HIDDEN_INPUTS = (
    "CPATH",
    "C_INCLUDE_PATH",
    "CPLUS_INCLUDE_PATH",
    "GCC_EXEC_PREFIX",
    "COMPILER_PATH",
    "LIBRARY_PATH",
    "LD_RUN_PATH",
    "CCC_OVERRIDE_OPTIONS",
    "NVCC_PREPEND_FLAGS",
    "NVCC_APPEND_FLAGS",
    "NVCC_CCBIN",
    "SOURCE_DATE_EPOCH",
)
_SHELL = "/bin/sh"
# A shell script that blocks on a pipe. The pipe ends when this process closes it or dies in any
# way, and the script then kills its group of processes.
_GUARD = "read -r _; kill -KILL 0"
_ADVICE = {
    errno.EMFILE: "close files, or raise the limit of open ones: ulimit -n",
    errno.ENFILE: "close files: the system has no more handles",
    errno.EAGAIN: "end processes, or raise their limit: ulimit -u",
    errno.ENOMEM: "free some memory",
    errno.ENOSPC: "free some space, or set TMPDIR to a folder that has it",
    errno.EDQUOT: "free some space, or set TMPDIR to a folder that has it",
}


def run(command: Sequence[str], *, folder: str | None = None) -> subprocess.CompletedProcess[str]:
    """Runs `command` with its output captured, without the variables in `_HIDDEN_INPUTS`.

    With a `folder`, the command runs there and makes its temporary files there. The command and the
    processes it starts in its group are killed after the knob `compile_seconds`, or when this
    process dies.

    Raises:
        CompileError: the command can't be started, or does not end in time.
    """
    environment = {name: text for name, text in os.environ.items() if name not in _HIDDEN_INPUTS}
    environment["LC_ALL"] = "C"
    if folder is not None:
        environment["TMPDIR"] = "."
    try:
        with _guarded_group() as group:
            return _finished(command, group, folder, environment)
    except subprocess.TimeoutExpired as expired:
        raise CompileError(
            command[0],
            expected=f"an end within {expired.timeout:g} s",
            got="none, so it was killed",
            hint="mend the compiler, or raise KRONOP_COMPILE_SECONDS",
        ) from None
    except OSError as error:
        hint = advice(error, otherwise="mend or reinstall it")
        raise CompileError(f"{command[0]} can't be run ({error}); {hint}") from error


def advice(error: OSError, *, otherwise: str) -> str:
    """Advice for an error message: how to free the resource that ran out, or `otherwise`."""
    return _ADVICE.get(error.errno or 0, otherwise)


def _finished(
    command: Sequence[str], group: int | None, folder: str | None, environment: dict[str, str]
) -> subprocess.CompletedProcess[str]:
    with subprocess.Popen(
        command,
        cwd=folder,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        errors="replace",
        process_group=group,
    ) as process:
        try:
            printed, log = process.communicate(timeout=knobs.current().compile_seconds)
        except BaseException:
            process.kill()  # Popen's block then waits for it; the caller kills the group next.
            raise
    return subprocess.CompletedProcess(command, process.returncode, printed, log)


@contextlib.contextmanager
def _guarded_group() -> Iterator[int | None]:
    """The id of a group of processes that is killed at the end of the block.

    The group's first member is a shell that kills the group when this process dies, even by
    SIGKILL. The id is None on systems without process groups or without a shell.
    """
    if sys.platform == "win32" or not os.path.exists(_SHELL):
        yield None
        return
    reading, writing = os.pipe()
    inheritance.hold(writing)
    try:
        try:
            guard = subprocess.Popen(
                [_SHELL, "-c", _GUARD],
                stdin=reading,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                env={},
                process_group=0,
            )
        finally:
            os.close(reading)
        try:
            yield guard.pid
        finally:
            # Kill before waiting: the system may reuse the group's id once it was waited for.
            _kill(guard.pid)
            guard.wait()
    finally:
        inheritance.close(writing)


def _kill(group: int) -> None:
    if sys.platform != "win32":
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(group, signal.SIGKILL)
