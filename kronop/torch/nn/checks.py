"""Checks that a layer with Kronecker-sparse weights makes when it is built or called."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from kronop.descriptions.tile import whole
from kronop.errors import ArgumentError, ElementTypeError, converting
from kronop.families.ksparse.description import Pattern, check_chain, inputs_of, outputs_of
from kronop.families.ksparse.shape_arguments import check_features
from kronop.torch.autocasting import is_casting
from kronop.torch.checks import LISTS

_TYPES = (torch.float32, torch.float16, torch.bfloat16, torch.float64)


def checked_patterns(patterns: object) -> tuple[Pattern, ...]:
    """The patterns as tuples of integers.

    Raises:
        ElementTypeError: `patterns` is not a list or tuple with at least one item.
        ArgumentError: an item is not four positive integers, or the patterns do not chain.
    """
    sizes = checked_sizes("patterns", patterns, ("a", "b", "c", "d"), "the right-most factor first")
    found = tuple((a, b, c, d) for a, b, c, d in sizes)
    check_chain(found, "patterns", ArgumentError)
    return found


def checked_sizes(
    subject: str, given: object, names: Sequence[str], order: str
) -> tuple[tuple[int, ...], ...]:
    """A list of sizes of factors, as tuples of integers.

    Args:
        subject: what messages call the list.
        names: those of the sizes of each factor.
        order: which factor comes first.

    Raises:
        ElementTypeError: `given` is not a list or tuple with at least one item.
        ArgumentError: an item is not as many positive integers as there are names.
    """
    form = f"({', '.join(names)})"
    if not isinstance(given, (list, tuple)) or not given:
        raise ElementTypeError(
            subject,
            expected=f"a list of at least one {form}",
            got=repr(given),
            hint=f"give one for each factor, {order}",
        )
    found = []
    for index, item in enumerate(given):
        is_listed = isinstance(item, (list, tuple, torch.Size))
        each = [*map(whole, item)] if is_listed else []
        sizes = [size for size in each if type(size) is int and size > 0]
        if not len(sizes) == len(each) == len(names):
            raise ArgumentError(
                f"{subject}[{index}]",
                expected=f"{len(names)} positive integers {form}",
                got=repr(item),
                hint=f"{subject} are a list also where one is given",
            )
        found.append(tuple(sizes))
    return tuple(found)


def check_layer_weights(weights: object, patterns: Sequence[Pattern]) -> None:
    """Refuses weights that are not a list of tensors in the shapes of the patterns."""
    hint = "give one (a, b, c, d) for each pattern, in their order, or None"
    if not isinstance(weights, LISTS):
        kind = type(weights).__name__
        raise ElementTypeError("weights", expected="a list of torch tensors", got=kind, hint=hint)
    for index, item in enumerate(weights):
        if not isinstance(item, Tensor):
            kind = type(item).__name__
            raise ElementTypeError(
                f"weights[{index}]", expected="a torch tensor", got=kind, hint=hint
            )
    shapes = [tuple(item.shape) for item in weights]
    if shapes != [*patterns]:
        raise ArgumentError("shapes of weights", expected=[*patterns], got=shapes, hint=hint)


def check_type(subject: str, dtype: object) -> None:
    """Refuses an element type that the layer's parameters can't have."""
    if dtype not in _TYPES:
        raise ElementTypeError(
            subject,
            expected=f"one of {', '.join(str(item) for item in _TYPES)}",
            got=repr(dtype),
            hint="parameters are floats",
        )


def check_operand(x: object, weight: Tensor, batch_last: bool) -> None:
    """Refuses an operand that does not fit a layer's first weights; torch's operations would refuse
    it too, but with less helpful messages."""
    if not isinstance(x, Tensor):
        raise ElementTypeError(
            "x", expected="a torch tensor", got=type(x).__name__, hint="see torch.as_tensor"
        )
    check_features(tuple(x.shape), weight.shape, batch_last)
    if x.dtype != weight.dtype and not is_casting(x.device.type):
        raise ElementTypeError(
            "element type of x",
            expected=f"{weight.dtype}, that of the layer",
            got=x.dtype,
            hint=converting(x.dtype, "convert x, or the layer with .to(), or use torch.autocast"),
        )


def check_linear(linear: torch.nn.Module, patterns: Sequence[Pattern]) -> None:
    """Refuses a module without a weight of the chain's shape with finite values."""
    check_linear_shapes(linear, patterns)
    weight = linear.weight
    if weight.is_meta or not bool(weight.detach().isfinite().all()):
        raise ArgumentError(
            "linear.weight",
            expected="finite values",
            got="none, on the meta device" if weight.is_meta else "infinite ones or NaN",
            hint="load or initialise the layer first",
        )


def check_linear_shapes(linear: torch.nn.Module, patterns: Sequence[Pattern]) -> None:
    """Refuses a module without a weight of the chain's shape."""
    weight, bias = getattr(linear, "weight", None), getattr(linear, "bias", None)
    is_made = not isinstance(weight, torch.nn.parameter.UninitializedTensorMixin)
    if not isinstance(weight, Tensor) or not is_made or weight.dim() != 2:
        raise ElementTypeError(
            "linear",
            expected="a torch.nn.Linear, or a module with a weight (out, in)",
            got=_described(linear, weight if is_made else None),
            hint="give the layer whose weight is to be approximated",
        )
    check_type("element type of linear.weight", weight.dtype)
    expected = (inputs_of(patterns[0]), outputs_of(patterns[-1]))
    out, features = weight.shape
    if (features, out) != expected:
        raise ArgumentError(
            "patterns",
            expected=f"a chain from {features} features to {out}, those of linear",
            got=f"one from {expected[0]} (a c d of the first) to {expected[1]} (a b d of the last)",
            hint="list the right-most factor, which is applied first, first",
        )
    if bias is not None and (not isinstance(bias, Tensor) or tuple(bias.shape) != (out,)):
        raise ArgumentError(
            "linear.bias",
            expected=f"None or a tensor ({out},)",
            got=tuple(bias.shape) if isinstance(bias, Tensor) else type(bias).__name__,
            hint="the bias has a value for each output",
        )


def _described(linear: object, weight: object) -> str:
    """Says in a message what was given instead of a linear layer."""
    kind = type(linear).__name__
    if isinstance(weight, Tensor):
        return f"{kind} with a weight of shape {tuple(weight.shape)}"
    return kind if weight is None else f"{kind} with a weight of {type(weight).__name__}"
