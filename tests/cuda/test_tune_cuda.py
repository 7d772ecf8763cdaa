"""Tuning on a GPU: candidates agree, Y comes back, the winner runs."""

from __future__ import annotations

import numpy as np
import pytest

import kronop
from kronop import knobs
from kronop.families.kron.api import kron_arguments
from tests import support

pytestmark = pytest.mark.cuda


@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_candidates_agree_and_the_fastest_runs(dtype: str, tmp_path) -> None:
    torch = pytest.importorskip("torch")
    kind = getattr(torch, dtype)
    x = torch.randn(64, 8**4, device="cuda", dtype=kind)
    factors = [torch.randn(8, 8, device="cuda", dtype=kind) / 3 for _ in range(4)]
    with knobs.using(cache_dir=tmp_path):
        arguments = kron_arguments(x, factors, kronop.Side.Right)
        operation = arguments.operation
        expected = kronop.gemkm(x, factors)
        arguments.Y.fill_(5)
        report = kronop.tune(operation, arguments, candidates=6, progress=False)
        assert (arguments.Y == 5).all()
        assert len(report.ranked) >= 2
        assert not any("away" in item.reason for item in report.outcomes)
        operation.run(arguments)
        arguments.sync()
        best = operation.candidates(6, 64)[report.kept.place]
        assert operation.plan_for(64, 0).steps == best.steps
    difference = (arguments.Y - expected).double().norm() / expected.double().norm()
    assert float(difference) < (1e-5 if dtype == "float32" else 5e-3)


def test_host_arrays_are_staged(tmp_path) -> None:
    x = np.random.default_rng(0).standard_normal((32, 64)).astype(np.float32)
    factors = [np.eye(8, dtype=np.float32)] * 2
    matrix = kronop.TensorDescription(kronop.float32)
    epilogue = kronop.LinearCombination(kronop.float32, 1, kronop.float32, kronop.float32)
    with knobs.using(cache_dir=tmp_path):
        operation = kronop.KronMatmulOperation(
            support.cuda_target(), None, matrix, matrix, matrix, epilogue, [(8, 8)] * 2
        )
        arguments = kronop.KronMatmulArguments(operation=operation, X=x, factors=factors)
        report = kronop.tune(operation, arguments, candidates=3, progress=False)
        assert report.device
        operation.run(arguments)
        arguments.sync()
    np.testing.assert_allclose(arguments.Y, x, rtol=1e-6)
