"""Loading and launching of CUDA kernels, on a double of the driver that prints what it is asked.

The bindings find it in a process of its own, which is told to look for libcuda.so.1 there.
"""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

COMPILER = next((path for name in ("cc", "gcc", "clang") if (path := shutil.which(name))), None)
pytestmark = [
    pytest.mark.skipif(sys.platform != "linux", reason="the driver's double is for Linux"),
    pytest.mark.skipif(COMPILER is None, reason="no C compiler for the driver's double"),
    pytest.mark.skipif(importlib.util.find_spec("cuda") is None, reason="no cuda-bindings"),
]
PREAMBLE = f"""
import struct, sys, threading
sys.path.insert(0, {str(Path(__file__).parents[2])!r})
from cuda.bindings import driver
from kronop import compiler, knobs
from kronop.artifacts import Binary, BinaryFormat, Launch, Resources
from kronop.errors import DeviceError, OutOfMemoryError
from kronop.target import Target
def image(text):
    return b"\\x7fELF\\x02\\x01".ljust(64, b"\\0") + text
def binary(text=b"CUBIN"):
    return Binary(key=text.decode(), entry="kron", arch="sm_90a", format=BinaryFormat.CUBIN,
                  image=image(text), resources=Resources(), log="", compiler="test")
def launch(first, second, shared=0):
    return Launch(step=0, parameters=struct.pack("qq", first, second), grid=(3, 2, 1),
                  block=(128, 2, 1), shared_bytes=shared)
def kernel():
    return compiler.load(binary(), Target.parse("sm_90a"))
def say(*texts):
    print(*texts, flush=True)
"""
GEOMETRY = "launch 9 grid 3 2 1 block 128 2 1"


