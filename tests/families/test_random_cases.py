"""A few of the random cases, on this machine and on a GPU."""

from __future__ import annotations

import pytest

pytest.importorskip("torch")

from tests.families.random_cases import KINDS, make


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("number", range(4))
def test_on_this_machine(kind: str, number: int) -> None:
    assert not make(f"{kind}.5.{number}").run("cpu")


@pytest.mark.cuda
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("number", range(25))
def test_on_a_gpu(kind: str, number: int) -> None:
    assert not make(f"{kind}.6.{number}").run("cuda")
