"""Every family's sample, of every element type it is for: parity, and any size.

Those whose results are not scaled and added have tests of their own.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kronop.core.family import Kind
from kronop.families import FAMILIES
from tests import support
from tests.families import samples

_TARGETS = {"x86": "x86", "cuda": support.cuda_target()}


def _cases(backend: str) -> Iterator[Any]:
    for kind in samples.kinds(FAMILIES):
        if backend in kind.emitters and samples.scale_and_add(kind):
            for element in samples.elements(kind, _TARGETS[backend]):
                yield pytest.param(kind, element, id=f"{kind.name}-{element.short}")


@pytest.mark.parametrize(("kind", "element"), list(_cases("x86")))
def test_on_this_machine(kind: Kind, element: Any) -> None:
    _check(kind, element, "x86")


@pytest.mark.cuda
@pytest.mark.parametrize(("kind", "element"), list(_cases("cuda")))
def test_on_a_gpu(kind: Kind, element: Any) -> None:
    _check(kind, element, "cuda")


def _check(kind: Kind, element: Any, backend: str) -> None:
    operation = samples.operation(kind, _TARGETS[backend], element)

    # One kernel for all of them.
    @settings(deadline=None, max_examples=12)
    @given(st.integers(0, 150), st.sampled_from([1, 2, -3]), st.sampled_from([0, 1, -2]))
    def any_size(rows: int, alpha: int, beta: int) -> None:
        samples.check(operation, rows, np.random.default_rng(rows), alpha, beta)

    any_size()
