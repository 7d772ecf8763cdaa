"""Activations on torch tensors, with their derivatives: torch's own functions, one kernel each.

They have derivatives themselves, in both modes, and rules for vmap and torch.compile.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import torch
from torch import Tensor

from kronop.descriptions.activation import leaky_relu
from kronop.descriptions.datatype import float32
from kronop.descriptions.expression import BOUND
from kronop.frozen import dataclass

_aten = torch.ops.aten
((_, _LEAK),) = leaky_relu(float32).parameters


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """One activation y = f(t).

    Attributes:
        apply: t -> y.
        slope: (g, t) -> g f'(t), with derivatives.
        kept_slope: the same without derivatives, from what is kept for it.
        keeps_result: y is kept, which tells f'(t); otherwise t is, and has to be bounded before: of
            minus infinity torch's functions give NaN.
    """

    apply: Callable[[Tensor], Tensor]
    slope: Callable[[Tensor, Tensor], Tensor]
    kept_slope: Callable[[Tensor, Tensor], Tensor]
    keeps_result: bool = False

    def of(self, t: Tensor) -> Tensor:
        """f(t) for every t."""
        return self.apply(t if self.keeps_result else t.clamp(min=BOUND))


def _leaky(g: Tensor, t: Tensor) -> Tensor:
    # The slope for negative numbers is positive, so that y has the sign of t.
    return _aten.leaky_relu_backward(g, t, _LEAK, False)


def _rectified(g: Tensor, t: Tensor) -> Tensor:
    return _aten.threshold_backward(g, t, 0)


def _within(t: Tensor) -> Tensor:
    """t where slopes change; torch's slopes of infinite ones are NaN."""
    return t.clamp(BOUND, -BOUND)


def _silu_slope(g: Tensor, t: Tensor) -> Tensor:
    # NOTE: torch 2.13's silu_backward has no derivative.
    t = _within(t)
    y = torch.sigmoid(t)
    return g * y * (1 + t * (1 - y))


RULES: Mapping[str, Rule] = {
    "relu": Rule(apply=torch.relu, slope=_rectified, kept_slope=_rectified, keeps_result=True),
    "leaky_relu": Rule(
        apply=lambda t: torch.nn.functional.leaky_relu(t, _LEAK),
        slope=_leaky,
        kept_slope=_leaky,
        keeps_result=True,
    ),
    "tanh": Rule(
        apply=torch.tanh,
        slope=lambda g, t: _aten.tanh_backward(g, torch.tanh(t)),
        kept_slope=_aten.tanh_backward,
        keeps_result=True,
    ),
    "sigmoid": Rule(
        apply=torch.sigmoid,
        slope=lambda g, t: _aten.sigmoid_backward(g, torch.sigmoid(t)),
        kept_slope=_aten.sigmoid_backward,
        keeps_result=True,
    ),
    "silu": Rule(apply=torch.nn.functional.silu, slope=_silu_slope, kept_slope=_aten.silu_backward),
    "hardswish": Rule(
        apply=torch.nn.functional.hardswish,
        slope=_aten.hardswish_backward,
        kept_slope=_aten.hardswish_backward,
    ),
    "gelu": Rule(
        apply=torch.nn.functional.gelu,
        slope=lambda g, t: _aten.gelu_backward(g, _within(t)),
        kept_slope=_aten.gelu_backward,
    ),
}
