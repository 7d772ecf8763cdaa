"""Activations: functions that an epilogue may apply to its linear combination."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal, get_args, overload

from kronop.descriptions.datatype import DataType, float32, float64
from kronop.descriptions.expression import BOUND, Expression, apply, variable
from kronop.descriptions.traced import Reduced, Traced
from kronop.errors import DescriptionError
from kronop.frozen import dataclass

# What is done before an activation that falls to 0 where another framework computes that one, and
# would give NaN for minus infinity.
BOUNDED = "bounded"


@dataclass(frozen=True, slots=True)
class Activation:
    """An activation for LinearCombinationGeneric.

    Args:
        name: one of ACTIVATION_NAMES.
        element_epilogue: the type in which it is computed, float32 or float64.
        parameters: names and defaults of its run-time scalars, those of its expression.

    Raises:
        DescriptionError: the name or the type is invalid, or the parameters are others.
    """

    name: str
    element_epilogue: DataType
    parameters: tuple[tuple[str, float], ...] = ()

    def __post_init__(self) -> None:
        if self.name not in (*ACTIVATION_NAMES, BOUNDED):
            raise DescriptionError(
                "activation",
                expected=f"one of {', '.join(ACTIVATION_NAMES)}",
                got=repr(self.name),
                hint="apply other functions to the result",
            )
        self._check_parameters()
        if self.element_epilogue not in (float32, float64):
            raise DescriptionError(
                f"activation {self.name}",
                expected="float32 or float64",
                got=repr(self.element_epilogue),
                hint="activations are computed in floating point",
            )

    def _check_parameters(self) -> None:
        """Refuses all but those of the expression: emitted code names its scalars by them."""
        every = self.parameters if isinstance(self.parameters, tuple) else (None,)
        names = [it[0] if isinstance(it, tuple) and len(it) == 2 else None for it in every]
        needed = sorted(self.expression(variable("accumulator")).inputs - {"accumulator"})
        if [name for name in names if isinstance(name, str)] != names or sorted(names) != needed:
            raise DescriptionError(
                f"parameters of activation {self.name}",
                expected=f"a tuple of (name, default), of {', '.join(needed) or 'none'}",
                got=repr(self.parameters),
                hint=f"kronop.{self.name}(element_epilogue) gives the right ones",
            )

    def expression(self, x: Expression, *, of_16_bits: bool = False) -> Expression:
        """The value; `of_16_bits`: it is rounded to 16 bits or fewer afterwards."""
        if of_16_bits and self.element_epilogue is float32:
            return _OF_16_BITS.get(self.name, _ACTIVATIONS[self.name])(x)
        return _ACTIVATIONS[self.name](x)


def _hardswish(x: Expression) -> Expression:
    x = apply("max", x, -3.0)  # Before the product, which would be one of 0 and minus infinity.
    return x * apply("min", x + 3.0, 6.0) * (1.0 / 6.0)


_ACTIVATIONS: dict[str, Callable[[Expression], Expression]] = {
    "relu": lambda x: apply("max", x, 0.0),
    "leaky_relu": lambda x: apply("max", x, 0.0) + apply("min", x, 0.0) * variable("leaky_alpha"),
    "tanh": lambda x: apply("tanh", x),
    "sigmoid": lambda x: apply("sigmoid", x),
    "silu": lambda x: apply("silu", x),
    "hardswish": _hardswish,
    # The exact form, with the error function.
    "gelu": lambda x: apply("gelu", x),
    BOUNDED: lambda x: apply("max", x, BOUND),
}
# Those that functions take by name.
ActivationName = Literal["relu", "leaky_relu", "tanh", "sigmoid", "silu", "hardswish", "gelu"]
ACTIVATION_NAMES: tuple[str, ...] = get_args(ActivationName)
# Where fewer instructions are as good.
_OF_16_BITS: dict[str, Callable[[Expression], Expression]] = {
    "sigmoid": lambda x: apply("sigmoid_of_16_bits", x),
    "silu": lambda x: apply("silu_of_16_bits", x),
    "gelu": lambda x: apply("gelu_of_16_bits", x),
}


def _of(name: str, x: DataType | Traced, **parameters: Any) -> Activation | Traced:
    """The activation that computes in the type `x` or, for a value in a visitor tree, its value."""
    if isinstance(x, Reduced):
        x.refuse()
    if isinstance(x, Traced):
        return x.through(_ACTIVATIONS[name], **parameters)
    return Activation(name, x, tuple(parameters.items()))


def bounded(x: DataType) -> Activation:
    """What torch's activations are applied to."""
    return Activation(BOUNDED, x)


