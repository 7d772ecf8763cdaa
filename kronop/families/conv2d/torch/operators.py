"""The operators kronop::conv2d and kronop::conv2d_activated, and their derivatives.

kronop::conv2d computes convolutions and their gradients, each of which is linear in both operands.
With Y the results of images X and filters W, and G the gradient of Y,

    Y = fprop(X, W) + bias    dX = dgrad(G, W)    dW = wgrad(G, X)    dbias = the sums of G

and the gradients of dgrad and wgrad are such products too: each is the one of the three whose
result it is. So there are derivatives of any order, in both modes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from kronop.core.calls import check_activation
from kronop.errors import ArgumentError
from kronop.families.conv2d import api, bilinear
from kronop.families.conv2d.bilinear import Form
from kronop.families.gemm.torch.operators import result_kind
from kronop.torch.activated import register_activated
from kronop.torch.activations import RULES
from kronop.torch.checks import check_kind
from kronop.torch.declaration import Autocast, Direct, Gradients, Named, Operator, Prepared
from kronop.torch.registration import register
from kronop.torch.scaling import added

_LAST = torch.channels_last


def _form(given: Named) -> Form:
    how = (getattr(given, name, None) for name in Form._fields)
    return Form._make(tuple(item) if isinstance(item, (list, tuple)) else item for item in how)


def _empty(given: Named) -> Tensor:
    """A tensor of the result's shape and type, with the channels last."""
    shape = _form(given).shape(given.a.shape, given.b.shape)
    kind = _kind(given)
    return torch.empty(shape, dtype=kind, device=given.a.device, memory_format=_LAST)


def _kind(given: Named) -> torch.dtype:
    """The type of the result."""
    return result_kind(given.a, _form(given).called[0])


def placed(item: Tensor) -> Tensor:
    """The tensor itself if its channels are last in memory, else a copy where they are."""
    is_last = item.shape[1] == 1 or item.stride(1) == 1
    return item if is_last else item.contiguous(memory_format=_LAST)


def _compute(given: Named) -> Tensor:
    # The result is no view, which autograd would let nobody write into.
    out = _empty(given)
    api.convolve(_form(given), placed(given.a), placed(given.b), given.bias, out)
    return out


def _fake(given: Named) -> Tensor:
    form, found = _form(given), _empty(given)
    check_activation(form.activation)
    first, second = form.called
    check_kind(second, given.b, given.a.dtype, f"{first} and {second} have one type")
    form.check(given.a.shape, given.b.shape)
    if given.bias is not None:
        check_kind("bias", given.bias, found.dtype, "bias has the type of the result")
        if tuple(given.bias.shape) != (found.shape[1],):
            raise ArgumentError(
                "shape of bias",
                expected=(found.shape[1],),
                got=tuple(given.bias.shape),
                hint="one number for each channel of the result",
            )
    return found


def _convolve(form: Form, a: Tensor, b: Tensor, bias: Tensor | None = None) -> Tensor:
    """A call of kronop::conv2d."""
    return convolve(a, b, bias, *form[:-1])


def _directly(form: Form, a: Tensor, b: Tensor) -> Tensor:
    """As `_convolve`, of tensors with values and without gradients."""
    return _compute(Named(a=a, b=b, bias=None, **form._asdict()))


def _gradients(
    given: Named, needs: Named, grad: Tensor, multiply: Callable[..., Tensor] | None = None
) -> Gradients:
    """The gradients of kronop::conv2d, from that of its result; products are its own, or those of
    `multiply`."""
    form, operands, found = _form(given), (given.a, given.b), {}
    multiply = multiply or _convolve
    for at, name in enumerate(("a", "b")):
        if getattr(needs, name):
            pixels = operands[at].shape[2:]
            found[name] = multiply(*form.gradient(at, operands, grad, pixels))
    if needs.bias:
        found["bias"] = grad.sum((0, 2, 3))
    return found


def _tangent(given: Named, tangents: Named) -> Tensor | None:
    """The tangent of kronop::conv2d's result; None if it has none."""
    found, bias = None, tangents.bias
    form = _form(given)._replace(activation=None)
    for a, b in ((tangents.a, given.b), (given.a, tangents.b)):
        if a is not None and b is not None:
            found, bias = added(found, _convolve(form, a, b, bias)), None
    return found if bias is None else bias[:, None, None]


