"""The command line, called in this process."""

from __future__ import annotations

import contextlib
import ctypes
import dataclasses
import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import kronop
from kronop import compiler, cuda_line, families, knobs
from kronop.__main__ import main
from kronop.args import device
from kronop.artifacts import Status
from kronop.bench.arrays import uninterrupted
from kronop.commands import doctor
from kronop.commands.cache import _key
from kronop.commands.matrix import table
from kronop.errors import KronopError
from kronop.families.kron.command import shape_of
from kronop.target import every_target


def test_demo_runs_the_whole_chain(capsys) -> None:
    assert main(["demo", "--rows", "17"]) == 0
    printed = capsys.readouterr().out
    assert "plan for x86" in printed
    error = float(printed.split("float64: ")[1].split()[0])
    assert error < 1e-6


def test_a_warning_of_a_command_names_no_line(own_cache: None, tmp_path: Path, capsys) -> None:
    """Of a program's it would be the line that runs the command."""
    (tmp_path / "file").touch()
    with knobs.using(cache_dir=tmp_path / "file/cache", quiet=True):
        assert main(["demo", "--rows", "1"]) == 0
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(f"kronop: {tmp_path}/file/cache/compiled_cache.db can't be used, ")


def test_doctor_tells_what_works_and_what_is_missing(own_cache: None, capsys) -> None:
    assert main(["doctor"]) == 0
    lines = {line.split("  ")[0]: line for line in capsys.readouterr().out.splitlines()}
    # Of the version, of what was looked for, an empty one, and of what kronop runs on.
    assert len(lines) == doctor._LOOKS + 3
    assert "a trial kernel took" in lines["this CPU"]
    assert "a trial kernel for sm_90a" in lines["NVRTC"]
    assert lines["cache"].endswith("0 kernels, 0.0 MB") or " kernels, " in lines["cache"]
    for name, line in lines.items():
        assert "--" not in line[:20] or "not installed" in line or name == "GPUs", line


def test_doctor_says_that_nothing_runs(monkeypatch: pytest.MonkeyPatch, capsys) -> None:
    def nothing() -> str:
        raise kronop.CompileError("no C++ compiler was found; install g++")

    for name in ("_on_cpu", "_by_nvrtc"):
        monkeypatch.setattr(doctor, name, nothing)
    assert main(["doctor"]) == 1
    printed = capsys.readouterr()
    assert "this CPU       --  no C++ compiler was found; install g++" in printed.out
    assert "kronop runs on nothing here." in printed.out
    assert "got neither" in printed.err


def test_doctor_tells_the_figures_of_a_gpu() -> None:
    assert doctor._card(kronop.Target.parse("sm_89")) == (
        "sm_89, 128 multiprocessors at 2.52 GHz with 99 KB of shared memory, copies at 877 GB/s,"
        " 72 MB of level-2 cache"
    )


@pytest.mark.cuda
def test_doctor_runs_a_kernel_on_each_gpu() -> None:
    finding = doctor._gpus()
    assert finding.works, str(finding)
    assert "a trial kernel took" in finding.told


