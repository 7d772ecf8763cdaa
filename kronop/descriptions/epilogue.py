"""Epilogue functors: what is computed from an accumulated value before it is written to memory.

With A the accumulator, C the source Z, v the bias (0 if the family has none):

    LinearCombination            D = alpha A + beta C + v
    LinearCombinationClamp       the same, clamped to the finite range of the output type;
                                 of integers computed in 64 bits, without overflow
    FastLinearCombinationClamp   the same for integers, computed in float32
    LinearCombinationGeneric     D = activation(alpha A + beta C + v)

If beta is 0, the source is not read. If alpha is 0, A is still multiplied by it, so that a NaN in A
gives NaN (a BLAS would give 0).

Integer results saturate: what is beyond the output's range becomes its nearest end. Before that,
integers wrap around in two places: in the sums A, which no epilogue can detect, and where an
epilogue computes in int32 or int64 (`element_epilogue`) values beyond these.
"""

from __future__ import annotations

from typing import Any

from kronop.descriptions.activation import ACTIVATION_NAMES, Activation
from kronop.descriptions.datatype import (
    RESULT_TYPES,
    DataType,
    float16,
    float32,
    float64,
    int8,
    int32,
    int64,
)
from kronop.descriptions.expression import Expression, apply, variable
from kronop.descriptions.graph import Graph
from kronop.descriptions.scalars import FINITE_MAX, EpilogueArguments, scalar
from kronop.descriptions.tensor import widest
from kronop.errors import ArgumentError, DescriptionError
from kronop.frozen import dataclass

# accumulator -> the types that an epilogue may compute in
_COMPUTE_FOR = {
    float32: (float32,),
    float64: (float64,),
    int32: (int32, float32),
    int64: (int64,),
    float16: (float16, float32),
}
# Where one of these is asked for, the values of an expression have a wider type.
_WIDER = {float16: float32}


def check_accumulator(element: object, subject: str, *, half_sums: bool = True) -> None:
    """Raises DescriptionError unless epilogues take sums of this type: float16 only with
    `half_sums`."""
    valid = [item for item in _COMPUTE_FOR if half_sums or item != float16]
    if not isinstance(element, DataType) or element not in valid:
        raise DescriptionError(
            subject,
            expected=f"one of {', '.join(map(repr, valid))}",
            got=repr(element),
            hint="8-bit and 16-bit floats accumulate in float32, with"
            " kronop.MathInstruction.simt(element) for example, int8 in int32",
        )


