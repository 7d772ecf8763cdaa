"""A residual block of a network of images, trained with kronop's convolutions.

Two convolutions of 3 x 3 pixels and a shortcut of one pixel learn to tell where bright spots are.
The same block of torch's layers has the same parameters, and learns the same.

    pip install -e '.[torch]'
    python examples/residual_block.py [--steps 30]

It runs on the GPU that torch finds, or else on the CPU, and prints

    step   0: loss 0.7626, torch's 0.7626
    step  10: loss 0.6219, torch's 0.6219
    step  20: loss 0.1746, torch's 0.1746
    step  30: loss 0.0385, torch's 0.0385
    largest difference of a parameter 8.9e-08

docs/conv2d.md explains the layer.
"""

from __future__ import annotations

import argparse
from typing import Any

import torch
from torch import Tensor, nn

import kronop.torch.nn

CHANNELS, PIXELS, BATCH = 16, 16, 32


class Block(nn.Module):
    """relu(shortcut(x) + second(relu(first(x)))), of half as many pixels along each axis.

    `make` makes its convolutions: kronop's apply relu in the kernel.
    """

    def __init__(self, make: Any, inputs: int, outputs: int, activated: dict[str, str]) -> None:
        super().__init__()
        self.first = make(inputs, outputs, 3, stride=2, padding=1, **activated)
        self.second = make(outputs, outputs, 3, padding=1)
        self.shortcut = make(inputs, outputs, 1, stride=2, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        inner = self.first(x)
        # relu of what has it already is the same.
        return torch.relu(self.shortcut(x) + self.second(torch.relu(inner)))


def network(make: Any, activated: dict[str, str]) -> nn.Sequential:
    block = Block(make, 3, CHANNELS, activated)
    return nn.Sequential(block, make(CHANNELS, 1, 1), nn.AdaptiveMaxPool2d(1), nn.Flatten(0))


def images(generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Noise, in half of the images with a bright spot; and which ones have it."""
    x = torch.randn(BATCH, 3, PIXELS, PIXELS, generator=generator)
    wanted = torch.rand(BATCH, generator=generator) < 0.5
    x[wanted, :, 5:8, 6:9] += 2
    return x.to(memory_format=torch.channels_last), wanted.float()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=30)
    steps = parser.parse_args().steps
    device = "cuda" if torch.cuda.is_available() else "cpu"
    torch.manual_seed(0)
    generator = torch.Generator().manual_seed(0)
    theirs = network(nn.Conv2d, {}).to(device, memory_format=torch.channels_last)
    ours = network(kronop.torch.nn.Conv2d, {"activation": "relu"}).to(device)
    ours.load_state_dict(theirs.state_dict())
    models = (ours, theirs)
    trained = [torch.optim.Adam(model.parameters(), lr=0.01) for model in models]
    judge = nn.BCEWithLogitsLoss()
    for step in range(steps + 1):
        x, wanted = (item.to(device) for item in images(generator))
        losses = []
        for model, optimizer in zip(models, trained, strict=True):
            optimizer.zero_grad()
            loss = judge(model(x), wanted)
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
        if step % 10 == 0:
            print(f"step {step:3d}: loss {losses[0]:.4f}, torch's {losses[1]:.4f}")
    pairs = zip(ours.parameters(), theirs.parameters(), strict=True)
    largest = max((one - other).abs().max().item() for one, other in pairs)
    print(f"largest difference of a parameter {largest:.1e}")
    assert largest < 1e-2
    assert abs(losses[0] - losses[1]) < 1e-3


if __name__ == "__main__":
    main()
