"""Chains made for given features, and the size of what fresh layers give."""

from __future__ import annotations

import itertools
import math
from typing import Any

import pytest

torch = pytest.importorskip("torch")

import kronop  # noqa: E402
from kronop.torch.nn import KroneckerEmbedding, KroneckerLinear, KSLinear, patterns  # noqa: E402
from kronop.torch.nn.projection import is_butterfly  # noqa: E402


def _weights(chain: Any) -> int:
    return sum(math.prod(pattern) for pattern in chain)


def _supports(layer: KSLinear) -> Any:
    """The number of paths between each input and each output."""
    with torch.no_grad():
        for weight in layer.weights:
            weight.fill_(1.0)
    return layer.weight


# Layers that differ in the number and in the sizes of their factors.
_FRESH = [
    lambda: KSLinear([(1, 64, 64, 1)]),
    lambda: KSLinear.monarch(64, 64, 8),
    lambda: KSLinear.monarch(64, 128, 4),
    lambda: KSLinear([(4, 16, 16, 1), (4, 4, 4, 4), (1, 16, 16, 4)]),
    lambda: KSLinear.butterfly(64),
    lambda: KSLinear.from_budget(64, 64, 1000),
    lambda: KroneckerLinear([(8, 8), (8, 8)]),
    lambda: KroneckerLinear([(4, 2), (4, 8), (8, 4)]),
]


@pytest.mark.parametrize("make", _FRESH)
def test_fresh_layers_give_the_size_that_a_dense_one_gives(make: Any) -> None:
    """Over inputs and weights of variance 1, the variance of an output is that of torch.nn.Linear:
    1/3, and 1/(3 in_features) of the bias."""
    torch.manual_seed(0)
    layer = make()
    dense = torch.nn.Linear(layer.in_features, layer.out_features)
    found = {layer: [], dense: []}
    for _ in range(64):
        for item, variances in found.items():
            item.reset_parameters()
            # Over inputs of variance 1, an output has the variance |row of W|^2 + bias^2.
            with torch.no_grad():
                variances.append(float(item.weight.square().sum(1).mean() + item.bias.var()))
    for item, variances in found.items():
        each = torch.tensor(variances)
        exact = (1 + 1 / item.in_features) / 3
        # The mean of 64 drawings, within four of its own standard deviations.
        assert abs(float(each.mean()) - exact) < 4 * float(each.std()) / 8, type(item)


def test_the_results_of_six_fresh_factors_are_those_of_a_dense_layer() -> None:
    torch.manual_seed(1)
    x = torch.randn(2000, 64)
    with torch.no_grad():
        deviations = [float(KSLinear.butterfly(64, algo="dense")(x).std()) for _ in range(20)]
        dense = float(torch.nn.Linear(64, 64)(x).std())
    assert 0.8 < sum(deviations) / 20 / dense < 1.2


@pytest.mark.parametrize(("n_in", "n_out", "blocks"), [(64, 64, 8), (12, 30, 3), (60, 8, 4)])
def test_monarch_has_blocks_and_mixes_everything(n_in: int, n_out: int, blocks: int) -> None:
    layer = KSLinear.monarch(n_in, n_out, blocks, bias=False, dtype=torch.float64)
    assert (layer.in_features, layer.out_features, layer.bias) == (n_in, n_out, None)
    right, left = layer.patterns
    assert right[0] == left[3] == blocks
    blocks_mix = blocks <= min(n_in, n_out) // blocks
    assert bool((_supports(layer) > 0).all()) == blocks_mix
    middle = min(n_in, n_out) // blocks
    assert _weights(layer.patterns) == middle * (n_in + n_out)


@pytest.mark.parametrize("features", [2, 64, 12, 7, 90])
def test_butterflies_have_one_path_between_every_two_features(features: int) -> None:
    layer = KSLinear.butterfly(features, dtype=torch.float64)
    assert torch.equal(_supports(layer), torch.ones(features, features, dtype=torch.float64))
    assert is_butterfly([*reversed(layer.patterns)])


