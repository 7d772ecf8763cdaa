"""Functions of epilogues in both header libraries, against the exact ones."""

from __future__ import annotations

import ctypes
import math
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import kronop
from kronop.descriptions.activation import ACTIVATION_NAMES
from kronop.descriptions.datatype import float32, float64
from kronop.descriptions.expression import variable
from kronop.descriptions.graph import Graph

_HERE = Path(__file__).parent
_ROOT = Path(kronop.__file__).parent / "emit"
# Header, and what it is compiled with.
_EMULATED = ("-mf16c", "-mfma", "-include", str(_HERE / "emulation.hpp"))
_LIBRARIES = {
    "GPU": (
        "kronop/activations.cuh",
        (
            "-mf16c",
            "-mfma",
            "-include",
            str(_HERE / "emulation.hpp"),
            f"-I{_ROOT / 'cuda' / 'include'}",
        ),
    ),
    "CPU": ("kronop_x86/functions.hpp", ("-mavx2", "-mfma", f"-I{_ROOT / 'x86' / 'include'}")),
}
_FUNCTIONS = (
    *("gelu_of_16_bits", "sigmoid_of_16_bits", "silu_of_16_bits"),
    *("exp", "tanh", "erf", "gelu", "sigmoid", "silu"),
)


def _activations() -> dict[str, str]:
    """Name -> a function of C++ of that name: all activations, in both types, and for 16 bits."""
    found = {}
    for name in ACTIVATION_NAMES:
        for element, narrow in ((float32, False), (float32, True), (float64, False)):
            activation, kind = getattr(kronop, name)(element), element.cxx
            body = Graph.of(activation.expression(variable("x"), of_16_bits=narrow)).render(kind)
            own = f"{name}_{kind}{'_of_16_bits' * narrow}"
            values = "".join(
                f"const {kind} {it} = {value!r};" for it, value in activation.parameters
            )
            found[own] = f"static {kind} {own}({kind} x) {{ {values} {body} }}"
    return found


_ACTIVATIONS = _activations()
_KINDS = {name: "double" if "double" in name else "float" for name in _ACTIVATIONS}


