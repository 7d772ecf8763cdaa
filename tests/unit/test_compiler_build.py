"""Memory, disk and compiler in turn, with a compiler that only counts."""

from __future__ import annotations

import os
import re
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from kronop import compiler, cpus, knobs
from kronop.artifacts import Binary, BinaryFormat, Language, Origin, Resources, Source
from kronop.compiler import build, inspection, rows
from kronop.compiler.backend import Product, RefusalError
from kronop.compiler.ptxas import resources_of
from kronop.errors import CompileError, DeviceError, ElementTypeError
from kronop.target import Target

X86, CUDA = Target.parse("x86-generic"), Target.parse("sm_80")


class CountingCompiler:
    """Compiles to the text itself; refuses what contains "error", spills where told."""

    format = BinaryFormat.SHARED_OBJECT

    def __init__(self) -> None:
        self.version = "1.0"
        self.recalled: str | None = None
        self.compiled: list[str] = []
        self.running = 0
        self.most_running = 0

    def identity(self, *, certain: bool = False) -> str:
        if certain:
            self.recalled = None
        return f"counting {self.recalled or self.version}"

    def flags(self, target: Target) -> tuple[str, ...]:
        return target.flags

    def completed(self, source: Source) -> Source:
        return source

    def compile(self, source: Source, flags: tuple[str, ...]) -> Product:
        self.compiled.append(source.entry)
        self.running += 1
        self.most_running = max(self.most_running, self.running)
        time.sleep(0.03)
        self.running -= 1
        if "error" in source.text:
            raise RefusalError("line 1: an error")
        spilled = 16 if "spill" in source.text else 0
        return Product(
            image=source.text.encode(), resources=Resources(spill_bytes=spilled), log="a log"
        )

    def assembly(self, source: Source, flags: tuple[str, ...]) -> str:
        return f"assembly of {source.text}"


