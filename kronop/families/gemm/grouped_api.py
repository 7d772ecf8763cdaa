"""Groups of matrix products in one line, on plain tensors."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from kronop.args.device import target_of
from kronop.core import prepared
from kronop.core.calls import (
    check_activation,
    describe_output,
    epilogue_of,
    finish,
    operand_of,
    operation_of,
)
from kronop.descriptions.datatype import Layout
from kronop.descriptions.shared import beta_beside
from kronop.descriptions.tensor import TensorDescription
from kronop.families.gemm.api import described
from kronop.families.gemm.arguments import GemmArguments
from kronop.families.gemm.grouped_arguments import GemmGroupedArguments
from kronop.families.gemm.member_arguments import lists_of
from kronop.families.gemm.operation import GemmOperationGrouped


def grouped_matmul(
    As: Sequence[Any],
    Bs: Sequence[Any],
    Cs: Sequence[Any] | None = None,
    alpha: float = 1.0,
    beta: float | None = None,
    biases: Sequence[Any] | None = None,
    activation: str | None = None,
    outs: Sequence[Any] | None = None,
) -> list[Any]:
    """Matrix products of several sizes, `activation(alpha A_g B_g + beta C_g + bias_g)` for each
    product g, as one operation.

    CPUs compute the products one after the other. The third call with tensors of the same sizes is
    the first quick one: before it every product is checked, which takes about half a millisecond.

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
    found, lesson = prepared.repeat(form, alpha, beta, tensors, results=count)
    if found is not None:
        return found if count > 1 else [found]
    operation = operation_of(GemmOperationGrouped, *_described(every, activation))
    output_op = operation.epilogue_type(alpha, beta)
    given = dict(zip(("A", "B", "biases", "C", "D"), every, strict=True))
    arguments = GemmGroupedArguments(operation=operation, output_op=output_op, **given)
    finish(arguments, lesson)
    return list(arguments.D)


def _described(lists: Sequence[Sequence[Any]], activation: str | None) -> tuple[Any, ...]:
    """The fields of the operation that serves all products, of lists of A, B, biases, C and D."""
    functions = GemmArguments.differentiable
    first = operand_of(lists[0][0], "As[0]", functions)
    found = []
    for index, (a, b, _, c, out) in enumerate(zip(*lists, strict=True)):
        (_, second), operands = described(a, b, (f"As[{index}]", f"Bs[{index}]"), ("As[0]", first))
        names = {"Z": f"Cs[{index}]", "Y": f"outs[{index}]"}
        result = describe_output(first.element, second.shape[-1], c, out, names, functions)
        found.append((*operands, result))
    A, B, C = (_common(items) for items in zip(*found, strict=True))
    return target_of(first), A, B, C, epilogue_of(first.element, C, activation)


def _common(items: Sequence[TensorDescription]) -> TensorDescription:
    """What all tensors promise."""
    element, layouts = items[0].element, {item.layout for item in items}
    if len(layouts) > 1:
        return TensorDescription(element, Layout.RowMajor, 1)
    return TensorDescription(element, layouts.pop(), min(item.alignment for item in items))
