"""kronop.torch.nn.replace_linears: which layers it replaces, by what, and what it reports."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch.nn.utils import prune  # noqa: E402

import kronop  # noqa: E402
from kronop.torch.nn import KSLinear, patterns, replace_linears  # noqa: E402


class _Tied(torch.nn.Module):
    """A linear layer in two places, and one whose weight is also an embedding's."""

    def __init__(self) -> None:
        super().__init__()
        self.table = torch.nn.Embedding(32, 16)
        self.body = torch.nn.Sequential(torch.nn.Linear(16, 16), torch.nn.ReLU())
        self.again = self.body[0]
        self.head = torch.nn.Linear(16, 32, bias=False)
        self.head.weight = self.table.weight

    def forward(self, x: Any) -> Any:
        return self.head(self.again(self.body(self.table(x))))


def _count(model: Any) -> int:
    return sum(parameter.numel() for parameter in model.parameters())


def test_layers_near_to_their_weights_give_nearly_the_same() -> None:
    torch.manual_seed(0)
    chain = patterns.monarch(16, 16, 4)
    model = torch.nn.Sequential(
        torch.nn.Linear(16, 16), torch.nn.Tanh(), torch.nn.Linear(16, 16, bias=False)
    ).double()
    with torch.no_grad():  # The first one is such a product, the second one is not.
        model[0].weight.copy_(KSLinear(chain, dtype=torch.float64).weight)
    model[2].requires_grad_(False)
    model.eval()
    old, x = model[2], torch.randn(5, 16, dtype=torch.float64)
    hidden, before = model[:2](x).detach(), _count(model)
    report = replace_linears(model, lambda name, linear: chain)
    torch.testing.assert_close(model[:2](x), hidden)
    assert all(isinstance(model[at], KSLinear) for at in (0, 2))
    assert (model[0].weights[0].dtype, model[2].bias, model[2].training) == (
        torch.float64,
        None,
        False,
    )
    assert model[0].weights[1].requires_grad
    assert not any(parameter.requires_grad for parameter in model[2].parameters())
    assert [layer.name for layer in report.layers] == ["0", "2"]
    first, second = (layer.error for layer in report.layers)
    right = float((model[2].weight - old.weight).norm() / old.weight.norm())
    assert first < 1e-13
    assert second == pytest.approx(right)
    assert 0.1 < second < 1
    assert report.parameters == (before, _count(model))
    assert (report.layers[0].dense_weights, report.layers[0].weights) == (256, 128)
    assert report.flops == (2 * 512, 2 * 256)
    text = str(report)
    assert "256 -> 128 weights (50%), error 0.000" in text
    assert "1024 -> 512 flops for a row of each replaced layer (50%)" in text


def test_a_share_a_choice_and_fresh_weights() -> None:
    model = torch.nn.ModuleDict(
        {"up": torch.nn.Linear(64, 128), "head": torch.nn.Linear(64, 2, dtype=torch.float64)}
    )
    report = replace_linears(model, 0.2, from_weights=False)
    # A fifth of 128 weights reaches not all features.
    few = "since 0.2 of its weights are 25, and a product of these sizes has at least 66: 64 + 2"
    assert report.kept == {"head": few}
    assert model["up"].projection_error is report.layers[0].error is None
    assert report.layers[0].weights <= 0.2 * 64 * 128
    assert "head: kept" in str(report)
    assert replace_linears(model, lambda name, linear: None).layers == ()


def test_layers_in_two_places_stay_one_and_tied_weights_stay_tied() -> None:
    model = _Tied()
    report = replace_linears(model, 0.5)
    assert isinstance(model.again, KSLinear)
    assert model.again is model.body[0]
    assert model.head.weight is model.table.weight
    assert report.kept == {"head": "its weight also belongs to another module"}
    assert [layer.name for layer in report.layers] == ["body.0"]
    assert model(torch.tensor([3])).shape == (1, 32)


def test_layers_that_are_more_than_linear_ones_stay() -> None:
    class Adapted(torch.nn.Linear):
        pass

    model = torch.nn.Sequential(Adapted(16, 16), torch.nn.LazyLinear(16), torch.nn.Linear(16, 16))
    torch.nn.utils.parametrizations.weight_norm(model[2])
    assert replace_linears(model, 0.5).layers == ()


def test_layers_of_which_a_new_one_would_drop_something_stay() -> None:
    linears = [torch.nn.Linear(16, 16) for _ in range(10)]
    lazy = torch.nn.LazyLinear(16)
    model = torch.nn.ModuleList([*linears, lazy])
    lazy(torch.ones(2, 16))  # From here on an ordinary one.
    linears[0].register_forward_hook(lambda *given: None)
    linears[1].register_full_backward_hook(lambda *given: None)
    linears[2].weight.register_hook(lambda grad: grad)
    linears[3].bias.register_post_accumulate_grad_hook(lambda bias: None)
    prune.l1_unstructured(linears[4], "weight", 3)
    prune.l1_unstructured(linears[5], "bias", 3)
    torch.nn.utils.spectral_norm(linears[6])
    linears[7].bias = linears[8].bias
    report = replace_linears(model, 0.5, from_weights=False)
    hooks, computed, shared = "it has hooks", "is computed from others", "also belongs to another"
    reasons = [*[hooks] * 4, computed, f"bias {computed}", computed, *[f"bias {shared}"] * 2]
    assert [*report.kept] == [str(index) for index in range(9)]
    assert all(reason in text for reason, text in zip(reasons, report.kept.values(), strict=True))
    assert [layer.name for layer in report.layers] == ["9", "10"]


_BAD = [
    (torch.nn.Linear(16, 16), 0.5, kronop.ArgumentError, "KSLinear.from_linear"),
    (None, 0.5, kronop.ElementTypeError, "torch.nn.Module, got NoneType"),
    (torch.nn.ReLU(), "half", kronop.ElementTypeError, "got str"),
    (torch.nn.ReLU(), 1.5, kronop.ArgumentError, "between 0 and 1, got 1.5"),
    (
        torch.nn.Sequential(torch.nn.Linear(16, 8)),
        lambda name, linear: [(1, 8, 8, 1)],
        kronop.ArgumentError,
        "chain from 16 features to 8",
    ),
]


@pytest.mark.parametrize(("model", "choose", "error", "word"), _BAD)
@pytest.mark.parametrize("from_weights", [False, True])
def test_what_does_not_fit_is_refused(
    model: Any, choose: Any, error: Any, word: str, from_weights: bool
) -> None:
    with pytest.raises(error, match=word):
        replace_linears(model, choose, from_weights)
