"""Kernels in kermac's words: an inner operator and power, an outer power, and a kernel type.

    s = sum over k of inner_power(inner_operator(b[n, k], a[m, k]))
    t = outer_power(s)
    kernel_type: t itself, exp(-t / bandwidth), or exp(-t / (2 bandwidth^2))

where t is first set to 0 if it is below epsilon.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import Any

from kronop.descriptions.expression import Expression, apply
from kronop.errors import ArgumentError, DescriptionError, ElementTypeError
from kronop.families.distance.builder import Builder
from kronop.families.distance.form import TermKind
from kronop.families.distance.kernels import Kernel, over_square
from kronop.families.distance.values import NOT_NEGATIVE, POSITIVE, checked, checked_power

_EPSILON = 1e-5


class InnerOperator(enum.Enum):
    """How two features meet: their difference, or their product.

    Example:
        >>> [item.name for item in kronop.InnerOperator]
        ['DIFF', 'DOT']
    """

    DIFF = "diff"
    DOT = "dot"


class PowerType(enum.Enum):
    """What is done with a number x: `x` (NOOP), `|x|`, `x^2`, `sqrt(x)` or `|x|^p`.

    Example:
        >>> [item.name for item in kronop.PowerType]
        ['NOOP', 'ABS', 'SQUARE', 'SQRT', 'POW']
    """

    NOOP = "noop"
    ABS = "abs"
    SQUARE = "square"
    SQRT = "sqrt"
    POW = "pow"


class KernelType(enum.Enum):
    """The kernel of a number t: nothing, `exp(-t / bandwidth)`, or `exp(-t / (2 bandwidth^2))`.

    Example:
        >>> [item.name for item in kronop.KernelType]
        ['NONE', 'LAPLACE', 'GAUSSIAN']
    """

    NONE = "none"
    LAPLACE = "laplace"
    GAUSSIAN = "gaussian"


@dataclass(frozen=True, kw_only=True)
class KernelDescriptor:
    """A kernel in kermac's words; it never changes.

    Args:
        inner_operator: differences or products of features.
        inner_power: what is summed over features: ABS, SQUARE, SQRT or POW of differences; NOOP of
            products.
        outer_power: what is done with the sum.
        kernel_type: the kernel of that.

    Raises:
        DescriptionError: an inner power that sums of differences or of products do not have.
        ElementTypeError: an argument has the wrong class.

    Example:
        >>> descriptor = kronop.KernelDescriptor(
        ...     inner_operator=kronop.InnerOperator.DIFF,
        ...     inner_power=kronop.PowerType.POW,
        ...     outer_power=kronop.PowerType.POW,
        ... )
        >>> descriptor.takes_power  # which `kronop.run_kernel` is given as p
        True
    """

    inner_operator: InnerOperator
    inner_power: PowerType
    outer_power: PowerType = PowerType.NOOP
    kernel_type: KernelType = KernelType.NONE

    def __post_init__(self) -> None:
        kinds = {
            "inner_operator": InnerOperator,
            "inner_power": PowerType,
            "outer_power": PowerType,
            "kernel_type": KernelType,
        }
        for name, kind in kinds.items():
            if not isinstance(getattr(self, name), kind):
                raise ElementTypeError(
                    name,
                    expected=f"a kronop.{kind.__name__}",
                    got=repr(getattr(self, name)),
                    hint=f"one of {', '.join(item.name for item in kind)}",
                )
        is_product = self.inner_operator is InnerOperator.DOT
        if is_product != (self.inner_power is PowerType.NOOP):
            raise DescriptionError(
                f"inner_power with {self.inner_operator.name}",
                expected="NOOP" if is_product else "ABS, SQUARE, SQRT or POW",
                got=self.inner_power.name,
                hint="products are summed as they are, differences never",
            )

    @property
    def takes_power(self) -> bool:
        """Whether a call brings a power."""
        return PowerType.POW in (self.inner_power, self.outer_power)

    @property
    def takes_bandwidth(self) -> bool:
        """Whether a call brings a bandwidth."""
        return self.kernel_type is not KernelType.NONE


def check_descriptor(descriptor: object) -> None:
    """Raises ElementTypeError unless it is one."""
    if not isinstance(descriptor, KernelDescriptor):
        raise ElementTypeError(
            "descriptor",
            expected="a kronop.KernelDescriptor",
            got=repr(descriptor),
            hint="kernel_matrix takes kronop.kernels",
        )


def _of_differences(
    inner_power: PowerType,
    outer_power: PowerType = PowerType.NOOP,
    kernel_type: KernelType = KernelType.NONE,
) -> KernelDescriptor:
    return KernelDescriptor(
        inner_operator=InnerOperator.DIFF,
        inner_power=inner_power,
        outer_power=outer_power,
        kernel_type=kernel_type,
    )


# The descriptors that kermac has made already, by its names.
kernel_descriptor_l1_norm = _of_differences(PowerType.ABS)
kernel_descriptor_l2_norm = _of_differences(PowerType.SQUARE, PowerType.SQRT)
kernel_descriptor_p_norm = _of_differences(PowerType.POW, PowerType.POW)
kernel_descriptor_laplace_l1 = _of_differences(PowerType.ABS, kernel_type=KernelType.LAPLACE)
kernel_descriptor_laplace_l2 = _of_differences(PowerType.SQUARE, PowerType.SQRT, KernelType.LAPLACE)
kernel_descriptor_mma = KernelDescriptor(
    inner_operator=InnerOperator.DOT, inner_power=PowerType.NOOP
)


@dataclass(frozen=True, eq=False, kw_only=True)
class Described(Kernel):
    """A descriptor with its values.

    Args:
        descriptor: the form.
        inner_p, outer_p: the powers where the descriptor has POW; `outer_p` may be None beside an
            inner power, for its reciprocal.
        bandwidth, epsilon: of a kernel type other than NONE.

    Raises:
        ArgumentError: a value is missing, or there is one that nothing reads.
    """

    descriptor: KernelDescriptor
    inner_p: Any = None
    outer_p: Any = None
    bandwidth: Any = None
    epsilon: Any = None

    def __post_init__(self) -> None:
        what = self.descriptor
        wanted = {
            "inner_p": what.inner_power is PowerType.POW,
            "outer_p": what.outer_power is PowerType.POW and not self._is_norm,
            "bandwidth": what.takes_bandwidth,
            "epsilon": what.takes_bandwidth,
        }
        for name, is_read in wanted.items():
            value = getattr(self, name)
            if value is None and is_read and name == "epsilon":
                object.__setattr__(self, name, _EPSILON)
            elif value is None and is_read:
                raise ArgumentError(
                    name, expected="a number or a tensor", got="none", hint="pass it"
                )
            elif value is not None and not is_read:
                raise ArgumentError(
                    name,
                    expected=f"none, since {what} reads none",
                    got=repr(value),
                    hint="leave it out, or take another descriptor",
                )
            elif value is not None:
                object.__setattr__(self, name, _checked(name, value))

    @property
    def _is_norm(self) -> bool:
        """Whether the powers are p and 1 / p."""
        what = self.descriptor
        both = what.inner_power is what.outer_power is PowerType.POW
        return both and self.inner_p is not None and self.outer_p is None

    def _expression(self, builder: Builder) -> Expression:
        what = self.descriptor
        inner = {
            PowerType.NOOP: TermKind.Dot,
            PowerType.ABS: TermKind.One,
            PowerType.SQUARE: TermKind.Two,
            PowerType.SQRT: TermKind.Half,
        }.get(what.inner_power)
        if self._is_norm:
            t = builder.norm("p", self.inner_p)
        elif inner is None:
            t = self._outer(builder, builder.sum_of_powers("inner_p", self.inner_p))
        else:
            t = self._outer(builder, builder.term(inner))
        if not what.takes_bandwidth:
            return t
        t = apply("threshold", t, builder.value("epsilon", self.epsilon))
        width = builder.value("bandwidth", self.bandwidth)
        if what.kernel_type is KernelType.GAUSSIAN:
            return apply("exp", over_square(t, width, -0.5))
        return apply("exp", apply("divide", t, width) * -1.0)

    def _outer(self, builder: Builder, s: Expression) -> Expression:
        power = self.descriptor.outer_power
        if power is PowerType.NOOP:
            return s
        if power is PowerType.SQRT:
            return apply("sqrt", s)
        if power is PowerType.SQUARE:
            return s * s
        size = apply("max", s, s * -1.0)
        if power is PowerType.ABS:
            return size
        return apply("power", size, builder.value("outer_p", self.outer_p))


def _checked(name: str, value: Any) -> Any:
    if name == "inner_p":
        return checked_power(name, value)
    return checked(name, value, NOT_NEGATIVE if name == "epsilon" else POSITIVE)
