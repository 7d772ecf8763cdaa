"""A few of the random distances, on this machine and on a GPU."""

from __future__ import annotations

import pytest

pytest.importorskip("torch")

from tests.families import distance_random


@pytest.mark.parametrize("number", range(6))
def test_on_this_machine(number: int) -> None:
    assert not distance_random.run(distance_random.make(5, number), "cpu")


@pytest.mark.cuda
@pytest.mark.parametrize("number", range(40))
def test_on_a_gpu(number: int) -> None:
    assert not distance_random.run(distance_random.make(6, number), "cuda")
