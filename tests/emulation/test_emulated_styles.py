"""Every way to go about the phases of a tensor-core pass, run on the CPU from the same headers."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest

from kronop.descriptions.datatype import (
    ColumnMajor,
    DataType,
    RowMajor,
    bfloat16,
    float16,
    float32,
    float64,
)
from kronop.emit.cuda import operands
from kronop.emit.cuda.contraction import choice
from kronop.families.kron.cuda import tiles
from kronop.families.kron.cuda.half import HalfStyle
from kronop.families.kron.cuda.kron_mma import KronMma
from kronop.families.kron.cuda.mma import MmaTile
from kronop.families.kron.cuda.mma_style import MmaStyle
from kronop.families.kron.cuda.shapes import PassWork
from kronop.families.kron.description import Side
from tests import support
from tests.emulation import test_emulated_kernels as kernels
from tests.emulation.test_emulated_mma import run

_Case = tuple[list[tuple[int, int]], int, DataType, dict[str, Any]]
_CASES: list[_Case] = [
    ([(8, 8)] * 4, 2, float32, {"alignment": 4, "source": True}),
    ([(16, 16)] * 2, 5, float32, {"alignment": 4, "side": Side.Left}),
    ([(16, 16)] * 3, 1, float64, {"alignment": 2}),
    ([(6, 7), (5, 5), (9, 4), (3, 2)], 5, float32, {"side": Side.Left, "source": True}),
    ([(12, 20), (9, 31)], 5, float64, {"source": True}),
    ([(24, 8), (8, 16), (16, 8)], 3, float16, {"alignment": 8}),
    ([(4, 8), (5, 7)], 20, float32, {"batch": (2, 3), "factor_batch": (3,)}),
    ([(32, 32)] * 2, 5, bfloat16, {"alignment": 8}),
    ([(6, 5), (22, 20)], 3, float32, {"alignment": 4}),
]


@pytest.fixture(autouse=True)
def _forget() -> Iterator[None]:
    yield
    support.forget_passes()


def _style(work: PassWork, *, half: bool = False, **named: Any) -> MmaStyle:
    """Of 16-bit elements where `half`; each factor is a digit."""
    splits = bool(operands.splits_of(work.math))
    kind: Any = HalfStyle if half else MmaStyle
    return cast(
        MmaStyle,
        kind(digits=work.shape.factors, accumulator=work.accumulator, splits=splits, **named),
    )


def force(monkeypatch: pytest.MonkeyPatch, **style: Any) -> None:
    """Has the planner choose among tiles of one style, as far as a pass allows it."""
    offered = tiles.mma_tiles

    def of_one_style(work: PassWork, given: Any, few: bool) -> list[KronMma]:
        digits = work.shape.factors
        blocks = math.gcd(style.get("cluster", 1), digits[0][0]) if len(digits) > 1 else 1
        most = (len(digits) - (blocks > 1)) // 2
        changes = style | {"cluster": blocks, "pairs": min(style.get("pairs", 0), most)}
        staged = [item for item in offered(work, given, few) if item.tile.style.staged_in]
        result = []
        for item in staged:
            named = {"wgmma": item.tile.style.wgmma} | changes
            tile = replace(item.tile, threads=max(128, item.threads), style=_style(work, **named))
            result.append(KronMma(work=work, runs=(1,) * len(digits), tile=tile))
        return result

    support.forget_passes()
    monkeypatch.setattr(tiles, "mma_tiles", of_one_style)


@pytest.mark.covering(case=_CASES, staged_in=[True, False], staged_out=[True, False], pairs=[0, 2])
def test_ends_and_pairs(
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    case: _Case,
    staged_in: bool,
    staged_out: bool,
    pairs: int,
) -> None:
    factors, rows, element, options = case
    force(monkeypatch, staged_in=staged_in, staged_out=staged_out, pairs=pairs)
    run(folder, factors, rows, element, **options)


@pytest.mark.parametrize(("factors", "rows", "element", "options"), _CASES)
@pytest.mark.parametrize(("cluster", "pairs"), [(2, 0), (8, 1)])
def test_clusters(
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    cluster: int,
    pairs: int,
    factors: list[tuple[int, int]],
    rows: int,
    element: DataType,
    options: dict[str, Any],
) -> None:
    ends = {"staged_in": False, "staged_out": False}
    force(monkeypatch, cluster=cluster, pairs=pairs, **ends)
    run(folder, factors, rows, element, **options)


@pytest.mark.parametrize("staged", [True, False])
@pytest.mark.parametrize(
    ("factors", "rows", "element", "options"),
    [
        ([(64, 64)] * 2, 3, float32, {"alignment": 4}),
        ([(40, 50), (33, 70)], 5, float32, {"source": True}),
        ([(64, 64), (8, 8)], 3, float32, {"alignment": 4, "side": Side.Left}),
        ([(128, 100)], 70, float32, {"alignment": 4}),
        ([(32, 32)] * 3, 2, float16, {"alignment": 8}),
        ([(86, 86), (8, 8)], 3, bfloat16, {"alignment": 2}),
    ],
)
def test_products_of_warp_groups(
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    staged: bool,
    factors: list[tuple[int, int]],
    rows: int,
    element: DataType,
    options: dict[str, Any],
) -> None:
    force(monkeypatch, wgmma=True, staged_in=staged, staged_out=staged)
    run(folder, factors, rows, element, **options)


_SHORT = [(16, 16), (8, 8), (8, 8), (16, 16)]
_TILES_IN_A_ROW: list[_Case] = [
    ([(8, 8)] * 5, 4, float32, {"pairs": 2}),
    ([(8, 8)] * 5, 3, float16, {"pairs": 2, "alignment": 8}),
    (_SHORT, 5, float32, {"side": Side.Left}),
    (_SHORT, 1, float32, {"batch": (2, 3), "factor_batch": (2, 1)}),
    (_SHORT, 3, float32, {"source": True}),
    (_SHORT, 3, float32, {"layouts": (RowMajor, RowMajor, ColumnMajor)}),
    (_SHORT, 3, float32, {"layouts": (ColumnMajor, RowMajor, RowMajor)}),
    ([(16, 16)] * 3, 5, float64, {"alignment": 2}),
    ([(32, 32)] * 3, 3, float32, {"wgmma": True}),
    ([(32, 32), (8, 8), (32, 32)], 5, float32, {"wgmma": True}),
]


@pytest.mark.parametrize(("factors", "rows", "element", "options"), _TILES_IN_A_ROW)
def test_a_tile_ends_while_the_next_begins(
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    factors: list[tuple[int, int]],
    rows: int,
    element: DataType,
    options: dict[str, Any],
) -> None:
    style = {"pairs": 0, "wgmma": False, "cluster": 1, "staged_in": False, "staged_out": False}
    options = {"alignment": 4, **options}
    style |= {name: options.pop(name) for name in ("pairs", "wgmma") if name in options}

    def whole(work: PassWork, *_: Any) -> list[KronMma]:
        if len(work.shape.factors) != len(factors):
            return []
        tile = MmaTile(style=_style(work, **style), rows=1, columns=1, threads=512)
        return [KronMma(work=work, runs=(1,) * len(factors), tile=tile)]

    support.forget_passes()
    monkeypatch.setattr(tiles, "mma_tiles", whole)
    monkeypatch.setattr(kernels, "_TARGET", replace(kernels._TARGET, cores=1))
    (step,) = run(folder, factors, rows, element, **options)
    assert step.design.exchanged(kernels._TARGET) == factors[0][0]


_HALF_CASES: list[_Case] = [
    ([(64, 64)] * 2, 2, bfloat16, {"alignment": 8}),
    ([(32, 32)] * 2, 5, float16, {"alignment": 8, "source": True}),
    ([(16, 16)] * 3, 1, bfloat16, {"alignment": 8}),
    ([(86, 86), (8, 8)], 3, bfloat16, {"alignment": 2, "source": True}),
    ([(20, 12), (86, 70)], 3, float16, {"alignment": 2}),
    ([(6, 7), (5, 5), (9, 4), (3, 2)], 5, float16, {"source": True}),
    ([(6, 7), (5, 5), (9, 11)], 5, bfloat16, {"side": Side.Left, "source": True}),
    ([(32, 16), (16, 40)], 40, float16, {"side": Side.Left, "alignment": 8}),
    ([(128, 100)], 70, bfloat16, {"alignment": 4}),
    ([(48, 32)], 300, float16, {"alignment": 8, "source": True}),
    ([(33, 31)], 20, float16, {}),
    ([(4, 8), (5, 7)], 20, bfloat16, {"batch": (2, 3), "factor_batch": (3,)}),
    ([(8, 8)] * 4, 2, float16, {"alignment": 8}),
]


@pytest.mark.covering(
    case=_HALF_CASES,
    staged_in=[True, False],
    staged_out=[True, False],
    way=[(False, 1), (False, 2), (True, 2)],
)
def test_tiles_of_16_bit_elements(
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    case: _Case,
    staged_in: bool,
    staged_out: bool,
    way: tuple[bool, int],
) -> None:
    (factors, rows, element, options), (wgmma, buffers) = case, way
    # Ends in memory are for contiguous digits; both, for one digit.
    ends = (staged_in, staged_out) if options.get("side") is not Side.Left else (True, True)
    if not any(ends) and len(factors) > 1:
        ends = (False, True)
    style = {"staged_in": ends[0], "staged_out": ends[1], "wgmma": wgmma}
    if ends[0] and len(factors) > 1:
        style["buffers"] = buffers
    force(monkeypatch, half=True, **style)
    monkeypatch.setattr(tiles, "simt_tiles", lambda *_: [])
    monkeypatch.setattr(choice, "candidates", lambda *_: ([], []))
    between = {"intermediate": element}
    assert len(run(folder, factors, rows, element, **options, **between)) == 1


@pytest.mark.parametrize("buffers", [1, 2])
@pytest.mark.parametrize("staged_out", [True, False])
def test_a_block_fills_one_tile_while_it_works_on_another(
    folder: Path, monkeypatch: pytest.MonkeyPatch, staged_out: bool, buffers: int
) -> None:
    one = replace(kernels._TARGET, cores=1)
    monkeypatch.setattr(kernels, "_TARGET", one)
    style = {"staged_in": True, "staged_out": staged_out, "buffers": buffers}
    force(monkeypatch, half=True, **style)
    options: dict[str, Any] = {"alignment": 8, "intermediate": bfloat16}
    run(folder, [(16, 16), (8, 8)], 1000, bfloat16, **options)
    run(folder, [(16, 16), (9, 8)], 700, bfloat16, source=True, **options)
