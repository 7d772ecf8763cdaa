"""Registers an operator with torch, with all rules that torch needs, from a family's declaration.

torch.library gets the operator's kernels, shapes, gradients, vmap rule and autocast rule. The
returned object picks the cheapest way that is right for a call: straight to the kernels for plain
tensors; through torch.library if something must see the call (torch.compile, torch.export, modes,
tensor subclasses); as an autograd function under torch.func or forward-mode differentiation.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from kronop.torch import autocasting, direct, transforms
from kronop.torch.arguments import Layout
from kronop.torch.checks import check_device
from kronop.torch.declaration import Operator
from kronop.torch.derivatives import Derivatives

_LIBRARY = torch.library.Library("kronop", "FRAGMENT")
_DECOMPOSITIONS: dict[Any, Callable[..., Any]] = {}


def decompositions() -> dict[torch._ops.OpOverload, Callable[..., Any]]:
    """kronop's operators in torch.ops, and functions that compute each by torch's own operations.

    Give it to `torch.export.ExportedProgram.run_decompositions`: what is exported then runs where
    kronop is not installed, without kronop's kernels. Operators of gradients, and those of
    distances, are not in it.

    Returns:
        A new dictionary, from each operator to its function.

    Example:
        >>> import torch
        >>> table = kronop.torch.decompositions()
        >>> torch.ops.kronop.matmul.default in table
        True
        >>> # Of a module with layers of kronop, and its arguments; it takes seconds:
        >>> program = torch.export.export(module, arguments)  # doctest: +SKIP
        >>> portable = program.run_decompositions(table)  # doctest: +SKIP
    """
    return dict(_DECOMPOSITIONS)


class Registered:
    """An operator; call it with the arguments of its schema, by position.

    Attributes:
        library: the operator in torch.library.
        layout: its arguments.
        plain: the short way, for tensors that `direct.is_plain` accepts.
    """

    def __init__(self, library: torch._ops.OpOverload, derivatives: Derivatives) -> None:
        self.library, self.layout = library, derivatives.layout
        self._decomposed = _DECOMPOSITIONS.get(library)
        self.plain = direct.Plain(derivatives)
        operator, self._transformed = derivatives.operator, library
        if operator.jvp is not None:
            self._transformed = transforms.function_of(library, derivatives)
            if (how := operator.autocast) is not None:  # Casts have derivatives and tangents.
                self._transformed = autocasting.casting(self._transformed, self.layout, how)

    def __call__(self, *arguments: object) -> Any:
        if transforms.are_needed():
            return self._transformed(*arguments)
        if self._decomposed is not None and _is_for_onnx():
            return self._decomposed(*arguments)
        if torch.compiler.is_compiling():
            return self.library(*arguments)
        if direct.is_plain(self.layout.split(arguments)[1]):
            return self.plain(*arguments)
        return self.library(*arguments)


def _is_for_onnx() -> bool:
    """Whether an export to ONNX sees the calls: it knows no operator of kronop."""
    is_seen = torch.compiler.is_exporting() or torch.jit.is_tracing()
    return is_seen and bool(torch.onnx.is_in_onnx_export())


def register(operator: Operator) -> Registered:
    """Defines the operator kronop::name in torch.library, with all its rules."""
    name = f"kronop::{operator.name}"
    _LIBRARY.define(operator.schema)
    library = getattr(torch.ops.kronop, operator.name).default
    layout = Layout(library._schema)
    derivatives = Derivatives(operator, layout)

    def compute(*arguments: object) -> Any:
        with torch.no_grad():
            return operator.compute(layout.named(arguments))

    def fake(*arguments: object) -> Any:
        """The operator's shapes, of tensors on one device: kernels would refuse others later."""
        found = operator.fake(layout.named(arguments))
        (_, first), *others = layout.named_tensors(arguments)
        for name, item in others:
            check_device(name, item, first.device)
        return found

    for device in ("CPU", "CUDA"):
        _LIBRARY.impl(operator.name, compute, device)
        if operator.autocast is not None:
            cast = autocasting.casting(library, layout, operator.autocast, device.lower())
            _LIBRARY.impl(operator.name, cast, f"Autocast{device}")
    torch.library.register_fake(name, fake, lib=_LIBRARY)
    _register_gradient(name, derivatives)
    if operator.vmap is not None:
        _register_map(name, library, derivatives)
    if (decomposed := operator.decomposed) is not None:
        _DECOMPOSITIONS[library] = lambda *arguments: decomposed(layout.named(arguments))
    return Registered(library, derivatives)


def _register_gradient(name: str, derivatives: Derivatives) -> None:
    def keep(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
        derivatives.record(inputs)
        derivatives.keep(ctx, inputs, output)

    def backward(ctx: Any, grad: Any) -> tuple[Any, ...]:
        saved = derivatives.kept(ctx)
        return tuple(derivatives.backward(ctx.notes, saved, ctx.needs_input_grad, grad))

    torch.library.register_autograd(name, backward, setup_context=keep, lib=_LIBRARY)


def _register_map(name: str, library: torch._ops.OpOverload, derivatives: Derivatives) -> None:
    rule: Any = derivatives.operator.vmap
    layout = derivatives.layout

    def mapped(info: Any, in_dims: Sequence[Any], *arguments: object) -> Any:
        frame, tensors = layout.split(arguments)
        dims = layout.each(in_dims, frame)
        if callable(rule):
            return rule(info.batch_size, layout.named(arguments), layout.named(dims))
        ranks = layout.each((rule.get(item) for item in layout.names), frame)
        aligned = transforms.aligned(tensors, layout.flat(frame, dims), layout.flat(frame, ranks))
        return library(*layout.join(frame, aligned)), 0

    torch.library.register_vmap(name, mapped, lib=_LIBRARY)
