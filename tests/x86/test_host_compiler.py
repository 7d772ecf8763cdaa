"""The host's compiler, and calls into what it made."""

from __future__ import annotations

import contextlib
import ctypes
import dataclasses
import errno
import gc
import importlib.util
import math
import os
import sqlite3
import struct
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest

import kronop
from kronop import compiler, knobs
from kronop.artifacts import Binary, BinaryFormat, Language, Launch, Origin, Source
from kronop.compiler import host_backend, host_kernel, images, loading, versions
from kronop.errors import CompileError, DeviceError
from kronop.target import Target
from tests import support

pytestmark = [pytest.mark.usefixtures("own_cache"), pytest.mark.optimised]
ROOT = Path(__file__).parents[2]
X86 = Target.parse("x86")

AXPY = """
struct Params { double* y; const double* x; double a; long long n; };
extern "C" int ENTRY(const void* parameters) {
  const auto& p = *static_cast<const Params*>(parameters);
  if (p.n < 0) return 7;
#pragma omp parallel for
  for (long long i = 0; i < p.n; ++i) p.y[i] = p.a * p.x[i] + p.y[i];
  return 0;
}
"""


def make(entry: str = "axpy", text: str = AXPY) -> Source:
    return Source(
        entry=entry,
        text=text.replace("ENTRY", entry),
        language=Language.CXX,
        include_directories=(),
    )


def axpy(
    run_on: Binary, a: float, x: list[float], y: list[float], n: int | None = None
) -> list[float]:
    """What the kernel makes of y, given the parameters of AXPY."""
    count = len(x)
    xs, ys = (ctypes.c_double * count)(*x), (ctypes.c_double * count)(*y)
    packed = struct.pack(
        "QQdq", ctypes.addressof(ys), ctypes.addressof(xs), a, count if n is None else n
    )
    launcher = compiler.load(run_on, X86).bind(Launch(step=0, parameters=packed))
    del packed
    gc.collect()
    launcher(0)
    return list(ys)


def test_a_kernel_computes_from_compiler_memory_and_disk() -> None:
    for origin in (Origin.COMPILED, Origin.MEMORY, Origin.DISK):
        if origin is Origin.DISK:
            compiler.forget()
        (binary,) = compiler.compile_sources([make()], X86)
        assert binary.origin is origin
        assert binary.format is BinaryFormat.SHARED_OBJECT
        assert axpy(binary, 2.0, [1.0, 2.0, 3.0], [10.0, 20.0, 30.0]) == [12.0, 24.0, 36.0]


def test_nan_and_infinity_behave() -> None:
    (binary,) = compiler.compile_sources([make()], X86)
    x = [math.nan, math.inf, -math.inf, 1.0] * 4
    found = axpy(binary, 2.0, x, [1.0, -math.inf, 0.0, math.nan] * 4)
    for start in range(0, 16, 4):
        assert [math.isnan(value) for value in found[start : start + 4]] == [
            True,
            True,
            False,
            True,
        ]
        assert found[start + 2] == -math.inf
    text = """extern "C" int ENTRY(const void* p) {
      double* v = *static_cast<double* const*>(p);
      for (int i = 0; i < 8; ++i) v[8 + i] = (v[i] != v[i]) ? 1.0 : (0.0 * v[i] == 0.0 ? 2.0 : 3.0);
      return 0; }"""
    (binary,) = compiler.compile_sources([make("classify", text)], X86)
    values = (ctypes.c_double * 16)(math.nan, math.inf, 1.0, -0.0, -math.inf, 5.0, math.nan, 0.0)
    packed = struct.pack("Q", ctypes.addressof(values))
    compiler.load(binary, X86).bind(Launch(step=0, parameters=packed))(0)
    assert values[8:] == [1.0, 3.0, 2.0, 2.0, 3.0, 2.0, 1.0, 2.0]


def test_a_status_that_is_not_zero_is_an_error() -> None:
    (binary,) = compiler.compile_sources([make()], X86)
    with pytest.raises(DeviceError, match="axpy: expected status 0, got status 7"):
        axpy(binary, 1.0, [1.0], [1.0], n=-1)


def test_many_kernels_are_not_mistaken_for_each_other() -> None:
    text = (
        'extern "C" int ENTRY(const void* p) { *static_cast<int* const*>(p)[0] = VALUE; return 0; }'
    )
    sources = [make("same", text.replace("VALUE", str(value))) for value in range(6)]
    found = ctypes.c_int(-1)
    packed = struct.pack("Q", ctypes.addressof(found))
    for value, binary in enumerate(compiler.compile_sources(sources, X86)):
        kernel = compiler.load(binary, X86)
        assert compiler.load(binary, X86) is kernel
        kernel.bind(Launch(step=0, parameters=packed))(0)
        assert found.value == value


