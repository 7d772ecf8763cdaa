"""The leaf modules: errors, knobs, targets and artifacts."""

from __future__ import annotations

import struct
import threading

import pytest

import kronop
from kronop import knobs
from kronop.artifacts import Field, KernelSignature, Scalar, Status
from kronop.errors import installing, warn
from kronop.target import Target, detect_x86_arch, runs
from tests import abi, support


@pytest.mark.parametrize(
    ("kind", "builtin"),
    [
        (kronop.DescriptionError, ValueError),
        (kronop.ArgumentError, ValueError),
        (kronop.ElementTypeError, TypeError),
        (kronop.DeviceError, RuntimeError),
        (kronop.CompileError, RuntimeError),
        (kronop.OutOfMemoryError, MemoryError),
    ],
)
def test_errors_are_what_a_caller_would_expect(kind, builtin) -> None:
    assert issubclass(kind, kronop.KronopError)
    assert issubclass(kind, builtin)


def test_knobs_are_read_typed() -> None:
    values = knobs.read(
        {"KRONOP_DEBUG": "3", "KRONOP_CHECK_SPILLS": "1", "KRONOP_COMPILER": "nvcc", "HOME": "/"}
    )
    assert knobs.read({"KRONOP_COMPILE_SECONDS": "0.5"}).compile_seconds == 0.5
    assert (values.debug, values.check_spills, values.compiler) == (3, True, "nvcc")
    assert knobs.read({}) == knobs.Knobs()


@pytest.mark.parametrize("name", ["QUIET", "LINE_INFO", "CHECK_SPILLS"])
def test_a_switch_may_be_a_word(name: str) -> None:
    def value(text: str) -> object:
        return getattr(knobs.read({f"KRONOP_{name}": text}), name.lower())

    assert not any(value(text) for text in ("0", "no", "FALSE", "off"))
    assert all(value(text) for text in ("1", "yes", "True", "on"))


def test_an_empty_variable_is_as_one_that_is_not_set() -> None:
    names = ("DEBUG", "CACHE_DIR", "DUMP_DIR", "OVERRIDE_DIR", "COMPILER", "LINE_INFO")
    empty = {f"KRONOP_{name}": "" for name in (*names, "CHECK_SPILLS", "COMPILE_SECONDS", "QUIET")}
    assert knobs.read(empty) == knobs.Knobs()


@pytest.mark.parametrize(
    ("environment", "message"),
    [
        ({"KRONOP_DEBGU": "1"}, "or unset it; did you mean KRONOP_DEBUG"),
        ({"KRONOP_quiet": "1"}, "did you mean KRONOP_QUIET"),
        ({"KRONOP_CACHEDIR": "/tmp"}, "did you mean KRONOP_CACHE_DIR"),
        ({"KRONOP_WHATEVER": "1"}, "got KRONOP_WHATEVER; correct the name or unset it$"),
        ({"KRONOP_DEBUG": "7"}, "one of 0, 1, 2, 3, 4, 5, 6"),
        ({"KRONOP_LINE_INFO": "maybe"}, "one of 0, false, no, off, 1, true, yes, on"),
        ({"KRONOP_COMPILER": "NVCC"}, "one of nvrtc, nvcc"),
        ({"KRONOP_COMPILE_SECONDS": "0"}, "more than 0"),
        ({"KRONOP_COMPILE_SECONDS": "inf"}, "at most 86400"),
        ({"KRONOP_COMPILE_SECONDS": "soon"}, "seconds"),
    ],
)
def test_a_misspelt_knob_is_an_error(environment, message) -> None:
    with pytest.raises(kronop.DescriptionError, match=message):
        knobs.read(environment)


def test_knobs_can_be_changed_for_a_block() -> None:
    before = knobs.current()
    with knobs.using(debug=2) as changed:
        assert knobs.current() is changed
        assert changed.debug == 2
    assert knobs.current() is before


