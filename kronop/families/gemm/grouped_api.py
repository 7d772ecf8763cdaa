"""Groups of matrix products in one line, on plain tensors."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

from kronop.core import prepared
from kronop.core.calls import check_activation, finish
from kronop.descriptions.shared import beta_beside
from kronop.families.gemm import composed_api
from kronop.families.gemm.arguments import GemmGroupedArguments
from kronop.families.gemm.member_arguments import lists_of
from kronop.tensors import Tensor


def grouped_matmul(
    As: Sequence[Tensor],
    Bs: Sequence[Tensor],
    Cs: Sequence[Tensor] | None = None,
    alpha: float = 1.0,
    beta: float | None = None,
    biases: Sequence[Tensor] | None = None,
    activation: str | None = None,
    outs: Sequence[Tensor] | None = None,
) -> list[Any]:
    """Matrix products of several sizes, `activation(alpha A_g B_g + beta C_g + bias_g)` for each
    product g, as one operation.

    CPUs compute the products one after the other. A product of sizes that no earlier call had is
    checked first, which takes about half a millisecond.

    Args:
        As, Bs: lists of tensors (M, K) and (K, N), all of one type, each product of its own sizes,
            maybe with leading dimensions; or stacked tensors. Types are those of
            `kronop.gemm.matmul`.
        Cs: (M, N) each; read only if beta is not 0.
        alpha, beta, activation: as of `kronop.gemm.matmul`, the same for all.
        biases: (N) each.
        outs: where to write the results; new tensors if None.

    Returns:
        A list of tensors (M, N).

    Raises:
        ArgumentError, ElementTypeError: as of `kronop.gemm.matmul`; the message has the number of
            the product that does not fit.
        DescriptionError, CompileError, DeviceError, OutOfMemoryError: as of `kronop.gemm.matmul`.

    Example:
        >>> As = [np.ones((2, 3), np.float32), np.ones((1, 5), np.float32)]
        >>> Bs = [np.ones((3, 2), np.float32), np.ones((5, 4), np.float32)]
        >>> [product.tolist() for product in kronop.gemm.grouped_matmul(As, Bs)]
        [[[3.0, 3.0], [3.0, 3.0]], [[5.0, 5.0, 5.0, 5.0]]]
    """
    beta = beta_beside(Cs, beta, "Cs")
    check_activation(activation)
    lists = lists_of({"As": As, "Bs": Bs}, {"biases": biases, "Cs": Cs, "outs": outs})
    count = len(lists["As"])
    every = [lists.get(name, [None] * count) for name in ("As", "Bs", "biases", "Cs", "outs")]
    tensors = [item for items in every for item in items]
    form = ("grouped", count, activation)
    compose = functools.partial(composed_api.compose, every, alpha, beta, activation)
    found, lesson = prepared.repeat(form, alpha, beta, tensors, results=count, compose=compose)
    if found is not None:
        return found if count > 1 else [found]
    first = composed_api.first_of(every)
    described = [composed_api.describe(every, index, first) for index in range(count)]
    operation = composed_api.operation_for(first, described, activation)
    output_op = operation.epilogue_type(alpha, beta)
    given = dict(zip(("A", "B", "biases", "C", "D"), every, strict=True))
    arguments = GemmGroupedArguments(operation=operation, output_op=output_op, **given)
    finish(arguments, lesson)
    return list(arguments.D)