def test_every_arch_that_this_machine_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    archs = ["generic", "avx2", "avx512", "amx"]
    for arch in archs[: archs.index(X86.arch) + 1]:
        target = Target.parse(f"x86-{arch}")
        (binary,) = compiler.compile_sources([make()], target)
        assert compiler.load(binary, target).entry == "axpy"
    (binary,) = compiler.compile_sources([make()], Target.parse("x86-avx512"))
    parse, lesser = Target.parse, Target.parse("x86-avx2")
    monkeypatch.setattr(
        host_kernel.Target, "parse", lambda value: lesser if value == "x86" else parse(value)
    )
    foreign = dataclasses.replace(binary, key="f1" * 32)
    with pytest.raises(DeviceError, match="expected a machine with avx512, got one with avx2"):
        host_kernel.load_host(foreign)
    with pytest.raises(DeviceError, match=r"axpy: target: expected one of .*, got 'x86-avx10'"):
        host_kernel.load_host(dataclasses.replace(foreign, arch="avx10"))


def test_tiles_are_more_than_vectors_as_wide(monkeypatch: pytest.MonkeyPatch) -> None:
    (binary,) = compiler.compile_sources([make()], Target.parse("x86-amx"))
    parse = Target.parse
    for here, runs in (("x86-avx512", False), ("x86-amx", True)):
        monkeypatch.setattr(
            host_kernel.Target, "parse", lambda value, here=here: parse(_or(value, here))
        )
        if runs:
            host_kernel._check_machine(binary)
            continue
        with pytest.raises(DeviceError, match="expected a machine with amx, got one with avx512"):
            host_kernel._check_machine(binary)


def _or(value: object, here: str) -> object:
    return here if value == "x86" else value


