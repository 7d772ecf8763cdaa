"""The kernel calls of a backward: made directly, or recorded so that they can be repeated."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torch import Tensor

from kronop.core.program import Recording
from kronop.families.kron.api import gekmm, gemkm, kron_arguments
from kronop.families.kron.description import Side
from kronop.families.ksparse.gradient_api import gradient_arguments, weight_gradient


class Calls:
    """Calls the public functions."""

    def product(
        self, x: Tensor, factors: Sequence[Tensor], left: bool, alpha: float, out: Tensor
    ) -> None:
        """Calls gekmm (`left`) or gemkm."""
        if left:
            gekmm(factors, x, alpha=alpha, out=out)
        else:
            gemkm(x, factors, alpha=alpha, out=out)

    def weight_gradient(
        self,
        x: Tensor,
        g: Tensor,
        pattern: tuple[int, int, int, int],
        *,
        alpha: float,
        beta: int,
        out: Tensor,
        factors: Sequence[Tensor],
    ) -> None:
        """Computes the gradient of tied weights, and adds it to `out` if `beta` is 1."""
        options: dict[str, Any] = {"tied": True, "alpha": alpha, "beta": beta, "factors": factors}
        weight_gradient(x, g, pattern, z=out if beta else None, out=out, **options)


class NotedCalls(Calls):
    """Makes the same calls through arguments objects, which are recorded."""

    def __init__(self, recording: Recording) -> None:
        self._recording = recording

    def product(
        self, x: Tensor, factors: Sequence[Tensor], left: bool, alpha: float, out: Tensor
    ) -> None:
        side = Side.Left if left else Side.Right
        self._run(kron_arguments(x, factors, side, alpha, out=out))

    def weight_gradient(
        self,
        x: Tensor,
        g: Tensor,
        pattern: tuple[int, int, int, int],
        *,
        alpha: float,
        beta: int,
        out: Tensor,
        factors: Sequence[Tensor],
    ) -> None:
        options: dict[str, Any] = {"tied": True, "alpha": alpha, "beta": beta, "factors": factors}
        source = out if beta else None
        self._run(gradient_arguments(x, g, pattern, z=source, out=out, **options))

    def _run(self, arguments: Any) -> None:
        arguments.operation.run(arguments)
        self._recording.add(arguments)
