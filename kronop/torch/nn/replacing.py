"""Replaces the dense layers of a model by Kronecker-sparse ones."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Sequence

import torch
from torch.nn.modules.linear import NonDynamicallyQuantizableLinear

from kronop.errors import ArgumentError, ElementTypeError
from kronop.families.ksparse.description import Pattern
from kronop.frozen import dataclass
from kronop.torch.nn.checks import check_linear_shapes
from kronop.torch.nn.kslinear import KSLinear
from kronop.torch.nn.patterns import within_budget

Choice = Callable[[str, torch.nn.Linear], Sequence[Sequence[int]] | None]

# Subclasses may compute something else: those of adapters and of quantisation do.
# NonDynamicallyQuantizableLinear is the output projection of torch.nn.MultiheadAttention.
_DENSE = (torch.nn.Linear, NonDynamicallyQuantizableLinear)


@dataclass(frozen=True, slots=True, kw_only=True)
class Replaced:
    """A layer that was replaced.

    Attributes:
        name: its name in the model.
        in_features, out_features: its features.
        patterns: those of the new layer, the right-most factor first.
        error: `|W - K_1 ... K_L| / |W|` of the projected weight; None for fresh weights.
    """

    name: str
    in_features: int
    out_features: int
    patterns: tuple[Pattern, ...]
    error: float | None

    @property
    def dense_weights(self) -> int:
        """The number of weights before, without the bias."""
        return self.in_features * self.out_features

    @property
    def weights(self) -> int:
        """The number of weights now."""
        return sum(math.prod(pattern) for pattern in self.patterns)

    def __str__(self) -> str:
        error = "" if self.error is None else f", error {self.error:.3f}"
        return (
            f"{self.name}: {self.in_features} -> {self.out_features} by {[*self.patterns]},"
            f" {_change(self.dense_weights, self.weights, 'weights')}{error}"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """What `replace_linears` did; `print` shows it.

    Attributes:
        layers: the replaced layers, in the model's order.
        kept: the names of the dense layers that stay, and why.
        parameters: the numbers of the model's parameters before and now, all counted once.

    Example:
        >>> import torch
        >>> model = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.Linear(64, 2))
        >>> report = kronop.torch.nn.replace_linears(model, 0.25)
        >>> print(report)
        0: 64 -> 64 by [(...)], 4096 -> 1024 weights (25%), error 0...
        1: kept, since 0.25 of its weights are 32, and a product of these sizes has at least 66: ...
        4290 -> 1218 parameters of the model (28%)
        8192 -> 2048 flops for a row of each replaced layer (25%)
        >>> report.flops
        (8192, 2048)
    """

    layers: tuple[Replaced, ...]
    kept: dict[str, str]
    parameters: tuple[int, int]

    @property
    def flops(self) -> tuple[int, int]:
        """The operations that all replaced layers together do for one row, before and now. Each
        weight is a multiplication and an addition."""
        before = sum(layer.dense_weights for layer in self.layers)
        return 2 * before, 2 * sum(layer.weights for layer in self.layers)

    def __str__(self) -> str:
        return "\n".join(
            (
                *map(str, self.layers),
                *(f"{name}: kept, {why}" for name, why in self.kept.items()),
                _change(*self.parameters, "parameters of the model"),
                _change(*self.flops, "flops for a row of each replaced layer"),
            )
        )


def replace_linears(
    model: torch.nn.Module, choose: float | Choice, from_weights: bool = True
) -> Report:
    """Puts a `KSLinear` in the place of each chosen `torch.nn.Linear` of the model, in place.

    New layers have the bias, type, device and mode of the old ones, and want gradients if these
    did. An optimizer made before has the old parameters: make it afterwards. Layers stay dense
    whose weight or bias also belongs to another module, as to an embedding, or is computed from
    others (by pruning or a normalisation), and those with hooks: a new layer would drop these.

    Args:
        model: a torch.nn.Module that contains torch.nn.Linear modules.
        choose: the share of its weights that each layer may keep (see `patterns.within_budget`), or
            a function of a layer's name and the layer that gives its patterns, or None to keep it.
        from_weights: whether the factors approximate the weight, by `KSLinear.from_linear`, or are
            drawn anew.

    Returns:
        Parameters, operations and errors, of each layer and of all.

    Raises:
        ArgumentError: the model is a torch.nn.Linear itself, a share is not between 0 and 1, or
            patterns do not fit.
        ElementTypeError: `model` is no module, or `choose` neither number nor function.

    Example:
        >>> import torch
        >>> model = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.Linear(64, 10))
        >>> def choose(name, linear):
        ...     is_square = linear.in_features == linear.out_features
        ...     return kronop.torch.nn.patterns.butterfly(64) if is_square else None
        >>> report = kronop.torch.nn.replace_linears(model, choose, from_weights=False)
        >>> [type(layer).__name__ for layer in model], report.kept
        (['KSLinear', 'Linear'], {'1': 'as chosen'})
        >>> report.parameters
        (4810, 1482)
    """
    choice = _by_share(choose) if isinstance(choose, (int, float)) else choose
    _check(model, choice)
    before = _count(model)
    owners = Counter(id(p) for m in model.modules() for p in m._parameters.values())
    dense = {n: m for n, m in model.named_modules() if type(m) in _DENSE}
    layers: list[Replaced] = []
    kept: dict[str, str] = {}
    made: dict[int, KSLinear] = {}
    for name, linear in dense.items():
        reason = _reason_to_keep(linear, owners)
        if reason is not None:
            kept[name] = reason
            continue
        chain = choice(name, linear)
        if chain is None:
            kept[name] = (
                _too_few(choose, linear) if isinstance(choose, (int, float)) else "as chosen"
            )
            continue
        layer = made[id(linear)] = _layer(linear, chain, from_weights)
        features = {"in_features": layer.in_features, "out_features": layer.out_features}
        error = layer.projection_error
        layers.append(Replaced(name=name, patterns=layer.patterns, error=error, **features))
    _put(model, made)
    return Report(layers=tuple(layers), kept=kept, parameters=(before, _count(model)))


def _by_share(share: float) -> Choice:
    if not 0 < share < 1:
        raise ArgumentError("choose", expected="a share between 0 and 1", got=share, hint="as 0.2")

    def choose(name: str, linear: torch.nn.Linear) -> Sequence[Pattern] | None:
        budget = _budget(share, linear)
        sizes = linear.in_features, linear.out_features
        return within_budget(*sizes, budget) if budget >= sum(sizes) else None

    return choose


def _budget(share: float, linear: torch.nn.Linear) -> int:
    return int(share * linear.in_features * linear.out_features)


def _too_few(share: float, linear: torch.nn.Linear) -> str:
    """Why a share of the layer's weights makes no product of factors."""
    n_in, n_out = linear.in_features, linear.out_features
    return (
        f"since {share:g} of its weights are {_budget(share, linear)}, and a product of these sizes"
        f" has at least {n_in + n_out}: {n_in} + {n_out}"
    )