def test_a_compiler_without_amx_makes_all_but_tiles(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script = tmp_path / "old-g++"
    script.write_text(
        "#!/bin/sh\n"
        'case "$*" in *-mamx*) echo "unrecognized command-line option" >&2; exit 1;; esac\n'
        'exec g++ "$@"\n'
    )
    script.chmod(0o755)
    monkeypatch.setenv("CXX", str(script))
    target = Target.parse("x86-amx")
    (binary,) = compiler.compile_sources([make()], target)
    assert binary.image
    with pytest.raises(CompileError, match="knows no AMX: it takes g"):
        support.kron_operation(target, kronop.bfloat16, [(32, 32)] * 2).binaries  # noqa: B018


def test_a_broken_image_is_an_error() -> None:
    (binary,) = compiler.compile_sources([make()], X86)
    images = (b"", b"garbage" * 2000, binary.image[:100], binary.image[: len(binary.image) // 2])
    for change in ({"entry": "absent"}, *({"image": image} for image in images)):
        with pytest.raises(DeviceError, match="does not load"):
            host_kernel.load_host(dataclasses.replace(binary, **change))


def test_what_a_compiler_cuts_short_is_not_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Mapped, it would end this process; kept, every later one."""
    real = real_compiler()
    for size in (0, 9000):
        cut = f'{real} "$@" && [ ! -e kernel.so ] || truncate -s {size} kernel.so'
        monkeypatch.setenv("CXX", script(tmp_path / "cxx", cut))
        with pytest.raises(CompileError, match="does not load") as caught:
            compiler.compile_sources([make()], X86)
        assert f"{size} bytes" in caught.value.log
        assert compiler.default_cache().list() == ()
    monkeypatch.setenv("CXX", script(tmp_path / "cxx", f'exec {real} "$@"'))
    (binary,) = compiler.compile_sources([make()], X86)
    assert axpy(binary, 2.0, [1.0], [10.0]) == [12.0]


def test_what_was_stored_and_does_not_load_is_compiled_once_more(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    source = make("healed")
    (good,) = compiler.compile_sources([source], X86)
    bad = dataclasses.replace(good, image=good.image[:9000])
    compiler.default_cache().put(bad, source.text)
    compiler.forget()
    monkeypatch.setattr(loading, "_kernels", {})  # As in a new process.
    binaries = compiler.compile_sources([source], X86)
    assert binaries[0].image == bad.image
    (binary,), (kernel,) = compiler.load_all(binaries, [source], X86)
    assert binary.image == good.image
    assert compiler.load_all([binary], [source], X86) == ((binary,), (kernel,))
    assert compiler.default_cache().show(good.key).binary.image == good.image
    kernel.bind(Launch(step=0, parameters=struct.pack("QQdq", 0, 0, 1.0, 0)))(0)


def test_a_refused_source_carries_log_and_path() -> None:
    with pytest.raises(CompileError) as caught:
        compiler.compile_sources([make("broken", "int x = ;")], X86)
    assert "broken.cpp:1" in caught.value.log
    assert caught.value.source_path is not None
    assert Path(caught.value.source_path).read_text() == "int x = ;"


def test_headers_come_from_the_include_directories_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "good").mkdir()
    (tmp_path / "planted").mkdir()
    (tmp_path / "good/value.hpp").write_text("constexpr int kValue = 1;")
    (tmp_path / "planted/value.hpp").write_text("#error planted")
    monkeypatch.chdir(tmp_path / "planted")
    monkeypatch.setenv("CPATH", str(tmp_path / "planted"))
    text = '#include "value.hpp"\nextern "C" int ENTRY(const void*) { return kValue; }'
    with pytest.raises(CompileError, match=r"value\.hpp"):
        compiler.compile_sources([make(text=text)], X86)
    good = dataclasses.replace(make(text=text), include_directories=(str(tmp_path / "good"),))
    (first,) = compiler.compile_sources([good], X86)
    (tmp_path / "good/value.hpp").write_text("constexpr int kValue = 2;")
    (second,) = compiler.compile_sources([good], X86)
    for binary, status in ((first, 1), (second, 2)):
        with pytest.raises(DeviceError, match=f"got status {status}"):
            compiler.load(binary, X86).bind(Launch(step=0, parameters=b""))(0)


def script(path: Path, text: str) -> str:
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o700)
    return str(path)


def real_compiler() -> str:
    command = host_backend._command()
    if len(command) != 1:
        pytest.skip("needs a compiler that is one command")
    return command[0]


@pytest.mark.skipif(sys.platform != "linux", reason="paths lead through a handle there")
def test_a_library_that_others_exchange_is_not_loaded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (binary,) = compiler.compile_sources([make()], X86)
    temporary, load = tmp_path / "temporary", ctypes.CDLL
    temporary.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(temporary))

    def exchange_and_load(path: str) -> ctypes.CDLL:
        (folder,) = temporary.iterdir()
        folder.rename(tmp_path / "moved")
        folder.mkdir()
        (folder / Path(path).name).write_text("planted")
        return load(path)

    monkeypatch.setattr(host_kernel.ctypes, "CDLL", exchange_and_load)
    assert host_kernel.load_host(binary).entry == "axpy"


def test_cxx_is_taken_first_and_its_version_is_in_the_key(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = real_compiler()
    keys = set()
    for version in ("1.0", "1.1"):
        answer = f'if [ "$1" = --version ]; then echo "test compiler {version}"; exit; fi'
        path = script(tmp_path / f"cxx{version}", f'{answer}\nexec {real} "$@"')
        monkeypatch.setenv("CXX", path)
        (binary,) = compiler.compile_sources([make()], X86)
        assert binary.compiler.startswith(f"test compiler {version} #")
        assert str(tmp_path) not in binary.compiler
        keys.add(binary.key)
    assert len(keys) == 2


def test_a_compiler_that_is_exchanged_is_noticed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its own file changes, or only what it leads to, while this process lives."""
    real, version = real_compiler(), tmp_path / "version"
    answer = f'if [ "$1" = --version ]; then cat {version}; exit; fi'
    monkeypatch.setenv("CXX", script(tmp_path / "cxx", f'{answer}\nexec {real} "$@"'))

    def compiled_by(text: str) -> str:
        (binary,) = compiler.compile_sources([make(text=AXPY + text)], X86)
        return binary.compiler.partition(" #")[0]

    version.write_text("test compiler 1.0")
    assert compiled_by("// one") == "test compiler 1.0"
    script(tmp_path / "cxx", f'{answer.replace("cat", "echo 1.1; cat")}\nexec {real} "$@"')
    assert host_backend.HostCompiler().identity().startswith("1.1 #")
    assert compiled_by("// two") == "1.1"
    script(tmp_path / "cxx", f'{answer}\nexec {real} "$@"')
    version.write_text("test compiler 1.2")
    assert compiled_by("// three") == "test compiler 1.2"
    version.write_text("test compiler 1.3")
    assert compiled_by("// four") == "test compiler 1.3"
    assert compiled_by("// three") == "test compiler 1.3"


def test_a_constant_that_does_not_fit_is_refused() -> None:
    for constant in ("int k = 4294967297;", "int k[] = {1, 4294967297};"):
        text = f'static constexpr {constant}\nextern "C" int ENTRY(const void*) {{ return 0; }}'
        with pytest.raises(CompileError, match=r"overflow|narrowing|conversion"):
            compiler.compile_sources([make(text=text)], X86)


@pytest.mark.parametrize("name", ["clang version 19", "g++ 12.2.0"])
def test_a_compiler_without_the_openmp_runtime(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is seen when linking fails; what is made without is kept under another key."""
    real, version = real_compiler(), f'if [ "$1" = --version ]; then echo "{name}"; exit; fi'
    refuse = 'case "$*" in *-fopenmp*) exit 1;; esac'
    found = []
    # A new process learns it before it compiles, and finds what the first one made.
    for link in (refuse, refuse, ""):
        compiler.forget()
        monkeypatch.setattr(host_backend, "_openmp", {})
        path = script(tmp_path / "cxx", f'{version}\n{link}\nexec {real} "$@"')
        monkeypatch.setenv("CXX", path)
        (binary,) = compiler.compile_sources([make()], X86)
        assert axpy(binary, 2.0, [1.0], [1.0]) == [3.0]
        assert ("-fopenmp" in host_backend.HostCompiler().flags(X86)) is (not link)
        assert binary.compiler == host_backend.HostCompiler().identity()
        found.append((binary.key, binary.origin))
    without, again, linked = found
    assert again == (without[0], Origin.DISK)
    assert linked[0] != without[0]


def test_what_a_trial_can_not_tell_is_not_believed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A compiler that fails whatever it is given, as on a full disk, may know OpenMP."""
    version = 'if [ "$1" = --version ]; then echo "g++ 12.2.0"; exit; fi'
    path = script(tmp_path / "cxx", f"{version}\necho No space left on device >&2; exit 1")
    monkeypatch.setattr(host_backend, "_openmp", {})
    monkeypatch.setenv("CXX", path)
    with pytest.raises(CompileError, match="No space left on device"):
        compiler.compile_sources([make()], X86)
    assert host_backend._openmp == {}


def test_a_machine_that_lacks_handles_does_not_break_what_is_stored(
    monkeypatch: pytest.MonkeyPatch, own_cache: None
) -> None:
    (binary,) = compiler.compile_sources([make()], X86)

    def none_left(name: str, flags: int) -> int:
        raise OSError(errno.EMFILE, "Too many open files")

    monkeypatch.setattr(os, "memfd_create", none_left)
    with pytest.raises(DeviceError, match=r"no file to load it from .*ulimit -n") as caught:
        host_kernel.load_host(binary)
    assert not isinstance(caught.value, images.BrokenImageError)


@pytest.mark.parametrize(
    ("said", "is_broken"),
    [
        ("x.so: file too short", True),
        ("x.so: cannot open shared object file: Too many open files", False),
        ("libgomp.so.1: cannot open shared object file: No such file or directory", False),
    ],
)
def test_only_what_the_loader_says_of_the_image_makes_it_broken(
    said: str, is_broken: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    (binary,) = compiler.compile_sources([make()], X86)

    def refuse(path: str) -> None:
        raise OSError(said)

    monkeypatch.setattr(ctypes, "CDLL", refuse)
    with pytest.raises(DeviceError) as caught:
        host_kernel.load_host(binary)
    assert isinstance(caught.value, images.BrokenImageError) is is_broken


def test_no_compiler_is_one_line_that_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("CXX", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(host_backend, "_has_zig_wheel", lambda: False)
    host_backend._find.cache_clear()
    with pytest.raises(CompileError, match=r"install g\+\+, or pip install ziglang") as caught:
        compiler.compile_sources([make()], X86)
    assert "\n" not in str(caught.value)
    monkeypatch.setenv("CXX", "no-such-compiler -O2")
    with pytest.raises(CompileError, match=r"\$CXX names 'no-such-compiler'"):
        compiler.compile_sources([make()], X86)


def test_cxx_may_be_a_path_from_the_current_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, own_cache: None
) -> None:
    script(tmp_path / "own-cxx", f'exec {real_compiler()} "$@"')
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("CXX", "./own-cxx")
    (binary,) = compiler.compile_sources([make()], X86)
    assert binary.origin is Origin.COMPILED


@pytest.mark.parametrize("cxx", ['g++ "', "g++ -DNAME='", "g++ \\"])
def test_cxx_with_broken_quotes_is_an_error(cxx: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CXX", cxx)
    with pytest.raises(CompileError, match=r"\$CXX: expected a command, got .*; correct it"):
        compiler.compile_sources([make()], X86)


def test_zig_is_the_last_resort(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CXX", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(host_backend, "_has_zig_wheel", lambda: True)
    host_backend._find.cache_clear()
    assert host_backend._command() == (sys.executable, "-P", "-m", "ziglang", "c++")
    monkeypatch.setattr(host_backend, "version_of", lambda command: ("0.15.2",))
    assert "-fopenmp" not in host_backend.HostCompiler().flags(X86)
    host_backend._find.cache_clear()


@pytest.mark.parametrize("as_path", ["", "."])
def test_a_zig_in_the_current_folder_is_neither_found_nor_run(
    as_path: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    planted, wheel = tmp_path / "planted", tmp_path / "wheel"
    for place in (planted, wheel):
        (place / "ziglang").mkdir(parents=True)
        (place / "ziglang/__init__.py").touch()
        (place / "ziglang/__main__.py").write_text(f"print({place.name!r})")
    monkeypatch.chdir(planted)
    monkeypatch.setattr(sys, "path", [as_path, str(planted)])
    assert not host_backend._has_zig_wheel()
    monkeypatch.setattr(sys, "path", [as_path, str(planted), str(wheel)])
    assert host_backend._has_zig_wheel()
    monkeypatch.setenv("CXX", "")
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("PYTHONPATH", str(wheel))
    monkeypatch.setattr(versions, "_answers", {})
    host_backend._find.cache_clear()
    assert host_backend.HostCompiler().identity().startswith("wheel #")
    host_backend._find.cache_clear()


SIX = """
import sys
sys.path.insert(0, sys.argv[1])
from kronop import compiler
from kronop.artifacts import Language, Source
from kronop.compiler import build
from kronop.target import Target

compile = build._compile
def noted(job):
    with open(sys.argv[2], "a") as log:
        print(job.source.entry, file=log)
    return compile(job)
build._compile = noted
print("ready", flush=True)

heads = {'x86-generic': (Language.CXX, 'int {}(const void*) {{ return 0; }}'),
         'sm_80': (Language.CUDA, '__global__ void {}() {{}}')}
for target, names in (("x86-generic", ("one", "two", "three")), ("sm_80", sys.argv[3:])):
    language, text = heads[target]
    sources = [Source(entry=name, text=f'extern "C" {text.format(name)}', language=language,
                      include_directories=()) for name in names]
    binaries = compiler.compile_sources(sources, Target.parse(target))
    assert [binary.entry for binary in binaries] == [*names]
"""


def test_six_processes_compile_each_kernel_once(tmp_path: Path) -> None:
    """While the first of them makes the cache on a slow disk, the others find it busy."""
    log, folder = tmp_path / "log", tmp_path / "shared"
    folder.mkdir(mode=0o700)
    for_gpus = ["four"] if importlib.util.find_spec("cuda.bindings") is not None else []
    with contextlib.closing(sqlite3.connect(folder / "compiled_cache.db")) as slow:
        slow.execute("BEGIN EXCLUSIVE")
        running = [
            subprocess.Popen(
                [sys.executable, "-c", SIX, str(ROOT), str(log), *for_gpus],
                env={**os.environ, "KRONOP_CACHE_DIR": str(folder)},
                stdout=subprocess.PIPE,
            )
            for _ in range(6)
        ]
        for process in running:
            with process.stdout as stdout:  # type: ignore[union-attr]
                assert stdout.readline() == b"ready\n"
        time.sleep(2)  # Ordinary waits take a second.
    assert [process.wait(100) for process in running] == [0] * 6
    assert sorted(log.read_text().split()) == sorted(["one", "two", "three", *for_gpus])


def test_launches_print_at_debug_levels_one_and_two(capfd: pytest.CaptureFixture[str]) -> None:
    (binary,) = compiler.compile_sources([make()], X86)
    for level, expected in ((0, 0), (1, 1), (2, 1)):
        with knobs.using(debug=level):
            axpy(binary, 1.0, [1.0], [1.0])
        printed = capfd.readouterr().err
        assert printed.count("kronop: ran axpy on x86") == expected
        assert (" us\n" in printed) == (level == 2)


def test_assembly_and_machine_code_are_shown_on_demand(capfd: pytest.CaptureFixture[str]) -> None:
    with knobs.using(debug=6):
        compiler.compile_sources([make()], X86)
    printed = capfd.readouterr().err
    assert "assembly of axpy" in printed
    assert ".globl\taxpy" in printed
    assert "machine code of axpy" in printed
