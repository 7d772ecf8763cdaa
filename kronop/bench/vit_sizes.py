"""What is said of a vision transformer without torch: its sizes, and the name of torch's layers."""

from __future__ import annotations

from dataclasses import dataclass

LINEAR = "linear"


@dataclass(frozen=True, slots=True, kw_only=True)
class Sizes:
    """The sizes of a model; the chains require the default `dim` and `mlp`."""

    dim: int = 384
    depth: int = 12
    heads: int = 6
    mlp: int = 1536
    tokens: int = 196
    classes: int = 1000
