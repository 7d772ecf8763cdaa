"""Times of whole models as a table."""

from __future__ import annotations

from collections.abc import Sequence

from kronop.bench.report import Told, machine_text
from kronop.bench.table import Table, error_text, milliseconds
from kronop.bench.vit import LINEAR_TF32, Measured, Setting
from kronop.bench.vit_sizes import LINEAR

TABLE = Table(
    (
        *(("type", 9), ("layers", 12), ("inference ms", 22), ("in a CUDA graph", 22)),
        *(("training step ms", 22), ("loss", 16), ("error", 8)),
    )
)


def head(setting: Setting, machine: Told) -> str:
    """The lines above the table: the machine and the model's sizes."""
    sizes = setting.sizes
    return (
        f"{machine_text(machine)}\n{setting.images} images of {sizes.tokens} tokens, dim"
        f" {sizes.dim}, depth {sizes.depth}, {sizes.heads} heads, mlp {sizes.mlp}; in brackets:"
        f" time over that with {LINEAR} layers, and over {LINEAR_TF32}"
    )


def lines(found: Sequence[Measured]) -> list[str]:
    """A line for each model of one element type, followed by its failures."""
    told = []
    for item in found:
        losses = f"{item.losses[0]:.3f} to {item.losses[-1]:.3f}" if item.losses else "-"
        cells = [
            item.dtype,
            item.algorithm,
            *(_time(name, item, found) for name in ("eager_ms", "graph_ms", "step_ms")),
            losses,
            error_text(item.error),
        ]
        told.append(TABLE.line(cells))
        told += [f"  {reason}" for reason in item.reasons]
    return told


def _time(name: str, item: Measured, found: Sequence[Measured]) -> str:
    value: float | None = getattr(item, name)
    shares = [
        f"{value / base:.2f}"
        for other in found
        if other.algorithm in (LINEAR, LINEAR_TF32) and value and (base := getattr(other, name))
    ]
    return milliseconds(value) + (f" ({', '.join(shares)})" if shares else "")
