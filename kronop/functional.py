"""The operations in one line, on plain tensors: the same kind, type and device out as in."""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping, Sequence
from typing import Any

from kronop import prepared
from kronop.args.base import check_overlap
from kronop.args.device import target_of
from kronop.args.kron import KronMatmulArguments
from kronop.args.ksparse import KSparseArguments
from kronop.args.tensor import TensorView, describe, view
from kronop.descriptions import epilogue as epilogues
from kronop.descriptions.datatype import FLOAT8, DataType, Layout, int8, result_type
from kronop.descriptions.epilogue import (
    ACTIVATION_NAMES,
    Epilogue,
    LinearCombination,
    LinearCombinationClamp,
    LinearCombinationGeneric,
)
from kronop.descriptions.kron import Side
from kronop.descriptions.math_instruction import SIMT_ELEMENTS, MathInstruction
from kronop.descriptions.shared import check_flag
from kronop.descriptions.tensor import TensorDescription
from kronop.errors import ArgumentError, ElementTypeError, mismatch
from kronop.families import KronMatmulOperation, KSparseOperation
from kronop.prepared import Lesson

_ORDER = {Side.Right: "gemkm(x, factors)", Side.Left: "gekmm(factors, x)"}


def gemkm(
    x: Any,
    factors: Sequence[Any],
    *,
    alpha: float = 1.0,
    beta: float = 0.0,
    z: Any = None,
    out: Any = None,
) -> Any:
    """alpha x (F1 x ... x FN) + beta z.

    Args:
        x: (..., M, K) or (K,), with K the product of the factors' rows.
        factors: one (..., P, Q) tensor each; leading dimensions broadcast as in `matmul`.
        alpha, beta: scalars; beta needs `z`.
        z: like the result.
        out: where to write the result; a new tensor like `x` where None.

    Returns:
        (..., M, product of the factors' columns), of x's kind, element type and device. Of int8 it
        is int32, wrapped where sums leave its range; to an `out` of int8 it saturates.

    Raises:
        ArgumentError: shapes, devices or scalars that do not fit.
        ElementTypeError: types that do not.
    """
    return _kron("gemkm", x, factors, Side.Right, alpha, beta, z, out)


def gekmm(
    factors: Sequence[Any],
    x: Any,
    *,
    alpha: float = 1.0,
    beta: float = 0.0,
    z: Any = None,
    out: Any = None,
) -> Any:
    """alpha (F1 x ... x FN) x + beta z.

    Args:
        factors: one (..., P, Q) tensor each; leading dimensions broadcast as in `matmul`.
        x: (..., K, M) or (K,), with K the product of the factors' columns.
        alpha, beta: scalars; beta needs `z`.
        z: like the result.
        out: where to write the result; a new tensor like `x` where None.

    Returns:
        (..., product of the factors' rows, M), of x's kind, element type and device. Of int8 it is
        int32, wrapped where sums leave its range; to an `out` of int8 it saturates.

    Raises:
        ArgumentError: shapes, devices or scalars that do not fit.
        ElementTypeError: types that do not.
    """
    return _kron("gekmm", x, factors, Side.Left, alpha, beta, z, out)


def ksmm(
    x: Any,
    weights: Any,
    *,
    batch_last: bool = False,
    bias: Any = None,
    activation: str | None = None,
    alpha: float = 1.0,
    beta: float = 0.0,
    z: Any = None,
    out: Any = None,
) -> Any:
    """activation(alpha x K' + beta z + bias), K Kronecker-sparse or a product of such factors.

    Factors are applied one after the other; alpha, beta, z, bias and activation come after the
    last. What is between two factors is of x's element type: in float16 it overflows beyond
    65504, even where the result would not.

    Args:
        x: (..., a c d), or (a c d, ...) with `batch_last`.
        weights: one (a, b, c, d) tensor, or a list of them, the right-most factor first.
        batch_last: the batch is behind the features.
        bias: (a b d,) of the last factor applied.
        activation: None, or one of relu, leaky_relu, tanh, sigmoid, silu, hardswish, gelu.
        alpha, beta: scalars; beta needs `z`.
        z: like the result.
        out: where to write the result, apart from x, weights and bias; a new tensor like `x`
            where None.

    Returns:
        (..., a b d), or (a b d, ...) with `batch_last`, of x's kind, element type and device. Of
        one factor only: of int8 as for `gemkm`; of 8-bit floats bfloat16, or what `out` is of
        (float16 and float32 as well), and `bias` and `z` are of that type. `alpha` is then the
        product of both operands' scales.

    Raises:
        ArgumentError: shapes, devices or scalars that do not fit.
        ElementTypeError: types that do not.
    """
    chain = list(weights) if isinstance(weights, (list, tuple)) else [weights]
    lesson = None
    if type(batch_last) is bool and (activation is None or type(activation) is str):
        form = (activation, batch_last)
        result, lesson = prepared.repeat(form, alpha, beta, [x, *chain, bias, z, out])
        if result is not None:
            return result
    _check_activation(activation)
    check_flag("batch_last", batch_last)
    patterns = _chain_patterns(chain)
    if len(chain) > 1:
        _check_chained(x)
    if out is not None and len(chain) > 1:
        _check_separate(out, x, chain, bias)
    for index, (weight, pattern) in enumerate(zip(chain[:-1], patterns[:-1], strict=True)):
        x = _finish(ksparse_arguments(x, weight, pattern, batch_last), lesson, {"W": 1 + index})
    count = len(chain)
    result = _finish(
        ksparse_arguments(
            x, chain[-1], patterns[-1], batch_last, bias, activation, (alpha, beta), z, out
        ),
        lesson,
        {"W": count, "bias": count + 1, "Z": count + 2},
    )
    if lesson is not None:
        lesson.end()
    return result