# Each gives the activation that computes in a type, and applies it to a value in a visitor tree.
@overload
def relu(x: DataType) -> Activation: ...
@overload
def relu(x: Traced) -> Traced: ...
def relu(x: DataType | Traced) -> Activation | Traced:
    """The rectified linear unit: max(x, 0).

    Args:
        x: the type, float32 or float64, in which an epilogue computes the activation; or a value
            in a function for `kronop.epilogue_visitor`.

    Returns:
        What `kronop.LinearCombinationGeneric` takes; or the activation of the value.

    Raises:
        DescriptionError: x is neither.

    Example:
        >>> tree = kronop.epilogue_visitor(lambda accum: kronop.relu(accum))
        >>> epilogue = tree(kronop.float32, 1, kronop.float32, kronop.float32)
        >>> epilogue.evaluate([[-1.0, 0.0, 2.0]], {})["D"].round(4).tolist()
        [[0.0, 0.0, 2.0]]
    """
    return _of("relu", x)


@overload
def leaky_relu(x: DataType, leaky_alpha: float = ...) -> Activation: ...
@overload
def leaky_relu(x: Traced, leaky_alpha: Traced | float = ...) -> Traced: ...
def leaky_relu(x: DataType | Traced, leaky_alpha: Traced | float = 0.01) -> Activation | Traced:
    """The leaky rectified linear unit: x if x > 0, else leaky_alpha x.

    Of Maas, Hannun and Ng, "Rectifier nonlinearities improve neural network acoustic models"
    (2013).

    Args:
        x: the type, float32 or float64, in which an epilogue computes the activation; or a value
            in a function for `kronop.epilogue_visitor`.
        leaky_alpha: the slope below 0. As an activation, its leaky_alpha is the default of the
            epilogue's third scalar; in a visitor tree it may be another value.

    Returns:
        What `kronop.LinearCombinationGeneric` takes; or the activation of the value.

    Raises:
        DescriptionError: x is neither.

    Example:
        >>> tree = kronop.epilogue_visitor(lambda accum: kronop.leaky_relu(accum, 0.1))
        >>> epilogue = tree(kronop.float32, 1, kronop.float32, kronop.float32)
        >>> epilogue.evaluate([[-1.0, 0.0, 2.0]], {})["D"].round(4).tolist()
        [[-0.1, 0.0, 2.0]]
    """
    return _of("leaky_relu", x, leaky_alpha=leaky_alpha)


@overload
def tanh(x: DataType) -> Activation: ...
@overload
def tanh(x: Traced) -> Traced: ...
def tanh(x: DataType | Traced) -> Activation | Traced:
    """Hyperbolic tangent.

    Args:
        x: the type, float32 or float64, in which an epilogue computes the activation; or a value
            in a function for `kronop.epilogue_visitor`.

    Returns:
        What `kronop.LinearCombinationGeneric` takes; or the activation of the value.

    Raises:
        DescriptionError: x is neither.

    Example:
        >>> tree = kronop.epilogue_visitor(lambda accum: kronop.tanh(accum))
        >>> epilogue = tree(kronop.float32, 1, kronop.float32, kronop.float32)
        >>> epilogue.evaluate([[-1.0, 0.0, 2.0]], {})["D"].round(4).tolist()
        [[-0.7616, 0.0, 0.964]]
    """
    return _of("tanh", x)


