"""Which tiles of distances are candidates on CPUs, and in what order."""

from __future__ import annotations

import pytest

import kronop
from kronop.core.calls import epilogue_of
from kronop.families.distance.size import DistanceSize
from kronop.families.distance.x86 import choice
from kronop.target import Target


@pytest.mark.parametrize("target", ["x86-generic", "x86-avx2", "x86-avx512"])
@pytest.mark.parametrize("k", [2, 2000])
def test_tiles_keep_sums_in_registers_and_products_pay_for_many_features(target, k) -> None:
    points, squares = kronop.TensorDescription(kronop.float32), kronop.kernels.PowerNorm(2, False)
    epilogue = epilogue_of(kronop.float32, points, None)
    operands = (points, points, points, epilogue, squares)
    what = kronop.DistanceOperation(target, None, *operands, True, True).description
    size, target = DistanceSize(3000, 3000, k), Target.parse(target)
    plans = choice.plans(what, target, 1000, size)
    designs = [plan.steps[0].design for plan in plans]
    assert all(item.rows * item.vectors < target.registers for item in designs)
    modelled = [item.seconds(size, target) for item in designs]
    assert modelled == sorted(modelled)
    assert len({str(item) for item in designs}) == len(designs)
    assert (designs[0].symmetric, designs[0].expanded) == (k > 2, k > 2)
    assert "us for" in plans[0].explain()
