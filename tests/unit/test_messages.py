"""Messages of one-line functions about mistakes that are made at first."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import kronop


def test_many_factors_are_told_in_few_words() -> None:
    x = np.ones((4, 8), np.float32)
    for factors, told in (
        ([(2, 2)] * 60, "(..., M, 1.2e+18), since 2^60 = 1.2e+18, got (4, 8)"),
        ([(2, 2)] * 3 + [(3, 2)], "(..., M, 24), since 2^3 x 3 = 24, got (4, 8)"),
    ):
        with pytest.raises(kronop.ArgumentError) as caught:
            kronop.gemkm(x, [np.ones(shape, np.float32) for shape in factors])
        assert told in str(caught.value)


def test_a_gradient_of_weights_on_the_host_names_what_computes_it() -> None:
    x: Any = np.ones((4, 8), np.float32)
    with pytest.raises(kronop.DescriptionError, match=r"GPU.*autograd of kronop\.torch\.ksmm"):
        kronop.weight_gradient(x, x, (1, 8, 8, 1))


def test_mixed_types_are_told_what_to_convert() -> None:
    x = np.ones((4, 8), np.float32)
    with pytest.raises(kronop.ElementTypeError, match="convert it to the type that is expected"):
        kronop.gemkm(x, [np.ones((8, 8))])
