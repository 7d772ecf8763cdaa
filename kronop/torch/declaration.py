"""What a family says of an operator of torch: the one thing that `registration` is driven by.

An operator's arguments are those of its schema, in torch's language: tensors, optional tensors,
lists of tensors, and others, which have no derivatives; its result is a tensor or a list of them.
Functions of a declaration see arguments by name, as a namespace (`given.x`, `given.factors`), and
so what belongs to them: whether each needs a gradient, its tangent, the dimension that is mapped.
For a list of tensors that is a list.

Derivatives are made of operators, called as they were registered: so they have derivatives too, to
any order and in both modes, and maps, and are traced.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import SimpleNamespace
from typing import Any

from kronop.frozen import dataclass

Named = SimpleNamespace


@dataclass(frozen=True, slots=True, kw_only=True)
class Prepared:
    """What repeats a call from addresses alone.

    Attributes:
        tensors: those of the call whose addresses decide it.
        launch: from such tensors and their addresses, which it takes over, what is made; None where
            the call has to go the long way: nothing is written then.
        finish: from what was made and the tensors, what the call gives.
    """

    tensors: Sequence[Any]
    launch: Callable[[Sequence[Any], list[int]], Any]
    finish: Callable[[Any, Sequence[Any]], Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Direct:
    """How plain tensors are multiplied where nothing but autograd looks on and there is a gradient.

    Attributes:
        forward: from the arguments and whether each needs a gradient, the result and what else the
            backward is to find: tensors, None among them.
        backward: the gradients by name, from the arguments, the types that they had before autocast
            (None for what is no tensor), what the forward kept, whether each needs a gradient, and
            the gradient of the result. Called where no gradient of the gradients is recorded.
        parameters: the tensors that autocast casts inside: all at once, without nodes of autograd,
            with gradients that are rounded once. The others are cast before.
        prepare, prepare_backward: from the same, what repeats such a forward or backward; None
            while there is nothing that does. Repeated, a backward gives the gradients of all
            tensors in one list, each of its tensor's shape.
    """

    forward: Callable[[Named, Named], tuple[Any, Sequence[Any]]]
    backward: Callable[[Named, Named, Sequence[Any], Named, Any], Mapping[str, Any]]
    parameters: tuple[str, ...] = ()
    prepare: Callable[[Named, Named], Prepared | None] | None = None
    prepare_backward: Callable[..., Prepared | None] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Operator:
    """An operator of torch.library, kronop::name.

    Attributes:
        schema: "name(Tensor x, Tensor[] factors, Scalar alpha) -> Tensor".
        compute: the result from tensors with values, in memory that is no argument's; positional,
            without gradients.
        fake: the same from tensors without values, of the right shapes and types; refuses shapes
            that do not fit.
        saved: the tensors that derivatives read; of the others they find None.
        backward: the gradients of tensors, by name, from the arguments, whether each needs a
            gradient, and the gradient of the result: a tensor, or for a list of results a list
            with None in it. What it leaves out has none; what was broadcast is summed over later.
        jvp: the tangent of the result, from the arguments and their tangents (None where one has
            none); None where it has none. With `vmap` None for an operator that is not called
            where torch.func's transforms are.
        vmap: (the result, its mapped dimension), from the size of the map, the arguments and the
            dimension of each that is mapped, or None; of lists, lists of both.
        record: refuses arguments that have no derivatives, where one will be asked for.
        casts: whether autocast casts the tensors.
        prepare: from arguments that are plain tensors, what repeats their `compute`, if there is
            such a thing by now.
        direct: a shorter way for plain tensors with gradients, than `compute` and `backward`.
    """

    schema: str
    compute: Callable[..., Any]
    fake: Callable[..., Any]
    saved: tuple[str, ...]
    backward: Callable[[Named, Named, Any], Mapping[str, Any]]
    jvp: Callable[[Named, Named], Any] | None = None
    vmap: Callable[[int, Named, Named], tuple[Any, Any]] | None = None
    record: Callable[[Named], None] | None = None
    casts: bool = False
    prepare: Callable[[Named], Prepared | None] | None = None
    direct: Direct | None = None

    @property
    def name(self) -> str:
        """Behind "kronop::"."""
        return self.schema.partition("(")[0]
