"""matmul_visited: a product with a visitor tree, with gradients, on torch tensors."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from kronop.descriptions.visitor import VisitorTree
from kronop.errors import ArgumentError, ElementTypeError
from kronop.families.gemm.torch.visited_operator import visited
from kronop.torch.checks import are_symbols, check_tensor, number


def matmul_visited(tree: VisitorTree, a: Tensor, b: Tensor, /, **operands: Tensor | float) -> Any:
    """The results of a visitor tree over the sums of a b, differentiable in a, b and its operands.

    A torch operator: autograd to any order and in both modes, torch.compile without a graph break,
    torch.export, torch.vmap, torch.func. Under autocast a, b and all operands of 16 and 32 bits
    are cast as for `torch.matmul`. Gradients of a and b are kronop's products. Those of the tree
    are torch's operations in float32 (float64 of float64): where they read the sums, these are
    computed again, rounded to the product's type. The larger one of two values gets the gradient
    of their maximum, and equal ones get half each (also of relu's 0); the largest ones of a row or
    column share that of its maximum evenly.

    Args:
        tree: what `kronop.epilogue_visitor` returns.
        a: (..., M, K), any strides.
        b: (..., K, N), of the same type; leading dimensions broadcast.
        operands: by the tree's names, a number, without gradient, for each scalar and a tensor for
            each other one: "tensor" (M, N), "row" (N) and "column" (M), or what broadcasts to it,
            also with leading dimensions of the result. They may have other types than a.

    Returns:
        D or, of a tree with several results, a tuple of them. D and other (..., M, N) have the
        type of `kronop.torch.matmul`'s result; for products of integers, whose results are rounded
        and saturate, that of the operands' floats if there are any. Reductions, (..., M) or
        (..., N), are float32, or float64 of float64.

    Raises:
        ArgumentError: an operand is missing or unknown; shapes, devices or scalars that do not fit.
        ElementTypeError: what is no tree, no torch tensor or no number; types that do not fit.
        DescriptionError: no kernel computes a tree with these types, as of int64.

    Example:
        >>> import torch
        >>> generator = torch.manual_seed(0)
        >>> a, b, bias = torch.randn(3, 16), torch.randn(16, 5), torch.randn(5)
        >>> tree = kronop.epilogue_visitor(
        ...     lambda accum, alpha, bias: kronop.relu(alpha * accum + bias),
        ...     kinds={"alpha": "scalar", "bias": "row"},
        ... )
        >>> y = kronop.torch.matmul_visited(tree, a, b, alpha=0.5, bias=bias)
        >>> bool(torch.allclose(y, torch.relu(0.5 * a @ b + bias), atol=1e-5))
        True
    """
    if not isinstance(tree, VisitorTree):
        raise _no_tree(tree)
    tensors = [a, b, *(operands.get(item.name) for item in tree.tensors)]
    if are_symbols(tensors):
        given = tuple(tensors)
        found = torch.overrides.handle_torch_function(matmul_visited, given, tree, a, b, **operands)
        return found  # noqa: RET504  # Its type is not known.
    check_tensor("a", a, 2, _ELSEWHERE)
    check_tensor("b", b, 2, _ELSEWHERE)
    _check_names(tree, operands)
    for item in tree.tensors:
        _check_operand(item.name, item.kind, operands[item.name])
    scalars = [float(number(name, operands[name])) for name in tree.scalars]
    every = visited(a, b, tensors[2:], scalars or None, tree.text)
    return every[0] if len(every) == 1 else tuple(every)


_ELSEWHERE = "operations with visitor=True"


def _check_operand(name: str, kind: str, item: object) -> None:
    if isinstance(item, (int, float)):
        raise ElementTypeError(
            name,
            expected="a torch tensor",
            got=f"the number {item}",
            hint=f'the tree has it as a "{kind}"; numbers are its "scalar" parameters',
        )
    check_tensor(name, item, 1, _ELSEWHERE)


def _check_names(tree: VisitorTree, operands: Mapping[str, object]) -> None:
    names = [item.name for item in tree.operands]
    missing = [name for name in names if operands.get(name) is None]
    if missing or any(name not in names for name in operands):
        raise ArgumentError(
            "operands of the tree",
            expected=", ".join(names) or "none",
            got=", ".join(operands) or "none",
            hint=f"give {', '.join(missing)}" if missing else "give no others",
        )


def _no_tree(item: object) -> ElementTypeError:
    got, hint = repr(item), "decorate the function with kronop.epilogue_visitor"
    if isinstance(getattr(item, "tree", None), VisitorTree):
        got = "a tree with types"
        hint = "pass its .tree, which has no types; those of the tensors are taken"
    return ElementTypeError("tree", expected="a visitor tree", got=got, hint=hint)
