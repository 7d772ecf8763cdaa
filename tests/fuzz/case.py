"""Random cases: a problem, and calls of it on tensors with all kinds of layouts."""

from __future__ import annotations

import math
from dataclasses import dataclass

from kronop.descriptions.datatype import DataType

FAMILIES = ("kron", "ksparse", "chain", "gradient")


@dataclass(frozen=True, slots=True, kw_only=True)
class Operand:
    """The layout of a tensor in its memory, in elements.

    Attributes:
        shape, strides: shape and strides of the tensor; strides have any sign or are 0.
        offset: offset of the element with all indices 0.
        size: size of the memory, including guards before and behind the tensor, which kernels must
            not write.
    """

    shape: tuple[int, ...]
    strides: tuple[int, ...]
    offset: int
    size: int

    def __str__(self) -> str:
        return f"{list(self.shape)} by {list(self.strides)} at {self.offset}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """An operation, as far as it does not depend on layouts and rows, which vary between calls.

    Attributes:
        family: one of FAMILIES.
        target: "sm_80", "sm_90a", or an x86 target such as "x86-avx2".
        element: element type of X and of the factors or weights.
        shapes: shapes of the factors, or patterns of the weights.
        of_kron: whether `shapes` are those of Kronecker factors.
        left: whether to call gekmm instead of gemkm.
        batch_last: whether the batch comes after the features.
        backward: whether gradients are those of kronop.torch, instead of `weight_gradient`.
        tied, products, factors: arguments of `weight_gradient`.
        activation: the activation of the calls that have one.
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
        """The features of X and of the product's result; G has the features of the result."""
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
    """One way to call a problem's product; it is made several times with new values.

    Attributes:
        how: "line", the one-line function; "bound", arguments that run several times; "described",
            an operation with alignment 1, on NumPy arrays even for a GPU; "stream", the function on
            another stream; "graph", the function captured in a CUDA graph.
        framework: "numpy" or "torch".
        x, parts, g, z, bias, out: the operands; `parts` are factors or weights, `g` is the gradient
            of the result.
        in_place: whether Z is the result's tensor.
        output: element type of the result.
        wide: whether integers have all magnitudes, so that sums wrap around.
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
    """A problem with calls; its name is the seed of everything random in it."""

    name: str
    problem: Problem
    calls: tuple[Call, ...]
