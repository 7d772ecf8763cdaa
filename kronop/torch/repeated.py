"""Calls of plain tensors that were made before: recognised at once, launched with new addresses.

torch's own guards, which its compiler makes of the tensors that it traced, tell in one call whether
tensors have the types, shapes, strides, devices and dispatch keys that they had: a sixth of what it
takes to read these off in Python. Where torch has no such guards, nothing is remembered.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import Any

import torch

from kronop.args.signature import ALIGNMENT
from kronop.core import program
from kronop.frozen import dataclass
from kronop.torch.autocasting import cast_to, cast_together
from kronop.torch.declaration import Prepared
from kronop.torch.transforms import are_needed

_MOST_KEYS, _MOST_OF_A_KEY = 512, 8
# Calls with a key are looked at from the second on, but not for ever: some are never prepared.
_FIRST_LOOK, _LAST_LOOK = 2, 16

_guards_of = getattr(getattr(torch._C._dynamo, "guards", None), "TensorGuards", None)


def is_quiet() -> bool:
    """Whether nothing but autograd and autocast has to know of calls with plain tensors now."""
    return not (
        torch.compiler.is_compiling()
        or are_needed()
        or torch._C._len_torch_dispatch_stack()
        or torch._C._get_tracing_state() is not None
    )


@dataclass(frozen=True, slots=True)
class Cast:
    """What autocast does to the tensors of a call.

    Attributes:
        kind: the type that it casts to.
        device: type of the device.
        before: places of the tensors that are cast where autograd sees it.
        inside: of those that are cast where nobody does.
    """

    kind: Any
    device: str
    before: tuple[int, ...]
    inside: tuple[int, ...]

    def is_current(self) -> bool:
        """Whether autocast, which is on, casts to that type."""
        return torch.get_autocast_dtype(self.device) is self.kind

    def cast_before(self, tensors: Sequence[Any]) -> list[Any]:
        """The tensors, with the first ones cast."""
        return _with(tensors, self.before, cast_to, self.kind)

    def cast_inside(self, tensors: Sequence[Any]) -> list[Any]:
        """The tensors, with the others cast as well."""
        return _with(tensors, self.inside, cast_together, self.kind)


def _with(
    tensors: Sequence[Any],
    places: Sequence[int],
    cast: Callable[[Any, Sequence[Any]], list[Any]],
    kind: Any,
) -> list[Any]:
    found = list(tensors)
    made = cast(kind, [found[at] for at in places])
    for at, item in zip(places, made, strict=True):
        found[at] = item
    return found


@dataclass(frozen=True, slots=True)
class Repeat:
    """A call with its signature.

    Attributes:
        check: whether tensors have it, as they are given.
        cast: what autocast does to them; None where it is off.
        places: which of them are launched with; the others are only to be there.
        lows: what the addresses of those are beyond a multiple of 16.
        launcher, finish: see `Prepared`, of which the tensors are not kept.
        notes: whatever is to be known of such a call.
        after: what was remembered of its backward.
    """

    check: Callable[..., bool]
    cast: Cast | None
    places: tuple[int, ...]
    lows: list[int]
    launcher: Callable[[Sequence[Any], list[int]], Any]
    finish: Callable[[Any, Sequence[Any]], Any]
    notes: Any
    after: Repeats

    def launch(self, tensors: Sequence[Any]) -> Any:
        """What it gives, or None where the call has to go the long way: nothing is written then."""
        given = [tensors[at] for at in self.places]
        addresses = [item.data_ptr() for item in given]
        if not all(addresses) or [address % ALIGNMENT for address in addresses] != self.lows:
            return None
        made = self.launcher(given, addresses)
        return None if made is None else self.finish(made, given)


class Repeats:
    """The calls of one operator, or of the backward of one of its calls."""

    def __init__(self) -> None:
        # Dictionaries need no lock for this: see `kronop.core.prepared`.
        self._calls: dict[Hashable, list[Repeat]] = {}
        self._looks: dict[Hashable, int] = {}
        self._surroundings = program.surroundings()

    def find(self, form: Hashable, tensors: Sequence[Any]) -> Repeat | None:
        """The call with these tensors, of which there is one at least.

        Args:
            form: what decides it besides tensors.
        """
        for call in self._calls.get(_key(form, tensors), ()):
            if call.check(*tensors) and (call.cast is None or call.cast.is_current()):
                return call if self._surroundings == program.surroundings() else None
        return None

    def learn(
        self,
        form: Hashable,
        tensors: Sequence[Any],
        prepare: Callable[[], Prepared | None],
        notes: Any = None,
        cast: Cast | None = None,
        used: Sequence[Any] | None = None,
    ) -> None:
        """Remembers a call that was made, if it can be repeated by now.

        Args:
            tensors: as they were given.
            prepare: what repeats it.
            notes: see `Repeat`.
            cast, used: what autocast did, and what came of the tensors.
        """
        surroundings = program.surroundings()
        if len(self._looks) >= _MOST_KEYS or self._surroundings != surroundings:
            self._calls.clear()
            self._looks.clear()
            self._surroundings = surroundings
        key = _key(form, tensors)
        looks = self._looks[key] = self._looks.get(key, 0) + 1
        if _guards_of is None or not _FIRST_LOOK <= looks <= _LAST_LOOK:
            return
        prepared = prepare()
        if prepared is None:
            return
        places = _places(prepared.tensors, tensors if used is None else used)
        if places is None:
            return
        check = _guards_of(*tensors, dynamic_dims_sizes=None, dynamic_dims_strides=None).check
        lows = [item.data_ptr() % ALIGNMENT for item in prepared.tensors]
        calls = self._calls.setdefault(key, [])
        del calls[_MOST_OF_A_KEY - 1 :]
        ways = (prepared.launch, prepared.finish)
        calls.insert(0, Repeat(check, cast, places, lows, *ways, notes, Repeats()))


def _key(form: Hashable, tensors: Sequence[Any]) -> Hashable:
    """Guards refuse another number of tensors, and there may be many shapes."""
    return form, len(tensors), tensors[0].shape, tensors[-1].shape


def _places(some: Sequence[Any], every: Sequence[Any]) -> tuple[int, ...] | None:
    """Where in `every` the tensors are; None where one is not among them, or is there twice: which
    of them would be meant is not to be told."""
    places = [[at for at, other in enumerate(every) if other is item] for item in some]
    return tuple(at for (at,) in places) if all(len(at) == 1 for at in places) else None
