"""The ways to call: one-line functions, arguments that run again, operations with alignment 1."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any
from unittest import mock

import kronop
from kronop.core import prepared, program
from kronop.descriptions.tensor import TensorDescription
from kronop.families.kron import api as functional
from kronop.families.ksparse import api as functional_ksparse
from kronop.families.ksparse import api as gradients
from tests.fuzz.case import Call
from tests.fuzz.tensors import Tensors


class _Here:
    target = ""


@contextlib.contextmanager
def on_target(target: str) -> Iterator[None]:
    """Makes the one-line functions use this x86 target; a GPU has only one target."""
    if target.startswith("sm_"):
        yield
        return
    if target != _Here.target:
        # Remembered calls are found by their tensors and don't include the target, which never
        # changes in a normal process.
        prepared.forget()
        program.forget()
        _Here.target = target
    with contextlib.ExitStack() as stack:
        for module in (functional, functional_ksparse):
            stack.enter_context(mock.patch.object(module, "target_of", return_value=target))
        yield


def _options(call: Call, tensors: Tensors) -> dict[str, Any]:
    """The keyword arguments besides the operands of the product."""
    options: dict[str, Any] = {"alpha": call.alpha}
    if call.z is not None:
        options |= {"beta": call.beta, "z": tensors["z"]}
    if call.out is not None:
        options["out"] = tensors["out"]
    return options


def line(tensors: Tensors) -> Any:
    """Calls the one-line function."""
    problem, call = tensors.problem, tensors.call
    options, x = _options(call, tensors), tensors["x"]
    if problem.is_weight_gradient:
        options |= {"tied": problem.tied, "batch_last": problem.batch_last}
        if problem.factors:
            options["factors"] = tensors.parts
        return kronop.weight_gradient(x, tensors["g"], problem.shapes[0], **options)
    if problem.of_kron:
        if problem.left:
            return kronop.gekmm(tensors.parts, x, **options)
        return kronop.gemkm(x, tensors.parts, **options)
    options |= {"batch_last": problem.batch_last, "activation": call.activation}
    if call.bias is not None:
        options["bias"] = tensors["bias"]
    weights = tensors.parts if problem.family == "chain" else tensors.parts[0]
    return kronop.ksmm(x, weights, **options)


def bound(tensors: Tensors) -> Any:
    """The arguments that the one-line function would run."""
    problem, call = tensors.problem, tensors.call
    x, z, out = tensors["x"], tensors["z"], tensors["out"]
    if problem.is_weight_gradient:
        return gradients.gradient_arguments(
            x,
            tensors["g"],
            problem.shapes[0],
            tied=problem.tied,
            batch_last=problem.batch_last,
            alpha=call.alpha,
            beta=call.beta,
            z=z,
            out=out,
            factors=tensors.parts,
        )
    scalars = (call.alpha, call.beta)
    if problem.of_kron:
        side = kronop.Side.Left if problem.left else kronop.Side.Right
        return functional.kron_arguments(x, tensors.parts, side, *scalars, z, out)
    options = (problem.batch_last, tensors["bias"], call.activation, scalars, z, out)
    return functional_ksparse.sparse_arguments(x, tensors.parts, *options)


def described(tensors: Tensors) -> Any:
    """Arguments of an operation with alignment 1, for the problem's target."""
    problem, call = tensors.problem, tensors.call
    x = TensorDescription(problem.element, _layout(call), 1)
    y = TensorDescription(call.output)
    epilogue = functional.epilogue_of(problem.element, y, call.activation)
    common = (problem.target, None, x, TensorDescription(problem.element), y, epilogue)
    options = {"X": tensors["x"], "Z": tensors["z"], "Y": tensors["out"]}
    if problem.of_kron:
        side = kronop.Side.Left if problem.left else kronop.Side.Right
        operation: Any = kronop.KronMatmulOperation(*common, problem.shapes, side)
        kind, options = kronop.KronMatmulArguments, options | {"factors": tensors.parts}
    elif problem.is_weight_gradient:
        operation = kronop.KSparseGradientOperation(
            *common[:3],
            x,
            *common[4:],
            problem.shapes[0],
            problem.tied,
            problem.batch_last,
            problem.products,
            problem.factors,
        )
        kind = kronop.KSparseGradientArguments
        options |= {"G": tensors["g"], "factors": tensors.parts}
    elif problem.family == "chain":
        operation = kronop.KSparseChainOperation(*common, problem.shapes, problem.batch_last)
        kind = kronop.KSparseChainArguments
        options |= {"weights": tensors.parts, "bias": tensors["bias"]}
    else:
        operation = kronop.KSparseOperation(*common, problem.shapes[0], problem.batch_last)
        kind = kronop.KSparseArguments
        options |= {"W": tensors.parts[0], "bias": tensors["bias"]}
    output_op = operation.epilogue_type(call.alpha, call.beta)
    return kind(operation=operation, output_op=output_op, **options)


def _layout(call: Call) -> Any:
    """The layout for an X of alignment 1: the one that fits its strides better."""
    strides = [abs(stride) for stride in call.x.strides[-2:]]
    by_columns = len(strides) == 2 and strides[0] < strides[1]
    return kronop.ColumnMajor if by_columns else kronop.RowMajor


def run(arguments: Any) -> Any:
    """Runs arguments and returns the result; waits, so that a NumPy result is on the host."""
    arguments.operation.run(arguments)
    arguments.sync()
    return arguments.Y


def backward(tensors: Tensors) -> tuple[Any, list[Any], list[str]]:
    """(the result of kronop.torch, the gradients of all operands, the names of the operands)."""
    import torch

    import kronop.torch

    problem, call = tensors.problem, tensors.call
    named = {"x": tensors["x"], "z": tensors["z"], "bias": tensors["bias"]}
    named |= {f"parts[{index}]": item for index, item in enumerate(tensors.parts)}
    leaves = {
        name: item.detach().requires_grad_() for name, item in named.items() if item is not None
    }
    parts = [item for name, item in leaves.items() if name.startswith("parts")]
    options: dict[str, Any] = {"alpha": call.alpha}
    if call.z is not None:
        options |= {"beta": call.beta, "z": leaves["z"]}
    if not problem.of_kron:
        options |= {"batch_last": problem.batch_last, "bias": leaves.get("bias")}
        y = kronop.torch.ksmm(leaves["x"], parts, **options)
    elif problem.left:
        y = kronop.torch.gekmm(parts, leaves["x"], **options)
    else:
        y = kronop.torch.gemkm(leaves["x"], parts, **options)
    found = torch.autograd.grad(y, list(leaves.values()), tensors["g"])
    return y, list(found), list(leaves)