@pytest.fixture(scope="module", params=_LIBRARIES)
def functions(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Name -> the function on float32 arrays."""
    folder, (header, flags) = tmp_path_factory.mktemp("functions"), _LIBRARIES[request.param]
    text = [f'#include "{header}"']
    text += [
        f'extern "C" void of_{name}(const float* x, float* y, long count) {{\n'
        f"  for (long i = 0; i < count; ++i) y[i] = kronop::math::{name}(x[i]);\n}}"
        for name in _FUNCTIONS
    ]
    every = ", ".join(f"double({name}({value}(x)))" for name, value in _KINDS.items())
    text += [
        *_ACTIVATIONS.values(),
        f'extern "C" void activations(double x, double* y) {{ const double all[] = {{{every}}};'
        f"  for (int i = 0; i < {len(_KINDS)}; ++i) y[i] = all[i];\n}}",
    ]
    (folder / "unit.cpp").write_text("\n".join(text))
    command = ["g++", "-std=c++20", "-w", "-O2", "-fPIC", "-shared", *flags]
    subprocess.run([*command, folder / "unit.cpp", "-o", folder / "unit.so"], check=True)
    library = ctypes.CDLL(str(folder / "unit.so"))

    def on_arrays(name: str) -> Any:
        def call(x: Any) -> Any:
            y = np.full_like(x, np.nan)
            pointers = (ctypes.c_void_p(item.ctypes.data) for item in (x, y))
            getattr(library, f"of_{name}")(*pointers, ctypes.c_long(x.size))
            return y

        return call

    def activations(x: float) -> Any:
        y = np.zeros(len(_KINDS))
        library.activations(ctypes.c_double(x), ctypes.c_void_p(y.ctypes.data))
        return y

    return {name: on_arrays(name) for name in _FUNCTIONS} | {"activations": activations}


def every_half() -> Any:
    """All numbers of float16, in float32."""
    halves = np.arange(2**16, dtype=np.uint16).view(np.float16).astype(np.float32)
    return halves[np.isfinite(halves)]


def last_bits(x: Any, bits: int, least: int) -> Any:
    """The unit in the last place of a type with so many bits of significand."""
    exponent = np.floor(np.log2(np.maximum(np.abs(x), 1e-300)))
    return 2.0 ** (np.maximum(exponent, least) - bits + 1)


def test_gelu(functions: Any) -> None:
    x = every_half()
    wide = x.astype(np.float64)
    exact = wide * 0.5 * np.vectorize(math.erfc)(-wide / np.sqrt(2))
    found = functions["gelu_of_16_bits"](x)
    assert np.abs((found - exact) / last_bits(exact, 11, -14)).max() < 0.15
    near = np.abs(x) < 5.6  # Beyond, results are below 1e-7.
    assert np.abs((found - exact) / last_bits(exact, 8, -126))[near].max() < 0.04
    far = (x < -5.6) & (x > -12)
    assert np.abs(found[far] / exact[far] - 1).max() < 0.025
    assert np.abs(found[x <= -12]).max() < 1e-30


def test_sigmoid(functions: Any) -> None:
    x = every_half()
    exact = 1 / (1 + np.exp(-np.maximum(x.astype(np.float64), -200)))
    found = functions["sigmoid_of_16_bits"](x)
    # The exponent has 24 bits.
    assert np.abs((found - exact) / exact)[np.abs(x) < 80].max() < 128 * 2.0**-23
    assert np.abs(found - exact).max() < 2e-6


def test_silu(functions: Any) -> None:
    x = every_half()
    exact = x / (1 + np.exp(-np.maximum(x.astype(np.float64), -200)))
    found = functions["silu_of_16_bits"](x)
    assert (np.abs(found - exact) <= 1e-30 + 128 * 2.0**-23 * np.abs(exact)).all()
    found = functions["silu"](x)
    assert (np.abs(found - exact) <= 1e-30 + 4 * 2.0**-23 * np.abs(exact)).all()


@pytest.mark.parametrize("end", ["", "_of_16_bits"])
def test_ends(functions: Any, end: str) -> None:
    x = np.array([np.nan, np.inf, 0.0, -0.0, 3e38, -3e38, -np.inf], np.float32)
    rising = [np.nan, np.inf, 0, 0, np.float32(3e38), 0, 0]
    for name, goal in (
        ("gelu", rising),
        ("silu", rising),
        ("sigmoid", [np.nan, 1, 0.5, 0.5, 1, 0, 0]),
    ):
        np.testing.assert_array_equal(functions[name + end](x), goal)


def test_nan_comes_through_activations(functions: Any) -> None:
    assert np.isfinite(functions["activations"](0.5)).all()
    found = functions["activations"](math.nan)
    assert [name for name, value in zip(_KINDS, found, strict=True) if value == value] == []


def every_float() -> Any:
    """Some of each exponent, of both signs."""
    bits = np.arange(0, 2**31, 2**12 - 1, dtype=np.uint32)
    found = np.concatenate([bits, bits | 2**31]).astype(np.uint32).view(np.float32)
    return found[np.isfinite(found)]


@pytest.mark.parametrize(
    ("name", "exact", "units"),
    [("exp", np.exp, 2), ("tanh", np.tanh, 8), ("erf", np.vectorize(math.erf), 6)],
)
def test_functions_of_float32(functions: Any, name: str, exact: Any, units: int) -> None:
    x = every_float()
    with np.errstate(over="ignore"):
        wanted = exact(x.astype(np.float64))
    found = functions[name](x).astype(np.float64)
    too_large = np.abs(wanted) > np.finfo(np.float32).max
    np.testing.assert_array_equal(found[too_large], np.inf)
    rest = ~too_large
    error = np.abs(found[rest] - wanted[rest]) / last_bits(wanted[rest], 24, -126)
    assert error.max() <= units
    ends = functions[name](np.array([np.nan, np.inf, -np.inf, 0.0], np.float32))
    goal = {"exp": [np.nan, np.inf, 0, 1]}.get(name, [np.nan, 1, -1, 0])
    np.testing.assert_array_equal(ends, goal)
