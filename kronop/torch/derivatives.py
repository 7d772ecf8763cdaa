"""What autograd keeps of an operator's call, and the call's derivatives.

Both torch.library's registered gradients, which pass tensors nested in lists, and autograd
functions, which pass them flat, use this.
"""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from kronop.frozen import dataclass
from kronop.torch.arguments import Layout
from kronop.torch.declaration import Gradients, Operator

_shape, _dtype = operator.attrgetter("shape"), operator.attrgetter("dtype")


@dataclass(frozen=True, slots=True, kw_only=True)
class Notes:
    """What is kept of a call besides tensors.

    Attributes:
        whole, saved: frames (see `Layout.split`) of all arguments, and of the saved ones.
        shapes, kinds: the shapes and types of arguments that are tensors, nested.
        results: (shape, type) of each result.
    """

    whole: Sequence[Any]
    saved: Sequence[Any]
    shapes: Sequence[Any]
    kinds: Sequence[Any]
    results: Sequence[tuple[torch.Size, torch.dtype]]


class Derivatives:
    """The derivatives of one operator.

    Attributes:
        operator: the operator's declaration.
        layout: the layout of its arguments.
    """

    def __init__(self, declared: Operator, layout: Layout) -> None:
        self.operator, self.layout = declared, layout

    def note(self, arguments: Sequence[Any], result: Any) -> tuple[Notes, list[Tensor]]:
        """(the notes of a call, the tensors to save)."""
        layout = self.layout
        saved, tensors = layout.split(layout.some(arguments, self.operator.saved))
        results = result if layout.is_list else [result]
        notes = Notes(
            whole=layout.split(arguments)[0],
            saved=saved,
            shapes=layout.facts(_shape, arguments),
            kinds=layout.facts(_dtype, arguments),
            results=[(item.shape, item.dtype) for item in results],
        )
        return notes, tensors

    def keep(self, ctx: Any, arguments: Sequence[Any], result: Any) -> list[Tensor]:
        """Puts into an autograd context what a backward reads, and returns the tensors."""
        ctx.set_materialize_grads(False)
        ctx.notes, kept = self.note(arguments, result)
        ctx.save_for_backward(*kept)
        return kept

    def kept(self, ctx: Any) -> list[Any]:
        """The arguments that were kept in an autograd context."""
        return self.layout.join(ctx.notes.saved, ctx.saved_tensors)

    def record(self, arguments: Sequence[Any]) -> None:
        """Refuses arguments that have no derivatives."""
        if self.operator.record is not None:
            self.operator.record(self.layout.named(arguments))

    def is_none(self, grad: Any) -> bool:
        """Whether no result has a gradient."""
        return all(item is None for item in (grad if self.layout.is_list else [grad]))

    def backward(
        self, notes: Notes, saved: Sequence[Any], needs: Sequence[Any], grad: Any
    ) -> list[Any]:
        """The gradients of all arguments, nested.

        Args:
            saved: the arguments, None for tensors that are not saved.
            needs: whether each argument needs a gradient.
            grad: the gradient of the result.
        """
        layout = self.layout
        if self.is_none(grad):
            return layout.facts(lambda shape: None, notes.shapes)
        found = self.operator.backward(layout.named(saved), layout.named(needs), grad)
        return self.of_arguments(found, notes, needs, grad)

    def of_arguments(
        self, found: Gradients, notes: Notes, needs: Sequence[Any], grad: Any
    ) -> list[Any]:
        """The gradients of all arguments, nested, from those that were found by name."""
        every = grad if self.layout.is_list else [grad]
        like = next(item for item in every if item is not None)
        every = zip(self.layout.names, needs, notes.shapes, notes.kinds, strict=True)
        return [
            _fitted(found.get(name), need, shape, kind, like) for name, need, shape, kind in every
        ]

    def tangent(self, notes: Notes, saved: Sequence[Any], tangents: Sequence[Any]) -> list[Tensor]:
        """The tangents of the results, from those of the arguments; torch requires zeros for a
        result that has none."""
        assert self.operator.jvp is not None
        layout = self.layout
        found = self.operator.jvp(layout.named(saved), layout.named(tangents))
        like = layout.flat(notes.saved, saved)[0]
        every = found if layout.is_list else [found]
        return [
            like.new_zeros(shape, dtype=kind) if item is None else item.expand(shape)
            for item, (shape, kind) in zip(every, notes.results, strict=True)
        ]


def _fitted(gradient: Any, need: Any, shape: Any, kind: Any, like: Tensor) -> Any:
    """The gradient, summed over the dimensions in which its tensor was broadcast."""
    if isinstance(shape, list):
        every = zip(gradient or [None] * len(shape), need, shape, kind, strict=True)
        return [_fitted(*of_one, like=like) for of_one in every]
    if shape is None or not need:
        return None
    if gradient is None:
        return like.new_zeros(shape, dtype=kind)
    return gradient if gradient.shape == shape else gradient.sum_to_size(shape)