@pytest.fixture(scope="module")
def double(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("driver")
    source = Path(__file__).with_name("driver_double.c")
    command = [str(COMPILER), "-shared", "-fPIC", "-o", str(folder / "libcuda.so.1"), str(source)]
    subprocess.run(command, check=True)
    return folder


def run(double: Path, script: str, *, devices: int = 2) -> tuple[list[str], str]:
    """(lines on standard output, standard error) of `script`."""
    environment = {**os.environ, "LD_LIBRARY_PATH": str(double), "DOUBLE_DEVICES": str(devices)}
    done = subprocess.run(
        [sys.executable, "-c", PREAMBLE + script],
        env=environment,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines(), done.stderr


def test_status_of_the_devices(double: Path) -> None:
    script = "say(compiler.cuda_devices().reason or 'fine')"
    assert run(double, script)[0] == ["fine"]
    assert run(double, script, devices=0)[0] == ["the NVIDIA driver finds no GPU"]


def test_a_launch_has_its_geometry_parameters_stream_and_context(double: Path) -> None:
    lines, _ = run(
        double,
        """
run = kernel().bind(launch(11, 22, 1000), device=1)
run(0)
run(77)
""",
    )
    assert lines == [
        "load CUBIN",
        "kernel kron of 7",
        f"{GEOMETRY} shared 1000 stream 0 values 11 22 in 101",
        f"{GEOMETRY} shared 1000 stream 77 values 11 22 in 101",
    ]


def test_a_launch_may_begin_before_the_one_before_it_ends(double: Path) -> None:
    lines, _ = run(
        double,
        """
import dataclasses
early = dataclasses.replace(launch(11, 22), overlaps=True)
for item in (early, launch(11, 22)):
    kernel().bind(item, device=0)(0)
allowed = driver.CUlaunchAttributeID.CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION
say(f"early is {int(allowed)}")
""",
    )
    first, second = (line.split(" in 100")[1] for line in lines if "values" in line)
    assert lines[-1] == "early is 6"
    assert (first, second) == (" attribute 6 = 1", "")


def test_the_callers_context_is_restored(double: Path) -> None:
    lines, _ = run(
        double,
        """
driver.cuCtxPushCurrent(driver.CUcontext(100))
kernel().bind(launch(1, 5), device=1)(0)
kernel().bind(launch(2, 5), device=0)(0)
try:
    kernel().bind(launch(3, 1), device=1)(0)
except DeviceError:
    pass
assert int(driver.cuCtxGetCurrent()[1]) == 100
""",
    )
    assert [line.split(" values ")[1] for line in lines if "values" in line] == [
        "1 5 in 101",
        "2 5 in 100",
        "3 1 in 101",
    ]


def test_shared_memory_is_raised_only_when_needed_and_never_lowered(double: Path) -> None:
    lines, _ = run(
        double,
        """
for device, shared in [(0, 49152), (0, 60000), (0, 50000), (1, 50000), (0, 70000)]:
    kernel().bind(launch(0, 0, shared), device=device)
""",
    )
    assert [line for line in lines if line.startswith("attribute")] == [
        "attribute 8 = 60000 of 9 on 0",
        "attribute 8 = 50000 of 9 on 1",
        "attribute 8 = 70000 of 9 on 0",
    ]


def test_errors_name_what_was_done(double: Path) -> None:
    lines, _ = run(
        double,
        """
for kind, action in [
    (OutOfMemoryError, lambda: kernel().bind(launch(0, 2))(0)),
    (DeviceError, lambda: kernel().bind(launch(0, 1))(0)),
    (DeviceError, lambda: kernel().bind(launch(0, 0), device=5)),
    (DeviceError, lambda: compiler.load(binary(b"BAD"), Target.parse("sm_90a"))),
]:
    try:
        action()
    except kind as error:
        say("raised", error)
""",
    )
    raised = sorted(line for line in lines if line.startswith("raised"))
    geometry = "grid (3, 2, 1), block (128, 2, 1), 0 bytes of shared memory"
    assert raised == [
        "raised GPU 5: CUDA_ERROR_INVALID_VALUE (as told)",
        "raised kron [sm_90a] does not load (load: CUDA_ERROR_INVALID_IMAGE); mend the compiler "
        "that made it, or install the libraries that it needs",
        f"raised launch of kron on GPU 0, {geometry}: CUDA_ERROR_INVALID_VALUE (as told)",
        f"raised launch of kron on GPU 0, {geometry}: CUDA_ERROR_OUT_OF_MEMORY (as told); "
        "free device memory and try again",
    ]


def test_what_the_driver_does_not_take_is_compiled_once_more(double: Path) -> None:
    lines, _ = run(
        double,
        """
import tempfile
from pathlib import Path
from kronop.artifacts import Language, Source
from kronop.compiler import build
from kronop.compiler.backend import Product
class Compiler:
    format = BinaryFormat.CUBIN
    def identity(self, *, certain=False):
        return "test"
    def flags(self, target):
        return ()
    def completed(self, source):
        return source
    def compile(self, source, flags):
        say("compiled")
        return Product(image=image(made.pop()), resources=Resources(), log="")
build._CUDA_COMPILERS["nvrtc"], made = Compiler(), [b"BAD", b"GOOD", b"BAD"]
source = Source(entry="kron", text="", language=Language.CUDA, include_directories=())
target = Target.parse("sm_90a")
with knobs.using(cache_dir=Path(tempfile.mkdtemp())):
    compiler.compile_sources([source], target)
    for _ in range(2):
        compiler.forget()
        binaries = compiler.compile_sources([source], target)
        compiler.load_all(binaries, [source], target)
    compiler.forget()
    kept = compiler.default_cache().list()
    say("kept", compiler.default_cache().show(kept[0].key).binary.image[64:].decode())
    # What was compiled just now would only be the same again.
    compiler.default_cache().clear()
    from kronop.compiler import loading
    loading._kernels.clear()
    try:
        compiler.load_all(compiler.compile_sources([source], target), [source], target)
    except DeviceError:
        say("kept", len(compiler.default_cache().list()))
""",
    )
    assert lines == [
        "compiled",
        "load BAD",
        "compiled",
        "load GOOD",
        "kernel kron of 7",
        "kept GOOD",
        "compiled",
        "load BAD",
        "kept 0",
    ]


def test_threads_launch_on_their_own_streams(double: Path) -> None:
    lines, _ = run(
        double,
        """
sys.setswitchinterval(1e-6)
run = kernel().bind(launch(1, 5))
threads = [threading.Thread(target=lambda s=s: [run(s) for _ in range(300)]) for s in (1, 2, 3)]
for thread in threads: thread.start()
for thread in threads: thread.join()
""",
    )
    streams = [line.split(" stream ")[1].split()[0] for line in lines if " stream " in line]
    assert {stream: streams.count(stream) for stream in "123"} == {"1": 300, "2": 300, "3": 300}


@pytest.mark.parametrize(("level", "time"), [(1, ""), (2, ": 0.2500 ms")])
def test_debug_prints_launches(double: Path, level: int, time: str) -> None:
    script = f"with knobs.using(debug={level}): run = kernel().bind(launch(1, 5))\nrun(255)"
    printed = run(double, script)[1]
    assert printed == (
        "kronop: launch of kron on GPU 0, grid (3, 2, 1), block (128, 2, 1), "
        f"0 bytes of shared memory, stream 0xff{time}\n"
    )


def test_parameters_may_change_between_launches_on_any_number_of_streams(double: Path) -> None:
    lines, _ = run(
        double,
        """
run, words = kernel().bind_words(launch(1, 5))
for stream in range(200):
    words[0] = 2**63 + stream
    run(stream)
""",
    )
    launched = [line for line in lines if line.startswith("launch")]
    assert launched == [
        f"{GEOMETRY} shared 0 stream {stream} values {stream - 2**63} 5 in 100"
        for stream in range(200)
    ]