@dataclass(frozen=True, slots=True)
class Epilogue:
    """The common part of the four functors.

    Args:
        element_output: type of D and of C.
        epilogue_vector_length: elements written at once; at most 16 bytes and Y's alignment.
        element_accumulator: type of the sum.
        element_epilogue: type in which the epilogue computes.

    Raises:
        DescriptionError: the types do not fit each other, or the vector length is invalid.
    """

    element_output: DataType
    epilogue_vector_length: int
    element_accumulator: DataType
    element_epilogue: DataType

    def __post_init__(self) -> None:
        if (
            not isinstance(self.element_output, DataType)
            or self.element_output.name not in RESULT_TYPES
        ):
            raise DescriptionError(
                "element_output",
                expected=f"one of {', '.join(RESULT_TYPES)}",
                got=repr(self.element_output),
                hint="an output must have one of these types",
            )
        check_accumulator(self.element_accumulator, "element_accumulator")
        called = f"epilogue_vector_length for {self.element_output.name}"
        length = widest(called, self.epilogue_vector_length, self.element_output)
        object.__setattr__(self, "epilogue_vector_length", length)
        valid = _COMPUTE_FOR[self.element_accumulator]
        if self.element_epilogue not in valid:
            raise DescriptionError(
                f"element_epilogue for an accumulator {self.element_accumulator!r}",
                expected=" or ".join(map(repr, valid)),
                got=repr(self.element_epilogue),
                hint="compute the epilogue in the type of the sum",
            )

    @property
    def name(self) -> str:
        """Short name of the functor, for kernel names."""
        return "linear"

    @property
    def scalar_names(self) -> tuple[str, ...]:
        """Names of the run-time scalars, in the order of the kernel's parameters."""
        return ("alpha", "beta")

    @property
    def _defaults(self) -> tuple[float, ...]:
        return (1.0, 0.0)

    @property
    def element_compute(self) -> DataType:
        """Type of the values in the expression, element_epilogue or a wider one."""
        return _WIDER.get(self.element_epilogue, self.element_epilogue)

    @property
    def expression(self) -> Graph:
        """What is computed of accumulator, source, bias and the scalars."""
        return Graph.of(self._value)

    @property
    def _value(self) -> Expression:
        return self._linear

    @property
    def _linear(self) -> Expression:
        # Every target and the NumPy reference compute in this order, so that rounding agrees.
        scaled = variable("alpha") * variable("accumulator")
        return scaled + variable("beta") * variable("source") + variable("bias")

    def epilogue_type(self, *scalars: float, **named: Any) -> EpilogueArguments:
        """The run-time scalars: alpha, beta, then the activation's; missing ones get defaults.

        Raises:
            ElementTypeError: a scalar is not a real number.
            ArgumentError: there are too many, one has a name, or one is not finite, in range, or
                (integers) whole.
        """
        if named or len(scalars) > len(self.scalar_names):
            raise ArgumentError(
                "epilogue_type",
                expected=f"at most the scalars {', '.join(self.scalar_names)}, in this order",
                got=f"{', '.join(named)} by name" if named else f"{len(scalars)} scalars",
                hint="only visitor trees take scalars, operands and results by name"
                if named
                else "leave out the last ones",
            )
        values = (*scalars, *self._defaults[len(scalars) :])
        pairs = zip(self.scalar_names, values, strict=True)
        checked = tuple([scalar(name, value, self.element_epilogue) for name, value in pairs])
        return EpilogueArguments(checked, has_beta=len(scalars) > 1)


@dataclass(frozen=True, slots=True)
class LinearCombination(Epilogue):
    """D = alpha A + beta C + v: of the sums A, a source C (Z in arguments) and a bias v, if any.

    C is not read where beta is 0. The scalars come at run time, from `epilogue_type`. Results of
    integer types saturate, after values of integer types on the way have wrapped around.

    Args:
        element_output: type of D and of C.
        epilogue_vector_length: elements written at once; at most 16 bytes and Y's alignment.
        element_accumulator: type of the sum A.
        element_epilogue: type in which the epilogue computes.

    Raises:
        DescriptionError: the types do not fit each other, or the vector length is invalid.

    Example:
        >>> epilogue = kronop.LinearCombination(kronop.float16, 8, kronop.float32, kronop.float32)
        >>> epilogue.scalar_names
        ('alpha', 'beta')
        >>> epilogue.epilogue_type(0.5, 2.0)
        EpilogueArguments(scalars=(0.5, 2.0))
    """


@dataclass(frozen=True, slots=True)
class LinearCombinationClamp(Epilogue):
    """D = alpha A + beta C + v, clamped to the output's finite range; integer outputs are rounded.

    Integers are computed in 64 bits, so a value that overflows int32 here is clamped. A itself has
    wrapped around if the sum overflowed its accumulator.

    It takes the arguments of `LinearCombination`, and raises the same errors.

    Example:
        >>> epilogue = kronop.LinearCombinationClamp(
        ...     kronop.int8, 16, kronop.int32, kronop.float32
        ... )  # int32 sums, scaled in float32, to int8
        >>> epilogue.name, epilogue.epilogue_type(0.01)
        ('clamp', EpilogueArguments(scalars=(0.01, 0.0)))
    """

    @property
    def name(self) -> str:
        return "clamp"

    @property
    def element_compute(self) -> DataType:
        integral = self.element_epilogue.kind == "int"
        return int64 if integral else _WIDER.get(self.element_epilogue, self.element_epilogue)

    @property
    def _value(self) -> Expression:
        # NOTE: `kronop::convert` saturates conversions to integers, so nothing is clamped here.
        if self.element_output.kind == "int":
            return self._linear
        bound = FINITE_MAX[self.element_output]
        if self.element_epilogue.kind == "int":
            if bound > 2**63:  # No 64-bit integer exceeds this bound.
                return self._linear
            bound = int(bound)
        return apply("min", apply("max", self._linear, -bound), bound)


