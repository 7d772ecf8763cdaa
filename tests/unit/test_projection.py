"""Dense layers projected to chains of Kronecker-sparse factors."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from kronop.torch.nn import KSLinear  # noqa: E402
from kronop.torch.nn.algorithms import dense_product  # noqa: E402
from kronop.torch.nn.projection import entries, is_butterfly, project  # noqa: E402

_RECOVERED = {
    "one": [(2, 3, 4, 3)],
    "as q, k and v of a ViT": [(2, 6, 24, 1), (1, 24, 6, 2)],
    "no butterfly, blocks of two ranks": [(6, 4, 8, 1), (1, 8, 8, 3)],
    "no butterfly, few blocks": [(1, 5, 3, 4), (5, 2, 4, 1)],
    "redundant": [(1, 8, 4, 1), (1, 4, 8, 1)],
    "butterfly of 8": [(4, 2, 2, 1), (2, 2, 2, 2), (1, 2, 2, 4)],
    "butterfly of 32": [(2**at, 2, 2, 2 ** (4 - at)) for at in reversed(range(5))],
    "rectangular": [(6, 2, 3, 1), (3, 4, 4, 1), (1, 2, 6, 2)],
}


def _factors(patterns: Any) -> Any:
    generator = torch.Generator().manual_seed(len(patterns))
    return [torch.randn(item, dtype=torch.float64, generator=generator) for item in patterns]


def _error(matrix: Any, weights: Any) -> float:
    return float((matrix - dense_product(weights)).norm() / matrix.norm())


@pytest.mark.parametrize("patterns", _RECOVERED.values(), ids=_RECOVERED.keys())
def test_a_product_of_such_factors_is_recovered(patterns: Any) -> None:
    matrix = dense_product(_factors(patterns))
    found = project(matrix, patterns)
    assert [tuple(item.shape) for item in found] == patterns
    assert _error(matrix, found) < 1e-13


def test_also_where_its_blocks_have_less_than_their_rank() -> None:
    patterns = _RECOVERED["butterfly of 8"]
    factors = _factors(patterns)
    factors[1][0, 0] = 0.0
    matrix = dense_product(factors)
    assert _error(matrix, project(matrix, patterns)) < 1e-13


def test_the_nearest_of_one_factor_is_its_entries() -> None:
    pattern = (2, 3, 4, 3)
    weight = _factors([pattern])[0]
    assert torch.equal(entries(dense_product([weight]), pattern), weight)
    matrix = torch.ones(18, 24, dtype=torch.float64)
    assert torch.equal(project(matrix, [pattern])[0], torch.ones(pattern, dtype=torch.float64))


@pytest.mark.parametrize("name", ["as q, k and v of a ViT", "no butterfly, blocks of two ranks"])
def test_two_factors_come_as_near_as_their_blocks_ranks_allow(name: str) -> None:
    """Against the definition: rows and columns of each middle index, by brute force."""
    patterns = _RECOVERED[name]
    right, left = (dense_product([torch.ones(item, dtype=torch.float64)]) for item in patterns)
    generator = torch.Generator().manual_seed(0)
    matrix = torch.randn(len(left), right.shape[1], dtype=torch.float64, generator=generator)
    blocks: dict[Any, int] = {}
    for at in range(len(right)):
        block = tuple(map(bool, left[:, at])), tuple(map(bool, right[at]))
        blocks[block] = blocks.get(block, 0) + 1
    left_out = matrix.square().sum()
    for (rows, columns), rank in blocks.items():
        values = torch.linalg.svdvals(matrix[torch.tensor(rows)][:, torch.tensor(columns)])
        left_out = left_out - values[:rank].square().sum()
    least = float(left_out.sqrt() / matrix.norm())
    assert abs(_error(matrix, project(matrix, patterns)) - least) < 1e-12


def test_a_butterfly_near_the_matrix_is_improved_upon() -> None:
    patterns = _RECOVERED["butterfly of 8"]
    matrix = dense_product(_factors(patterns))
    generator = torch.Generator().manual_seed(1)
    noise = torch.randn(matrix.shape, dtype=torch.float64, generator=generator)
    noise *= 0.1 * matrix.norm() / noise.norm()
    found = _error(matrix + noise, project(matrix + noise, patterns))
    # No more than the product that is known to be there leaves.
    assert found < 0.1


def test_other_chains_are_searched_for() -> None:
    patterns = [(2, 3, 2, 1), (1, 2, 2, 3), (3, 2, 2, 1)]
    assert not is_butterfly(patterns[::-1])
    matrix = dense_product(_factors(patterns))
    found = project(matrix, patterns)
    again = project(matrix, patterns)
    assert all(itertools.starmap(torch.equal, zip(found, again, strict=True)))
    assert _error(matrix, found) < 0.1


def test_the_layer_says_the_error_and_has_the_bias() -> None:
    torch.manual_seed(0)
    patterns = _RECOVERED["as q, k and v of a ViT"]
    linear = torch.nn.Linear(48, 48)
    layer = KSLinear.from_linear(linear, patterns, algo="einsum", bs_last=True)
    product = layer.get_dense_product().detach()
    left = float(((product - linear.weight).norm() / linear.weight.norm()).detach())
    assert layer.projection_error == pytest.approx(left, rel=1e-5)
    assert 0.1 < layer.projection_error < 1
    assert torch.equal(layer.bias, linear.bias)
    assert layer.bias is not linear.bias
    assert layer.bs_last
    assert layer.algo == "einsum"
    with torch.no_grad():
        linear.weight.copy_(product)
    again = KSLinear.from_linear(linear, patterns)
    assert again.projection_error < 4 * torch.finfo(torch.float32).eps
    x = torch.randn(5, 48)
    torch.testing.assert_close(again(x), linear(x))
    half = torch.nn.Linear(48, 48, bias=False, dtype=torch.float16)
    narrow = KSLinear.from_linear(half, patterns)
    assert narrow.bias is None
    assert narrow.weights[0].dtype is torch.float16
    with torch.no_grad():
        linear.weight.zero_()
    assert KSLinear.from_linear(linear, patterns).projection_error == 0.0
    assert KSLinear(patterns).projection_error is None