@overload
def sigmoid(x: DataType) -> Activation: ...
@overload
def sigmoid(x: Traced) -> Traced: ...
def sigmoid(x: DataType | Traced) -> Activation | Traced:
    """The logistic function: 1 / (1 + exp(-x)).

    Args:
        x: the type, float32 or float64, in which an epilogue computes the activation; or a value
            in a function for `kronop.epilogue_visitor`.

    Returns:
        What `kronop.LinearCombinationGeneric` takes; or the activation of the value.

    Raises:
        DescriptionError: x is neither.

    Example:
        >>> tree = kronop.epilogue_visitor(lambda accum: kronop.sigmoid(accum))
        >>> epilogue = tree(kronop.float32, 1, kronop.float32, kronop.float32)
        >>> epilogue.evaluate([[-1.0, 0.0, 2.0]], {})["D"].round(4).tolist()
        [[0.2689, 0.5, 0.8808]]
    """
    return _of("sigmoid", x)


@overload
def silu(x: DataType) -> Activation: ...
@overload
def silu(x: Traced) -> Traced: ...
def silu(x: DataType | Traced) -> Activation | Traced:
    """The sigmoid-weighted linear unit: x sigmoid(x), which is also called swish.

    Of Elfwing, Uchibe and Doya, "Sigmoid-weighted linear units for neural network function
    approximation in reinforcement learning" (2018).

    Args:
        x: the type, float32 or float64, in which an epilogue computes the activation; or a value
            in a function for `kronop.epilogue_visitor`.

    Returns:
        What `kronop.LinearCombinationGeneric` takes; or the activation of the value.

    Raises:
        DescriptionError: x is neither.

    Example:
        >>> tree = kronop.epilogue_visitor(lambda accum: kronop.silu(accum))
        >>> epilogue = tree(kronop.float32, 1, kronop.float32, kronop.float32)
        >>> epilogue.evaluate([[-1.0, 0.0, 2.0]], {})["D"].round(4).tolist()
        [[-0.2689, 0.0, 1.7616]]
    """
    return _of("silu", x)


@overload
def hardswish(x: DataType) -> Activation: ...
@overload
def hardswish(x: Traced) -> Traced: ...
def hardswish(x: DataType | Traced) -> Activation | Traced:
    """The hard swish: x min(max(x + 3, 0), 6) / 6.

    Of Howard et al., "Searching for MobileNetV3" (2019).

    Args:
        x: the type, float32 or float64, in which an epilogue computes the activation; or a value
            in a function for `kronop.epilogue_visitor`.

    Returns:
        What `kronop.LinearCombinationGeneric` takes; or the activation of the value.

    Raises:
        DescriptionError: x is neither.

    Example:
        >>> tree = kronop.epilogue_visitor(lambda accum: kronop.hardswish(accum))
        >>> epilogue = tree(kronop.float32, 1, kronop.float32, kronop.float32)
        >>> epilogue.evaluate([[-1.0, 0.0, 2.0]], {})["D"].round(4).tolist()
        [[-0.3333, 0.0, 1.6667]]
    """
    return _of("hardswish", x)


@overload
def gelu(x: DataType) -> Activation: ...
@overload
def gelu(x: Traced) -> Traced: ...
def gelu(x: DataType | Traced) -> Activation | Traced:
    """The Gaussian error linear unit: x (1 + erf(x / sqrt 2)) / 2.

    Of Hendrycks and Gimpel, "Gaussian error linear units" (2016, arXiv 1606.08415): the form with
    the error function, not the approximation with tanh. Results of 16 bits or fewer come from a
    polynomial, which is off by at most 0.14 of float16's last bit before they are rounded.

    Args:
        x: the type, float32 or float64, in which an epilogue computes the activation; or a value
            in a function for `kronop.epilogue_visitor`.

    Returns:
        What `kronop.LinearCombinationGeneric` takes; or the activation of the value.

    Raises:
        DescriptionError: x is neither.

    Example:
        >>> tree = kronop.epilogue_visitor(lambda accum: kronop.gelu(accum))
        >>> epilogue = tree(kronop.float32, 1, kronop.float32, kronop.float32)
        >>> epilogue.evaluate([[-1.0, 0.0, 2.0]], {})["D"].round(4).tolist()
        [[-0.1587, 0.0, 1.9545]]
    """
    return _of("gelu", x)
