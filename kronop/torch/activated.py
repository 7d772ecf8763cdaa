"""Operators that apply an activation to what a linear operator computes.

With T the result of kronop::NAME, D = f(T) the one of kronop::NAME_activated and G the gradient of
D, the gradients of D's operands are those of T's for G f'(T).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from kronop.descriptions.activation import BOUNDED
from kronop.frozen import dataclass
from kronop.torch.activations import RULES
from kronop.torch.declaration import Direct, Gradients, Named, Operator, Prepared
from kronop.torch.direct import needs_gradient
from kronop.torch.registration import Registered, register


def register_activated(linear: Registered, operator: Operator) -> Registered:
    """Registers kronop::NAME_activated, whose last argument is the name of an activation.

    Args:
        linear: the operator kronop::NAME.
        operator: its declaration. All its functions but the derivatives may be given `activation`
            too, which is then applied.
    """
    of = _Activated(linear, operator)
    taken, _, returned = operator.schema.rpartition(")")
    return register(
        dataclasses.replace(
            operator,
            schema=f"{taken}, str activation){returned}".replace("(", "_activated(", 1),
            saved=linear.layout.names,
            backward=of.gradients,
            jvp=of.tangent,
            direct=Direct(forward=of.forward, backward=of.backward, prepare=of.prepare),
        )
    )


def chosen(
    linear: Registered, activated: Registered, tensors: Sequence[Tensor | None], is_activated: bool
) -> Callable[..., Any]:
    """What computes a call with these tensors, from the arguments of its operator.

    For graphs with gradients, in which torch.compile fuses activations with what follows, this is
    the linear operator and torch's activation: their gradient needs no further product.
    """
    if is_activated and torch.compiler.is_compiling() and needs_gradient(tensors):
        return lambda *operands: RULES[operands[-1]].of(linear(*operands[:-1]))
    return activated if is_activated else linear


@dataclass(frozen=True, slots=True)
class _Activated:
    """The declared functions of an activated operator (see `register_activated`)."""

    linear: Registered
    operator: Operator

    def _inner(self, given: Named) -> Tensor:
        """T."""
        found: Tensor = self.linear(*(getattr(given, name) for name in self.linear.layout.names))
        return found

    def gradients(self, given: Named, needs: Named, grad: Tensor) -> Gradients:
        inner = RULES[given.activation].slope(grad, self._inner(given))
        return self.operator.backward(given, needs, inner)

    def tangent(self, given: Named, tangents: Named) -> Tensor | None:
        assert self.operator.jvp is not None
        found = self.operator.jvp(given, tangents)
        if found is None:
            return None
        inner = self._inner(given)
        return RULES[given.activation].slope(found.expand_as(inner), inner)

    def forward(self, given: Named, needs: Named) -> tuple[Tensor, tuple[Tensor]]:
        """D, and what the backward finds f'(T) from: D, or else T, which is then rounded before
        f."""
        rule, compute = RULES[given.activation], self.operator.compute
        if rule.keeps_result:
            found = compute(given)
            return found, (found,)
        inner = compute(Named(**{**vars(given), "activation": BOUNDED}))
        return rule.apply(inner), (inner,)

    def backward(self, given: Named, needs: Named, grad: Tensor) -> Gradients:
        assert self.operator.direct is not None
        inner = RULES[given.activation].kept_slope(grad, given.kept[0])
        return self.operator.direct.backward(given, needs, inner)

    def prepare(self, given: Named, needs: Named) -> Prepared | None:
        assert self.operator.prepare is not None
        found = self.operator.prepare(given) if RULES[given.activation].keeps_result else None
        return None if found is None else found.as_forward(keeps_result=True)
