"""What a random case is: a problem, and calls on tensors that lie in memory in all ways."""

from __future__ import annotations

import math
from dataclasses import dataclass

from kronop.descriptions.datatype import DataType

FAMILIES = ("kron", "ksparse", "chain", "gradient")


@dataclass(frozen=True, slots=True, kw_only=True)
class Operand:
    """How a tensor lies in its memory, in elements.

    Attributes:
        shape, strides: of the tensor; strides of any sign, or 0.
        offset: of the element with all indices 0.
        size: of the memory, which has room before and behind that nobody may write.
    """

    shape: tuple[int, ...]
    strides: tuple[int, ...]
    offset: int
    size: int

    def __str__(self) -> str:
        return f"{list(self.shape)} by {list(self.strides)} at {self.offset}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """What kernels are made for, but for what layouts and rows change.

    Attributes:
        family: one of FAMILIES.
        target: "x86-avx2" and its like, "sm_80" or "sm_90a".
        element: of X and of the factors or weights.
        shapes: of the factors, or the patterns of the weights.
        of_kron: whether the shapes are those of factors.
        left: gekmm instead of gemkm.
        batch_last: the batch is behind the features.
        backward: the gradients of kronop.torch; else those of `weight_gradient`.
        tied, products, factors: of `weight_gradient`.
        activation: the one that calls have, if they have any.
    """

    family: str
    target: str
    element: DataType
    shapes: tuple[tuple[int, ...], ...]
    of_kron: bool = False
    left: bool = False
    batch_last: bool = False
    backward: bool = False
    tied: bool = False
    products: int | None = None
    factors: tuple[tuple[int, int], ...] = ()
    activation: str = "relu"

    @property
    def on_gpu(self) -> bool:
        return self.target.startswith("sm_")

    @property
    def is_weight_gradient(self) -> bool:
        return self.family == "gradient" and not self.backward

    @property
    def ends(self) -> tuple[int, int]:
        """Features of a row of X and of the product's result, which G has as well."""
        if self.of_kron:
            rows, columns = (math.prod(sizes) for sizes in zip(*self.shapes, strict=True))
            return (columns, rows) if self.left else (rows, columns)
        (a, _, c, d), (e, b, _, f) = self.shapes[0], self.shapes[-1]
        return a * c * d, e * b * f

    def __str__(self) -> str:
        if self.of_kron:
            name = "gekmm" if self.left else "gemkm"
        else:
            name = "weight_gradient" if self.is_weight_gradient else "ksmm"
        more = {
            "batch_last": self.batch_last,
            "backward": self.backward,
            "tied": self.tied,
            "products": self.products,
            "factors": self.factors,
        }
        told = "".join(f" {key}={value}" for key, value in more.items() if value)
        return f"{name} {self.element.name} {list(self.shapes)}{told} on {self.target}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """One way to call a problem's product, made several times with other values.

    Attributes:
        how: "line", the function; "bound", arguments that run again; "described", an operation
            without promises, whose tensors are NumPy's also on a GPU; "stream", the function on
            another stream; "graph", the function in a captured graph.
        framework: "numpy" or "torch".
        x, parts, g, z, bias, out: the operands; `parts` are factors or weights, `g` is the gradient
            of the result.
        in_place: whether Z is the result.
        output: element type of the result.
        wide: whether integers are of all magnitudes, so that sums wrap around.
    """

    how: str
    framework: str
    x: Operand
    parts: tuple[Operand, ...]
    output: DataType
    alpha: float
    beta: float
    g: Operand | None = None
    z: Operand | None = None
    bias: Operand | None = None
    out: Operand | None = None
    in_place: bool = False
    activation: str | None = None
    wide: bool = False

    def __str__(self) -> str:
        operands = {"x": self.x, "g": self.g, "z": self.z, "bias": self.bias, "out": self.out}
        operands |= {f"parts[{index}]": item for index, item in enumerate(self.parts)}
        told = "; ".join(f"{name} {item}" for name, item in operands.items() if item is not None)
        more = " z is out" if self.in_place else ""
        return (
            f"{self.how} in {self.framework}, {told}{more}; alpha {self.alpha}, beta {self.beta},"
            f" activation {self.activation}, result {self.output.name}"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """A problem with calls; the name is the seed of all that is random about it."""

    name: str
    problem: Problem
    calls: tuple[Call, ...]
