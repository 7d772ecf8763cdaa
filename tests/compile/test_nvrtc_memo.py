"""What NVRTC is, remembered between processes: believed by hits, never by compilations."""

from __future__ import annotations

import dataclasses
import os
import struct
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from kronop import compiler, knobs
from kronop.artifacts import Binary, Language, Origin, Source
from kronop.compiler import build, nvrtc_backend, nvrtc_memo
from kronop.compiler.nvrtc_backend import NvrtcCompiler
from kronop.compiler.rows import Memo
from kronop.target import Target

ROOT = Path(__file__).parents[2]
TARGET = Target.parse("sm_80")
CHILD = """
import sys
from kronop import compiler
from kronop.artifacts import Language, Source
from kronop.target import Target
texts = sys.argv[1:]
sources = [Source(entry=text.split("void ")[1].split("(")[0], text=text, language=Language.CUDA,
                  include_directories=()) for text in texts]
binaries = compiler.compile_sources(sources, Target.parse("sm_80"))
print("loaded" if "cuda.bindings.nvrtc" in sys.modules else "absent", end=" ")
print(*(binary.origin.name for binary in binaries))
"""

pytestmark = pytest.mark.skipif(
    not Path("/proc/self/maps").exists(), reason="nothing is remembered without /proc"
)


def text_of(entry: str) -> str:
    return f'extern "C" __global__ void {entry}(float* x) {{ x[threadIdx.x] *= 2.0f; }}\n'


def make(entry: str) -> Source:
    return Source(entry=entry, text=text_of(entry), language=Language.CUDA, include_directories=())