def _backward(given: Named, needs: Named, grad: Tensor) -> Gradients:
    return _gradients(given, needs, placed(grad), _directly)  # Copied once, if it has to be.


def _mapped(size: int, given: Named, dims: Named) -> tuple[Tensor, int]:
    """torch.vmap: the mapped dimension becomes a part of another one."""
    form, are = _form(given), (dims.a is not None, dims.b is not None)
    bias, activation = given.bias, form.activation
    form = form._replace(activation=None)
    operands = [
        item if dim is None else item.movedim(dim, 0)
        for item, dim in ((given.a, dims.a), (given.b, dims.b))
    ]
    if any(are):
        found = bilinear.mapped(form, operands, are, 1, torch.movedim, _convolve_library)
    else:
        found = _convolve_library(form, *operands)[None]
    if bias is not None:
        rows = bias if dims.bias is None else bias.movedim(dims.bias, 0)[:, None]
        found = found + rows[..., None, None]
    return (found if activation is None else RULES[activation].of(found)), 0


def _convolve_library(form: Form, a: Tensor, b: Tensor) -> Tensor:
    return convolve.library(a, b, None, *form[:-1])


def _decomposed(given: Named) -> Tensor:
    """The result by torch's own operations."""
    form, kind = _form(given), _kind(given)
    a, b = given.a.to(kind), given.b.to(kind)
    # Zeros above and left are as many as the padding says, others as many as the results need.
    images, filters, results = _pixels(form, a, b)
    top, left = form.padding
    below, right = (
        (results[axis] - 1) * form.stride[axis]
        + (filters[axis] - 1) * form.dilation[axis]
        + (1 - images[axis] - form.padding[axis])
        for axis in range(2)
    )
    pad = torch.nn.functional.pad
    how = {"stride": form.stride, "dilation": form.dilation, "groups": form.groups}
    around = (left, right, top, below)
    if form.kind == "fprop":
        found = torch.nn.functional.conv2d(pad(a, around), b, given.bias, **how)
        found = found if form.activation is None else RULES[form.activation].of(found)
    elif form.kind == "wgrad":
        shape = form.shape(a.shape, b.shape)
        found = torch.nn.grad.conv2d_weight(pad(b, around), shape, a, **how)
    else:
        n, c, h, w = form.shape(a.shape, b.shape)
        shape = (n, c, h + top + below, w + left + right)
        found = torch.nn.grad.conv2d_input(shape, b, a, **how)
        found = pad(found, tuple(-item for item in around))
    if form.kind != "fprop" and given.bias is not None:
        found = found + given.bias[:, None, None]
    return found.contiguous(memory_format=_LAST)


def _pixels(form: Form, a: Tensor, b: Tensor) -> list[Any]:
    """The pixels of images, filters and results, along both axes."""
    every = (a.shape[2:], b.shape[2:], form.pixels)
    known = dict(zip(form.operator.tensors, every, strict=True))
    return [known[name] for name in ("images", "filters", "results")]


def _prepare(given: Named) -> Prepared | None:
    """The repeatable call of a convolution like an earlier one, if there was one."""
    out, operands = _empty(given), [given.a, given.b]
    call = api.known_call(_form(given), given.a, given.b, given.bias, out)
    if call is None:
        return None
    if given.bias is not None:
        operands.append(given.bias)
    run, gaps = call.run, 4 - len(operands)
    shape, strides, kind = out.shape, out.stride(), out.dtype
    empty, nothing, zeros = torch.empty_strided, [None] * gaps, [0] * gaps

    def launch(tensors: Any, addresses: list[int]) -> Any:
        made = empty(shape, strides, dtype=kind, device=tensors[0].device)
        where = [*addresses, *zeros, made.data_ptr()]
        return run([*tensors, *nothing, made], where)

    return Prepared(tensors=operands, launch=launch, finish=lambda made, tensors: made)


_OPERATOR = Operator(
    schema="conv2d(Tensor a, Tensor b, Tensor? bias, str kind, SymInt[] pixels, int[] stride,"
    " int[] padding, int[] dilation, int groups) -> Tensor",
    compute=_compute,
    fake=_fake,
    saved=("a", "b"),
    backward=_gradients,
    jvp=_tangent,
    vmap=_mapped,
    autocast=Autocast.Narrow,
    prepare=_prepare,
    decomposed=_decomposed,
    direct=Direct(backward=_backward),
)
convolve = register(_OPERATOR)
activated = register_activated(convolve, _OPERATOR)
