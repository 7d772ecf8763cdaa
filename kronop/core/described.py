"""From the constructor arguments of an operation to its description."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from dataclasses import MISSING, fields
from typing import Any

from kronop.core.family import Kind
from kronop.descriptions.epilogue import Epilogue
from kronop.descriptions.math_instruction import MathInstruction
from kronop.descriptions.tensor import TensorDescription
from kronop.descriptions.tile import TileDescription
from kronop.emit.emitter import Emitter
from kronop.errors import ElementTypeError
from kronop.target import Target

# Fields that callers don't pass by name: `math` follows from the tile or from X and the target, and
# the tile is the operation's second argument.
_OF_MATH = ("math", "tile")
# Fields whose argument has another name, which is the one PyCUTLASS's operations use.
_PUBLIC_NAMES = {"epilogue": "epilogue_functor"}
# The target's name in PyCUTLASS's programs.
_ARCH = "arch"


def signature_of(kind: Kind) -> inspect.Signature:
    """The signature of an operation's constructor: target, tile, and the description's fields, of
    which some may come first."""
    public = _PUBLIC_NAMES | {**kind.names}
    none = inspect.Parameter.empty
    first = (*kind.ahead, "target", "tile_description")
    defaults = dict.fromkeys(first, none) | {
        public.get(item.name, item.name): none if item.default is MISSING else item.default
        for item in fields(kind.description.get())
        if item.name not in _OF_MATH
    }
    either = inspect.Parameter.POSITIONAL_OR_KEYWORD
    every = [inspect.Parameter(name, either, default=it) for name, it in defaults.items()]
    return inspect.Signature(every)


def arguments_of(
    operation: type, described: tuple[Any, ...], by_name: Mapping[str, Any]
) -> dict[str, Any]:
    """An operation's constructor arguments by their public names; `arch` is the target too."""
    signature = inspect.signature(operation)
    names = [*signature.parameters][: len(described)]
    if _ARCH in by_name and "target" not in (*names, *by_name):
        by_name = {"target" if name == _ARCH else name: it for name, it in by_name.items()}
    try:
        return signature.bind(*described, **by_name).arguments
    except TypeError as error:
        raise TypeError(f"{operation.__name__}: {error}") from None


def description_from(
    kind: Kind, emitter: Emitter, target: Target, arguments: Mapping[str, Any]
) -> Any:
    """The description that an operation's constructor arguments, but the target, spell."""
    made = kind.description.get()
    public = _PUBLIC_NAMES | {**kind.names}
    own = {name: item for item, name in public.items()}
    given = {own.get(name, name): value for name, value in arguments.items()}
    tile = given.pop("tile_description")
    math = _math(emitter, target, tile, given, kind.inputs[0])
    for item in fields(made):
        if item.name in given and "plain" in item.metadata:
            given[item.name] = item.metadata["plain"](item.name, given[item.name])
    return made(math=math, tile=tile, **given)


def _math(
    emitter: Emitter,
    target: Target,
    tile: TileDescription | None,
    given: Mapping[str, Any],
    first: str,
) -> MathInstruction:
    """The tile's math instruction, or the default one for the operand named `first`."""
    if isinstance(tile, TileDescription):
        return tile.math_instruction
    operand = given[first]
    if tile is not None or not isinstance(operand, TensorDescription):
        name, value = (first, operand) if tile is None else ("tile_description", tile)
        kind = "TensorDescription" if tile is None else "TileDescription"
        raise ElementTypeError(
            name,
            expected=f"a {kind}" if tile is None else f"a {kind}, or None",
            got=repr(value),
            hint=f"build a kronop.{kind}",
        )
    found, epilogue = emitter.instruction(operand.element, target), given.get("epilogue")
    if isinstance(epilogue, Epilogue):
        return found.summed_in(epilogue.element_accumulator)
    return found
