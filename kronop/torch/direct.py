"""Operators on plain tensors where nothing but autograd looks on: without torch's dispatcher,
which costs several times what a kernel's launch does; repeated from addresses where they can be."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from kronop.torch import transforms
from kronop.torch.arguments import Layout
from kronop.torch.autocasting import cast_to, cast_together, without_autocast
from kronop.torch.declaration import Direct, Operator
from kronop.torch.derivatives import Derivatives, Notes
from kronop.torch.memory import settled
from kronop.torch.repeated import Repeat, Repeats, is_quiet

_PLAIN = (torch.Tensor, torch.nn.Parameter)


def is_plain(tensors: Sequence[Any]) -> bool:
    """Whether nothing but autograd and autocast has to know of a call with these tensors, the first
    of which is one."""
    if not is_quiet():
        return False
    for item in tensors:
        # torch resolves what is negated or conjugated lazily on the way to a kernel.
        if item is not None and (type(item) not in _PLAIN or item.is_neg() or item.is_conj()):
            return False
    return tensors[0].device.type in ("cpu", "cuda")


def needs_gradient(tensors: Sequence[Any]) -> bool:
    """Whether autograd records what is made of them."""
    return torch.is_grad_enabled() and any(
        item is not None and item.requires_grad for item in tensors
    )


@dataclass(frozen=True, slots=True)
class _Kept:
    """What a backward knows of its forward.

    Attributes:
        notes: of the call.
        kind: autocast's type, which parameters were cast to.
        places: of the arguments' tensors, those that are saved.
        end: of these, and of the parameters that were cast, among what was saved.
    """

    notes: Notes
    kind: Any
    places: Sequence[int]
    end: int


class Plain:
    """One operator, for plain tensors.

    Args:
        operator: the declaration.
        layout: of its arguments.
        derivatives: its own.
    """

    def __init__(self, operator: Operator, layout: Layout, derivatives: Derivatives) -> None:
        self._operator, self._layout, self._derivatives = operator, layout, derivatives
        self._direct = operator.direct or Direct(
            forward=lambda given, needs: (operator.compute(*vars(given).values()), ()),
            backward=lambda given, kinds, extra, needs, grad: operator.backward(given, needs, grad),
        )
        inside = self._direct.parameters
        self._kept_inside = tuple(name for name in inside if name in operator.saved)
        self._cast_before = tuple(name for name in layout.names if name not in inside)
        self._repeats = Repeats()
        self._function = _function_of(self)
        # Without what torch does first in case of torch.func: for what guards have recognised.
        self._apply: Any = super(torch.autograd.Function, self._function).apply  # type: ignore[misc]

    def __call__(self, *arguments: Any) -> Any:
        """The long way, which is remembered."""
        layout, operator = self._layout, self._operator
        frame, tensors = layout.split(arguments)
        kind = _autocast_type(tensors[0]) if operator.casts else None
        given: Sequence[Any] = arguments
        if kind is not None:
            given = self._cast(arguments, self._cast_before, kind, cast_to)
            frame, tensors = layout.split(given)
        if needs_gradient(tensors):
            self._derivatives.record(given)
            found = self._function.apply(frame, kind, None, *tensors)
            return list(found) if layout.is_list else found
        if kind is not None:
            given = self._cast(given, self._direct.parameters, kind, cast_together)
            with without_autocast():
                return operator.compute(*given)
        found = operator.compute(*given)
        if operator.prepare is not None:
            prepare = operator.prepare
            form = (frame, torch.is_grad_enabled())
            self._repeats.learn(form, tensors, lambda: prepare(layout.named(given)))
        return found

    def again(self, *arguments: Any) -> Any:
        """What a call that was made before gives at once; None where it was not. Nothing has been
        written then. Never to be traced."""
        try:
            return self.repeat(*self._layout.split(arguments))
        except (AttributeError, TypeError):  # Of what is no tensor: the checks have the words.
            return None

    def repeat(self, frame: Sequence[Any], tensors: Sequence[Any]) -> Any:
        """The same of arguments that are split (see `Layout.split`), of which one is a tensor."""
        call = self._repeats.find((frame, torch.is_grad_enabled()), tensors)
        if call is None or not is_quiet():
            return None
        if call.notes is None:
            return call.launch(tensors)
        found = self._apply(frame, None, call, *tensors)
        return list(found) if self._layout.is_list else found

    def forward(
        self, ctx: Any, frame: Sequence[Any], kind: Any, call: Repeat | None, *tensors: Any
    ) -> Any:
        """The result; notes and saves what the backward needs.

        Args:
            kind: autocast's type for the parameters: what else is cast has it already.
            call: what the arguments were recognised as.
        """
        ctx.set_materialize_grads(False)
        found = None if call is None else call.launch(tensors)
        if call is None or found is None:
            return self._long_forward(ctx, frame, kind, tensors)
        result, extra = found
        ctx.kept = kept = call.notes
        ctx.call = call
        ctx.save_for_backward(*[tensors[at] for at in kept.places], *extra)
        return result

    def _long_forward(
        self, ctx: Any, frame: Sequence[Any], kind: Any, tensors: Sequence[Any]
    ) -> Any:
        layout, direct = self._layout, self._direct
        arguments = used = layout.join(frame, tensors)
        needs = layout.named(layout.join(frame, ctx.needs_input_grad[3:]))
        narrow: Sequence[Any] = ()
        if kind is None:
            result, extra = direct.forward(layout.named(used), needs)
        else:
            used = self._cast(arguments, direct.parameters, kind, cast_together)
            _, narrow = layout.split(layout.some(used, self._kept_inside))
            with without_autocast():
                result, extra = direct.forward(layout.named(used), needs)
        notes, saved = self._derivatives.note(arguments, result)
        places = layout.join(frame, range(len(tensors)))
        _, places = layout.split(layout.some(places, self._operator.saved))
        ctx.kept = _Kept(notes, kind, places, len(saved) + len(narrow))
        ctx.call = None
        ctx.save_for_backward(*saved, *narrow, *extra)
        if direct.prepare is not None and kind is None:
            prepare = direct.prepare  # Where this was called gradients were recorded, if not here.
            learned = (lambda: prepare(layout.named(used), needs), ctx.kept)
            self._repeats.learn((frame, True), tensors, *learned)
        return tuple(result) if layout.is_list else result

    def backward(self, ctx: Any, *grads: Any) -> tuple[Any, ...]:
        """The gradients of what the forward was given."""
        saved = ctx.saved_tensors
        grads = tuple(None if item is None else settled(item) for item in grads)
        is_shown = torch.is_grad_enabled() or transforms.are_needed()
        if ctx.call is not None and not is_shown and grads[0] is not None:
            tensors = [*grads, *(item for item in saved if item is not None)]
            call = ctx.call.after.find(ctx.needs_input_grad, tensors)
            found = None if call is None else call.launch(tensors)
            if found is not None:
                return None, None, None, *found
        return None, None, None, *self._long_backward(ctx, grads, saved, is_shown)

    def _long_backward(
        self, ctx: Any, grads: Sequence[Any], saved: Sequence[Any], is_shown: bool
    ) -> list[Any]:
        layout, kept, direct = self._layout, ctx.kept, self._direct
        notes, kind, end = kept.notes, kept.kind, kept.end
        grad = list(grads) if layout.is_list else grads[0]
        if self._derivatives.is_none(grad):
            return [None] * (len(ctx.needs_input_grad) - 3)
        needs = layout.join(notes.whole, ctx.needs_input_grad[3:])
        given = layout.join(notes.saved, saved)
        if is_shown:
            if kind is not None:  # Again, for autograd knows nothing of what was cast inside.
                given = self._cast(given, self._kept_inside, kind, cast_to)
            found = self._derivatives.backward(notes, given, needs, grad)
            return layout.flat(notes.whole, found)
        if kind is not None:
            given = layout.replaced(given, self._kept_inside, saved[len(kept.places) : end])
        facts = (layout.named(given), layout.named(notes.kinds), saved[end:])
        arguments = (*facts, layout.named(needs), grad)
        result = direct.backward(*arguments)
        if ctx.call is not None and direct.prepare_backward is not None:
            prepare = direct.prepare_backward
            tensors = [*grads, *(item for item in saved if item is not None)]
            ctx.call.after.learn(ctx.needs_input_grad, tensors, lambda: prepare(*arguments))
        return layout.flat(notes.whole, layout.gradients(result, notes.shapes))

    def _cast(
        self,
        arguments: Sequence[Any],
        names: Sequence[str],
        kind: Any,
        cast: Callable[[Any, Sequence[Any]], list[Any]],
    ) -> list[Any]:
        """The arguments, those of some names in another type."""
        _, tensors = self._layout.split(self._layout.some(arguments, names))
        return self._layout.replaced(arguments, names, cast(kind, tensors))


def _function_of(plain: Plain) -> Any:
    class Function(torch.autograd.Function):  # type: ignore[misc]  # torch is Any to mypy.
        forward = staticmethod(plain.forward)
        backward = staticmethod(plain.backward)

    return Function


def _autocast_type(tensor: Any) -> Any:
    """What autocast would make of the tensor; None where it is off."""
    device = tensor.device.type
    return torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else None
