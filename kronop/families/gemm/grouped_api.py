"""Groups of matrix products in one line, on plain tensors."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

from kronop.args.device import target_of
from kronop.args.tensor import check_element
from kronop.core import prepared
from kronop.core.calls import (
    check_activation,
    describe_output,
    epilogue_of,
    finish,
    operand_of,
)
from kronop.descriptions.datatype import Layout
from kronop.descriptions.shared import beta_beside
from kronop.descriptions.tensor import TensorDescription
from kronop.families.gemm.api import described
from kronop.families.gemm.arguments import DIFFERENTIABLE
from kronop.families.gemm.grouped_arguments import GemmGroupedArguments
from kronop.families.gemm.member_arguments import lists_of
from kronop.families.gemm.operation import GemmOperationGrouped

# The order of the lists in a repeated call, and the names of their items for kernels.
_ORDER = ("As", "Bs", "biases", "Cs", "outs")
_NAMES = ("A", "B", "bias", "Z", "Y")


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
    lists = lists_of(
        {"As": As, "Bs": Bs, "biases": biases, "Cs": Cs, "outs": outs}, ("Cs", "outs", "biases")
    )
    count = len(lists["As"])
    absent = [None] * count
    tensors = [item for name in _ORDER for item in lists.get(name, absent)]
    form = ("grouped", count, activation)
    found, lesson = prepared.repeat(form, alpha, beta, tensors, results=count)
    if found is not None:
        return found if count > 1 else [found]
    operation = _operation_for(
        lists["As"], lists["Bs"], lists.get("Cs"), activation, lists.get("outs")
    )
    arguments = GemmGroupedArguments(
        operation=operation,
        A=lists["As"],
        B=lists["Bs"],
        C=lists.get("Cs"),
        D=lists.get("outs"),
        output_op=operation.epilogue_type(alpha, beta),
        biases=lists.get("biases"),
    )
    names = (f"{name}[{index}]" for name in _NAMES for index in range(count))
    finish(arguments, lesson, {name: slot for slot, name in enumerate(names)})
    return list(arguments.D)


def _operation_for(
    As: Sequence[Any],
    Bs: Sequence[Any],
    Cs: Sequence[Any] | None,
    activation: str | None,
    outs: Sequence[Any] | None,
) -> GemmOperationGrouped:
    views = {name: _views(name, items) for name, items in (("As", As), ("Bs", Bs))}
    first = views["As"][0]
    for name, items in views.items():
        for index, item in enumerate(items):
            check_element(item.element, first.element, f"{name}[{index}]", ", the type of As[0]")
    given = zip(views["Bs"], _each(Cs, Bs), _each(outs, Bs), strict=True)
    results = [
        describe_output(
            first.element,
            item.shape[-1],
            c,
            out,
            {"Z": f"Cs[{index}]", "Y": f"outs[{index}]"},
            DIFFERENTIABLE,
        )
        for index, (item, c, out) in enumerate(given)
        if item.shape
    ]
    return _operation(
        target_of(first),
        _common([described(item, "As") for item in views["As"]]),
        _common([described(item, "Bs") for item in views["Bs"]]),
        _common(results),
        activation,
    )


def _each(items: Sequence[Any] | None, like: Sequence[Any]) -> Sequence[Any]:
    """The items, or None for each if there are none."""
    return [None] * len(like) if items is None else items


def _views(name: str, items: Sequence[Any]) -> list[Any]:
    return [
        operand_of(item, f"{name}[{index}]", DIFFERENTIABLE) for index, item in enumerate(items)
    ]


def _common(items: Sequence[TensorDescription]) -> TensorDescription:
    """What all tensors promise."""
    element, layouts = items[0].element, {item.layout for item in items}
    if len(layouts) > 1:
        return TensorDescription(element, Layout.RowMajor, 1)
    return TensorDescription(element, layouts.pop(), min(item.alignment for item in items))


@functools.lru_cache(maxsize=256)
def _operation(
    target: str,
    A: TensorDescription,
    B: TensorDescription,
    C: TensorDescription,
    activation: str | None,
) -> GemmOperationGrouped:
    return GemmOperationGrouped(target, None, A, B, C, epilogue_of(A.element, C, activation))
