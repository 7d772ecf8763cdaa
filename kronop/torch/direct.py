"""Operators on plain tensors where nothing but autograd looks on: without torch's dispatcher,
which costs several times what a kernel's launch does; repeated from addresses where they can be."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from typing import Any

import torch

from kronop.frozen import dataclass
from kronop.torch import transforms
from kronop.torch.arguments import Layout
from kronop.torch.autocasting import cast_to, without_autocast
from kronop.torch.declaration import Direct, Operator
from kronop.torch.derivatives import Derivatives, Notes
from kronop.torch.memory import settled
from kronop.torch.repeated import Cast, Repeat, Repeats, is_quiet

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
        narrow: the same of what parameters were cast to.
    """

    notes: Notes
    kind: Any
    places: Sequence[int]
    narrow: Sequence[int]

    @property
    def end(self) -> int:
        """Of all these among what was saved."""
        return len(self.places) + len(self.narrow)


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
        cast = self._cast_of(frame, tensors[0])
        seen = tensors if cast is None else cast.cast_before(tensors)
        if needs_gradient(seen):
            self._derivatives.record(layout.join(frame, seen))
            found = self._function.apply(frame, cast, tensors, *seen)
            return list(found) if layout.is_list else found
        used = seen if cast is None else cast.cast_inside(seen)
        given = layout.join(frame, used)
        with contextlib.nullcontext() if cast is None else without_autocast():
            found = operator.compute(*given)
        if operator.prepare is not None:
            prepare = operator.prepare
            form = (frame, torch.is_grad_enabled())
            self._repeats.learn(
                form, tensors, lambda: prepare(layout.named(given)), None, cast, used
            )
        return found

    def _cast_of(self, frame: Sequence[Any], tensor: Any) -> Cast | None:
        """What autocast does to the tensors of a call, the first of which is `tensor`."""
        device = tensor.device.type
        if not self._operator.casts or not torch.is_autocast_enabled(device):
            return None
        before, inside = (
            self._layout.places(frame, names)
            for names in (self._cast_before, self._direct.parameters)
        )
        return Cast(torch.get_autocast_dtype(device), device, before, inside)

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
        if call.cast is not None:
            tensors = call.cast.cast_before(tensors)
        if call.notes is None:
            return call.launch(tensors if call.cast is None else call.cast.cast_inside(tensors))
        found = self._apply(frame, None, call, *tensors)
        return list(found) if self._layout.is_list else found

    def forward(
        self,
        ctx: Any,
        frame: Sequence[Any],
        cast: Cast | None,
        call: Repeat | Sequence[Any],
        *tensors: Any,
    ) -> Any:
        """The result; notes and saves what the backward needs.

        Args:
            cast: what autocast does, the first half of which is done.
            call: what the arguments were recognised as; else the tensors as they were given.
        """
        ctx.set_materialize_grads(False)
        if not isinstance(call, Repeat):
            return self._long_forward(ctx, frame, cast, tensors, call)
        used = tensors if call.cast is None else call.cast.cast_inside(tensors)
        found = call.launch(used)
        if found is None:
            return self._long_forward(ctx, frame, call.cast, tensors, None)
        result, extra = found
        ctx.kept = kept = call.notes
        ctx.call = call
        saved = [tensors[at] for at in kept.places]
        ctx.save_for_backward(*saved, *(used[at] for at in kept.narrow), *extra)
        return result

    def _long_forward(
        self,
        ctx: Any,
        frame: Sequence[Any],
        cast: Cast | None,
        tensors: Sequence[Any],
        given: Sequence[Any] | None,
    ) -> Any:
        """The same. `given`: the tensors as they were given, if the call is to be remembered."""
        layout, direct = self._layout, self._direct
        needs = layout.named(layout.join(frame, ctx.needs_input_grad[3:]))
        used = tensors if cast is None else cast.cast_inside(tensors)
        whole = layout.named(layout.join(frame, used))
        with contextlib.nullcontext() if cast is None else without_autocast():
            result, extra = direct.forward(whole, needs)
        notes, saved = self._derivatives.note(layout.join(frame, tensors), result)
        places = layout.places(frame, self._operator.saved)
        narrow = () if cast is None else layout.places(frame, self._kept_inside)
        ctx.kept = _Kept(notes, None if cast is None else cast.kind, places, narrow)
        ctx.call = None
        ctx.save_for_backward(*saved, *(used[at] for at in narrow), *extra)
        if direct.prepare is not None and given is not None:
            prepare = direct.prepare  # Where this was called gradients were recorded, if not here.
            learned = (lambda: prepare(whole, needs), ctx.kept, cast, used)
            self._repeats.learn((frame, True), given, *learned)
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
                _, wide = layout.split(layout.some(given, self._kept_inside))
                given = layout.replaced(given, self._kept_inside, cast_to(kind, wide))
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


def _function_of(plain: Plain) -> Any:
    class Function(torch.autograd.Function):  # type: ignore[misc]  # torch is Any to mypy.
        forward = staticmethod(plain.forward)
        backward = staticmethod(plain.backward)

    return Function