@pytest.mark.parametrize("trial", [KronopError("no kernel; install one"), RuntimeError("of CUDA")])
def test_doctor_tells_the_figures_of_a_gpu_whose_trial_fails(
    trial: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(index: int) -> str:
        raise trial

    monkeypatch.setattr(compiler, "cuda_devices", lambda: Status.accept())
    monkeypatch.setattr(device, "cuda_driver", lambda: SimpleNamespace(cuDeviceGetCount=lambda: 2))
    monkeypatch.setattr(device, "check", lambda result, doing: result)
    monkeypatch.setattr(device, "name_of_device", lambda index: f"card {index}")
    monkeypatch.setattr(device, "card_of", lambda index: kronop.Target.parse("sm_89"))
    monkeypatch.setattr(device, "current", lambda index: contextlib.nullcontext())
    monkeypatch.setattr(doctor, "_tried_on", fail)
    finding = doctor._gpus()
    assert not finding.works
    assert "card 0, sm_89, 128 multiproc" in finding.told
    assert "card 1, sm_89, 128 multiproc" in finding.told
    assert finding.hint == ("install one" if isinstance(trial, KronopError) else "")


_Release = tuple[int, int] | None


@pytest.mark.parametrize(
    ("nvrtc", "bindings", "driver", "works", "told"),
    [
        ((12, 4), "12.9.10", (12, 4), True, "NVRTC 12.4, cuda-bindings 12.9.10, a driver for CUDA"),
        ((12, 9), "12.9.10", (13, 2), True, "a driver for CUDA 13.2"),
        ((13, 5), "13.4.4", None, True, "NVRTC 13.5, cuda-bindings 13.4.4, no driver"),
        ((12, 9), "12.9.10", (12, 4), True, "12.4; the driver loads the kernels, but no PTX"),
        (
            (13, 0),
            "13.0.3",
            (12, 9),
            False,
            "one line: in a new .*cuda12.*, or a driver for CUDA 13",
        ),
        ((13, 0), "12.9.10", (13, 0), False, "of one line: in a new environment, pip .*cuda1"),
        ((12, 9), "12.9.10", (12, 2), False, "12.2; install a driver for CUDA 12.4 or later"),
        (None, "", (12, 4), False, "no NVRTC, no cuda-bindings, .* 12.4; pip .*cuda12"),
        (None, "", None, False, "no driver; pip .*cuda13"),
    ],
)
def test_doctor_says_whether_packages_and_driver_are_of_one_line_of_cuda(
    nvrtc: _Release,
    bindings: str,
    driver: _Release,
    works: bool,
    told: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(cuda_line, "driver_release", lambda: driver)
    for module in (doctor, cuda_line):
        monkeypatch.setattr(module, "version_of_package", {"cuda-bindings": bindings}.get)
    monkeypatch.setattr("importlib.metadata.requires", lambda name: None)
    monkeypatch.setattr(cuda_line, "newest_gpu", lambda: None)
    finding = doctor._cuda(nvrtc, driver)
    assert finding.works == works
    assert re.search(told, str(finding))
    if works:
        monkeypatch.setattr(cuda_line, "newest_gpu", lambda: (7, 0))
        assert doctor._cuda(nvrtc, driver).works == (nvrtc < (13, 0))


@pytest.mark.parametrize(
    ("packages", "driver", "extra"),
    [
        ({}, None, "cuda13"),
        ({}, (12, 8), "cuda12"),
        ({}, (13, 0), "cuda13"),
        ({"nvidia-cuda-runtime-cu12": "12.8.90"}, (13, 0), "cuda12"),
        ({"cuda-bindings": "12.9.10"}, None, "cuda12"),
        ({"cuda-bindings": "13.5.0", "nvidia-cuda-runtime-cu12": "12.8.90"}, None, "cuda13"),
        ({"cuda-bindings": "13.5.0"}, (12, 8), "cuda12"),
        ({"cuda-bindings": "14.0.0"}, (14, 0), "cuda13"),
        ({"cuda-bindings": "11.8.7"}, (11, 8), "cuda12"),
    ],
)
def test_the_extra_is_of_the_line_that_driver_and_packages_fit(
    packages: dict[str, str], driver: _Release, extra: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cuda_line, "driver_release", lambda: driver)
    monkeypatch.setattr(cuda_line, "version_of_package", lambda name: packages.get(name, ""))
    for newest, chosen in ((None, extra), ((7, 5), extra), ((7, 0), "cuda12")):
        monkeypatch.setattr(cuda_line, "newest_gpu", lambda newest=newest: newest)
        assert cuda_line.cuda_extra() == chosen


def test_nvml_tells_the_newest_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    told = [(8, 6), (7, 0)]

    def handle(index: int, gpu: Any) -> int:
        gpu._obj.value = index + 1
        return 0

    def capability(gpu: Any, major: Any, minor: Any) -> int:
        major._obj.value, minor._obj.value = told[gpu.value - 1]
        return 0

    def count(number: Any) -> int:
        number._obj.value = len(told)
        return 0

    nvml = SimpleNamespace(
        nvmlInit_v2=lambda: 0,
        nvmlShutdown=lambda: 0,
        nvmlDeviceGetCount_v2=count,
        nvmlDeviceGetHandleByIndex_v2=handle,
        nvmlDeviceGetCudaComputeCapability=capability,
    )
    monkeypatch.setattr(cuda_line.ctypes, "CDLL", lambda name: nvml)
    assert cuda_line.newest_gpu.__wrapped__() == (8, 6)
    nvml.nvmlInit_v2 = lambda: 9
    assert cuda_line.newest_gpu.__wrapped__() is None


def test_the_release_that_a_driver_serves_is_asked_without_a_package(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def answers(to: ctypes.c_int) -> int:
        ctypes.cast(to, ctypes.POINTER(ctypes.c_int))[0] = 12040
        return 0

    kind = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p)
    double = SimpleNamespace(cuDriverGetVersion=kind(answers))
    monkeypatch.setattr(ctypes, "CDLL", lambda name: double)
    assert cuda_line.driver_release() == (12, 4)
    double.cuDriverGetVersion = lambda to: 999
    assert cuda_line.driver_release() is None


def test_the_version_and_examples(capsys) -> None:
    for flag, text in (("--version", f"kronop {kronop.__version__}"), ("--help", "kronop doctor")):
        with pytest.raises(SystemExit) as end:
            main([flag])
        assert end.value.code == 0
        assert text in capsys.readouterr().out


def test_show_prints_every_view(capsys) -> None:
    expected = {
        "plan": "step",
        "source": "#include",
        "resources": "bytes",
        "assembly": "ret",
        "machine": "ret",
    }
    for view, text in expected.items():
        assert main(["show", "kron", "4x4,4x4", "--target", "x86-generic", "--view", view]) == 0
        assert text in capsys.readouterr().out
    assert (
        main(
            [
                "show",
                "ksparse",
                "2,3,4,5",
                "--target",
                "sm_80",
                "--view",
                "assembly",
                "--batch-last",
            ]
        )
        == 0
    )
    assert ".target sm_80" in capsys.readouterr().out


def test_factors_may_be_square_and_repeated() -> None:
    assert shape_of("8^3,5x3,2") == (None, [(8, 8)] * 3 + [(5, 3), (2, 2)])
    assert shape_of("256:4x3^2") == (256, [(4, 3)] * 2)


def test_show_takes_a_chain(capsys) -> None:
    words = ["show", "ksparse", "2,48,192,1", "1,192,48,2"]
    assert main([*words, "--target", "80", "--dtype", "float16", "--alignment", "8"]) == 0
    assert "(2, 48, 192, 1) then (1, 192, 48, 2)" in capsys.readouterr().out
    assert main([*words, "--target", "x86", "--batch-last"]) == 0
    assert "plan for x86" in capsys.readouterr().out


def test_resources_are_told_in_words(capsys) -> None:
    assert main(["show", "kron", "4x4", "--target", "x86", "--view", "resources"]) == 0
    text = capsys.readouterr().out
    assert "registers" not in text  # Which a compiler tells of a GPU's kernels alone.
    assert "None" not in text


def test_machine_code_without_a_tool_is_an_error(capsys, monkeypatch) -> None:
    monkeypatch.setattr(compiler, "disassemble", lambda binary: "nvdisasm was not found")
    assert main(["show", "kron", "4x4", "--target", "sm_90a", "--view", "machine"]) == 1
    assert capsys.readouterr().err == "kronop: machine code: nvdisasm was not found\n"


@pytest.mark.parametrize(
    ("variable", "value", "message"),
    [("KRONOP_DEBUG", "9", "one of 0, 1"), ("KRONOP_DEBGU", "1", "KRONOP_DEBUG")],
)
def test_a_wrong_variable_is_one_line_of_every_command(variable, value, message) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "kronop", "matrix"],
        env={**os.environ, variable: value},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1
    assert done.stdout == ""
    (line,) = done.stderr.splitlines()
    assert line.startswith("kronop: ")
    assert message in line


@pytest.mark.usefixtures("own_cache")
def test_the_cache_is_listed_shown_and_cleared(capsys) -> None:
    assert main(["show", "kron", "4x4", "--target", "sm_90a", "--view", "resources"]) == 0
    capsys.readouterr()
    assert main(["cache", "list"]) == 0
    lines = capsys.readouterr().out.splitlines()
    (line,) = [line for line in lines if "kron_f32_4x4" in line and "sm_90a" in line]
    assert main(["cache", "show", line.split()[0]]) == 0
    shown = capsys.readouterr().out
    assert "registers:" in shown
    assert "#include" in shown
    assert main(["cache", "clear"]) == 0
    assert re.search(r"removed \d+ kernel", capsys.readouterr().out)
    assert main(["cache", "list"]) == 0
    assert "0 kernels" in capsys.readouterr().out


@pytest.mark.usefixtures("own_cache")
def test_a_kernel_is_shown_by_its_name_where_only_one_has_it(capsys) -> None:
    main(["show", "kron", "3x4", "--target", "x86-generic", "--view", "resources"])
    capsys.readouterr()
    assert main(["cache", "list"]) == 0
    first, line = capsys.readouterr().out.splitlines()
    assert ": 1 kernel, " in first
    name = line.split()[-1]
    assert main(["cache", "show", name]) == 0
    assert f"kernel:              {name}" in capsys.readouterr().out
    (entry,) = compiler.default_cache().list()
    twice = [dataclasses.replace(entry, key=letter * 64) for letter in "ab"]
    with pytest.raises(kronop.ArgumentError, match=r"the name of 2; .*aaaaaaaaaaaa, bbbbbbbbbbbb"):
        _key(twice, name)


@pytest.mark.parametrize(
    ("command", "message"),
    [
        (["show", "kron", "4x0"], "positive"),
        (["demo", "--rows", "0"], "--rows: expected at least 1, got 0"),
        (["show", "kron", "4x4", "--target", "sm_107"], "10.7 runs what is for sm_103"),
        (["cache", "show", "none"], "cache list"),
        (["show", "ksparse", "6,64,64,1", "--left"], "leave it out"),
        (["show", "kron", "8x8", "--batch-last"], "leave it out"),
        (["show", "kron", "8x8,8y3"], "or with rows as 1024:8^3,5x3, got '8x8,8y3'"),
        (["show", "kron", "8x8,0x3"], "factors of positive sizes"),
        (["show", "kron", "16x4:3^2x7"], "write 16:4x3^2,7"),
        (["show", "ksparse", "8,3x"], "expected a pattern as 6,64,64,1, got 8,3x"),
        (["show", "kron", "8x8", "4x4"], "join them by commas: 8x8,4x4"),
        (["show", "ksparse", "6,64,64,1", "1,8,8,1"], "a c d = 384, the outputs of patterns[0]"),
        (["show", "ksparse", "6,64,64"], "pattern: expected 4 positive integers (a, b, c, d)"),
        (["show", "distance", "64x64"], "expected M x N x K, as 1024x2048x64, got '64x64'"),
        (["show", "distance", "64x0x8"], "expected M x N x K"),
        (["show", "distance", "64", "32", "8"], "join them by x: 64x32x8"),
        (["show", "distance", "8x9x3", "--symmetric"], "write 8x8x3"),
        (["show", "distance", "8x8x3", "--p", "-1"], "inf, got '-1'"),
        (["show", "distance", "8x8x3", "--p", "nan"], "a number of at least 0, or inf, got 'nan'"),
        (["show", "distance", "8x8x3", "--p", "1", "--kernel", "linear"], "expected no --p"),
        (["show", "distance", "8x8x3", "--direct", "--expanded"], "leave one out"),
        (["show", "distance", "8x8x3", "--kernel", "gaussian:2"], "got 'gaussian:2'; + adds"),
        (["show", "distance", "8x8x3", "--kernel", "linear+"], "got ''; + adds"),
        (["show", "distance", "8x8x3", "--kernel", "matern:2"], "nu: expected 0.5, 1.5 or 2.5"),
        (["show", "distance", "8x8x3", "--dtype", "int32"], "element type of points"),
        (["show", "kron", "8x8", "--p", "2"], "expected no --p, which is of distance"),
    ],
)
def test_errors_are_one_line_and_an_exit_status(capsys, command, message) -> None:
    assert main(command) == 1
    captured = capsys.readouterr()
    assert captured.out == ""
    assert message in captured.err
    assert captured.err.startswith("kronop: ")


@pytest.mark.parametrize(
    ("command", "option", "instead"),
    [
        (["tune", "ksparse", "6,64,64,1", "--target", "90"], "--target 90", "--target x86"),
        (["bench", "ksparse", "--device", "cuda"], "--device cuda", "--device cpu"),
    ],
)
def test_without_a_gpu_the_option_that_asked_for_one_is_named(
    command, option, instead, capsys, monkeypatch
) -> None:
    torch = pytest.importorskip("torch")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert main(command) == 1
    message = capsys.readouterr().err
    assert message.startswith(f"kronop: {option}: expected a GPU")
    assert message.endswith(f"or use {instead}\n")


@pytest.mark.parametrize(
    ("words", "called"),
    [
        (["tune", "kron", "8^2"], "kronop.commands.tune.arrays_for"),
        (["bench", "kron", "--shapes", "8:8^2"], "kronop.commands.bench_kron.execute"),
    ],
)
def test_ctrl_c_ends_with_one_line(words, called, capsys, monkeypatch) -> None:
    monkeypatch.setattr(called, lambda *given, **named: signal.raise_signal(signal.SIGINT))
    assert main(words) == 130
    assert capsys.readouterr().err == "kronop: interrupted\n"


def test_ctrl_c_waits_for_what_it_would_crash() -> None:
    done = []

    def run() -> None:
        with uninterrupted():
            signal.raise_signal(signal.SIGINT)
            done.append(True)

    with pytest.raises(KeyboardInterrupt):
        run()
    assert done
    with pytest.raises(KeyboardInterrupt):
        signal.raise_signal(signal.SIGINT)


def test_the_matrix_has_every_cell() -> None:
    rows = [row.strip("| ").split(" | ") for row in table().splitlines()[2:]]
    gpus = [item.name for item in every_target() if item.backend == "cuda"]
    targets = {"cuda": gpus, "x86": ["x86", "arm64"]}
    kinds = [kind for family in families.FAMILIES for kind in family.kinds]
    expected = {(kind.name, name) for kind in kinds for b in kind.emitters for name in targets[b]}

    def told(names: str) -> list[str]:
        """All targets, of ranges too."""
        first, _, last = names.partition(" to ")
        return gpus[gpus.index(first) : gpus.index(last) + 1] if last else [names]

    cells = [(kind, item) for kind, names, _ in rows for item in names.split(", ")]
    found = [(kind, name) for kind, item in cells for name in told(item)]
    assert sorted(found) == sorted(expected)
    assert all("float32, float16, bfloat16" in types for _, _, types in rows)


@pytest.mark.parametrize(
    "words",
    [
        ["kron", "4x3,2x5", "--rows", "3", "40"],
        ["kron", "7:4x3", "--left", "--dtype", "float64"],
        ["ksparse", "2,3,4,5", "--batch-last"],
        ["distance", "20x30x5", "--p", "1.3", "--rows", "10"],
        ["distance", "20x20x5", "--kernel", "linear", "--symmetric"],
    ],
)
def test_tune_prints_what_it_gained(words, capsys, tmp_path) -> None:
    with knobs.using(cache_dir=tmp_path):
        assert main(["tune", *words, "--candidates", "2", "--quiet"]) == 0
    printed = capsys.readouterr()
    assert "the planner's choice ranks" in printed.out
    assert printed.err == ""


def test_what_was_tuned_is_listed(capsys, tmp_path) -> None:
    with knobs.using(cache_dir=tmp_path):
        words = ["ksparse", "2,3,4,5", "2,4,3,1", "--rows", "40", "--candidates", "2", "--quiet"]
        assert main(["tune", *words]) == 0
        told = capsys.readouterr().out
        assert main(["cache", "list"]) == 0
    listed = capsys.readouterr().out
    assert "\ntuned: 2 winners\n" in listed
    names = re.findall(r"KSparseOperation\((.*)\)", told)
    times = re.findall(r"^ *0 +([\d.]+) ms", told, re.M)
    for line, name, untuned in zip(listed.splitlines()[-2:], names, times, strict=True):
        ms, first = re.findall(
            r"([\d.]+) ms, untuned ([\d.]+)  32 rows \(kept for 32 to 63\)", line
        )[0]
        assert f"  {name}  (" in line
        # Both are rounded, one of them from seconds that are kept.
        assert abs(float(first) - float(untuned)) < 1.5e-4
        assert float(ms) <= float(untuned)
    with knobs.using(cache_dir=tmp_path / "another"):
        assert main(["cache", "list"]) == 0
    assert "tuned: " not in capsys.readouterr().out, "in a folder where nothing was"


@pytest.mark.parametrize(
    "words",
    [
        ["kron", "4x"],
        ["ksparse", "2,3"],
        ["kron", "4x4", "--rows", "0"],
        ["kron", "4x4x4"],
        ["distance", "4x4"],
    ],
)
def test_tune_refuses_shapes_that_are_none(words, capsys) -> None:
    assert main(["tune", *words]) == 1
    assert capsys.readouterr().err.startswith("kronop: ")


def test_rows_in_front_of_a_shape_choose_the_plan(capsys) -> None:
    """The same notation as `bench` has."""
    for family, shape in (("kron", "8^3"), ("ksparse", "6,64,64,1")):
        shown = []
        for rows in ("1:", "100000:"):
            assert main(["show", family, rows + shape, "--target", "sm_90a"]) == 0
            shown.append(capsys.readouterr().out)
        assert shown[0] != shown[1]


def test_rows_are_asked_for_by_one_name(capsys) -> None:
    assert main(["bench", "ksparse", "--batch", "64"]) == 1
    assert "write --rows 64" in capsys.readouterr().err