@pytest.fixture
def counting(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[CountingCompiler]:
    fake = CountingCompiler()
    monkeypatch.setattr(build, "_HOST_COMPILER", fake)
    monkeypatch.setattr(build, "prove", lambda binary: None)  # Its images are texts.
    monkeypatch.setattr(build, "_process", build._Process())
    with knobs.using(cache_dir=tmp_path / "cache"):
        yield fake


def make(entry: str = "kernel", text: str = "text") -> Source:
    return Source(entry=entry, text=text, language=Language.CXX, include_directories=())


def dumped(folder: Path) -> Path:
    """The only file there, named by entry and digest."""
    (path,) = folder.iterdir()
    assert re.fullmatch(r"kernel-[0-9a-f]{8}\.cpp", path.name)
    return path


def test_compiler_then_memory_then_disk(counting: CountingCompiler) -> None:
    origins = []
    for forget in (False, False, True):
        if forget:
            compiler.forget()
        (binary,) = compiler.compile_sources([make()], X86)
        origins.append(binary.origin)
        assert (binary.image, binary.entry, binary.arch) == (b"text", "kernel", "generic")
    assert origins == [Origin.COMPILED, Origin.MEMORY, Origin.DISK]
    assert counting.compiled == ["kernel"]
    assert compiler.default_cache().list()[0].entry == "kernel"


def test_order_is_kept_and_duplicates_compile_once(counting: CountingCompiler) -> None:
    sources = [make(f"k{index % 3}", f"text {index % 3}") for index in range(9)]
    binaries = compiler.compile_sources(sources, X86)
    assert [binary.entry for binary in binaries] == [source.entry for source in sources]
    assert sorted(counting.compiled) == ["k0", "k1", "k2"]
    assert compiler.compile_sources([], X86) == ()


def test_several_misses_compile_at_once(
    counting: CountingCompiler, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cpus, "cpu_count", lambda: 2)
    compiler.compile_sources([make(f"k{index}") for index in range(6)], X86)
    assert counting.most_running == 2


def test_two_threads_compile_a_kernel_once(counting: CountingCompiler) -> None:
    found: list[Binary] = []
    threads = [
        threading.Thread(target=lambda: found.extend(compiler.compile_sources([make()], X86)))
        for _ in range(6)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 6
    assert counting.compiled == ["kernel"]


def in_time(work: Callable[[], None]) -> None:
    """`work` by a thread of its own, which may hang."""
    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    thread.join(20)
    assert not thread.is_alive()


@pytest.mark.parametrize("place", ["compile", "identity"])
def test_a_kernel_is_asked_for_while_its_thread_compiles_it(
    counting: CountingCompiler, monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    """As a signal's handler does: it compiles by itself, and waits for nobody."""
    inner: list[Binary] = []
    outer: list[Binary] = []
    real = getattr(counting, place)

    def interrupted(*arguments: Any, **others: Any) -> Any:
        if outer == [] and not inner and (arguments or others):
            monkeypatch.setattr(counting, place, real)
            inner.extend(compiler.compile_sources([make(), make("other")], X86))
        return real(*arguments, **others)

    monkeypatch.setattr(counting, place, interrupted)
    in_time(lambda: outer.extend(compiler.compile_sources([make()], X86)))
    assert [binary.entry for binary in inner] == ["kernel", "other"]
    assert outer[0].key == inner[0].key
    assert sorted(counting.compiled) == ["kernel", "kernel", "other"]
    compiler.forget()
    compiler.compile_sources([make(), make("other")], X86)
    assert len(counting.compiled) == 3


def test_a_kernel_is_asked_for_inside_the_cache_while_another_thread_compiles_it(
    counting: CountingCompiler, monkeypatch: pytest.MonkeyPatch
) -> None:
    """That one waits for the cache, which is this thread's as long as its handler runs."""
    compiler.compile_sources([make("first")], X86)
    found: list[Binary] = []
    read = rows.read

    def interrupted(*arguments: Any) -> Any:
        monkeypatch.setattr(rows, "read", read)
        other.start()
        while not build._process.threads:  # Until the other one has the turn of that key.
            time.sleep(1e-3)
        found.extend(compiler.compile_sources([make("second")], X86))
        return read(*arguments)

    other = threading.Thread(
        target=lambda: found.extend(compiler.compile_sources([make("second")], X86)), daemon=True
    )
    cache = compiler.default_cache()
    monkeypatch.setattr(rows, "read", interrupted)
    in_time(lambda: cache.get("00" * 32))
    other.join(20)
    assert [binary.entry for binary in found] == ["second"] * 2


def test_an_upgraded_compiler_and_another_arch_are_misses(counting: CountingCompiler) -> None:
    compiler.compile_sources([make()], X86)
    counting.version = "1.1"
    compiler.compile_sources([make()], X86)
    compiler.compile_sources([make()], Target.parse("x86-avx2"))
    assert len(counting.compiled) == 3


def test_a_recalled_identity_is_enough_for_a_hit(counting: CountingCompiler) -> None:
    compiler.compile_sources([make()], X86)
    compiler.forget()
    counting.recalled = "1.0"
    (binary,) = compiler.compile_sources([make()], X86)
    assert binary.origin is Origin.DISK
    assert counting.recalled == "1.0"


def test_nothing_is_kept_or_handed_out_under_a_false_identity(counting: CountingCompiler) -> None:
    counting.version = "0.9"
    compiler.compile_sources([make("old")], X86)
    compiler.forget()
    counting.version, counting.recalled = "1.0", "0.9"
    sources = [make("old"), make("a"), make("b"), make("c")]
    binaries = compiler.compile_sources(sources, X86)
    assert {binary.compiler for binary in binaries} == {"counting 1.0"}
    assert sorted(counting.compiled) == ["a", "b", "c", "old", "old"]
    entries = {(entry.entry, entry.compiler) for entry in compiler.default_cache().list()}
    assert entries == {("old", "counting 0.9")} | {
        (source.entry, "counting 1.0") for source in sources
    }


def test_flags_of_a_compiler_that_changes_meanwhile_are_not_kept_under_its_new_name(
    counting: CountingCompiler, monkeypatch: pytest.MonkeyPatch
) -> None:
    compiled_with = []

    def flags(target: Target) -> tuple[str, ...]:
        chosen = (f"-of-{counting.version}",)
        counting.version = "1.1"
        return chosen

    def compile_it(source: Source, flags: tuple[str, ...]) -> Product:
        compiled_with.append(flags)
        return Product(image=b"image", resources=Resources(), log="")

    monkeypatch.setattr(counting, "flags", flags)
    monkeypatch.setattr(counting, "compile", compile_it)
    (binary,) = compiler.compile_sources([make()], X86)
    assert (binary.compiler, compiled_with) == ("counting 1.1", [("-of-1.1",)])


def test_a_refused_source_is_left_for_inspection(
    counting: CountingCompiler, tmp_path: Path
) -> None:
    with knobs.using(dump_dir=tmp_path / "dump"), pytest.raises(CompileError) as caught:
        compiler.compile_sources([make(text="an error")], X86)
    assert caught.value.log == "line 1: an error"
    assert caught.value.source_path == str(dumped(tmp_path / "dump"))
    assert caught.value.source_path in str(caught.value)
    assert Path(caught.value.source_path).read_text() == "an error"
    with pytest.raises(CompileError) as caught:
        compiler.compile_sources([make(text="an error")], X86)
    assert caught.value.source_path is not None
    assert Path(caught.value.source_path).read_text() == "an error"
    assert compiler.default_cache().list() == ()


def test_refused_sources_do_not_pile_up(
    counting: CountingCompiler, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The latest few lie beside the cache; where it can't be used, all in one temporary folder."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr(inspection, "_LEFT_AT_MOST", 3)
    for text in ("first", "first", "second", "third", "fourth"):
        path = inspection.leave(make(text=text), f"{text}.cpp")
        os.utime(path, ns=(path.stat().st_mtime_ns, time.time_ns()))
        assert path.read_text() == text
    left = {path.name for path in (tmp_path / "cache/refused").iterdir()}
    assert left == {"second.cpp", "third.cpp", "fourth.cpp"}
    (tmp_path / "cache").chmod(0o777)
    inspection._temporary_folder.cache_clear()
    for text in ("first", "second"):
        assert inspection.leave(make(text=text), f"{text}.cpp").read_text() == text
    assert len(list(tmp_path.glob("kronop-source-*"))) == 1
    inspection._temporary_folder.cache_clear()


def test_spills_are_refused_on_demand_even_from_the_cache(counting: CountingCompiler) -> None:
    compiler.compile_sources([make(text="spill")], X86)
    compiler.forget()
    with knobs.using(check_spills=True), pytest.raises(CompileError, match="spills 16 bytes"):
        compiler.compile_sources([make(text="spill")], X86)
    with knobs.using(check_spills=True):
        compiler.compile_sources([make(text="good")], X86)


def test_dumped_and_overridden_sources(counting: CountingCompiler, tmp_path: Path) -> None:
    with knobs.using(dump_dir=tmp_path / "dump"):
        (first,) = compiler.compile_sources([make()], X86)
    assert dumped(tmp_path / "dump").read_text() == "text"
    dumped(tmp_path / "dump").write_text("edited")
    with knobs.using(override_dir=tmp_path / "dump"):
        (second,) = compiler.compile_sources([make()], X86)
        (other,) = compiler.compile_sources([make("other")], X86)
    assert (second.image, other.image) == (b"edited", b"text")
    assert second.key != first.key


def test_kernels_of_one_name_do_not_override_each_other(
    counting: CountingCompiler, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Entries leave out what would make them long; two kernels may share one."""
    folder = tmp_path / "dump"
    sources = [make(text="first"), make(text="second")]
    with knobs.using(dump_dir=folder):
        compiler.compile_sources(sources, X86)
    paths = {path.read_text(): path for path in folder.iterdir()}
    assert set(paths) == {"first", "second"}
    paths["second"].write_text("edited")
    with knobs.using(override_dir=folder, dump_dir=folder, debug=2):
        binaries = compiler.compile_sources(sources, X86)
    assert [binary.image for binary in binaries] == [b"first", b"edited"]
    printed = capsys.readouterr().err
    assert f"source {paths['second'].name} (overridden)" in printed
    # What is dumped of an overridden kernel has the name that overrides it again.
    assert {path.read_text() for path in folder.iterdir()} == {"first", "edited"}
    compiler.forget()
    with knobs.using(debug=2):
        compiler.compile_sources(sources, X86)
    printed = capsys.readouterr().err
    assert f"source {paths['first'].name}\n" in printed
    assert "overridden" not in printed


def test_debug_levels_print_on_standard_error(
    counting: CountingCompiler, capsys: pytest.CaptureFixture[str]
) -> None:
    expected = {1: 0, 2: 1, 3: 1, 4: 2, 5: 3, 6: 4}
    for level, count in expected.items():
        compiler.forget()
        with knobs.using(debug=level):
            compiler.compile_sources([make()], X86)
        printed = capsys.readouterr()
        assert printed.out == ""
        assert printed.err.count("kronop: ") == count, level


class Operation:
    def __init__(self, target: Target, *sources: Source) -> None:
        self.target, self.sources = target, sources
        self.installed: tuple[Binary, ...] | None = None

    def install(self, binaries: tuple[Binary, ...]) -> None:
        self.installed = binaries


def test_add_module_installs_what_each_operation_asked_for(counting: CountingCompiler) -> None:
    operations = [
        Operation(X86, make("a"), make("b")),
        Operation(Target.parse("x86-avx2"), make("a")),
        Operation(X86),
        Operation(X86, make("b"), make("c")),
    ]
    compiler.add_module(operations)
    installed = [[binary.entry for binary in operation.installed or ()] for operation in operations]
    assert installed == [["a", "b"], ["a"], [], ["b", "c"]]
    assert operations[1].installed is not None
    assert operations[1].installed[0].arch == "avx2"
    assert len(counting.compiled) == 4


def test_add_module_installs_all_or_nothing(counting: CountingCompiler) -> None:
    operations = [Operation(X86, make("a")), Operation(X86, make("b", "error"))]
    with pytest.raises(CompileError):
        compiler.add_module(operations)
    assert [operation.installed for operation in operations] == [None, None]


@pytest.mark.parametrize("wrong", [None, 3, "abc", [3], [None], ["abc"], Operation(X86)])
def test_add_module_takes_operations_in_a_list(wrong: object) -> None:
    with pytest.raises(ElementTypeError, match="add_module: expected"):
        compiler.add_module(wrong)  # type: ignore[arg-type]


def test_compile_sources_takes_sources() -> None:
    with pytest.raises(ElementTypeError, match="expected Source"):
        compiler.compile_sources(["text"], X86)  # type: ignore[list-item]


def test_nvrtc_and_nvcc_choose_for_the_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(build, "_process", build._Process())
    with knobs.using(compiler="nvcc"):
        assert build._compiler_for(CUDA) is build._CUDA_COMPILERS["nvcc"]
        compiler.nvrtc()
        assert build._compiler_for(CUDA) is build._CUDA_COMPILERS["nvrtc"]
    compiler.nvcc()
    assert build._compiler_for(CUDA) is build._CUDA_COMPILERS["nvcc"]


def test_a_binary_of_another_target_is_not_loaded() -> None:
    binary = Binary(
        key="f0" * 32,
        entry="kernel",
        arch="sm_80",
        format=BinaryFormat.CUBIN,
        image=b"",
        resources=Resources(),
        log="",
        compiler="test",
    )
    for target in (X86, Target.parse("sm_90a")):
        with pytest.raises(DeviceError, match="expected a binary for"):
            compiler.load(binary, target)


PTXAS_LOG = """\
ptxas info    : 0 bytes gmem
ptxas info    : Compiling entry function 'first' for 'sm_90a'
ptxas info    : Function properties for first
    0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
ptxas info    : Used 10 registers, used 0 barriers
ptxas info    : Compiling entry function 'second' for 'sm_90a'
ptxas info    : Function properties for second
ptxas         .     8 bytes stack frame, 24 bytes spill stores, 40 bytes spill loads
ptxas info    : Used 255 registers, used 1 barriers, 8 bytes cumulative stack size, 1024 bytes smem
"""


def test_resources_are_read_from_the_log_of_their_kernel() -> None:
    assert resources_of("first", PTXAS_LOG) == Resources(
        registers=10, spill_bytes=0, static_shared_bytes=0
    )
    assert resources_of("second", PTXAS_LOG) == Resources(
        registers=255, spill_bytes=64, static_shared_bytes=1024
    )
    assert resources_of("third", PTXAS_LOG) == Resources()
