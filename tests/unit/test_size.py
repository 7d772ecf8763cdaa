"""Sizes: what plans and winners are kept for."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import kronop
from kronop.families.gemm.size import GemmSize
from kronop.size import Rows


@pytest.mark.parametrize(
    ("rows", "bucket"), [(0, 1), (1, 1), (2, 2), (3, 2), (4, 4), (1023, 512), (1024, 1024)]
)
def test_buckets_are_powers_of_two(rows: int, bucket: int) -> None:
    assert Rows(rows).bucket() == bucket
    assert isinstance(Rows(rows).bucket(), Rows)
    assert Rows(bucket).served() == f"{bucket} to {2 * bucket - 1}"


def test_no_rows_are_nothing_to_do() -> None:
    assert not Rows(0)
    assert Rows(3).times(4) == 12
    assert Rows(5).told() == "5 rows"
    assert Rows(np.int32(5)) == 5


@pytest.mark.parametrize("count", [-1, 2.0, True, "4", None])
def test_what_counts_no_rows(count: Any) -> None:
    with pytest.raises(kronop.ArgumentError, match="rows"):
        Rows(count)


@pytest.mark.parametrize(
    ("size", "told"),
    [
        (GemmSize(300, 200, 1), "M 256 to 511, N 128 to 255, K 1"),
        (GemmSize(4, 4, 4, 9, 2), "M 4 to 7, N 4 to 7, K 4 to 7, batch 8 to 15, in 2 slices"),
    ],
)
def test_sizes_of_products_are_kept_by_powers_of_two(size: GemmSize, told: str) -> None:
    assert size.bucket().served() == told
