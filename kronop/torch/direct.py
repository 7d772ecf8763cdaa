"""Operators on plain tensors that only autograd needs to see, called without torch's dispatcher.

The dispatcher takes several times as long as a kernel's launch. Calls are repeated by addresses if
possible.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.autograd import profiler

from kronop.core.gathering import foreseeing
from kronop.frozen import dataclass
from kronop.torch import transforms
from kronop.torch.autocasting import cast_to, kind_for, without_autocast
from kronop.torch.declaration import Direct, Named
from kronop.torch.derivatives import Derivatives, Notes
from kronop.torch.memory import settled
from kronop.torch.repeated import Cast, Repeat, Repeats, is_quiet

_PLAIN = (Tensor, torch.nn.Parameter)


def is_plain(tensors: Sequence[Tensor]) -> bool:
    """Whether only autograd and autocast need to see a call with these tensors.

    Tensors may be None, except the first one.
    """
    if not is_quiet():
        return False
    for item in tensors:
        if item is None:
            continue
        # torch's dispatcher resolves lazily negated or conjugated tensors; this way would not.
        if type(item) not in _PLAIN or item.is_nested or item.is_neg() or item.is_conj():
            return False
    return tensors[0].device.type in ("cpu", "cuda")


def needs_gradient(tensors: Sequence[Tensor | None]) -> bool:
    """Whether autograd records operations on these tensors."""
    return torch.is_grad_enabled() and any(
        item is not None and item.requires_grad for item in tensors
    )


@dataclass(frozen=True, slots=True)
class _Kept:
    """What a forward keeps for its backward, besides tensors.

    Attributes:
        notes: the notes of the call.
        kind: the type that autocast cast the parameters to; None if it was off.
        places: indices of the tensors that are saved as autograd sees them.
        narrow: indices of the parameters whose cast copies are saved too, before other tensors.
    """

    notes: Notes
    kind: torch.dtype | None
    places: Sequence[int]
    narrow: Sequence[int]


class Plain:
    """One operator, for plain tensors.

    Args:
        derivatives: the derivatives of the operator.
    """

    def __init__(self, derivatives: Derivatives) -> None:
        operator, layout = derivatives.operator, derivatives.layout
        self._operator, self._layout, self._derivatives = operator, layout, derivatives
        self._direct = direct = operator.direct or Direct(backward=operator.backward)
        self._direct_forward = direct.forward or (
            lambda given, needs: (operator.compute(given), ())
        )
        self._prepare_forward = direct.prepare
        if direct.prepare is None and (prepare := operator.prepare) is not None:
            self._prepare_forward = lambda given, needs: (
                None if (found := prepare(given)) is None else found.as_forward()
            )
        inside = self._direct.parameters
        self._kept_inside = tuple(name for name in inside if name in operator.saved)
        self._cast_before = tuple(name for name in layout.names if name not in inside)
        self._repeats = Repeats()
        self._name = f"kronop::{operator.name}"  # As torch's profiler names operators.
        # As an autograd function. torch shows the name of its class, with "Backward" behind it, in
        # profiles and in `grad_fn`.
        ways = {"forward": staticmethod(self.forward), "backward": staticmethod(self.backward)}
        self._function: Any = type(operator.name, (torch.autograd.Function,), ways)
        # The base class's apply lacks the checks for torch.func that Function.apply makes first.
        # Repeated calls use it, because `is_quiet` has said that no transform is active.
        self._apply: Any = super(torch.autograd.Function, self._function).apply  # type: ignore[misc]

    def __call__(self, *arguments: object) -> Any:
        """Runs the operator the long way, and remembers the call if it can be repeated."""
        if profiler._is_profiler_enabled:
            with profiler.record_function(self._name):
                return self._computed(arguments)
        return self._computed(arguments)

    def _computed(self, arguments: Sequence[Any]) -> Any:
        layout, operator = self._layout, self._operator
        frame, tensors = layout.split(arguments)
        cast = self._cast_of(frame, tensors[0])
        seen = tensors if cast is None else cast.cast_before(tensors)
        if needs_gradient(seen):
            self._derivatives.record(layout.join(frame, seen))
            found = self._function.apply(frame, cast, tensors, *seen)
            return list(found) if layout.is_list else found
        used = seen if cast is None else cast.cast_inside(seen)
        given = layout.named(layout.join(frame, used))
        with contextlib.nullcontext() if cast is None else without_autocast():
            found = operator.compute(given)
        if (prepare := operator.prepare) is not None:
            form = (frame, torch.is_grad_enabled())
            self._repeats.learn(form, tensors, lambda: prepare(given), None, cast, used)
        return found

    def _cast_of(self, frame: Sequence[Any], tensor: Tensor) -> Cast | None:
        """Autocast's casts in a call whose first tensor is `tensor`; None if it is off."""
        device, how = tensor.device.type, self._operator.autocast
        if how is None or not torch.is_autocast_enabled(device):
            return None
        before, inside = (
            self._layout.places(frame, names)
            for names in (self._cast_before, self._direct.parameters)
        )
        return Cast(how, kind_for(how, device), device, before, inside)

    def again(self, *arguments: object) -> Any:
        """The result of a call that is remembered; None, with nothing written, if it is not.

        It must not be called while torch.compile is tracing.
        """
        for at, types in self._layout.exact:
            if type(arguments[at]) not in types:
                return None
        return self.repeat(*self._layout.split(arguments))

    def repeat(self, frame: Sequence[Any], tensors: Sequence[Tensor]) -> Any:
        """As `again`, for arguments that are split (see `Layout.split`)."""
        # Only the search may fail because of a wrong argument. A TypeError of the launch comes from
        # the user's own hooks of saved tensors.
        try:
            call = self._repeats.find((frame, torch.is_grad_enabled()), tensors)
        except (AttributeError, TypeError, RuntimeError):
            return None  # An argument is no tensor, or a nested one: the checks will say so.
        if call is None or not is_quiet():
            return None
        if profiler._is_profiler_enabled:
            with profiler.record_function(self._name):
                return self._launched(call, frame, tensors)
        return self._launched(call, frame, tensors)

    def _launched(self, call: Repeat, frame: Sequence[Any], tensors: Sequence[Tensor]) -> Any:
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
        call: Repeat | Sequence[Tensor],
        *tensors: Tensor,
    ) -> Any:
        """The result; saves in `ctx` what the backward needs.

        Args:
            cast: autocast's casts, of which those before the operator are done.
            call: the remembered call, or else the tensors as the caller gave them.
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
        tensors: Sequence[Tensor],
        given: Sequence[Tensor] | None,
    ) -> Any:
        """As `forward`; `given` has the tensors as the caller gave them, to remember the call, or
        is None."""
        layout = self._layout
        needs = layout.named(layout.join(frame, ctx.needs_input_grad[3:]))
        used = tensors if cast is None else cast.cast_inside(tensors)
        whole = layout.named(layout.join(frame, used))
        foreseen = functools.partial(self._step, frame, tensors, used, needs)
        with contextlib.nullcontext() if cast is None else without_autocast(), foreseeing(foreseen):
            result, extra = self._direct_forward(whole, needs)
        notes, saved = self._derivatives.note(layout.join(frame, tensors), result)
        places = layout.places(frame, self._operator.saved)
        narrow = () if cast is None else layout.places(frame, self._kept_inside)
        ctx.kept = _Kept(notes, None if cast is None else cast.kind, places, narrow)
        ctx.call = None
        ctx.save_for_backward(*saved, *(used[at] for at in narrow), *extra)
        if (prepare := self._prepare_forward) is not None and given is not None:
            # The key says that gradients are recorded: the caller's, which are off in here.
            learned = (lambda: prepare(whole, needs), ctx.kept, cast, used)
            self._repeats.learn((frame, True), given, *learned)
        return tuple(result) if layout.is_list else result

    def _step(
        self, frame: Sequence[Any], tensors: Sequence[Tensor], used: Sequence[Tensor], needs: Named
    ) -> None:
        """Forward and backward of a call, to tell which kernels they need.

        Args:
            tensors, used: the tensors before and after the casts inside the operator.
        """
        layout, arguments = self._layout, self._layout.join(frame, used)
        result, extra = self._direct_forward(layout.named(arguments), needs)
        notes, _ = self._derivatives.note(layout.join(frame, tensors), result)
        given = layout.named(layout.some(arguments, self._operator.saved))
        given.kinds, given.kept = layout.named(notes.kinds), extra
        grad = [torch.empty_like(item) for item in (result if layout.is_list else [result])]
        self._direct.backward(given, needs, grad if layout.is_list else grad[0])

    def backward(self, ctx: Any, *grads: Tensor | None) -> tuple[Tensor | None, ...]:
        """The gradients of the arguments of `forward`."""
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
        self, ctx: Any, grads: Sequence[Tensor | None], saved: Sequence[Tensor], is_shown: bool
    ) -> list[Tensor | None]:
        layout, kept, direct = self._layout, ctx.kept, self._direct
        notes, kind, end = kept.notes, kept.kind, len(kept.places) + len(kept.narrow)
        grad = list(grads) if layout.is_list else grads[0]
        if self._derivatives.is_none(grad):
            return [None] * (len(ctx.needs_input_grad) - 3)
        needs = layout.join(notes.whole, ctx.needs_input_grad[3:])
        given = layout.join(notes.saved, saved)
        if is_shown:
            if kind is not None:  # Cast again, recorded: autograd did not see the casts inside.
                _, wide = layout.split(layout.some(given, self._kept_inside))
                given = layout.replaced(given, self._kept_inside, cast_to(kind, wide))
            found = self._derivatives.backward(notes, given, needs, grad)
            return layout.flat(notes.whole, found)
        if kind is not None:
            given = layout.replaced(given, self._kept_inside, saved[len(kept.places) : end])
        named = layout.named(given)
        named.kinds, named.kept = layout.named(notes.kinds), saved[end:]
        arguments = (named, layout.named(needs), grad)
        result = direct.backward(*arguments)
        if ctx.call is not None and (prepare := direct.prepare_backward) is not None:
            tensors = [*grads, *(item for item in saved if item is not None)]
            ctx.call.after.learn(ctx.needs_input_grad, tensors, lambda: prepare(*arguments))
        found = self._derivatives.of_arguments(result, notes, needs, grad)
        return layout.flat(notes.whole, found)
