"""A small vision transformer learns digits, dense and with less than a fifth of the weights.

Both learn from the same batches of scikit-learn's 1797 images of 8 x 8 pixels, in the same number
of steps; the loss (in nats) and the share of wrong answers are those of images that neither has
seen. The digits come with scikit-learn.

    pip install -e '.[torch]' scikit-learn
    python examples/transformer_with_few_weights.py [--steps 200] [--seeds 1] [--algo kernel]

It takes about a minute on two cores, and prints, beside what was replaced,

    seed 0, dense: 400778 parameters, loss 0.216, 3.7% wrong, 6 s
    seed 0, structured: 67978 parameters, loss 0.262, 4.5% wrong, 13 s

The figures of docs/layers.md, where both models end alike, are those of longer runs:

    python examples/transformer_with_few_weights.py --steps 1200 --seeds 4
    python examples/transformer_with_few_weights.py --steps 600 --seeds 4
"""

from __future__ import annotations

import argparse
import time

import torch
from sklearn.datasets import load_digits
from torch import nn

import kronop
from kronop.torch.nn import KSLinear, patterns, replace_linears

WIDTH, HEADS, DEPTH, BATCH = 128, 4, 2, 64


class Block(nn.Module):
    """Attention and two layers with a GELU between them, each after a normalisation."""

    def __init__(self) -> None:
        super().__init__()
        self.before_attention, self.before_mlp = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.qkv, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.up, self.down = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        qkv = self.qkv(self.before_attention(x)).unflatten(-1, (3, HEADS, -1))
        mixed = nn.functional.scaled_dot_product_attention(*qkv.permute(2, 0, 3, 1, 4))
        x = x + self.out(mixed.transpose(1, 2).flatten(2))
        return x + self.down(nn.functional.gelu(self.up(self.before_mlp(x))))


class Model(nn.Module):
    """(images, 16 patches, 4 pixels) to the logits of ten digits."""

    def __init__(self) -> None:
        super().__init__()
        self.patches = nn.Linear(4, WIDTH)
        self.places = nn.Parameter(0.1 * torch.randn(16, WIDTH))
        self.blocks = nn.Sequential(*(Block() for _ in range(DEPTH)))
        self.end, self.head = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.blocks(self.patches(x) + self.places)
        return self.head(self.end(x).mean(1))


def choose(name: str, linear: nn.Linear) -> list[tuple[int, int, int, int]] | None:
    """A sixth of the weights for every layer in a block; those at both ends are small."""
    if "blocks" not in name:
        return None
    n_in, n_out = linear.in_features, linear.out_features
    return patterns.within_budget(n_in, n_out, n_in * n_out * 16 // 100)


def digits() -> tuple[torch.Tensor, torch.Tensor]:
    """(images, 16, 4) in 0 to 1, in an order that is always the same, and their digits."""
    given = load_digits()
    order = torch.randperm(len(given.target), generator=torch.Generator().manual_seed(0))
    images = torch.tensor(given.images, dtype=torch.float32) / 16
    patches = images.unflatten(2, (4, 2)).unflatten(1, (4, 2)).transpose(2, 3)
    return patches.flatten(3).flatten(1, 2)[order], torch.tensor(given.target)[order]


def train(model: Model, rate: float, steps: int) -> tuple[float, float]:
    """The loss and the share of wrong answers of the last third of the images, after so many steps
    with the others."""
    x, y = digits()
    cut = len(x) * 2 // 3
    generator = torch.Generator().manual_seed(0)
    optimizer = torch.optim.AdamW(model.parameters(), lr=rate, weight_decay=0.05)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, rate, steps, pct_start=0.1)
    for _ in range(steps):
        at = torch.randint(cut, (BATCH,), generator=generator)
        loss = nn.functional.cross_entropy(model(x[at]), y[at], label_smoothing=0.1)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
    with torch.no_grad():
        logits = model(x[cut:])
    wrong = (logits.argmax(1) != y[cut:]).float().mean()
    return nn.functional.cross_entropy(logits, y[cut:]).item(), wrong.item()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--algo", default="kernel", help="kernel (kronop's), or torch's bmm")
    options = parser.parse_args()
    for seed in range(options.seeds):
        for kind, rate in (("dense", 1e-3), ("structured", 6e-3)):
            torch.manual_seed(seed)
            model = Model()
            if kind == "structured":
                report = replace_linears(model, choose, from_weights=False)
                for layer in model.modules():
                    if isinstance(layer, KSLinear):
                        layer.algo = options.algo
                if seed == 0:
                    print(report)
                    kronop.warmup(model, digits()[0][:BATCH])  # All kernels of a step at once.
            begin = time.perf_counter()
            loss, wrong = train(model, rate, options.steps)
            print(
                f"seed {seed}, {kind}: {sum(p.numel() for p in model.parameters())} parameters,"
                f" loss {loss:.3f}, {wrong:.1%} wrong, {time.perf_counter() - begin:.0f} s"
            )


if __name__ == "__main__":
    main()
