"""Where CUTLASS's headers are found, and what its kernels refuse before they are compiled."""

from __future__ import annotations

import dataclasses
import importlib.metadata
import re
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import kronop
from kronop.args.view import Device, TensorView
from kronop.artifacts import KernelSignature
from kronop.compiler import cutlass_headers as headers
from kronop.descriptions.strided import Strided
from kronop.families.gemm import panel_arguments
from kronop.families.gemm.cutlass import choice
from kronop.families.gemm.description import GemmProblem
from kronop.families.gemm.size import GemmSize
from kronop.target import Target
from tests.cutlass_cases import CASES, COLUMN, INTERLEAVED, ROW, Case

SM_80, SM_90 = Target.parse("sm_80"), Target.parse("sm_90a")
HALF, SINGLE, DOUBLE = CASES["f16"], CASES["tf32"], CASES["f64"]
PANELS, WIDE_PANELS = INTERLEAVED.values()
VERSION = "#define CUTLASS_MAJOR {}\n#define CUTLASS_MINOR {}\n#define CUTLASS_PATCH 1\n"


@pytest.fixture(autouse=True)
def _searched_anew(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.delenv("CUTLASS_PATH", raising=False)
    headers._search.cache_clear()
    yield
    headers._search.cache_clear()


class _File:
    """As importlib.metadata describes a file of a package."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / "include/cutlass/version.h"

    def __str__(self) -> str:
        return str(self._path)

    def locate(self) -> Path:
        return self._path


def _tree(folder: Path, major: int, minor: int) -> Path:
    place = folder / "include/cutlass"
    place.mkdir(parents=True)
    (place / "version.h").write_text(VERSION.format(major, minor))
    return folder


def _install(monkeypatch: pytest.MonkeyPatch, **packages: Path) -> None:
    def files(name: str) -> list[_File]:
        folder = packages.get(name.replace("-", "_"))
        if folder is None:
            raise importlib.metadata.PackageNotFoundError(name)
        return [_File(folder)]

    monkeypatch.setattr(importlib.metadata, "files", files)


def test_packages_are_searched_in_order(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    first, second = _tree(tmp_path / "a", 4, 2), _tree(tmp_path / "b", 4, 8)
    _install(monkeypatch, sgl_deep_gemm=second, nvidia_cutlass=first)
    found = headers.found()
    assert (found.folder, found.version) == (str(first / "include"), (4, 2, 1))
    headers._search.cache_clear()
    _install(monkeypatch, sgl_deep_gemm=second)
    assert headers.found().version == (4, 8, 1)


def test_a_user_s_folder_comes_first(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    _install(monkeypatch, nvidia_cutlass=_tree(tmp_path / "a", 4, 2))
    own = _tree(tmp_path / "own", 5, 0)
    monkeypatch.setenv("CUTLASS_PATH", str(own))
    assert headers.found().folder == str(own / "include")
    for wrong in ("own", str(tmp_path)):
        monkeypatch.setenv("CUTLASS_PATH", wrong)
        with pytest.raises(kronop.DescriptionError, match=r"^CUTLASS_PATH: .*version.h"):
            headers.found()


def test_a_missing_package_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    _install(monkeypatch)
    assert "none installed" in headers.missing()
    assert "cutlass" in headers.missing()
    status = HALF.design().status(SM_80)
    assert not status
    assert status.reason == headers.missing()
    headers._search.cache_clear()
    _install(monkeypatch, nvidia_cutlass=_tree(tmp_path, 3, 5))
    with pytest.raises(kronop.DescriptionError, match=r"4.2 or 4.8, got 3.5.1"):
        headers.found()


REFUSED: dict[str, tuple[Case, str]] = {
    "divided": (HALF.but(warps=(3, 2, 1)), "tile M of 128 is not 3 warps .* 42.6667"),
    "instruction": (HALF.but(warps=(2, 32, 1)), "tile N of 128 is not 32 warps .* 8: .* 4"),
    "threads": (HALF.but(warps=(8, 8, 1)), "2048 threads; it has at most 1024"),
    "odd": (HALF.but(tile=(128, 128, 16)), "1 instructions along K"),
    "bytes": (HALF.but(tile=(128, 128, 96)), "tile K of 96 float16 is 192 bytes"),
    "contiguous": (
        HALF.but(tile=(32, 128, 32), layouts=(COLUMN, COLUMN, ROW)),
        "tile M of 32 is 64 bytes",
    ),
    "shared": (HALF.but(stages=12), "12 stages of 16384, in all 197120 bytes .* 166912"),
    "copies": (HALF.but(tile=(32, 128, 32), warps=(2, 4, 1)), "128 accesses, which 256 threads"),
    "alignment": (HALF.but(alignments=(1, 8, 8)), "A promises 1 elements, 2 bytes; with 3 stages"),
    "stages": (HALF.but(stages=1), "2 stages or more, not 1"),
    "float16 in disguise": (SINGLE.but(stages=2), "float32 on tensor cores takes 3 stages"),
    "two stages of float64": (DOUBLE.but(stages=2), "float64 on tensor cores takes 3 stages"),
    "bytes turned": (CASES["s8"].but(layouts=(COLUMN, COLUMN, ROW)), "row-major A and column"),
    "narrow bytes": (CASES["s8"].but(alignments=(16, 16, 2)), "int8 is stored 4 elements"),
    "deep": (CASES["simt f32"].but(tile=(128, 128, 16)), "tile K is 8 on ordinary cores, not 16"),
    "lanes": (CASES["simt f32"].but(tile=(64, 64, 8), warps=(8, 2, 1)), "8 x 32 sums"),
    "tiles of AMX": (
        HALF.but(element=kronop.bfloat16, output=kronop.bfloat16, shape=(16, 16, 32)),
        "tensor cores of a GPU do not have",
    ),
    "columns": (
        HALF.but(warps=(2, 6, 1), layouts=(ROW, COLUMN, COLUMN)),
        "tile N of 128 is not 6 warps",
    ),
    "rows of results": (
        HALF.but(tile=(64, 64, 64), warps=(1, 8, 1)),
        "8 warps beside each other store 256 columns; the tile has 64",
    ),
    "rows of a turned result": (
        HALF.but(
            tile=(64, 64, 64), warps=(8, 1, 1), shape=(16, 8, 8), layouts=(ROW, COLUMN, COLUMN)
        ),
        "8 warps beside each other store 256 columns; the tile has 64",
    ),
    "one warp of float64": (DOUBLE.but(warps=(1, 1, 1)), "2 warps or more .* not 1 of 64 x 64"),
    "sums of float64": (
        DOUBLE.but(tile=(48, 32, 16), warps=(2, 1, 1)),
        "multiples of 16 x 16 sums, not 2 of 24 x 32",
    ),
    "steps of float64": (DOUBLE.but(tile=(64, 64, 8)), "tile K of 8 float64, contiguous along K"),
    "panels of a warp": (PANELS.but(warps=(1, 8, 1)), "a warp has 16 columns; .* of 32"),
    "panels along k": (PANELS.but(warps=(2, 1, 2), tile=(128, 128, 128)), "warps along K are 1"),
    "stages of panels": (PANELS.but(stages=2), "3 stages or more, not 2"),
    "accesses of panels": (PANELS.but(alignments=(8, 16, 8)), "A takes an alignment of 16"),
    "results of panels": (PANELS.but(alignments=(16, 16, 4)), "promise 4 elements; stores take 8"),
    "words of panels": (WIDE_PANELS.but(tile=(128, 128, 64)), "64 x 64 results of int32"),
    "output": (
        HALF.but(
            sums=kronop.float16, compute=kronop.float16, output=kronop.float32, alignments=(8, 8, 4)
        ),
        "sums of float16 become float16",
    ),
    "fast halves": (
        CASES["f16 by 8"].but(operation=kronop.MathOperation.multiply_add_fast_f16),
        "tensor cores of a GPU do not have .*float16",
    ),
}


@pytest.mark.parametrize(("case", "reason"), REFUSED.values(), ids=REFUSED)
def test_what_cutlass_lacks_is_refused_with_numbers(case: Case, reason: str) -> None:
    status = case.design().status(SM_80)
    assert not status
    assert re.search(reason, status.reason), status.reason


def test_a_kernel_of_more_shared_memory_fits_a_later_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(headers, "missing", lambda: "")
    design = HALF.but(stages=12).design()
    assert not design.status(SM_80)
    assert design.status(SM_90)


def _problem(case: Case, **changes: Any) -> GemmProblem:
    """Dense matrices of 256 x 128 and 128 x 512, in the layouts of the case."""
    m, n, k = 256, 512, 128
    extents = ((m, k), (k, n), (m, n))
    matrices = [
        Strided(
            pointer=4096 * (place + 1),
            strides=(columns if layout is ROW else 1, 1 if layout is ROW else rows),
        )
        for place, ((rows, columns), layout) in enumerate(zip(extents, case.layouts, strict=True))
    ]
    given: dict[str, Any] = {
        **dict(zip(("a", "b", "y"), matrices, strict=True)),
        "m": m,
        "n": n,
        "k": k,
        "batch": (),
        "z": None,
        "bias": None,
        "scalars": (1.0, 0.0),
        "threads": 1,
    }
    return GemmProblem(**{**given, **changes})


def _members(signature: KernelSignature, launch: Any) -> dict[str, Any]:
    """The scalars of a parameter struct, by their names."""
    found = {}
    for item in signature.fields:
        code = f"{item.count}{item.scalar.code}"  # type: ignore[union-attr]
        values = struct.unpack_from(code, launch.parameters, signature.offsets()[item.name])
        found[item.name] = values[0] if len(values) == 1 else values
    return found


def test_leading_dimensions_of_rows_and_columns() -> None:
    (launch,) = HALF.design().launches(_problem(HALF), SM_80)
    got = _members(HALF.design().signature, launch)
    assert (got["ld_a"], got["ld_b"], got["ld_result"]) == (128, 128, 512)
    assert (got["m"], got["n"], got["k"], got["source"], got["partial"]) == (256, 512, 128, 0, 0)
    assert launch.grid == (2 * 4, 1, 1)
    assert launch.block == (128, 1, 1)


def test_a_column_major_result_is_that_of_the_transposed_product(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    _install(monkeypatch, nvidia_cutlass=_tree(tmp_path, 4, 2))
    case = HALF.but(layouts=(ROW, COLUMN, COLUMN), tile=(64, 256, 32), warps=(1, 4, 1))
    (launch,) = case.design().launches(_problem(case), SM_80)
    got = _members(case.design().signature, launch)
    assert (got["a"], got["b"], got["result"]) == (2 * 4096, 4096, 3 * 4096)
    assert (got["m"], got["n"], got["ld_a"], got["ld_b"], got["ld_result"]) == (
        512,
        256,
        128,
        128,
        256,
    )
    types = dict(case.design().instantiation(SM_80).types)
    assert types["LayoutA"].endswith("RowMajor")
    assert types["LayoutB"].endswith("ColumnMajor")
    constants = dict(case.design().instantiation(SM_80).constants)
    assert (constants["kTileM"], constants["kTileN"]) == (256, 64)
    assert (constants["kWarpM"], constants["kWarpN"]) == (64, 64)


def test_batches_and_sources() -> None:
    plain = _problem(HALF)
    a, b, y = (
        Strided(pointer=item.pointer, strides=(item.row, item.column), batch=batch)
        for item, batch in zip(
            (plain.a, plain.b, plain.y),
            ((0, 32768), (65536, 0), (393216, 131072)),
            strict=True,
        )
    )
    given = _problem(HALF, a=a, b=b, y=y, z=y, batch=(5, 3), scalars=(2.0, -1.0))
    (launch,) = HALF.design().launches(given, SM_80)
    got = _members(HALF.design().signature, launch)
    assert launch.grid == (8 * 15, 1, 1)
    assert got["batch"] == (1, 1, 5, 3)
    assert got["a_batch"] == (0, 0, 0, 32768)
    assert got["source_batch"] == got["result_batch"] == (0, 0, 393216, 131072)
    assert (got["source"], got["ld_source"], got["scalars"][:2]) == (3 * 4096, 512, (2.0, -1.0))


def test_slices_are_whole_tiles_and_are_added_up_by_a_second_launch() -> None:
    design = HALF.design()
    for asked, slices, depth in ((3, 2, 64), (4, 4, 32), (99, 4, 32)):
        problem = _problem(HALF, slices=asked, workspace=1 << 20)
        first, second = design.launches(problem, SM_80)
        got = _members(HALF.design().signature, first)
        assert (got["slices"], got["depth"], got["adds_up"]) == (slices, depth, 0)
        assert (got["partial"], got["ld_partial"]) == (1 << 20, 512)
        assert first.grid == (8 * slices, 1, 1)
        assert _members(HALF.design().signature, second) == {**got, "adds_up": 1}
        size = GemmSize(256, 512, 128, slices=asked)
        assert design.workspace(size, SM_80, 1) == slices * 256 * 512 * 4
    assert design.workspace(GemmSize(256, 512, 32, slices=4), SM_80, 1) == 0


def test_a_bias_takes_the_place_of_the_source() -> None:
    bias = Strided(pointer=1 << 16, strides=(0, 1))
    (launch,) = HALF.design().launches(_problem(HALF, bias=bias, scalars=(3.0, 0.0)), SM_80)
    got = _members(HALF.design().signature, launch)
    assert (got["source"], got["ld_source"], got["scalars"][:2]) == (1 << 16, 0, (3.0, 1.0))
    whole = CASES["s8 to s32"]
    (launch,) = whole.design().launches(_problem(whole, bias=bias, scalars=(3, 0)), SM_80)
    assert _members(whole.design().signature, launch)["scalars"][:2] == (3, 1)
    plain = _problem(HALF)
    for changes in ({"z": plain.y}, {"bias": Strided(pointer=8, strides=(0, 1))}):
        with pytest.raises(kronop.ArgumentError, match=r"bias: .* without a tile"):
            HALF.design().launches(_problem(HALF, **{"bias": bias, **changes}), SM_80)


def test_memory_that_is_not_as_described_is_refused() -> None:
    strided = Strided(pointer=4096, strides=(256, 2))
    with pytest.raises(kronop.ArgumentError, match=r"memory of A: .* strides 256 and 2"):
        HALF.design().launches(_problem(HALF, a=strided), SM_80)
    with pytest.raises(kronop.ArgumentError, match=r"extent of A .* a multiple of 8"):
        HALF.design().launches(_problem(HALF, k=124), SM_80)
    with pytest.raises(kronop.ArgumentError, match=r"extent of C and D .* got 508"):
        HALF.design().launches(_problem(HALF, n=508), SM_80)
    with pytest.raises(kronop.ArgumentError, match=r"M of float16: expected at most 2147483647"):
        HALF.design().launches(_problem(HALF, m=2**31 + 128), SM_80)
    # Sums of more products would saturate, where others wrap.
    with pytest.raises(kronop.ArgumentError, match=r"K of int8: expected at most 131071"):
        CASES["s8"].design().launches(_problem(CASES["s8"], k=2**17), SM_80)


def test_what_is_wrong_with_a_turned_product_is_told_in_the_user_s_names() -> None:
    case = HALF.but(layouts=(ROW, COLUMN, COLUMN))
    strided = Strided(pointer=4096, strides=(256, 2))
    with pytest.raises(kronop.ArgumentError, match="memory of A"):
        case.design().launches(_problem(case, a=strided), SM_80)
    with pytest.raises(kronop.ArgumentError, match="extent of A"):
        HALF.design().launches(_problem(HALF, k=124), SM_80)
    with pytest.raises(kronop.ArgumentError, match=r"^M of"):
        case.design().launches(_problem(case, m=2**31 + 128), SM_80)
    bias = Strided(pointer=1 << 16, strides=(0, 2))
    with pytest.raises(kronop.ArgumentError, match="memory of bias"):
        HALF.design().launches(_problem(HALF, bias=bias), SM_80)


def _panels(m: int, n: int, k: int, **changes: Any) -> GemmProblem:
    """A problem of interleaved matrices."""
    strides = {"a": 32 * m, "b": 32 * n, "y": 32 * m}
    matrices: dict[str, Any] = {
        name: Strided(pointer=4096, strides=(32, panel)) for name, panel in strides.items()
    }
    return _problem(HALF, **{**matrices, "m": m, "n": n, "k": k, **changes})


def test_strides_of_panels() -> None:
    design, (m, n, k) = PANELS.design(), (96, 64, 128)
    (launch,) = design.launches(_panels(m, n, k), SM_80)
    got = _members(design.signature, launch)
    assert (got["ld_a"], got["ld_b"], got["ld_result"]) == (32 * m, 32 * n, 32 * m)
    # Slices are a matter of speed.
    (launch,) = design.launches(_panels(m, n, k, slices=4), SM_80)
    assert _members(design.signature, launch) == got
    assert design.workspace(GemmSize(m, n, k, slices=4), SM_80, 1) == 0


def test_panels_are_read_in_place_on_a_gpu() -> None:
    whole = TensorView(
        pointer=4096,
        shape=(5, 2, 80, 32),
        strides=(9600, 4800, 32, 1),
        element=kronop.int8,
        device=Device("cuda"),
        framework="torch",
        writable=True,
        owner=None,
    )
    described = PANELS.description().A
    found = panel_arguments.placed(whole, described, whole.device)
    assert found.view is whole
    assert (found.form, found.steps((5,))) == (None, (9600,))
    assert panel_arguments.strides(found, described, whole.device) == (32, 4800)


def test_panels_that_cutlass_does_not_read_are_refused() -> None:
    design = PANELS.design()
    odd = Strided(pointer=4096, strides=(32, 32 * 80))
    with pytest.raises(kronop.ArgumentError, match=r"memory of B: .* 1024 elements apart"):
        design.launches(_panels(96, 64, 128, b=odd), SM_80)
    with pytest.raises(kronop.ArgumentError, match="a multiple of 32"):
        design.launches(_panels(96, 64, 48), SM_80)
    bias = Strided(pointer=1 << 16, strides=(0, 1))
    with pytest.raises(kronop.ArgumentError, match=r"bias: .* add it to each row of C"):
        design.launches(_panels(96, 64, 128, bias=bias), SM_80)
    with pytest.raises(kronop.ArgumentError, match=r"K of int8: .* cut K"):
        design.launches(_panels(96, 64, 2**17), SM_80)


def test_one_design_for_a_tile_and_several_without(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(headers, "missing", lambda: "")
    names = ("f16", "tf32", "f64", "simt f32", "s8")
    for case in [*(CASES[name] for name in names), PANELS]:
        assert len(list(choice.designs(case.description(), SM_80))) == 1
        free = dataclasses.replace(case.description(), tile=None)
        every = list(choice.designs(free, SM_80))
        assert len(every) > 1
        assert all(item.seconds(GemmSize(4096), SM_80) > 0 for item in every)
        assert all(item.status(SM_80) for item in every), case


def _operation(case: Case, target: str) -> Any:
    what = case.description()
    given = (what.tile, what.A, what.B, what.Y, what.epilogue)
    return kronop.GemmOperationUniversal(target, *given)


@pytest.mark.parametrize("name", ["simt f32", "f16 warps along k"])
def test_cutlass_is_chosen_where_kronop_has_no_kernel(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, name: str
) -> None:
    _install(monkeypatch, nvidia_cutlass=_tree(tmp_path, 4, 2))
    (step,) = _operation(CASES[name], "sm_80").plan.steps
    assert type(step.design).__name__ == "CutlassGemm"


def test_without_headers_the_reason_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    _install(monkeypatch)
    # For another target than above, of which no plan is remembered.
    with pytest.raises(kronop.DescriptionError, match=r"of CUTLASS: .* none installed.*cutlass"):
        _operation(CASES["f16 warps along k"], "sm_90a")
    (step,) = _operation(HALF, "sm_90a").plan.steps
    assert type(step.design).__name__ != "CutlassGemm"
