"""Parameter structs with blocks: laid out as compilers do, and written anew for each call."""

from __future__ import annotations

import ctypes
import dataclasses
import struct
from typing import Any

import numpy as np
import pytest

from kronop import compiler
from kronop.artifacts import (
    Block,
    Field,
    KernelSignature,
    Language,
    Launch,
    Scalar,
    Source,
)
from kronop.compiler import tensor_maps
from kronop.compiler.parameters import parameter_words
from kronop.core import addressed
from kronop.target import Target
from tests import abi, support

_SIGNATURE = KernelSignature(
    "Parameters",
    (
        Field("y", Scalar.POINTER),
        Block("window", 64, 64),
        Field("sizes", Scalar.INT64, 3),
        Block("pair", 16),
    ),
)
_TEXT = f"""
struct alignas(64) Window {{ const double* data; long long first; }};
struct Pair {{ double scale; int count; }};
struct Parameters {{ double* y; Window window; long long sizes[3]; Pair pair; }};
{abi.static_asserts(_SIGNATURE, "Parameters")}
extern "C" int windowed(const void* given, int) {{
  const auto& p = *static_cast<const Parameters*>(given);
  for (int i = 0; i < p.pair.count; ++i)
    p.y[i] = p.pair.scale * p.window.data[p.window.first + i] + p.sizes[2];
  return 0;
}}
"""


@pytest.fixture(autouse=True)
def _windows_for_maps(monkeypatch: pytest.MonkeyPatch) -> None:
    """A map becomes a view of memory from its extent on: only a driver encodes others."""
    monkeypatch.setattr(
        tensor_maps,
        "_encoded",
        lambda value, address: struct.pack("=Qq48x", address, value.extents[0]),
    )


def _values(x: int, y: int) -> dict[str, Any]:
    return {
        "y": y,
        "window": support.tensor_map(x, 2),
        "sizes": (5, 6, 7),
        "pair": struct.pack("=di", 10.0, 3),
    }


def _launch(x: int, y: int) -> Launch:
    values = _values(x, y)
    return Launch(step=0, parameters=_SIGNATURE.pack(values), blocks=_SIGNATURE.blocks(values))


@pytest.fixture(scope="module")
def kernel() -> Any:
    source = Source(entry="windowed", text=_TEXT, language=Language.CXX, include_directories=())
    target = Target.parse("x86")
    binaries = compiler.compile_sources((source,), target)
    _, (found,) = compiler.load_all(binaries, (source,), target)
    return found


def test_a_kernel_reads_what_is_packed(kernel: Any) -> None:
    x, y = np.arange(8.0), np.full(3, np.nan)
    kernel.bind(_launch(x.ctypes.data, y.ctypes.data))(0)
    assert y.tolist() == [27.0, 37.0, 47.0]


def _launches(kernel: Any, launch: Launch, lows: list[int]) -> addressed.Launches:
    product: Any = object.__new__(addressed.Product)
    found = addressed.patches(launch.parameters, _SIGNATURE.pointers, lows)
    maps = addressed.maps(launch, lows)
    product.records = (addressed.Record(kernel, launch, tuple(found), maps),)
    product._device = 0
    return addressed.Launches([product])


def test_repeated_calls_write_blocks_anew(kernel: Any) -> None:
    lows = [0, 8]
    launch = _launch(*(addressed.symbol(slot, low) for slot, low in enumerate(lows)))
    launches = _launches(kernel, launch, lows)
    for shift in (1.0, 100.0):
        x, y = np.arange(8.0) + shift, np.full(4, np.nan)
        launches.launch([x.ctypes.data, y.ctypes.data + 8], 0)
        assert y[1:].tolist() == [10 * (2 + i + shift) + 7 for i in range(3)]
        assert np.isnan(y[0])


def test_a_block_of_no_memory_stays_one_in_repeated_calls() -> None:
    class Kernel:
        def bind_words(self, launch: Launch, device: int) -> Any:
            self.words = parameter_words(launch)
            return lambda stream: None, self.words

    kernel = Kernel()
    launches = _launches(kernel, _launch(0, addressed.symbol(0, 0)), [0])
    for address in (4096, 8192):
        launches.launch([address], 0)
        assert (kernel.words[0], kernel.words[8], kernel.words[9]) == (address, 0, 2)


def test_offsets_and_sizes() -> None:
    assert _SIGNATURE.offsets() == {"y": 0, "window": 64, "sizes": 128, "pair": 152}
    assert (_SIGNATURE.size, _SIGNATURE.alignment, _SIGNATURE.pointers) == (192, 64, (0,))


@pytest.mark.parametrize(("nbytes", "align"), [(0, 8), (12, 8), (64, 256), (8, 4), (96, 64)])
def test_blocks_are_whole_multiples_of_an_alignment(nbytes: int, align: int) -> None:
    with pytest.raises(ValueError, match="block map"):
        Block("map", nbytes, align)


def test_what_does_not_fit_a_block_is_refused() -> None:
    with pytest.raises(ValueError, match=r"pair: 24 bytes for 16"):
        _SIGNATURE.pack(_values(0, 0) | {"pair": bytes(24)})


@pytest.mark.parametrize("value", [5, "text", None, bytearray(64), (1, 2)])
def test_what_is_no_block_is_refused(value: Any) -> None:
    values = _values(0, 0) | {"window": value}
    for use in (_SIGNATURE.pack, _SIGNATURE.blocks):
        with pytest.raises(
            ValueError, match=r"Parameters\.window: a block holds bytes or a TensorMap"
        ):
            use(values)


def test_parameters_are_aligned_for_any_block() -> None:
    words = [parameter_words(_launch(0, 0)) for _ in range(5)]
    assert not any(ctypes.addressof(item) % 128 for item in words)
    assert ctypes.sizeof(words[0]) == _SIGNATURE.size


def test_a_source_has_options_of_its_own(tmp_path: Any) -> None:
    source = Source(
        entry="windowed",
        text=_TEXT.replace("+ p.sizes[2]", "+ KRONOP_TEST_SHIFT"),
        language=Language.CXX,
        include_directories=(),
        options=("-DKRONOP_TEST_SHIFT=1",),
    )
    target = Target.parse("x86")
    other = dataclasses.replace(source, options=("-DKRONOP_TEST_SHIFT=2",))
    sources = (source, other)
    binaries = compiler.compile_sources(sources, target)
    assert binaries[0].key != binaries[1].key
    x, found = np.arange(8.0), []
    for kernel in compiler.load_all(binaries, sources, target)[1]:
        y = np.full(3, np.nan)
        kernel.bind(_launch(x.ctypes.data, y.ctypes.data))(0)
        found.append(y[0])
    assert found == [21.0, 22.0]