def test_a_fourier_transform_is_a_butterfly() -> None:
    """The Hadamard matrix, its real sibling, has exactly such factors."""
    linear = torch.nn.Linear(16, 16, dtype=torch.float64)
    h = torch.ones(1, 1, dtype=torch.float64)
    for _ in range(4):
        h = torch.cat([torch.cat([h, h], 1), torch.cat([h, -h], 1)])
    with torch.no_grad():
        linear.weight.copy_(h)
    assert KSLinear.from_linear(linear, patterns.butterfly(16)).projection_error < 1e-12


def test_a_budget_is_kept_and_used() -> None:
    sizes = (10, 64, 97, 100, 384)
    for n_in, n_out, share in itertools.product(sizes, sizes, (0.1, 0.2, 0.5)):
        budget = max(int(share * n_in * n_out), n_in + n_out)
        chain = patterns.within_budget(n_in, n_out, budget)
        assert _weights(chain) <= budget
        layer = KSLinear(chain, device="meta")
        assert (layer.in_features, layer.out_features) == (n_in, n_out)
        assert _weights(chain) > 0.3 * budget
    for n_in, n_out, budget in ((64, 10, 208), (100, 7, 240), (64, 64, 800), (12, 18, 60)):
        layer = KSLinear(patterns.within_budget(n_in, n_out, budget), dtype=torch.float64)
        # Random factors have the largest rank that their patterns allow.
        (a, m, _, _), _ = layer.patterns
        assert int(torch.linalg.matrix_rank(layer.weight)) == min(a * m, n_in, n_out)
        assert bool((_supports(layer) > 0).all())


def test_a_budget_prefers_most_of_itself_to_larger_blocks() -> None:
    """Of the highest rank, the chain with the largest blocks has 272 weights, less than three
    quarters of 369; another one has 352."""
    assert _weights(patterns.within_budget(18, 64, 369)) == 352


def test_a_fresh_embedding_is_normally_distributed() -> None:
    torch.manual_seed(2)
    (table,) = KroneckerEmbedding([(200, 50)]).factors
    # The fourth moment of N(0, 1) is 3; of 10^4 drawings, the deviation of its mean is 0.1, and
    # 0.014 that of the second one. It would be 1.8 of a uniform distribution.
    assert abs(float(table.detach().pow(4).mean()) - 3) < 0.4
    assert abs(float(table.detach().square().mean()) - 1) < 0.06


def test_a_budget_counts_the_bias_and_may_be_that_of_a_dense_layer() -> None:
    def count(layer: Any) -> int:
        return sum(parameter.numel() for parameter in layer.parameters())

    assert count(KSLinear.from_budget(64, 64, 1000)) <= 1000
    assert count(KSLinear.from_budget(64, 64, 1000, bias=False)) <= 1000
    dense = KSLinear.from_budget(8, 4, 36, dtype=torch.float64)
    assert dense.patterns == ((1, 4, 8, 1),)
    assert dense.weights[0].dtype is torch.float64
    assert KSLinear.from_budget(8, 4, 35).patterns != dense.patterns


@pytest.mark.parametrize(
    ("call", "word"),
    [
        (lambda: KSLinear.monarch(64, 60, 8), "divisor of both 64 and 60, got 8; one of 1, 2, 4"),
        (lambda: KSLinear.monarch(64, 0, 8), "out_features: expected a positive integer, got 0"),
        (lambda: KSLinear.monarch(64, 64, 8.0), "blocks: expected a positive integer, got 8.0"),
        (lambda: KSLinear.butterfly(1), "at least 2"),
        (lambda: KSLinear.butterfly("8"), "features: expected a positive integer"),
        (
            lambda: KSLinear.from_budget(64, 32, 127),
            r"at least 128: 64 \+ 32 for the weights and 32 for the bias, got 127",
        ),
        (lambda: patterns.within_budget(64, 32, 95), r"at least 96: .* for the weights, got 95"),
        (lambda: KSLinear.from_budget(64, 32, 1e3), r"at least 128"),
        (lambda: KSLinear.from_budget(64, 32, "1000"), r"at least 128.* got '1000'"),
    ],
)
def test_what_can_not_be_is_refused(call: Any, word: str) -> None:
    with pytest.raises(kronop.ArgumentError, match=word):
        call()
