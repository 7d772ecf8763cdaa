"""The layer that stands where a torch.nn.Linear does, with Kronecker-sparse weights."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from kronop.descriptions.shared import check_flag
from kronop.errors import ArgumentError, mismatch
from kronop.families.ksparse.torch.functional import again
from kronop.families.ksparse.torch.shapes import inputs_of, outputs_of
from kronop.torch.nn.algorithms import ALGORITHMS, dense_product
from kronop.torch.nn.checks import (
    check_layer_weights,
    check_linear,
    check_operand,
    check_type,
    checked_patterns,
)
from kronop.torch.nn.choice import AUTO, choose
from kronop.torch.nn.projection import project

# What is compiled or exported takes the choice as it is then, not the planning behind it.
_choose = torch.compiler.assume_constant_result(choose)


class KSLinear(torch.nn.Module):  # type: ignore[misc]  # torch is Any to mypy.
    """A linear layer whose weight is a product of Kronecker-sparse factors: W = K_1 ... K_L.

    A factor of pattern (a, b, c, d) is I_a x dense(b, c) x I_d in structure: a b d rows, a c d
    columns and a b c d entries, its weights (kronop.families.ksparse.description says where). It
    stands where a torch.nn.Linear does: y = x W' + bias.

    Args:
        patterns: (a, b, c, d) of each factor: the right-most one, which is applied first, first.
        weights: a tensor (a, b, c, d) for each pattern, which are copied; None for entries uniform
            in (-1/sqrt(c), 1/sqrt(c)).
        bias: whether the layer learns one; it begins uniform in +-1/sqrt(in_features).
        algo: how to multiply. All give the same, on GPUs and CPUs, and have the same parameters:
            "kernel" (kronop's), "bmm", "einsum", "dense" (one matrix, formed every time), "sparse"
            and "bsr" (torch's sparse matrices, by rows and by blocks), or "auto", which takes the
            kernel or the dense product by the planner's model of their times.
        dtype: float32, float16, bfloat16 or float64; None for that of `weights`, else torch's
            default. Operands are of that type too, unless autocast casts both.
        bs_last: the batch is behind the features: x (in_features, ...) gives (out_features, ...),
            instead of (..., in_features) giving (..., out_features).
        device: where the parameters are; None for that of `weights`, else torch's default.

    Attributes:
        weights: a ParameterList, in the order of the patterns.
        bias: (out_features,), or None.
        algo: may be set at any time.
        in_features, out_features: a c d of the first, a b d of the last pattern.
        projection_error: of `from_linear`; else None.

    Raises:
        ArgumentError: patterns that do not chain, weights of other shapes, an unknown algorithm.
        ElementTypeError: what is no pattern, no tensor, or another element type.
    """

    def __init__(
        self,
        patterns: Sequence[Sequence[int]],
        weights: Sequence[Any] | None = None,
        bias: bool = True,
        algo: str = "kernel",
        dtype: Any = None,
        bs_last: bool = False,
        device: Any = None,
    ) -> None:
        super().__init__()
        self.patterns = checked_patterns(patterns)
        self.in_features = inputs_of(self.patterns[0])
        self.out_features = outputs_of(self.patterns[-1])
        check_flag("bias", bias)
        check_flag("bs_last", bs_last)
        self.bs_last = bs_last
        self.projection_error: float | None = None
        if weights is not None:
            check_layer_weights(weights, self.patterns)
            dtype = weights[0].dtype if dtype is None else dtype
            device = weights[0].device if device is None else device
        dtype = torch.get_default_dtype() if dtype is None else dtype
        check_type("dtype", dtype)
        place = {"dtype": dtype, "device": device}
        self.weights = torch.nn.ParameterList(
            torch.nn.Parameter(torch.empty(pattern, **place)) for pattern in self.patterns
        )
        empty = torch.nn.Parameter(torch.empty(self.out_features, **place)) if bias else None
        self.register_parameter("bias", empty)
        self._names = [*self.weights._parameters]
        self.reset_parameters()
        if weights is not None:
            with torch.no_grad():
                for own, given in zip(self.weights, weights, strict=True):
                    own.copy_(given)
        self.algo = algo

    def reset_parameters(self) -> None:
        """Draws all parameters anew."""
        for pattern, weight in zip(self.patterns, self.weights, strict=True):
            torch.nn.init.uniform_(weight, -(pattern[2] ** -0.5), pattern[2] ** -0.5)
        if self.bias is not None:
            torch.nn.init.uniform_(self.bias, -(self.in_features**-0.5), self.in_features**-0.5)

    @property
    def algo(self) -> str:
        """How the layer multiplies."""
        return self._algo

    @algo.setter
    def algo(self, name: str) -> None:
        if not isinstance(name, str) or name not in (*ALGORITHMS, AUTO):
            raise ArgumentError(
                mismatch(
                    "algo",
                    expected=f"one of {', '.join((*ALGORITHMS, AUTO))}",
                    got=repr(name),
                    hint="all give the same results; kernel is the default",
                )
            )
        self._algo = name

    def _runs(self) -> str:
        """The algorithm that runs; of "auto" where the parameters are now."""
        if self._algo != AUTO:
            return self._algo
        like = self.weights[0]
        return str(_choose(self.patterns, like.dtype, like.device, self.bs_last))

    def forward(self, x: Any) -> Any:
        """x (..., in_features) -> (..., out_features), or (in_features, ...) with `bs_last`."""
        if torch.compiler.is_compiling():
            return self._multiplied(x, list(self.weights), self.bias)
        chain, bias = self._operands()
        if self._algo == "kernel" and type(x) is torch.Tensor:
            result = again(x, chain, bias, self.bs_last)
            if result is not None:
                return result
        return self._multiplied(x, chain, bias)

    def _multiplied(self, x: Any, chain: list[Any], bias: Any) -> Any:
        runs = self._runs()
        if runs != "kernel":  # The kernel's own checks say the same.
            check_operand(x, self.in_features, self.bs_last, self.weights[0].dtype)
        return ALGORITHMS[runs](x, chain, bias, self.bs_last)

    def _operands(self) -> tuple[list[Any], Any]:
        """The weights and the bias; a list's own iteration takes 3 microseconds apiece."""
        own = self._modules["weights"]._parameters
        try:
            return [own[name] for name in self._names], self._parameters["bias"]
        except KeyError:  # Parametrized, pruned or normalised ones.
            return list(self.weights), self.bias

    def get_dense_product(self) -> Any:
        """W (out_features, in_features), of the layer's type and device; differentiable."""
        return dense_product(list(self.weights))

    def extra_repr(self) -> str:
        """What the layer is, for print."""
        text = (
            f"in_features={self.in_features}, out_features={self.out_features},"
            f" patterns={[*self.patterns]}, bias={self.bias is not None}, algo={self._algo!r}"
        )
        return f"{text}, bs_last=True" if self.bs_last else text

    @classmethod
    def from_linear(
        cls,
        linear: Any,
        patterns: Sequence[Sequence[int]],
        algo: str = "kernel",
        bs_last: bool = False,
    ) -> KSLinear:
        """The layer whose weight comes near that of a torch.nn.Linear; its bias is copied.

        `projection_error` of the result is |W - K_1 ... K_L| / |W| in Frobenius norms, with the
        layer's own entries. How near it comes depends on the patterns (see `projection`): one
        and two factors get the nearest weight that there is; longer chains of butterfly type are
        recovered to rounding where W is such a product, and other chains are searched for.

        Args:
            linear: a torch.nn.Linear, or any module with `weight` (out, in) and `bias`.
            patterns: as for the layer; they have to have the linear's features.
            algo, bs_last: as for the layer.

        Raises:
            ArgumentError: patterns that do not chain, or of other features; a weight without finite
                values.
            ElementTypeError: no such module, or one whose weight is no float of 16 to 64 bits.
        """
        chain = checked_patterns(patterns)
        check_linear(linear, chain)
        weight, bias = linear.weight.detach(), getattr(linear, "bias", None)
        place = {"dtype": weight.dtype, "device": weight.device}
        exact = weight.to("cpu", torch.float64)
        found = project(exact, chain)
        layer = cls(chain, found, bias is not None, algo, bs_last=bs_last, **place)
        with torch.no_grad():
            if bias is not None:
                layer.bias.copy_(bias)
            own = dense_product([item.to("cpu", torch.float64) for item in layer.weights])
            norm = float(exact.norm())
            layer.projection_error = float((exact - own).norm()) / norm if norm else 0.0
        return layer
