"""The generators' cases reach every design of sm_90a, and every style of it."""

from __future__ import annotations

import pytest

from tests import reached
from tests.families import random_cases
from tests.fuzz import coverage, plans
from tests.fuzz.generate import Settings

# Indices of a few cases that together reach all styles of their families; `python -m tests.fuzz
# --plan 300 --seed 18 --only kron` prints such a list at its end.
_NAMES = {
    ("kron",): (4, 7, 18, 27, 37, 44, 60, 62, 208),
    ("chain",): (19, 44, 49, 66, 82),
    ("ksparse", "gradient"): (0, 98, 102, 112, 118, 121, 136, 189, 369, 515),
}
# Those of other families: `python -m tests.families --plan 420 --seed 18`.
_OTHERS = {
    "matrices": (8, 9, 11, 27, 33, 42, 53, 67, 91, 97, 153, 223, 306),
    "products": (21, 24, 68, 105, 117, 176, 203, 228, 244),
    "gradients": (0, 2),
    "quantized": (0, 1, 2, 3, 6, 10, 13, 14, 24, 30, 127, 128, 151),
    "gemm": (5, 7, 21, 53),
    "conv2d": (0, 2, 4, 7, 9, 10, 12, 15, 20, 27, 34, 61, 77, 94, 119, 189, 196),
    "trees": (3, 5, 11, 34, 54, 70, 81, 98, 151, 154, 214, 221, 225, 333, 375),
}
# What no one-line call asks for, or few random cases have: emulated tests of their own run these.
_ELSEWHERE = {
    *("GemmWarpGroup: 8-bit floats", "GemmWarpGroup: int8"),
    *("GemmMma: Rounded", "GemmMma: Tf32", "GemmMma: float16 sums", "GemmTile: through registers"),
}

# Designs that plans for few rows have, where those for many have others.
_FOR_FEW = ("KronTile", "KronMma", "SimtContract", "MmaContract", "WarpGroupContract", "ChainMma")
_FOR_FEW += ("PackWeights", "PackImages")


def test_every_style_is_reached() -> None:
    found: set[str] = set()
    for only, names in _NAMES.items():
        settings = Settings(targets=("sm_90a",), only=only)
        count, _ = coverage.tally([f"18.0.{index}" for index in names], settings)
        found |= set(count)
    for kind, names in _OTHERS.items():
        for index in names:
            found |= plans.reached(random_cases.make(f"{kind}.18.{index}").plan("sm_90a"))
    wanted = {
        f"{design.__name__}: {word}"
        for design in reached.designs()
        if ".cuda." in design.__module__
        for word in design.styles
    }
    wanted |= {f"{design}: few rows" for design in _FOR_FEW}
    missing = sorted(wanted - found - _ELSEWHERE)
    assert not missing, f"{missing}: the planner or the generator has changed; find other names"


@pytest.mark.parametrize("target", ["sm_80", "sm_90a"])
def test_a_tally_names_few_cases_that_reach_all(target) -> None:
    settings = Settings(targets=(target,), only=("ksparse",))
    names = [f"18.0.{index}" for index in range(6)]
    count, few = coverage.tally(names, settings)
    assert set(few) <= set(names)
    assert set(coverage.tally(few, settings)[0]) == set(count)
