"""NVRTC and nvcc on small kernels; neither needs a GPU or a driver."""

from __future__ import annotations

import dataclasses
import re
import subprocess
import sys
import threading
import warnings
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from kronop import compiler, knobs, late, machine
from kronop.artifacts import Binary, BinaryFormat, Language, Origin, Source
from kronop.compiler import build, cuda_headers, nvcc_backend, nvrtc_backend
from kronop.compiler.nvcc_backend import find_cuda_tool
from kronop.compiler.nvrtc_backend import NvrtcCompiler
from kronop.cuda_line import cuda_extra
from kronop.errors import CompileError, DeviceError, installing
from kronop.target import Target, every_target

ROOT = Path(__file__).parents[2]
SCALE = """
struct Params { float* x; long long n; };
extern "C" __global__ void __launch_bounds__(256) ENTRY(const __grid_constant__ Params p) {
  __shared__ float row[256];
  row[threadIdx.x] = p.x[threadIdx.x];
  __syncthreads();
  if (threadIdx.x < p.n) p.x[threadIdx.x] = 2.0f * row[255 - threadIdx.x];
}
"""
SPILLING = """
extern "C" __global__ void __launch_bounds__(1024) ENTRY(float* x) {
  float v[256];
#pragma unroll
  for (int i = 0; i < 256; ++i) v[i] = x[i * 1024 + threadIdx.x];
  __syncthreads();
#pragma unroll
  for (int i = 0; i < 256; ++i) x[i * 1024 + threadIdx.x] = v[(i * 7) & 255] * v[255 - i];
}
"""


def make(entry: str = "scale", text: str = SCALE, *folders: Path) -> Source:
    return Source(
        entry=entry,
        text=text.replace("ENTRY", entry),
        language=Language.CUDA,
        include_directories=tuple(map(str, folders)),
    )


@pytest.fixture(autouse=True)
def nvrtc_chosen(own_cache: None) -> Iterator[None]:
    with knobs.using(compiler="nvrtc"):
        yield


