"""Half a minute of the random test, the same cases every time; hours of it: docs/debugging.md."""

from __future__ import annotations

import pytest

from tests.fuzz import attempt, worker
from tests.fuzz.case import FAMILIES
from tests.fuzz.generate import make

# By family: (the number of problems, the number of cases that share their kernels).
_SIZES = {"kron": (5, 20), "ksparse": (5, 20), "chain": (3, 8), "gradient": (1, 2)}
_PROBLEMS = [(family, part) for family in FAMILIES for part in range(2)]


@pytest.mark.parametrize(("family", "part"), _PROBLEMS)
def test_cases_of_fixed_seeds(family, part) -> None:
    if part == 1:  # With tensors of torch among others: the first part is for those without it.
        pytest.importorskip("torch")
    _run("cpu", family, part)


@pytest.mark.cuda
@pytest.mark.parametrize(("family", "part"), _PROBLEMS)
def test_cases_of_fixed_seeds_on_a_gpu(family, part) -> None:
    pytest.importorskip("torch")
    _run("cuda", family, part)


def _run(device: str, family: str, part: int) -> None:
    problems, cases = _SIZES[family]
    settings = worker.settings_for(device, (family,), problems)
    if family == "gradient":
        pytest.importorskip("torch")
    for index in range(cases):
        name = f"18.{part}.{index}"
        outcome = attempt.run(make(name, settings))
        again = f"--device {device} --only {family} --problems {problems} --case {name}"
        assert not outcome.troubles, f"python -m tests.fuzz {again}\n" + "\n".join(outcome.troubles)
