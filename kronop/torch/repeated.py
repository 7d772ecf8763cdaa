"""Repeated calls with plain tensors: recognised by torch's guards, launched with new addresses.

torch's compiler guards the tensors that it traced: one call tells whether tensors have the same
types, shapes, strides, devices and dispatch keys as before. It takes a sixth of the time of reading
these in Python. If this torch lacks the guards, no call is remembered.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.overrides import _get_current_function_mode_stack
from torch.utils._device import DeviceContext

from kronop.args.signature import ALIGNMENT
from kronop.core import program
from kronop.core.gathering import is_gathering
from kronop.frozen import dataclass
from kronop.torch.autocasting import cast_to, cast_together, kind_for
from kronop.torch.declaration import Autocast, Prepared
from kronop.torch.transforms import are_needed

_MOST_KEYS, _MOST_OF_A_KEY = 512, 8
# Which calls with one key are tried for remembering: not the first, since many keys occur only
# once; and none after the last, since some calls can never be repeated.
_FIRST_LOOK, _LAST_LOOK = 2, 16

_guards_of = getattr(getattr(torch._C._dynamo, "guards", None), "TensorGuards", None)


def is_quiet() -> bool:
    """Whether only autograd and autocast need to see calls with plain tensors now: no compiler,
    transform, mode or tracer does."""
    return not (
        torch.compiler.is_compiling()
        or are_needed()
        or torch._C._len_torch_dispatch_stack()
        or torch._C._get_tracing_state() is not None
        or (torch._C._len_torch_function_stack() and _are_functions_seen())
    )


def _are_functions_seen() -> bool:
    """Whether a TorchFunctionMode may ask for calls. A default device is such a mode too, but it
    changes only the functions of torch that create tensors."""
    return any(type(mode) is not DeviceContext for mode in _get_current_function_mode_stack())


@dataclass(frozen=True, slots=True)
class Cast:
    """The casts that autocast makes in a call.

    Attributes:
        how: what it casts to, in general.
        kind: the type that it casts to.
        device: the type of device.
        before: indices of the tensors that are cast before the operator, where autograd records it.
        inside: indices of the tensors that are cast inside the operator, unseen by autograd.
    """

    how: Autocast
    kind: torch.dtype
    device: str
    before: tuple[int, ...]
    inside: tuple[int, ...]

    def is_current(self) -> bool:
        """Whether autocast casts to this type now; autocast is on."""
        return kind_for(self.how, self.device) is self.kind

    def cast_before(self, tensors: Sequence[Tensor]) -> list[Tensor]:
        """The tensors, with those in `before` cast."""
        return cast_to(self.kind, tensors, self.before)

    def cast_inside(self, tensors: Sequence[Tensor]) -> list[Tensor]:
        """The tensors, with those in `inside` cast."""
        return cast_together(self.kind, tensors, self.inside)


@dataclass(frozen=True, slots=True)
class Repeat:
    """A remembered call.

    Attributes:
        check: tells whether tensors, as the caller gives them, match those of the call.
        surroundings: `program.surroundings()` of the call; other threads may have others.
        cast: autocast's casts; None if it was off.
        places: indices of the tensors whose addresses are launched with.
        lows: the addresses of these tensors modulo 16.
        launcher, finish: `launch` and `finish` of its `Prepared`, whose tensors are not kept.
        notes: what the caller of `learn` wants to know when the call is found again.
        after: the remembered calls of its backward.
    """

    check: Callable[..., bool]
    surroundings: tuple[object, ...]
    cast: Cast | None
    places: tuple[int, ...]
    lows: list[int]
    launcher: Callable[[Sequence[Tensor], list[int]], Any]
    finish: Callable[[Any, Sequence[Tensor]], Any]
    notes: Any
    after: Repeats

    def launch(self, tensors: Sequence[Tensor]) -> Any:
        """The result; None, with nothing written, if the call must go the long way."""
        given = [tensors[at] for at in self.places]
        addresses = [item.data_ptr() for item in given]
        if not all(addresses) or [address % ALIGNMENT for address in addresses] != self.lows:
            return None
        made = self.launcher(given, addresses)
        return None if made is None else self.finish(made, given)


class Repeats:
    """The calls of one operator, or of the backward of one of its calls."""

    def __init__(self) -> None:
        # No lock is needed: at worst two threads learn the same call, or one forgets another's.
        self._calls: dict[Hashable, list[Repeat]] = {}
        self._looks: dict[Hashable, int] = {}

    def find(self, form: Hashable, tensors: Sequence[Tensor]) -> Repeat | None:
        """The remembered call that matches these tensors (at least one), or None.

        Args:
            form: everything besides tensors that decides the call.
        """
        for call in self._calls.get(_key(form, tensors), ()):
            if (
                call.check(*tensors)
                and (call.cast is None or call.cast.is_current())
                and call.surroundings == program.surroundings()
            ):
                return call
        return None

    def learn(
        self,
        form: Hashable,
        tensors: Sequence[Tensor],
        prepare: Callable[[], Prepared | None],
        notes: Any = None,
        cast: Cast | None = None,
        used: Sequence[Tensor] | None = None,
    ) -> None:
        """Remembers a call that was just made, if it can be repeated yet.

        Args:
            tensors: the tensors as the caller gave them.
            prepare: returns what repeats the call, or None.
            notes: see `Repeat`.
            cast, used: autocast's casts, and the tensors after them.
        """
        if is_gathering():
            return
        surroundings = program.surroundings()
        if len(self._looks) >= _MOST_KEYS:
            self._calls.clear()
            self._looks.clear()
        key = _key(form, tensors)
        settings, *others = surroundings
        looked = (key, id(settings), *others)  # By identity: settings take long to hash.
        looks = self._looks[looked] = self._looks.get(looked, 0) + 1
        if _guards_of is None or not _FIRST_LOOK <= looks <= _LAST_LOOK:
            return
        prepared = prepare()
        # What changed meanwhile may have changed what was prepared.
        if prepared is None or program.surroundings() != surroundings:
            return
        places = _places(prepared.tensors, tensors if used is None else used)
        if places is None:
            return
        check = _guards_of(*tensors, dynamic_dims_sizes=None, dynamic_dims_strides=None).check
        lows = [item.data_ptr() % ALIGNMENT for item in prepared.tensors]
        calls = self._calls.setdefault(key, [])
        del calls[_MOST_OF_A_KEY - 1 :]
        ways = (prepared.launch, prepared.finish)
        calls.insert(0, Repeat(check, surroundings, cast, places, lows, *ways, notes, Repeats()))


def _key(form: Hashable, tensors: Sequence[Tensor]) -> Hashable:
    """The key under which guards are looked up.

    It has the number of tensors, because guards raise on another number, and two shapes, so that
    only a few guards have to be tried.
    """
    return form, len(tensors), tensors[0].shape, tensors[-1].shape


def _places(some: Sequence[Tensor], every: Sequence[Tensor]) -> tuple[int, ...] | None:
    """The index in `every` of each tensor of `some`.

    None if a tensor is missing there, or occurs twice: a later call may have two different tensors
    in these places, and it is unknown which one to launch with.
    """
    places = [[at for at, other in enumerate(every) if other is item] for item in some]
    return tuple(at for (at,) in places) if all(len(at) == 1 for at in places) else None