def _kron(
    name: str,
    x: Any,
    factors: Sequence[Any],
    side: Side,
    alpha: float,
    beta: float,
    z: Any,
    out: Any,
) -> Any:
    lesson = None
    if type(factors) is list or type(factors) is tuple:
        result, lesson = prepared.repeat(name, alpha, beta, [x, *factors, z, out])
        if result is not None:
            return result
    arguments = kron_arguments(x, factors, side, alpha, beta, z, out)
    slots = {f"factors[{index}]": 1 + index for index in range(len(factors))}
    result = _finish(arguments, lesson, slots | {"Z": 1 + len(factors)})
    if lesson is not None:
        lesson.end()
    return result


def _check_separate(out: Any, x: Any, weights: Sequence[Any], bias: Any) -> None:
    """Holds the result of a chain apart from every input; each layer knows only its own."""
    inputs = {"X": x} | {f"weights[{index}]": item for index, item in enumerate(weights)}
    if bias is not None:
        inputs["bias"] = bias
    check_overlap(view(out, "Y"), {name: view(item, name) for name, item in inputs.items()}, None)


def _check_chained(x: Any) -> None:
    """Refuses what a second factor of the same type would not take."""
    element = view(x, "X").element
    if result_type(element) != element:
        raise ElementTypeError(
            mismatch(
                "element type of X in a chain",
                expected="a type that results have as well",
                got=f"{element.name}, of which results are {result_type(element).name}",
                hint="convert x and the weights to it, or apply one factor at a time",
            )
        )


def _operand(x: Any) -> TensorView:
    """X, of an element type that kernels multiply."""
    x_view = view(x, "X")
    if x_view.element not in SIMT_ELEMENTS:
        raise ElementTypeError(
            mismatch(
                "element type of X",
                expected=f"one of {', '.join(item.name for item in SIMT_ELEMENTS)}",
                got=x_view.element.name,
                hint="convert all tensors to one of these",
            )
        )
    return x_view


def kron_arguments(
    x: Any,
    factors: Sequence[Any],
    side: Side,
    alpha: float = 1.0,
    beta: float = 0.0,
    z: Any = None,
    out: Any = None,
) -> KronMatmulArguments:
    """The arguments, of the operation for these tensors, that `gemkm` or `gekmm` runs."""
    if not isinstance(factors, (list, tuple)):
        raise ElementTypeError(
            mismatch(
                "factors",
                expected="a list or tuple of tensors",
                got=type(factors).__name__,
                hint=f"the order is {_ORDER[side]}; wrap a single factor in a list",
            )
        )
    x_view = _operand(x)
    shapes = tuple(_matrix_shape(view(item, f"factors[{i}]"), i) for i, item in enumerate(factors))
    columns = math.prod(shape[1 if side is Side.Right else 0] for shape in shapes)
    inner = columns if side is Side.Right else (x_view.shape[-1] if len(x_view.shape) > 1 else 1)
    Y = _output_description(x_view.element, inner, z, out)
    operation = _kron_operation(target_of(x_view), describe(x_view, "X"), Y, shapes, side)
    return KronMatmulArguments(
        operation=operation,
        X=x,
        factors=factors,
        Z=z,
        Y=out,
        output_op=operation.epilogue_type(alpha, beta),
    )


def ksparse_arguments(
    x: Any,
    weight: Any,
    pattern: tuple[int, int, int, int],
    batch_last: bool,
    bias: Any = None,
    activation: str | None = None,
    scalars: tuple[float, float] = (1.0, 0.0),
    z: Any = None,
    out: Any = None,
) -> KSparseArguments:
    """The arguments, of the operation for these tensors, that `ksmm` runs for one factor."""
    x_view = _operand(x)
    a, b, _, d = pattern
    inner = math.prod(x_view.shape[1:]) if batch_last else a * b * d
    Y = _output_description(x_view.element, inner, z, out)
    operation = _ksparse_operation(
        target_of(x_view), describe(x_view, "X"), Y, pattern, batch_last, activation
    )
    return KSparseArguments(
        operation=operation,
        X=x,
        W=weight,
        Z=z,
        Y=out,
        bias=bias,
        output_op=operation.epilogue_type(*scalars),
    )


