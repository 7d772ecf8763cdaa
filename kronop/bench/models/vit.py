"""A vision transformer, ViT-S/16 by default, whose linear layers can be Kronecker-sparse.

Dosovitskiy et al., "An image is worth 16x16 words" (arXiv 2010.11929), but with the mean of all
tokens before the head instead of a class token, so that a 224 x 224 image has exactly 196 tokens.
"""

from __future__ import annotations

import copy

import torch
from torch import Tensor, nn
from torch.nn.functional import gelu, scaled_dot_product_attention

from kronop.bench.vit_sizes import LINEAR, Sizes
from kronop.torch.nn import KSLinear

# Numbers in a patch: three colors of 16 x 16 pixels.
PIXELS = 3 * 16 * 16
# The chains of Gonon et al. (arXiv 2405.15013), right-most factor first. As in their model, the
# output projection of the attention stays dense.
_PATTERNS = {
    "project": [(2, 48, 192, 1), (1, 192, 48, 2)],
    "up": [(6, 64, 64, 1), (1, 768, 192, 2)],
    "down": [(6, 64, 256, 1), (1, 128, 128, 3)],
}


def chains() -> tuple[list[tuple[int, int, int, int]], ...]:
    """The patterns of every kind of layer."""
    return tuple(_PATTERNS.values())


class Attention(nn.Module):  # type: ignore[misc]  # mypy sees no types of torch.
    """Self-attention of all tokens."""

    def __init__(self, sizes: Sizes, algorithm: str) -> None:
        super().__init__()
        self.heads = sizes.heads
        self.query = _layer("project", sizes.dim, sizes.dim, algorithm)
        self.key = _layer("project", sizes.dim, sizes.dim, algorithm)
        self.value = _layer("project", sizes.dim, sizes.dim, algorithm)
        self.out = nn.Linear(sizes.dim, sizes.dim)

    def forward(self, x: Tensor) -> Tensor:
        """(images, tokens, dim) to the same."""
        query, key, value = (
            layer(x).unflatten(-1, (self.heads, -1)).transpose(1, 2)
            for layer in (self.query, self.key, self.value)
        )
        mixed = scaled_dot_product_attention(query, key, value)
        return self.out(mixed.transpose(1, 2).flatten(2))


class Block(nn.Module):  # type: ignore[misc]  # mypy sees no types of torch.
    """Attention, then two layers with a GELU between them; both parts follow a normalization."""

    def __init__(self, sizes: Sizes, algorithm: str) -> None:
        super().__init__()
        self.before_attention = nn.LayerNorm(sizes.dim)
        self.attention = Attention(sizes, algorithm)
        self.before_mlp = nn.LayerNorm(sizes.dim)
        self.up = _layer("up", sizes.dim, sizes.mlp, algorithm)
        self.down = _layer("down", sizes.mlp, sizes.dim, algorithm)

    def forward(self, x: Tensor) -> Tensor:
        """(images, tokens, dim) to the same."""
        x = x + self.attention(self.before_attention(x))
        return x + self.down(gelu(self.up(self.before_mlp(x))))


class VisionTransformer(nn.Module):  # type: ignore[misc]  # mypy sees no types of torch.
    """Maps patches of images to scores of classes.

    Args:
        sizes: the sizes of the model.
        algorithm: the algorithm of its Kronecker-sparse layers; LINEAR puts `nn.Linear` in their
            place.
    """

    def __init__(self, sizes: Sizes, algorithm: str) -> None:
        super().__init__()
        self.sizes = sizes
        self.embedding = nn.Linear(PIXELS, sizes.dim)
        self.position = nn.Parameter(0.02 * torch.randn(sizes.tokens, sizes.dim))
        self.blocks = nn.Sequential(*[Block(sizes, algorithm) for _ in range(sizes.depth)])
        self.norm = nn.LayerNorm(sizes.dim)
        self.head = nn.Linear(sizes.dim, sizes.classes)

    def forward(self, patches: Tensor) -> Tensor:
        """(images, tokens, 768) to (images, classes)."""
        x = self.blocks(self.embedding(patches) + self.position)
        return self.head(self.norm(x).mean(1))


def dense_copy(model: VisionTransformer) -> VisionTransformer:
    """The same model in float64, with each Kronecker-sparse layer replaced by its dense matrix."""
    exact = copy.deepcopy(model).double()
    result = VisionTransformer(model.sizes, LINEAR)
    state = {name: v for name, v in exact.state_dict().items() if name in result.state_dict()}
    for name, layer in exact.named_modules():
        if isinstance(layer, KSLinear):
            state[f"{name}.weight"] = layer.get_dense_product()
    result.to(exact.position).load_state_dict(state)
    return result


def _layer(kind: str, inputs: int, outputs: int, algorithm: str) -> nn.Module:
    if algorithm == LINEAR:
        return nn.Linear(inputs, outputs)
    return KSLinear(_PATTERNS[kind], algo=algorithm)