@pytest.mark.parametrize(
    ("value", "name"),
    [
        (80, "sm_80"),
        ("80", "sm_80"),
        ("sm_80", "sm_80"),
        ("90", "sm_90a"),
        ("90a", "sm_90a"),
        (90, "sm_90a"),
        ("sm_90", "sm_90a"),
        ("sm_90a", "sm_90a"),
        ("x86-avx2", "x86-avx2"),
        ("arm64", "arm64"),
        ("x86", support.cpu_targets()[-1]),
    ],
)
def test_targets_by_their_names(value, name) -> None:
    target = Target.parse(value)
    assert target.name == name
    assert Target.parse(target) is target
    assert Target.parse(target.name) == target


def test_an_arm_has_a_target_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("platform.machine", lambda: "aarch64")
    assert detect_x86_arch.__wrapped__() == "arm64"
    assert runs("arm64", "arm64")
    assert not runs("generic", "arm64")
    assert not runs("arm64", "amx")


@pytest.mark.parametrize("value", [33, "sm_33", "33", "arm", None, 9.0, True, [80]])
def test_unknown_targets_list_the_known_ones(value) -> None:
    with pytest.raises(kronop.DescriptionError, match="sm_90a"):
        Target.parse(value)


_SIGNATURE = KernelSignature(
    "P", (Field("x", Scalar.POINTER), Field("n", Scalar.INT64, 3), Field("s", Scalar.FLOAT64))
)


def test_a_signature_packs_what_it_asserts() -> None:
    packed = _SIGNATURE.pack({"x": 2**63, "n": [-1, 2], "s": 0.5})
    assert struct.unpack("=Q3qd", packed) == (2**63, -1, 2, 0, 0.5)
    assert len(packed) == _SIGNATURE.size == 40
    assert abi.static_asserts(_SIGNATURE, "P").splitlines() == [
        "static_assert(sizeof(P{.x = {}, .n = {}, .s = {}}) == 40);",
        "static_assert(sizeof(P::x) == 8);",
        "static_assert(sizeof(P::n) == 24);",
        "static_assert(sizeof(P::s) == 8);",
    ]


@pytest.mark.parametrize(
    "values",
    [{"x": 1, "n": [1]}, {"x": 1, "n": [1, 2, 3, 4], "s": 0}, {"x": 1, "n": [], "s": 0, "t": 1}],
)
def test_a_signature_refuses_values_that_do_not_fit(values) -> None:
    with pytest.raises(ValueError, match="P"):
        _SIGNATURE.pack(values)


def test_a_status_carries_a_reason_exactly_when_it_is_not_ok() -> None:
    assert Status.accept()
    assert not Status.reject("too large")
    with pytest.raises(ValueError, match="reason"):
        Status(True, "but")


def test_hints_name_the_packages_of_an_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    every = ["numpy>=1.26", "torch>=2.7; extra == 'torch'", 'b[c,d]<2; extra == "cuda13"']
    monkeypatch.setattr("importlib.metadata.requires", lambda name: every)
    for_cpus = "; on a machine without a GPU, first pip install torch --index-url https://"
    assert installing("torch").startswith(f"pip install 'torch>=2.7'{for_cpus}")
    assert installing("cuda13") == "pip install 'b[c,d]<2'"
    monkeypatch.setattr("importlib.metadata.requires", lambda name: None)
    for extra in ("torch", "gpytorch"):
        assert f"pip install -e '.[{extra}]'" in installing(extra)
        assert for_cpus in installing(extra)


def test_a_warning_is_about_the_line_of_the_program() -> None:
    with pytest.warns(RuntimeWarning, match="of a test") as found:
        warn("of a test")
    assert [item.filename for item in found] == [__file__]


def test_a_warning_of_a_thread_is_about_the_line_that_waits_for_it() -> None:
    thread = threading.Thread(target=warn, args=("of a test",))
    with pytest.warns(RuntimeWarning, match="of a test") as found:
        _ended(thread)
    assert [item.filename for item in found] == [__file__]


def _ended(thread: threading.Thread) -> None:
    thread.start()
    thread.join()