def _finish(arguments: Any, lesson: Lesson | None, slots: Mapping[str, int]) -> Any:
    arguments.operation.run(arguments)
    if lesson is not None:
        lesson.add(arguments, slots)
    return arguments.Y


def _matrix_shape(factor: TensorView, index: int) -> tuple[int, int]:
    if len(factor.shape) < 2:
        raise ArgumentError(
            mismatch(
                f"factors[{index}]", expected="(..., P, Q)", got=factor.shape, hint="give a matrix"
            )
        )
    return factor.shape[-2], factor.shape[-1]


def _chain_patterns(chain: Sequence[Any]) -> list[tuple[int, int, int, int]]:
    """The patterns of a list of weights, checked to chain."""
    if not chain:
        raise ArgumentError(
            mismatch(
                "weights",
                expected="at least one (a, b, c, d) tensor",
                got="an empty list",
                hint="give the right-most factor first",
            )
        )
    patterns: list[tuple[int, int, int, int]] = []
    for index, weight in enumerate(chain):
        shape = view(weight, f"weights[{index}]").shape
        if len(shape) != 4:
            raise ArgumentError(
                mismatch(
                    f"weights[{index}]",
                    expected="shape (a, b, c, d)",
                    got=shape,
                    hint="K is I_a x dense(b, c) x I_d in structure",
                )
            )
        a, b, c, d = shape
        if patterns:
            before = patterns[-1][0] * patterns[-1][1] * patterns[-1][3]
            if a * c * d != before:
                raise ArgumentError(
                    mismatch(
                        f"weights[{index}]",
                        expected=f"a c d = {before}, the outputs of weights[{index - 1}]",
                        got=f"{a * c * d} from {shape}",
                        hint="list the right-most factor first",
                    )
                )
        patterns.append((a, b, c, d))
    return patterns


def _output_description(x: DataType, inner: int, z: Any, out: Any) -> TensorDescription:
    """The strongest promise that Y and Z keep; `inner` is the contiguous size of a Y made here."""
    given = [
        describe(view(item, name), name)
        for name, item in (("Z", z), ("Y", out))
        if item is not None
    ]
    element = result_type(x)
    if out is not None and (given[-1].element == x or x in FLOAT8):
        element = given[-1].element
    if out is None:
        given.append(
            TensorDescription(element, Layout.RowMajor, math.gcd(inner, 16 // element.bytes) or 1)
        )
    layouts = {item.layout for item in given}
    if len(layouts) > 1:
        return TensorDescription(element, Layout.RowMajor, 1)
    return TensorDescription(element, layouts.pop(), min(item.alignment for item in given))


@functools.lru_cache(maxsize=512)
def _kron_operation(
    target: str,
    X: TensorDescription,
    Y: TensorDescription,
    factors: tuple[tuple[int, int], ...],
    side: Side,
) -> KronMatmulOperation:
    epilogue = _epilogue(X.element, Y, None)
    return KronMatmulOperation(
        target, None, X, TensorDescription(X.element), Y, epilogue, factors, side
    )


@functools.lru_cache(maxsize=512)
def _ksparse_operation(
    target: str,
    X: TensorDescription,
    Y: TensorDescription,
    pattern: tuple[int, int, int, int],
    batch_last: bool,
    activation: str | None,
) -> KSparseOperation:
    W = TensorDescription(X.element)
    epilogue = _epilogue(X.element, Y, activation)
    return KSparseOperation(target, None, X, W, Y, epilogue, pattern, batch_last)


def _epilogue(x: DataType, Y: TensorDescription, activation: str | None) -> Epilogue:
    accumulator = MathInstruction.simt(x).element_accumulator
    if activation is None:
        functor = LinearCombinationClamp if Y.element == int8 else LinearCombination
        return functor(Y.element, Y.alignment, accumulator, accumulator)
    function = getattr(epilogues, activation)(accumulator)
    return LinearCombinationGeneric(function, Y.element, Y.alignment, accumulator, accumulator)


def _check_activation(activation: object) -> None:
    # By hand and first: activations are keys of a cache, and a list can be none.
    named = isinstance(activation, str) and activation in ACTIVATION_NAMES
    if activation is not None and not named:
        raise ArgumentError(
            mismatch(
                "activation",
                expected=f"None or one of {', '.join(ACTIVATION_NAMES)}",
                got=repr(activation),
                hint="for other functions apply them to the result",
            )
        )