def _check(model: torch.nn.Module, choose: object) -> None:
    if not isinstance(model, torch.nn.Module):
        kind = type(model).__name__
        raise ElementTypeError(
            "model", expected="a torch.nn.Module", got=kind, hint="give the whole model"
        )
    if isinstance(model, torch.nn.Linear):
        raise ArgumentError(
            "model",
            expected="a module that contains torch.nn.Linear modules",
            got="one itself",
            hint="KSLinear.from_linear makes a layer of one",
        )
    if not callable(choose):
        raise ElementTypeError(
            "choose",
            expected="a share or a function of (name, linear)",
            got=type(choose).__name__,
            hint="the function gives a list of patterns, or None to keep a layer",
        )


def _layer(
    linear: torch.nn.Linear, patterns: Sequence[Sequence[int]], from_weights: bool
) -> KSLinear:
    """The layer to put in the place of a dense one."""
    if from_weights:
        layer = KSLinear.from_linear(linear, patterns)
    else:
        place = {"dtype": linear.weight.dtype, "device": linear.weight.device}
        layer = KSLinear(patterns, bias=linear.bias is not None, **place)
        check_linear_shapes(linear, layer.patterns)
    for weight in layer.weights:
        weight.requires_grad_(linear.weight.requires_grad)
    if linear.bias is not None:
        layer.bias.requires_grad_(linear.bias.requires_grad)
    layer.train(linear.training)
    return layer


def _reason_to_keep(linear: torch.nn.Linear, owners: Counter[int]) -> str | None:
    """What a new layer in the place of this one would drop, for the report; None if nothing."""
    for name in ("weight", "bias"):
        if name not in linear._parameters:
            return f"its {name} is computed from others"
        if linear._parameters[name] is not None and owners[id(linear._parameters[name])] > 1:
            return f"its {name} also belongs to another module"
    of_module = [hooks for name, hooks in vars(linear).items() if name.endswith("_hooks")]
    of_tensors = [
        hooks
        for item in linear.parameters()
        for hooks in (item._backward_hooks, item._post_accumulate_grad_hooks)
    ]
    return "it has hooks" if any([*of_module, *of_tensors]) else None


def _put(model: torch.nn.Module, made: dict[int, KSLinear]) -> None:
    """Replaces the modules with these ids everywhere in the model."""
    for module in [*model.modules()]:
        for name, child in [*module._modules.items()]:
            if id(child) in made:
                setattr(module, name, made[id(child)])


def _count(model: torch.nn.Module) -> int:
    """The number of parameters, without those of lazy modules that have no shape yet."""
    lazy = torch.nn.parameter.UninitializedTensorMixin
    return sum(item.numel() for item in model.parameters() if not isinstance(item, lazy))


def _change(before: int, now: int, what: str) -> str:
    share = f" ({now / before:.0%})" if before else ""
    return f"{before} -> {now} {what}{share}"
