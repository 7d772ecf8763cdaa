"""Activations: functions that an epilogue may apply to its linear combination."""

from __future__ import annotations

import math
from collections.abc import Callable

from kronop.descriptions.datatype import DataType, float32, float64
from kronop.descriptions.expression import Expression, apply, is_identifier, variable
from kronop.errors import DescriptionError, mismatch
from kronop.frozen import dataclass

# Names that the generated functor uses itself: parameters of activations must not have them.
_EPILOGUE_NAMES = (
    *("alpha", "beta", "accumulator", "source", "bias"),
    *("scalars", "math", "kronop", "Compute", "Scaling", "Scalar", "Epilogue"),
)


@dataclass(frozen=True, slots=True)
class Activation:
    """An activation for LinearCombinationGeneric.

    Args:
        name: one of ACTIVATION_NAMES.
        element_epilogue: the type in which it is computed, float32 or float64.
        parameters: names and defaults of its run-time scalars. Kernels use the names too: each
            must be an ASCII C++ identifier that the epilogue does not use itself.

    Raises:
        DescriptionError: the name, the type or a parameter is invalid, or a parameter that the
            activation's expression needs is missing.
    """

    name: str
    element_epilogue: DataType
    parameters: tuple[tuple[str, float], ...] = ()

    def __post_init__(self) -> None:
        if self.name not in ACTIVATION_NAMES:
            raise DescriptionError(
                mismatch(
                    "activation",
                    expected=f"one of {', '.join(ACTIVATION_NAMES)}",
                    got=repr(self.name),
                    hint="apply other functions to the result",
                )
            )
        self._check_parameters()
        if self.element_epilogue not in (float32, float64):
            raise DescriptionError(
                mismatch(
                    f"activation {self.name}",
                    expected="float32 or float64",
                    got=repr(self.element_epilogue),
                    hint="activations are computed in floating point",
                )
            )

    def _check_parameters(self) -> None:
        names = []
        for item in self.parameters if isinstance(self.parameters, tuple) else (None,):
            name = item[0] if isinstance(item, tuple) and len(item) == 2 else None
            if not is_identifier(name) or name in _EPILOGUE_NAMES or name in names:
                raise DescriptionError(
                    mismatch(
                        f"parameters of activation {self.name}",
                        expected="a tuple of (name, default), each name an identifier of C++ that"
                        f" is there once and none of {', '.join(_EPILOGUE_NAMES)}",
                        got=repr(self.parameters),
                        hint="kronop.leaky_relu(element_epilogue) and its like give the right ones",
                    )
                )
            names.append(name)
        missing = self.expression(variable("accumulator")).inputs - {"accumulator", *names}
        if missing:
            raise DescriptionError(
                mismatch(
                    f"parameters of activation {self.name}",
                    expected=f"{', '.join(sorted(missing))} among them",
                    got=repr(self.parameters),
                    hint=f"kronop.{self.name}(element_epilogue) gives the right ones",
                )
            )

    def expression(self, x: Expression) -> Expression:
        return _ACTIVATIONS[self.name](x)


def _sigmoid(x: Expression) -> Expression:
    return apply("divide", 1.0, apply("exp", x * -1.0) + 1.0)


_ACTIVATIONS: dict[str, Callable[[Expression], Expression]] = {
    "relu": lambda x: apply("max", x, 0.0),
    "leaky_relu": lambda x: apply("max", x, 0.0) + apply("min", x, 0.0) * variable("leaky_alpha"),
    "tanh": lambda x: apply("tanh", x),
    "sigmoid": _sigmoid,
    "silu": lambda x: x * _sigmoid(x),
    "hardswish": lambda x: x * apply("min", apply("max", x + 3.0, 0.0), 6.0) * (1.0 / 6.0),
    # The exact form, with the error function.
    "gelu": lambda x: x * 0.5 * (apply("erf", x * math.sqrt(0.5)) + 1.0),
}
ACTIVATION_NAMES = tuple(_ACTIVATIONS)


def relu(element_epilogue: DataType) -> Activation:
    """max(x, 0)."""
    return Activation("relu", element_epilogue)


def leaky_relu(element_epilogue: DataType) -> Activation:
    """x if x > 0, else leaky_alpha x; leaky_alpha is the epilogue's third scalar, by default
    0.01."""
    return Activation("leaky_relu", element_epilogue, (("leaky_alpha", 0.01),))


def tanh(element_epilogue: DataType) -> Activation:
    """Hyperbolic tangent."""
    return Activation("tanh", element_epilogue)


def sigmoid(element_epilogue: DataType) -> Activation:
    """1 / (1 + exp(-x))."""
    return Activation("sigmoid", element_epilogue)


def silu(element_epilogue: DataType) -> Activation:
    """x sigmoid(x)."""
    return Activation("silu", element_epilogue)


def hardswish(element_epilogue: DataType) -> Activation:
    """x min(max(x + 3, 0), 6) / 6."""
    return Activation("hardswish", element_epilogue)


def gelu(element_epilogue: DataType) -> Activation:
    """x (1 + erf(x / sqrt 2)) / 2."""
    return Activation("gelu", element_epilogue)
