"""Folders that nobody else reaches, in a temporary folder that everybody can write to."""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path

import pytest

from kronop.artifacts import Language, Source
from kronop.compiler import private_folder as private_folder_module
from kronop.compiler.backend import run_compiler
from kronop.compiler.private_folder import private_folder, sweep
from kronop.errors import CompileError

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="paths lead through a handle there")
SOURCE = Source(entry="kernel", text="text", language=Language.CXX, include_directories=())


@pytest.fixture
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The temporary folder, this user's alone."""
    folder = tmp_path / "temporary"
    folder.mkdir(mode=0o700)
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    return folder


def test_a_folder_is_private_and_leaves_nothing(temporary: Path) -> None:
    with private_folder() as folder, private_folder() as other:
        assert folder != other
        assert [path.stat().st_mode & 0o777 for path in temporary.iterdir()] == [0o700] * 2
        (folder / "file").write_text("text")
        (folder / "deep/deeper").mkdir(parents=True)
        (folder / "deep/link").symlink_to(temporary)
        assert os.listdir(other) == []
    assert list(temporary.iterdir()) == []


def test_a_folder_that_is_exchanged_is_still_the_one_in_use(temporary: Path) -> None:
    with private_folder() as folder:
        (folder / "file").write_text("mine")
        (name,) = temporary.iterdir()
        name.rename(temporary / "moved")
        name.mkdir()
        (name / "file").write_text("planted")
        assert (folder / "file").read_text() == "mine"
    assert (name / "file").read_text() == "planted"
    assert list((temporary / "moved").iterdir()) == []


def test_a_folder_that_is_exchanged_during_a_compilation(temporary: Path, tmp_path: Path) -> None:
    """What is loaded and kept is what the compiler wrote, and its own files lie there too."""
    command = tmp_path / "cxx"
    exchange = 'here=$(pwd -P); mv "$here" "$here.moved"; mkdir "$here"'
    plant = 'echo bad > "$here/kernel.so"'
    command.write_text(
        f'#!/bin/sh\n{exchange}; {plant}\ncat kernel.cpp > kernel.so; echo "$TMPDIR"\n'
    )
    command.chmod(0o700)
    temporary.chmod(0o777)
    assert run_compiler([str(command)], SOURCE, "kernel.so") == (b"text", ".\n")


@pytest.mark.parametrize("exchanged", ["open", "full", "link"])
def test_a_folder_that_is_exchanged_before_it_is_opened_is_not_taken(
    exchanged: str, temporary: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def mkdtemp(prefix: str) -> str:
        path = temporary / prefix
        if exchanged == "link":
            path.with_name("aim").mkdir(mode=0o700, exist_ok=True)
            path.unlink(missing_ok=True)
            path.symlink_to(temporary / "aim")
        else:
            path.mkdir(mode=0o755 if exchanged == "open" else 0o700, exist_ok=True)
        if exchanged == "full":
            (path / "precious").touch()
        return str(path)

    monkeypatch.setattr(tempfile, "mkdtemp", mkdtemp)
    with pytest.raises(CompileError, match="set TMPDIR to a folder of your own"):
        run_compiler(["/bin/true"], SOURCE, "kernel.so")
    assert len(list(temporary.rglob("precious"))) == (exchanged == "full")


@pytest.mark.parametrize("step", ["mkdtemp", "_open_folder"])
def test_a_folder_that_is_swept_before_it_is_locked_is_made_again(
    step: str, temporary: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Right after it was made, or right after it was opened."""
    monkeypatch.setattr(private_folder_module, "_is_old", lambda handle: True)
    holder = tempfile if step == "mkdtemp" else private_folder_module
    original = getattr(holder, step)

    def once_swept(*arguments: str, **options: str) -> object:
        made = original(*arguments, **options)
        monkeypatch.setattr(holder, step, original)
        sweep()
        assert list(temporary.iterdir()) == []
        return made

    monkeypatch.setattr(holder, step, once_swept)
    with private_folder() as folder:
        (folder / "file").touch()
        assert len(list(temporary.glob("*/file"))) == 1


@pytest.mark.parametrize("mode", [0o700, 0o1777, 0o777])
def test_what_killed_processes_left_is_swept_where_names_can_be_trusted(
    mode: int, temporary: Path
) -> None:
    left = temporary / "kronop-work-left"
    (left / "deep").mkdir(parents=True, mode=0o700)
    (left / "kernel.cpp").touch()
    (temporary / "kronop-other").mkdir()
    os.utime(left, (0, 0))
    (temporary / "kronop-work-of-another-machine").mkdir()
    temporary.chmod(mode)
    with private_folder():
        sweep()
        assert len(list(temporary.iterdir())) == (4 if mode == 0o777 else 3)
    assert left.exists() == (mode == 0o777)
    assert (temporary / "kronop-other").exists()
