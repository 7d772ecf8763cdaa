"""The generator's cases reach every template of sm_90a, and every style of its tiles."""

from __future__ import annotations

import pytest

from tests.fuzz import coverage
from tests.fuzz.generate import Settings
from tests.fuzz.styles import STYLES

# Numbers of few cases that reach all together; such a list is what `python -m tests.fuzz --plan 300
# --seed 18 --only kron` ends with.
_NAMES = {
    ("kron",): (4, 7, 18, 27, 37, 44, 60, 62),
    ("chain",): (19, 44, 49, 66, 82),
    ("ksparse", "gradient"): (0, 98, 102, 112, 118, 121, 136, 189, 369, 515),
}


def test_every_style_is_reached() -> None:
    reached: set[str] = set()
    for only, names in _NAMES.items():
        settings = Settings(targets=("sm_90a",), only=only)
        count, _ = coverage.tally([f"18.0.{index}" for index in names], settings)
        reached |= set(count)
    wanted = {f"{template}: {word}" for template, words in STYLES.items() for word in words}
    missing = sorted(wanted - reached)
    assert not missing, f"{missing}: the planner or the generator has changed; find other names"


@pytest.mark.parametrize("target", ["sm_80", "sm_90a"])
def test_a_tally_names_few_cases_that_reach_all(target) -> None:
    settings = Settings(targets=(target,), only=("ksparse",))
    names = [f"18.0.{index}" for index in range(6)]
    count, few = coverage.tally(names, settings)
    assert set(few) <= set(names)
    assert set(coverage.tally(few, settings)[0]) == set(count)