def fresh(folder: Path, *entries: str, **environment: str) -> str:
    """What a new process says after it had `entries`: whether it has loaded NVRTC, and origins."""
    done = subprocess.run(
        [sys.executable, "-c", CHILD, *map(text_of, entries)],
        env={
            **os.environ,
            "KRONOP_CACHE_DIR": str(folder / "cache"),
            "PYTHONPATH": str(ROOT),
            **environment,
        },
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout.strip()


def test_a_warm_process_does_not_load_nvrtc(tmp_path: Path) -> None:
    assert fresh(tmp_path, "a") == "loaded COMPILED"
    assert fresh(tmp_path, "a") == "absent DISK"
    assert fresh(tmp_path, "a", "b") == "loaded DISK COMPILED"
    assert fresh(tmp_path, "a", "b") == "absent DISK DISK"


def test_what_steers_the_search_is_asked_about_once(tmp_path: Path) -> None:
    installed = tmp_path / "site"
    (installed / "nvidia_cuda_nvrtc-99.0.dist-info").mkdir(parents=True)
    path = f"{ROOT}{os.pathsep}{installed}"
    libraries = tmp_path / "libraries"
    libraries.mkdir()
    fresh(tmp_path, "a")
    assert fresh(tmp_path, "a", PYTHONPATH=path) == "loaded DISK"
    assert fresh(tmp_path, "a", PYTHONPATH=path) == "absent DISK"
    (installed / "nvidia_cuda_nvrtc-99.0.dist-info").rename(
        installed / "nvidia_cuda_nvrtc-99.1.dist-info"
    )
    assert fresh(tmp_path, "a", PYTHONPATH=path) == "loaded DISK"
    assert fresh(tmp_path, "a", LD_LIBRARY_PATH=str(libraries)) == "loaded DISK"
    assert fresh(tmp_path, "a", LD_LIBRARY_PATH=str(libraries)) == "absent DISK"
    (libraries / "libnvrtc.so.13").write_text("")
    assert fresh(tmp_path, "a", LD_LIBRARY_PATH=str(libraries)) == "loaded DISK"
    assert fresh(tmp_path, "a") == "absent DISK"


@pytest.mark.parametrize("name", [*nvrtc_memo._VARIABLES, *nvrtc_memo._LOADER_VARIABLES])
def test_each_variable_is_another_place(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    before = nvrtc_memo.place()
    assert before is not None
    monkeypatch.setenv(name, "/somewhere\udcff")
    assert nvrtc_memo.place() not in (before, None)
    monkeypatch.delenv(name)
    assert nvrtc_memo.place() == before


def test_without_proc_nothing_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(path: str, separator: bytes) -> list[bytes]:
        raise PermissionError(13, "Permission denied", path)

    monkeypatch.setattr(nvrtc_memo, "_read", refuse)
    assert nvrtc_memo.place() is None
    nvrtc_memo.remember(build.default_cache(), nvrtc_memo.place(), "test")
    assert nvrtc_memo.recall(build.default_cache()) is None


def elf(build_id: bytes) -> bytes:
    """The start of a shared object, with a segment to load and its build-id in a note."""
    segments = [(1, 0, 64), (4, 192, 36)]
    header = (
        b"\x7fELF\x02\x01" + bytes(26) + struct.pack("<QQIHHHHHH", 64, 0, 0, 64, 56, 2, 0, 0, 0)
    )
    table = b"".join(
        struct.pack("<IIQQQQQQ", kind, 4, at, at, at, size, size, 4) for kind, at, size in segments
    )
    return (header + table).ljust(192, b"\0") + struct.pack("<III", 4, 20, 3) + b"GNU\0" + build_id


def test_size_time_and_build_stamp_a_file(tmp_path: Path) -> None:
    file = tmp_path / "libnvrtc.so.13"
    contents = [
        elf(b"1" * 20),
        elf(b"2" * 20),
        elf(b"1" * 20) + b"more",
        b"no library",
        b"\x7fELF\x02\x01",
    ]
    found = []
    for content in contents:
        file.write_bytes(content)
        os.utime(file, ns=(0, 1))
        found.append(nvrtc_memo.stamp(str(file)))
    assert None in found
    file.write_bytes(contents[0])
    os.utime(file, ns=(0, 2))
    assert len({*found, nvrtc_memo.stamp(str(file))}) == 6
    assert nvrtc_memo.stamp(str(tmp_path / "absent")) is None


@pytest.fixture
def anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[pytest.MonkeyPatch]:
    """A process that has NVRTC loaded, so that its place stays, and has not asked it."""
    nvrtc_backend._full_build()
    with knobs.using(cache_dir=tmp_path / "cache", compiler="nvrtc"):
        start_again(monkeypatch)
        yield monkeypatch


def start_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(build, "_process", build._Process())
    monkeypatch.setitem(build._CUDA_COMPILERS, "nvrtc", NvrtcCompiler(build.default_cache))


def had(*entries: str) -> tuple[Binary, ...]:
    return compiler.compile_sources([make(entry) for entry in entries], TARGET)


def memo_now() -> Memo:
    here = nvrtc_memo.place()
    assert here is not None
    memo = build.default_cache().recall(here)
    assert memo is not None
    return memo


def test_a_lying_memo_is_corrected_before_anything_is_compiled(anew: pytest.MonkeyPatch) -> None:
    (binary,) = had("a")
    truth = memo_now()
    assert truth.identity == binary.compiler
    build.default_cache().remember(dataclasses.replace(truth, identity="NVRTC of a liar"))
    start_again(anew)
    assert nvrtc_memo.recall(build.default_cache()) == "NVRTC of a liar"
    binaries = had("a", "b")
    assert [binary.origin for binary in binaries] == [Origin.DISK, Origin.COMPILED]
    assert {binary.compiler for binary in binaries} == {truth.identity}
    assert {entry.compiler for entry in build.default_cache().list()} == {truth.identity}
    assert memo_now() == truth


def test_kernels_of_another_build_are_not_mixed_in(anew: pytest.MonkeyPatch) -> None:
    with anew.context() as patch:
        patch.setattr(nvrtc_backend, "_full_build", lambda: "NVRTC of another build")
        had("earlier")
    start_again(anew)
    earlier, later = had("earlier", "later")
    assert earlier.compiler == later.compiler != "NVRTC of another build"
    assert earlier.origin is later.origin is Origin.COMPILED


def test_a_replaced_library_is_asked(anew: pytest.MonkeyPatch, tmp_path: Path) -> None:
    had("a")
    copy = tmp_path / "libnvrtc.so.13"
    copy.write_bytes(elf(b"1" * 20))
    stamp = nvrtc_memo.stamp(str(copy))
    assert stamp is not None
    memo = dataclasses.replace(memo_now(), library=str(copy), stamp=stamp)
    build.default_cache().remember(memo)
    assert nvrtc_memo.recall(build.default_cache()) == memo.identity
    copy.write_bytes(elf(b"2" * 20))
    assert nvrtc_memo.recall(build.default_cache()) is None


def test_only_the_loaded_file_is_remembered(anew: pytest.MonkeyPatch, tmp_path: Path) -> None:
    had("a")
    build.default_cache().clear()
    (tmp_path / "libnvrtc.so.13").write_bytes(elf(b"1" * 20))
    anew.setattr(nvrtc_memo, "_library_in_use", lambda: str(tmp_path / "libnvrtc.so.13"))
    nvrtc_memo.remember(build.default_cache(), nvrtc_memo.place(), "test")
    assert nvrtc_memo.recall(build.default_cache()) is None