@dataclass(frozen=True, slots=True)
class FastLinearCombinationClamp(LinearCombinationClamp):
    """The integer clamp, computed in float32: exact if all values are below 2^24.

    Args:
        element_output: int8 or int32.
        epilogue_vector_length: elements written at once; at most 16 bytes and Y's alignment.
        element_accumulator: int32; PyCUTLASS's programs pass it.
        element_epilogue: float32, likewise.

    Raises:
        DescriptionError: another type, or the vector length is invalid.

    Example:
        >>> epilogue = kronop.FastLinearCombinationClamp(kronop.int8, 16)
        >>> epilogue.element_accumulator, epilogue.element_epilogue
        (kronop.int32, kronop.float32)
    """

    def __init__(
        self,
        element_output: DataType,
        epilogue_vector_length: int,
        element_accumulator: DataType = int32,
        element_epilogue: DataType = float32,
    ) -> None:
        types = (element_output, element_accumulator, element_epilogue)
        if types not in ((int8, int32, float32), (int32, int32, float32)):
            raise DescriptionError(
                "FastLinearCombinationClamp",
                expected="int8 or int32, of sums in int32, computed in float32",
                got=" and ".join(map(repr, types)),
                hint="use LinearCombinationClamp for other types",
            )
        values = (element_output, epilogue_vector_length, element_accumulator, element_epilogue)
        for name, value in zip(Epilogue.__slots__, values, strict=True):
            object.__setattr__(self, name, value)
        self.__post_init__()

    @property
    def name(self) -> str:
        return "fastclamp"


@dataclass(frozen=True, slots=True)
class LinearCombinationGeneric(Epilogue):
    """D = activation(alpha A + beta C + v).

    Args:
        activation_functor: `relu(element_epilogue)` or another of kronop's activations; then the
            four arguments that every epilogue takes, as `LinearCombination` does.

    Raises:
        DescriptionError: no activation or one of another type than `element_epilogue`, types that
            do not fit each other, or an invalid vector length.

    Example:
        >>> f32 = kronop.float32
        >>> epilogue = kronop.LinearCombinationGeneric(kronop.leaky_relu(f32), f32, 1, f32, f32)
        >>> epilogue.scalar_names
        ('alpha', 'beta', 'leaky_alpha')
        >>> epilogue.epilogue_type(2.0)
        EpilogueArguments(scalars=(2.0, 0.0, 0.01))
    """

    activation: Activation

    def __init__(
        self,
        activation_functor: Activation,
        element_output: DataType,
        epilogue_vector_length: int,
        element_accumulator: DataType,
        element_epilogue: DataType,
    ) -> None:
        if not isinstance(activation_functor, Activation):
            raise DescriptionError(
                "activation_functor",
                expected=f"one of {', '.join(ACTIVATION_NAMES)}",
                got=repr(activation_functor),
                hint="for example kronop.relu(kronop.float32)",
            )
        values = (element_output, epilogue_vector_length, element_accumulator, element_epilogue)
        for name, value in zip(Epilogue.__slots__, values, strict=True):
            object.__setattr__(self, name, value)
        object.__setattr__(self, "activation", activation_functor)
        self.__post_init__()

    def __post_init__(self) -> None:
        Epilogue.__post_init__(self)
        if self.activation.element_epilogue != self.element_epilogue:
            raise DescriptionError(
                "activation",
                expected=f"element_epilogue {self.element_epilogue!r}",
                got=repr(self.activation.element_epilogue),
                hint="use the same compute type",
            )

    @property
    def name(self) -> str:
        return self.activation.name

    @property
    def scalar_names(self) -> tuple[str, ...]:
        return ("alpha", "beta", *(name for name, _ in self.activation.parameters))

    @property
    def _defaults(self) -> tuple[float, ...]:
        return (1.0, 0.0, *(value for _, value in self.activation.parameters))

    @property
    def _value(self) -> Expression:
        output = self.element_output
        of_16_bits = output.kind == "float" and output.bits <= 16
        return self.activation.expression(self._linear, of_16_bits=of_16_bits)
