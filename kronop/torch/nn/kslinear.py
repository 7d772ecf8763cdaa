"""A layer with Kronecker-sparse weights, to use in place of torch.nn.Linear."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from kronop.descriptions.shared import check_flag
from kronop.errors import ArgumentError
from kronop.families.ksparse.description import inputs_of, outputs_of
from kronop.families.ksparse.torch.functional import again
from kronop.torch.nn import patterns as _patterns
from kronop.torch.nn.algorithms import ALGORITHMS, dense_product, multiply
from kronop.torch.nn.checks import check_layer_weights, check_linear, check_type, checked_patterns
from kronop.torch.nn.choice import AUTO, choose
from kronop.torch.nn.initial import draw
from kronop.torch.nn.projection import project

# Compiled and exported graphs contain the choice as a constant, not the planning that makes it.
_choose = torch.compiler.assume_constant_result(choose)


class KSLinear(torch.nn.Module):  # type: ignore[misc]  # torch is Any to mypy.
    """A linear layer whose weight is a product of Kronecker-sparse factors: W = K_1 ... K_L.

    A factor of pattern (a, b, c, d) has the nonzeros of I_a x dense(b, c) x I_d: a b d rows, a c d
    columns and a b c d weights: weight (i, j, k, l) stands in row (i, j, l) and column (i, k, l).
    The layer computes y = x W' + bias, as torch.nn.Linear does. These patterns are those of Gonon,
    Zheng, Carrivain and Le, "Fast inference with Kronecker-sparse matrices" (arXiv 2405.15013);
    `patterns` makes those of Monarch and butterfly matrices.

    Args:
        patterns: (a, b, c, d) of each factor. The first is the right-most factor, applied first.
        weights: a tensor (a, b, c, d) for each pattern, which is copied; None draws them so that
            results are of the size of those of a new torch.nn.Linear.
        bias: whether the layer has a bias, drawn uniformly from +-1/sqrt(in_features).
        algo: how to multiply. All algorithms give the same results, on GPUs and CPUs, and have the
            same parameters: "kernel" (kronop's), "bmm", "einsum", "dense" (one matrix, formed in
            every call), "sparse" and "bsr" (torch's sparse matrices, by rows and by blocks), or
            "auto", which chooses the kernel or the dense product by a model of their times.
        dtype: float32, float16, bfloat16 or float64; None means the type of `weights`, or torch's
            default without them. Operands must have this type, unless autocast casts both.
        bs_last: whether the batch comes after the features: (in_features, ...) gives
            (out_features, ...), instead of (..., in_features) giving (..., out_features).
        device: device of the parameters; None means that of `weights`, or torch's default.

    Attributes:
        weights: a ParameterList, in the order of the patterns.
        bias: a parameter (out_features,), or None.
        in_features, out_features: a c d of the first pattern, a b d of the last one.
        projection_error: the relative error of `from_linear`; None for other layers.

    Raises:
        ArgumentError: the patterns do not chain, weights have other shapes, or the algorithm is
            unknown.
        ElementTypeError: `patterns` is no list, a weight is no tensor, or the element type is none
            of the four.

    Example:
        >>> import torch
        >>> generator = torch.manual_seed(0)
        >>> layer = kronop.torch.nn.KSLinear([(4, 4, 4, 1), (1, 4, 4, 4)])
        >>> x = torch.randn(3, 16)
        >>> expected = torch.nn.functional.linear(x, layer.weight, layer.bias)
        >>> bool(torch.allclose(layer(x), expected, atol=1e-5))
        True
        >>> sum(item.numel() for item in layer.weights)  # a torch.nn.Linear has 256
        128
        >>> kronop.torch.nn.KSLinear.monarch(16, 16, blocks=4).patterns
        ((4, 4, 4, 1), (1, 4, 4, 4))
    """

    def __init__(
        self,
        patterns: Sequence[Sequence[int]],
        weights: Sequence[Tensor] | None = None,
        bias: bool = True,
        algo: str = "kernel",
        dtype: torch.dtype | None = None,
        bs_last: bool = False,
        device: torch.device | str | int | None = None,
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

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Restores a pickled layer; earlier versions of kronop pickled it without `_names`."""
        names = [str(index) for index in range(len(state["patterns"]))]
        super().__setstate__({"_names": names, **state})

    def reset_parameters(self) -> None:
        """Draws new random values for all parameters, in place."""
        draw(self, self.weights, [c for _, _, c, _ in self.patterns])

    if TYPE_CHECKING:

        def __call__(self, x: Tensor) -> Tensor:
            """As `forward`."""

    @property
    def algo(self) -> str:
        """The name of the algorithm by which the layer multiplies; may be set at any time."""
        return self._algo

    @algo.setter
    def algo(self, name: str) -> None:
        if not isinstance(name, str) or name not in (*ALGORITHMS, AUTO):
            raise ArgumentError(
                "algo",
                expected=f"one of {', '.join((*ALGORITHMS, AUTO))}",
                got=repr(name),
                hint="all give the same results; kernel is the default",
            )
        self._algo = name

    def _runs(self) -> str:
        """The algorithm that runs; for "auto", the choice for the parameters' present device."""
        if self._algo != AUTO:
            return self._algo
        like = self._operands()[0][0]  # Not a proxy, as attributes are while torch.fx traces.
        return str(_choose(self.patterns, like.dtype, like.device, self.bs_last))

    def forward(self, x: Tensor) -> Tensor:
        """x W' + bias, by the layer's algorithm.

        Args:
            x: (..., in_features), or (in_features, ...) with `bs_last`, of the layer's type and
                device.

        Returns:
            (..., out_features), or (out_features, ...) with `bs_last`.

        Raises:
            ArgumentError: x has another number of features, or is on another device.
            ElementTypeError: x is no torch tensor, or of another type than the layer.
        """
        if torch.compiler.is_compiling():
            return multiply(x, list(self.weights), self.bias, self.bs_last, self._runs())
        chain, bias = self._operands()
        if self._algo == "kernel" and type(x) is Tensor:
            result = again(x, chain, bias, self.bs_last)
            if result is not None:
                return result
        return multiply(x, chain, bias, self.bs_last, self._runs())

    def _operands(self) -> tuple[list[Tensor], Tensor | None]:
        """The weights and the bias, read from the modules' dictionaries: iterating over a
        ParameterList takes 3 microseconds for each item."""
        own = self._modules["weights"]._parameters
        try:
            return [own[name] for name in self._names], self._parameters["bias"]
        except KeyError:  # Parameters that are parametrized, pruned or normalised.
            return list(self.weights), self.bias

    def get_dense_product(self) -> Tensor:
        """W (out_features, in_features), in the layer's type and on its device; differentiable."""
        return dense_product(list(self.weights))

    @property
    def weight(self) -> Tensor:
        """W (out_features, in_features), the product, formed at each reading, for code that reads
        the weight of a `torch.nn.Linear`. Writing into it changes no parameter."""
        return self.get_dense_product()

    def extra_repr(self) -> str:
        """The layer's settings, for print."""
        text = (
            f"in_features={self.in_features}, out_features={self.out_features},"
            f" patterns={[*self.patterns]}, bias={self.bias is not None}, algo={self._algo!r}"
        )
        return f"{text}, bs_last=True" if self.bs_last else text

    @classmethod
    def monarch(cls, in_features: int, out_features: int, blocks: int, **options: Any) -> KSLinear:
        """A layer of two factors of `blocks` dense blocks each (see `patterns.monarch`).

        Args:
            in_features, out_features: as for torch.nn.Linear; `blocks` divides both.
            blocks: the number of dense blocks of each factor.
            options: `bias`, `algo`, `dtype`, `bs_last`, `device`, as for the layer.

        Returns:
            A layer that takes (..., in_features) and returns (..., out_features).

        Raises:
            ArgumentError: `blocks` does not divide both numbers of features.
        """
        return cls(_patterns.monarch(in_features, out_features, blocks), **options)

    @classmethod
    def butterfly(cls, features: int, **options: Any) -> KSLinear:
        """A layer of one factor for each prime factor of `features`, so log2(n) factors of 2 x 2
        blocks for a power of two (see `patterns.butterfly`).

        Args:
            features: the number of features that the layer takes and returns.
            options: as for `monarch`.

        Returns:
            A layer that takes (..., features) and returns (..., features).

        Raises:
            ArgumentError: `features` is not a whole number from 2 on.
        """
        return cls(_patterns.butterfly(features), **options)

    @classmethod
    def from_budget(
        cls, in_features: int, out_features: int, parameters: int, **options: Any
    ) -> KSLinear:
        """A layer with at most so many parameters, and a weight of the highest rank that they allow
        (see `patterns.within_budget`).

        Args:
            in_features, out_features: as for torch.nn.Linear.
            parameters: the most that the layer may have, those of the bias among them.
            options: as for `monarch`.

        Returns:
            A layer that takes (..., in_features) and returns (..., out_features).

        Raises:
            ArgumentError: so few parameters make no product of factors; the message says how many
                do.
        """
        bias = options.get("bias", True)
        return cls(_patterns.chosen(in_features, out_features, parameters, bias), **options)

    @classmethod
    def from_linear(
        cls,
        linear: torch.nn.Module,
        patterns: Sequence[Sequence[int]],
        algo: str = "kernel",
        bs_last: bool = False,
    ) -> KSLinear:
        """A layer whose weight approximates that of a torch.nn.Linear; the bias is copied.

        `projection_error` of the layer is `|W - K_1 ... K_L| / |W|` in Frobenius norms, with the
        weights as stored. How small it is depends on the patterns (see `projection`): for one or
        two factors it is the smallest possible. For longer chains of butterfly type it is rounding
        error if W is such a product. For all other chains an iterative search improves it.

        Args:
            linear: a torch.nn.Linear, or any module with `weight` (out_features, in_features) and
                `bias` (out_features,) or None.
            patterns: as for the layer, with the features of `linear`.
            algo, bs_last: as for the layer.

        Returns:
            A layer that takes and returns the shapes that `linear` does, of its type and device.

        Raises:
            ArgumentError: the patterns do not chain or have other features, or a weight is not
                finite.
            ElementTypeError: `linear` is no such module, or its weight is not a float of 16 to 64
                bits.
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
