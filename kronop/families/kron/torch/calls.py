"""The calls that a backward is made of: as they are, or noted so that it can be repeated."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from kronop.core.program import Recording
from kronop.families.kron.api import gekmm, gemkm, kron_arguments
from kronop.families.kron.description import Side
from kronop.families.ksparse.gradient_api import gradient_arguments, weight_gradient


class Calls:
    """Calls of the functions."""

    def product(self, x: Any, factors: Sequence[Any], left: bool, alpha: Any, out: Any) -> None:
        """gekmm (`left`) or gemkm."""
        if left:
            gekmm(factors, x, alpha=alpha, out=out)
        else:
            gemkm(x, factors, alpha=alpha, out=out)

    def weight_gradient(
        self,
        x: Any,
        g: Any,
        pattern: tuple[int, int, int, int],
        *,
        alpha: Any,
        beta: int,
        out: Any,
        factors: Sequence[Any],
    ) -> None:
        """Of tied weights, added to `out` where `beta` is 1."""
        options = {"tied": True, "alpha": alpha, "beta": beta, "factors": factors}
        weight_gradient(x, g, pattern, z=out if beta else None, out=out, **options)


class NotedCalls(Calls):
    """The same, through arguments that a recording notes."""

    def __init__(self, recording: Recording) -> None:
        self._recording = recording

    def product(self, x: Any, factors: Sequence[Any], left: bool, alpha: Any, out: Any) -> None:
        side = Side.Left if left else Side.Right
        self._run(kron_arguments(x, factors, side, alpha, out=out))

    def weight_gradient(
        self,
        x: Any,
        g: Any,
        pattern: tuple[int, int, int, int],
        *,
        alpha: Any,
        beta: int,
        out: Any,
        factors: Sequence[Any],
    ) -> None:
        options = {"tied": True, "alpha": alpha, "beta": beta, "factors": factors}
        source = out if beta else None
        self._run(gradient_arguments(x, g, pattern, z=source, out=out, **options))

    def _run(self, arguments: Any) -> None:
        arguments.operation.run(arguments)
        self._recording.add(arguments)
