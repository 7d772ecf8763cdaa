"""A family's declaration of a torch operator, from which `registration` makes everything else.

An operator's arguments are those of its schema, in torch's language: tensors, optional tensors,
lists of tensors, and others, which have no derivatives. Its result is a tensor or a list of them.
The functions of a declaration get the arguments by name, as a namespace (`given.x`,
`given.factors`). Facts about the arguments come in namespaces with the same names: whether each
needs a gradient, its tangent, its mapped dimension; for a list of tensors, a list of facts.

Derivatives must call registered operators. They then have derivatives themselves, of any order and
in both modes, can be mapped by vmap, and can be traced.
"""

from __future__ import annotations

import dataclasses
import enum
from collections.abc import Callable, Mapping, Sequence
from types import SimpleNamespace
from typing import Any, TypeAlias

from torch import Tensor

from kronop.core.prepared import Call
from kronop.frozen import dataclass

Named = SimpleNamespace
# Gradients by the names of the arguments: a list for a list of tensors, with None for those that
# have none.
Gradients: TypeAlias = "Mapping[str, Tensor | Sequence[Tensor | None] | None]"


class Autocast(enum.Enum):
    """What autocast casts floats of 16 and 32 bits to; None in its place if it leaves them alone.

    Attributes:
        Narrow: the type that autocast was given, as for torch's matrix products.
        Wide: float32, as for `torch.cdist`, whose differences and exponentials need it.
    """

    Narrow = enum.auto()
    Wide = enum.auto()


@dataclass(frozen=True, slots=True, kw_only=True)
class Prepared:
    """A call that can be repeated by addresses alone.

    Attributes:
        tensors: the tensors of the call whose addresses are launched with.
        launch: launches with such tensors and the list of their addresses, which it may extend;
            returns what it made, or None, with nothing written, if the call must go the long way.
        finish: makes the result of the call from what `launch` made and the tensors.
    """

    tensors: Sequence[Tensor]
    launch: Callable[[Sequence[Tensor], list[int]], Any]
    finish: Callable[[Any, Sequence[Tensor]], Any]

    @classmethod
    def of_call(cls, call: Call | None, operands: Sequence[Tensor | None]) -> Prepared | None:
        """What repeats a call with these operands, one for each of its slots; None without one."""
        if call is None:
            return None
        run, places = call.run, [at for at, item in enumerate(operands) if item is not None]
        gaps = [at for at in range(places[-1]) if at not in places]
        behind = len(operands) - places[-1] - 1
        tail, zeros = [None] * behind, [0] * behind

        def launch(tensors: Sequence[Tensor], addresses: list[int]) -> Any:
            every, where = [*tensors, *tail], addresses + zeros
            for at in gaps:
                every.insert(at, None)
                where.insert(at, 0)
            return run(every, where)

        tensors = [operands[at] for at in places]
        return cls(tensors=tensors, launch=launch, finish=lambda made, tensors: made)

    def as_forward(self, keeps_result: bool = False) -> Prepared:
        """The same call, whose own `finish` changes nothing, as a forward; its backward gets the
        result too, or nothing."""
        return dataclasses.replace(
            self, finish=lambda made, tensors: (made, (made,) if keeps_result else ())
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Direct:
    """The forward and backward of plain tensors with gradients, if only autograd sees the call.

    Attributes:
        backward: as of `Operator`, where the arguments have two more names: `kinds`, the types
            that they had before autocast (None if not a tensor), and `kept`, the forward's further
            tensors. Not called if gradients of gradients are recorded.
        forward: (arguments, whether each needs a gradient) -> (the result, further tensors or None
            for the backward to get). None: as `compute` of the operator, with no further tensors.
        parameters: the tensors that autocast casts inside the operator: all at once, without nodes
            of autograd, and their gradients are rounded only once. It casts the others before.
        prepare, prepare_backward: take the same arguments, and return what repeats such a forward
            or backward, or None if it can't be repeated yet. A repeated backward returns the
            gradients of all tensors in one list, each in its tensor's shape.
    """

    backward: Callable[[Named, Named, Any], Gradients]
    forward: Callable[[Named, Named], tuple[Any, Sequence[Tensor | None]]] | None = None
    parameters: tuple[str, ...] = ()
    prepare: Callable[[Named, Named], Prepared | None] | None = None
    prepare_backward: Callable[[Named, Named, Any], Prepared | None] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Operator:
    """An operator of torch.library, kronop::name.

    Attributes:
        schema: "name(Tensor x, Tensor[] factors, Scalar alpha) -> Tensor".
        compute: computes the result from tensors with values, in memory of its own; called without
            gradients.
        fake: returns a result without values, of the right shape and type, from arguments without
            values; refuses shapes that do not fit.
        saved: the names of the tensors that derivatives read; the others are None for them.
        backward: (arguments, whether each needs a gradient, the gradient of the result) -> the
            gradients of tensors by name. The gradient of a list of results is a list, with None
            for results that have none. The gradient of a tensor that is left out is zero. Those of
            broadcast tensors are summed to their shape afterwards.
        jvp: (arguments, their tangents or None) -> the tangent of the result, or None if it has
            none. None, like `vmap`, for an operator that is never called inside the transforms of
            torch.func.
        vmap: (size of the map, arguments, the mapped dimension of each or None) -> (the result, its
            mapped dimension); for a list of results, lists of both. Or, for an operator of one
            result whose leading dimensions broadcast, the number of the others of each tensor.
        record: refuses arguments that have no derivatives; called if derivatives will be needed.
        autocast: what autocast casts the tensors to.
        prepare: given arguments that are plain tensors, what repeats their `compute`; None if it
            can't be repeated yet.
        direct: a shorter way than `compute` and `backward` for plain tensors with gradients.
        decomposed: the result by torch's own operations, from the same arguments, in the layout
            that `fake` promises: for exports to where kronop is not. None if there is no such way.
    """

    schema: str
    compute: Callable[[Named], Any]
    fake: Callable[[Named], Any]
    saved: tuple[str, ...]
    backward: Callable[[Named, Named, Any], Gradients]
    jvp: Callable[[Named, Named], Any] | None = None
    vmap: Callable[[int, Named, Named], tuple[Any, Any]] | Mapping[str, int] | None = None
    record: Callable[[Named], None] | None = None
    autocast: Autocast | None = None
    prepare: Callable[[Named], Prepared | None] | None = None
    direct: Direct | None = None
    decomposed: Callable[[Named], Any] | None = None

    @property
    def name(self) -> str:
        """The operator's name, without the namespace "kronop::"."""
        return self.schema.partition("(")[0]