@pytest.fixture(params=["nvrtc", "nvcc"])
def either(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    if name == "nvcc" and find_cuda_tool("nvcc") is None:
        pytest.skip("no nvcc here")
    getattr(compiler, name)()
    return name


def assert_is_cubin(binary: Binary, arch: str) -> None:
    assert binary.image[:4] == b"\x7fELF"
    assert b".text.scale" in binary.image
    assert (binary.format, binary.arch) == (BinaryFormat.CUBIN, arch)


@pytest.mark.parametrize("arch", ["sm_80", "sm_90a"])
def test_cubin_resources_and_identity(either: str, arch: str) -> None:
    (binary,) = compiler.compile_sources([make()], Target.parse(arch))
    assert_is_cubin(binary, arch)
    assert binary.resources.registers is not None
    assert 4 <= binary.resources.registers <= 64
    assert binary.resources.spill_bytes == 0
    assert binary.resources.static_shared_bytes == 1024
    assert binary.compiler.lower().startswith(either)
    assert re.search(r"V1[23]\.\d", binary.compiler)
    compiler.forget()
    (again,) = compiler.compile_sources([make()], Target.parse(arch))
    assert again.origin is Origin.DISK
    assert (again.image, again.resources) == (binary.image, binary.resources)


def test_spills_are_found_and_refused_on_demand(either: str) -> None:
    target = Target.parse("sm_80")
    (binary,) = compiler.compile_sources([make("spilling", SPILLING)], target)
    assert binary.resources.registers == 64
    assert binary.resources.spill_bytes is not None
    assert binary.resources.spill_bytes > 100
    compiler.forget()
    with knobs.using(check_spills=True), pytest.raises(CompileError, match="it spills") as caught:
        compiler.compile_sources([make("spilling", SPILLING)], target)
    assert "spill stores" in caught.value.log


def test_a_refused_source_carries_log_and_path(either: str) -> None:
    with pytest.raises(CompileError) as caught:
        compiler.compile_sources([make("broken", "int x = ;")], Target.parse("sm_80"))
    assert "broken.cu(1)" in caught.value.log
    assert "expected an expression" in str(caught.value)
    assert caught.value.source_path is not None
    assert Path(caught.value.source_path).read_text() == "int x = ;"


def test_headers_come_from_the_include_directories_only(
    either: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for folder, text in (("good", "#define kFactor 2"), ("planted", "#error planted")):
        (tmp_path / folder / "kronop").mkdir(parents=True)
        (tmp_path / folder / "kronop/factor.cuh").write_text(text)
        (tmp_path / folder / "kronop/outer.cuh").write_text('#include "factor.cuh"')
    monkeypatch.chdir(tmp_path / "planted")
    text = '#include "kronop/outer.cuh"\n' + SCALE.replace("2.0f", "kFactor")
    target = Target.parse("sm_80")
    with pytest.raises(CompileError, match=r"outer\.cuh"):
        compiler.compile_sources([make("scale", text)], target)
    (first,) = compiler.compile_sources([make("scale", text, tmp_path / "good")], target)
    (tmp_path / "good/kronop/factor.cuh").write_text("#define kFactor 3")
    (second,) = compiler.compile_sources([make("scale", text, tmp_path / "good")], target)
    assert first.key != second.key
    assert first.image != second.image


def test_line_information_is_another_binary(either: str) -> None:
    target = Target.parse("sm_90a")
    (plain,) = compiler.compile_sources([make()], target)
    with knobs.using(line_info=True):
        (lined,) = compiler.compile_sources([make()], target)
    assert plain.key != lined.key
    assert b"debug_line" in lined.image
    assert b"debug_line" not in plain.image


def test_several_kernels_at_once() -> None:
    sources = [make(f"scale{index}") for index in range(6)]
    binaries = compiler.compile_sources(sources, Target.parse("sm_90a"))
    for index, binary in enumerate(binaries):
        assert f".text.scale{index}".encode() in binary.image


def test_ptx_and_sass_are_shown_on_demand(either: str, capfd: pytest.CaptureFixture[str]) -> None:
    with knobs.using(debug=6):
        compiler.compile_sources([make()], Target.parse("sm_90a"))
    printed = capfd.readouterr().err
    assert ".visible .entry scale" in printed
    if find_cuda_tool("nvdisasm") or find_cuda_tool("cuobjdump"):
        assert "LDG" in printed
    else:
        assert "install the CUDA toolkit" in printed


def test_a_cubin_does_not_load_without_a_driver() -> None:
    status = compiler.cuda_devices()
    if status:
        pytest.skip("this machine has a GPU")
    (binary,) = compiler.compile_sources([make()], Target.parse("sm_80"))
    with pytest.raises(DeviceError, match="expected a GPU, got"):
        compiler.load(binary, Target.parse("sm_80"))


def test_missing_compilers_are_one_line_that_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name in ("cuda.bindings.nvrtc", "cuda.pathfinder"):
        monkeypatch.setitem(sys.modules, name, None)
    nvrtc_backend._nvrtc.cache_clear()
    monkeypatch.setitem(build._CUDA_COMPILERS, "nvrtc", NvrtcCompiler(build.default_cache))
    monkeypatch.setattr(nvcc_backend.shutil, "which", lambda *_, **__: None)
    for choose, hint in (
        (compiler.nvrtc, re.escape(installing(cuda_extra()))),
        (compiler.nvcc, "toolkit"),
    ):
        choose()
        with pytest.raises(CompileError, match=hint) as caught:
            compiler.compile_sources([make()], Target.parse("sm_80"))
        assert "\n" not in str(caught.value)


def _bindings(major: int, minor: int) -> SimpleNamespace:
    return SimpleNamespace(nvrtcVersion=lambda: (0, major, minor))


@pytest.mark.parametrize(("major", "minor"), [(11, 8), (12, 3)])
def test_an_old_nvrtc_is_refused(major: int, minor: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cuda.bindings.nvrtc", _bindings(major, minor))
    with pytest.raises(CompileError, match=rf"expected 12.4 or later, got {major}.{minor}; pip"):
        nvrtc_backend._nvrtc.__wrapped__()


@pytest.mark.parametrize(("release", "knows"), [((12, 4), False), ((12, 9), True), ((13, 0), True)])
def test_only_an_nvrtc_with_a_cache_is_told_not_to_use_it(
    release: tuple[int, int], knows: bool, tmp_path: Path
) -> None:
    options = nvrtc_backend._options(_bindings(*release), make("k", "", tmp_path), ("-arch=sm_80",))
    assert (b"--no-cache" in options) == knows
    assert options[0] == b"-arch=sm_80"
    assert options[-1] == f"-I{tmp_path}".encode()


def test_what_is_older_than_all_that_this_release_knows_is_told_what_to_install() -> None:
    told = r"expected one that knows sm_20, got sm_\d+ and later; in a new environment: pip install"
    with pytest.raises(CompileError, match=told):
        NvrtcCompiler(compiler.default_cache).compile(make(), ("-arch=sm_20",))


# What releases know, of what is in question: 101 is a Jetson, which is 110 since 13.0.
_KNOWN = {
    (12, 4): [70, 75, 80, 86, 87, 89, 90],
    (12, 8): [70, 75, 80, 86, 87, 89, 90, 100, 101, 120],
    (12, 9): [70, 75, 80, 86, 87, 89, 90, 100, 101, 103, 120, 121],
    (13, 0): [75, 80, 86, 87, 88, 89, 90, 100, 103, 110, 120, 121],
}


@pytest.mark.parametrize(
    ("release", "asked", "chosen"),
    [
        ((12, 4), "sm_89", "sm_89"),
        ((12, 4), "sm_90a", "sm_90a"),
        ((12, 4), "sm_100", "compute_90"),
        ((12, 4), "compute_121", "compute_90"),
        ((12, 8), "sm_103", "sm_100"),
        ((12, 8), "sm_110", "compute_100"),
        ((12, 8), "sm_121", "sm_120"),
        ((12, 8), "compute_121", "compute_120"),
        ((12, 9), "sm_121", "sm_121"),
        ((13, 0), "sm_130", "compute_121"),
    ],
)
def test_what_is_newer_than_a_release_is_served_by_what_that_knows(
    release: tuple[int, int], asked: str, chosen: str
) -> None:
    nvrtc = _bindings(*release)
    nvrtc.nvrtcGetSupportedArchs = lambda: (0, _KNOWN[release])
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        flags = nvrtc_backend._understood(nvrtc, (f"-arch={asked}", "-DX"))
    assert flags == (f"-arch={chosen}", "-DX")
    assert bool(told) == (asked != chosen)


@pytest.mark.parametrize("release", _KNOWN)
@pytest.mark.filterwarnings("ignore:NVRTC")
def test_what_a_release_compiles_for_has_the_features_of_the_target(
    release: tuple[int, int],
) -> None:
    nvrtc = _bindings(*release)
    nvrtc.nvrtcGetSupportedArchs = lambda: (0, _KNOWN[release])
    newer = [target for target in every_target() if target.gpu and target.gpu.capability >= (7, 5)]
    for target in newer:
        arch = nvrtc_backend._understood(nvrtc, target.flags)[0].rpartition("_")[2].rstrip("a")
        capability = int(arch) // 10, int(arch) % 10
        assert all(machine._SINCE.get(item, (0, 0)) <= capability for item in target.gpu.features)


def test_ptx_of_a_gpu_that_is_newer_than_this_release() -> None:
    with pytest.warns(RuntimeWarning, match="does not know sm_999, and compiles for compute_"):
        product = NvrtcCompiler(compiler.default_cache).compile(
            make(), ("-arch=sm_999", "--std=c++20")
        )
    assert product.is_ptx
    assert b".target sm_" in product.image


def test_importing_the_compiler_imports_no_cuda() -> None:
    script = (
        f"import sys; sys.path.insert(0, {str(ROOT)!r}); before = {{*sys.modules}}; "
        "import kronop.compiler; "  # cuda-bindings 12 has an own `cuda` since Python's start.
        "loaded = {name.split('.')[0] for name in {*sys.modules} - before}; "
        "sys.exit(bool(loaded & {'cuda', 'torch', 'cupy', 'rmm'}))"
    )
    assert subprocess.run([sys.executable, "-c", script], check=False).returncode == 0


def test_no_child_is_forked_while_nvrtc_works(monkeypatch: pytest.MonkeyPatch) -> None:
    """It would inherit locks of that library, which nobody opens."""
    nvrtc = nvrtc_backend._nvrtc()
    compile_program, inside = nvrtc.nvrtcCompileProgram, []

    def noted(*given: object) -> object:
        inside.append(threading.get_ident() in late._inside)
        return compile_program(*given)

    monkeypatch.setattr(nvrtc, "nvrtcCompileProgram", noted)
    compiler.compile_sources([make()], Target.parse("sm_80"))
    assert inside
    assert all(inside)


_MARKS = ("cuda.h", "crt/mma.h", "cccl/cuda/std/version")
_IN_TOOLKIT_12 = ("cuda.h", "crt/mma.h", "cuda/std/version")
_IN_PACKAGES_12 = (
    "cuda_runtime/include/cuda.h",
    "cuda_nvcc/include/crt/mma.h",
    "cuda_cccl/include/cuda/std/version",
)


def _headers(folder: Path, *marks: str, version: int = 13010) -> Path:
    """A folder with such files, of CUDA 13.1."""
    for mark in marks:
        path = folder / mark
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"#define CUDA_VERSION {version}\n")
    return folder


@pytest.fixture
def packages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where Python packages bring headers; there are no others on this machine."""
    nvidia = tmp_path / "site-packages/nvidia"
    # As the search does: packages of CUDA 13 come first.
    places = [nvidia / "cu13/include", nvidia / "cuda_runtime/include"]

    def find(part: str) -> str:
        return str(next((place for place in places if (place / "cuda.h").is_file()), ""))

    finder = SimpleNamespace(find_nvidia_header_directory=find)
    monkeypatch.setitem(sys.modules, "cuda.pathfinder", finder)
    monkeypatch.setattr(cuda_headers, "_toolkits", lambda: (tmp_path / "toolkit",))
    return places[0]


def _included(release: str = "13.1") -> tuple[str, ...]:
    """The folders that an NVRTC of that release is given."""
    source, nvrtc = (
        dataclasses.replace(make(), cuda_headers=True),
        NvrtcCompiler(build.default_cache),
    )
    nvrtc._true = f"NVRTC Cuda compilation tools, release {release}, V{release}.1"
    return nvrtc.completed(source).include_directories


def _package_12(nvidia: Path, part: str, version: str, mark: str = "") -> None:
    """A package of CUDA 12 as pip installs it."""
    told = nvidia.parent / f"nvidia_cuda_{part}_cu12-{version}.dist-info/METADATA"
    told.parent.mkdir(parents=True)
    told.write_text(f"Metadata-Version: 2.1\nName: nvidia-cuda-{part}-cu12\nVersion: {version}\n")
    _headers(nvidia, *([mark] if mark else []))


@pytest.mark.parametrize("place", cuda_headers._PLACES)
def test_incomplete_headers_are_passed_over(packages: Path, tmp_path: Path, place: str) -> None:
    """PyTorch's packages bring CUDA's headers without two parts of them."""
    _headers(packages, "cuda.h")
    whole = _headers(tmp_path / "toolkit" / place, *_MARKS)
    assert _included() == (str(whole), str(whole / "cccl"))
    assert cuda_headers.driver_headers() == (str(packages),)
    _headers(packages, *_MARKS)
    assert _included() == (str(packages), str(packages / "cccl"))


def test_headers_of_cuda_12_are_in_one_folder_or_in_one_for_each_package(
    packages: Path, tmp_path: Path
) -> None:
    toolkit = _headers(tmp_path / "toolkit/include", *_IN_TOOLKIT_12, version=12040)
    assert _included("12.4") == (str(toolkit),)
    nvidia = packages.parents[1]
    runtime, crt, cccl = _IN_PACKAGES_12
    _headers(nvidia, runtime, version=12040)
    _package_12(nvidia, "nvcc", "12.4.131", crt)
    assert _included("12.4") == (str(toolkit),)
    _package_12(nvidia, "cccl", "12.4.127.post1", cccl)
    every = tuple(str(nvidia / f"cuda_{part}/include") for part in ("runtime", "nvcc", "cccl"))
    assert _included("12.4") == every


def test_packages_of_two_releases_are_no_set(packages: Path) -> None:
    nvidia = packages.parents[1]
    runtime, crt, cccl = _IN_PACKAGES_12
    _headers(nvidia, runtime, version=12080)
    _package_12(nvidia, "nvcc", "12.9.86", crt)
    _package_12(nvidia, "cccl", "12.8.90", cccl)
    hint = r"\[nvcc\]==12.8.\*' \(nvidia-cuda-nvcc-cu12\)"
    with pytest.raises(CompileError, match=rf"without crt/mma.h; pip .*cuda-toolkit{hint}"):
        _included("12.8")


def test_headers_are_of_the_compilers_line(packages: Path, tmp_path: Path) -> None:
    _headers(packages, *_MARKS)
    with pytest.raises(CompileError, match=r"of CUDA 12: .* got .*include of CUDA 13.1; .*cuda12"):
        _included("12.9")
    old = _headers(tmp_path / "toolkit/include", *_IN_TOOLKIT_12, version=12090)
    assert _included("12.9") == (str(old),)
    assert _included("13.0") == (str(packages), str(packages / "cccl"))


@pytest.mark.parametrize(
    ("there", "named"),
    [
        (_MARKS[:1], r"\[crt,cccl\]==13.1.\*' \(nvidia-cuda-crt and nvidia-cuda-cccl\)"),
        (_MARKS[:2], r"\[cccl\]==13.1.\*' \(nvidia-cuda-cccl\)"),
        (_MARKS[::2], r"\[crt\]==13.1.\*' \(nvidia-cuda-crt\)"),
    ],
)
def test_the_package_that_completes_headers_is_named(
    packages: Path, tmp_path: Path, there: tuple[str, ...], named: str
) -> None:
    _headers(packages, *there)
    _headers(tmp_path / "toolkit/include", "cuda.h", "crt/mma.h")
    with pytest.raises(CompileError, match=rf"include without c.*pip .*cuda-toolkit{named}"):
        _included()


def test_without_headers_the_error_names_the_extra(packages: Path, tmp_path: Path) -> None:
    for line in ("12", "13"):
        with pytest.raises(CompileError, match=rf"of CUDA {line}: .* got none; .*cuda{line}"):
            _included(f"{line}.9")
    _headers(tmp_path / "toolkit/include", "cuda.h")
    with pytest.raises(CompileError, match=r"without crt.*; .*cuda13.*CUDA_HOME"):
        _included()


def test_toolkits_are_where_variables_and_nvcc_say(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cuda_headers, "_of_packages", lambda: "")
    for name in ("CUDA_HOME", "CUDA_PATH", "CONDA_PREFIX"):
        monkeypatch.setenv(name, str(tmp_path / name))
        _headers(tmp_path / name / "include", "cuda.h")
    nvcc = _headers(tmp_path / "nvcc", "bin/nvcc", "include/cuda.h") / "bin/nvcc"
    nvcc.chmod(0o755)
    monkeypatch.setenv("PATH", str(nvcc.parent))
    found = [Path(folder) for folder in cuda_headers._folders()]
    order = ("CUDA_HOME", "CUDA_PATH", "nvcc", "CONDA_PREFIX")
    assert found[:4] == [tmp_path / name / "include" for name in order]
    monkeypatch.chdir(tmp_path / "CUDA_HOME")
    for name in ("CUDA_HOME", "CUDA_PATH", "CONDA_PREFIX"):
        monkeypatch.setenv(name, ".")
    assert Path(next(cuda_headers._folders())) == tmp_path / "nvcc/include"
