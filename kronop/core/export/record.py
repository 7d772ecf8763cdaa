"""Records an operation's launches over symbolic addresses and scalars, for C to fill in.

The designs pack the parameters, as they do for every run. What is recorded tells C which 8-byte
words of them are an operand's address plus an offset, and which are scalars; all other words are
constants of the number of rows.
"""

from __future__ import annotations

import itertools
import struct
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from kronop.args.base import Arguments
from kronop.args.staging import Form
from kronop.args.view import CPU, Device, TensorView, contiguous_strides
from kronop.artifacts import Launch
from kronop.core.addressed import patches, symbol
from kronop.core.export.operands import BIAS, RESULT, SOURCE, Exportable, Operand
from kronop.core.served import Served
from kronop.descriptions.datatype import Layout
from kronop.emit.plan import Plan
from kronop.errors import DescriptionError
from kronop.frozen import dataclass
from kronop.size import Size

ALIGNMENT = 16  # Of operands, in bytes: kernels ask for no more.
# The first of the scalars by which words are known. Integers have to be within 32 bits; odd ones of
# that size are no extent, stride or number of bytes.
_MARK_FLOAT, _MARK_INT = 1.0625, 0x5E37A1C1


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """What the parameters depend on besides the rows, and what C finds out in every call.

    Attributes:
        source: whether Z is read: beta is not 0.
        plain: whether alpha is 1 and beta 0.
        bias: whether there is a bias.
        aligned: whether all addresses are multiples of 16 bytes; else of what is promised.
    """

    source: bool
    plain: bool
    bias: bool
    aligned: bool

    @property
    def index(self) -> int:
        """The case's place in the table, as C computes it."""
        return (1 if self.source else 2 if self.plain else 0) + 3 * (self.bias + 2 * self.aligned)


CASES = 12


def every_case(has_bias: bool) -> Iterator[Case]:
    for source, plain, bias, aligned in itertools.product((False, True), repeat=4):
        if not (source and plain) and has_bias >= bias:
            yield Case(source=source, plain=plain, bias=bias, aligned=aligned)


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """One launch: constant words, and what is written over them.

    Attributes:
        step: the index of its step in the plan.
        words: the parameters; those that are written over are 0.
        addresses: (word, slot of the operand, bytes to add to its address).
        scalars: (word, index of the scalar).
    """

    step: int
    words: tuple[int, ...]
    addresses: tuple[tuple[int, int, int], ...]
    scalars: tuple[tuple[int, int], ...]
    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    shared_bytes: int
    overlaps: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Variant:
    """The calls for one number of rows (and of threads) in one case."""

    plan: int
    calls: tuple[Call, ...]
    workspace_bytes: int


class Symbolic:
    """Places in which operands keep the symbolic addresses that they came with."""

    def __init__(self, scratch: int) -> None:
        self._scratch, self.nbytes = symbol(scratch, 0), 0

    def input(self, name: str, item: TensorView, form: Form | None) -> TensorView:
        if form is not None:
            raise DescriptionError(
                f"{name} of an exported operation",
                expected="a layout that kernels read in place",
                got="one that is copied before each run",
                hint="describe it row-major",
            )
        return item

    def output(self, name: str, item: TensorView, form: Form | None, *, read: bool) -> TensorView:
        return self.input(name, item, form)

    def workspace(self, nbytes: int) -> int:
        self.nbytes = nbytes
        return self._scratch if nbytes else 0


class Recorder:
    """Records the launches of one operation for dense operands of given shapes.

    Args:
        operation: the operation; its kind has an arguments class.
        operands: all operands in the order of their slots; the slot behind them is the workspace.
        more: further arguments, as a kernel's values.
    """

    def __init__(
        self, operation: Exportable, operands: Sequence[Operand], more: Mapping[str, object]
    ) -> None:
        self._operation, self._operands, self._more = operation, operands, more
        is_host = operation.target.backend == "x86"
        self._device = CPU if is_host else Device(operation.target.name)
        self.plans: list[Plan] = []

    def variant(self, rows: Size, threads: int, case: Case) -> Variant:
        """What runs for these rows.

        Raises:
            DescriptionError: the launches are no function of addresses and scalars that C could
                compute, or there are none.
        """
        first, second = (self._recorded(rows, threads, case, turn) for turn in (0, 1))
        if first != second:
            raise _unfit("scalars that are passed to the kernels as they are", "derived ones")
        return first

    def _recorded(self, rows: Size, threads: int, case: Case, turn: int) -> Variant:
        lows = [0 if case.aligned else item.promised % ALIGNMENT for item in self._operands]
        scalars, marked = self._scalars(case, turn)
        arguments = self._arguments(rows, case, lows, scalars)
        arguments.share_among(threads)
        plan = self._operation.plan_for(arguments.size)
        places = Symbolic(len(self._operands))
        served = Served(plan, ())
        launches = arguments.launches(served, places)
        if not launches:
            raise _unfit("a kernel for every number of rows", f"none for {rows}")
        if not any(plan is known for known in self.plans):
            self.plans.append(plan)
        return Variant(
            plan=next(at for at, known in enumerate(self.plans) if known is plan),
            calls=tuple(_call(item, plan, [*lows, 0], marked) for item in launches),
            workspace_bytes=places.nbytes,
        )

    def _arguments(
        self, rows: Size, case: Case, lows: Sequence[int], scalars: Sequence[float]
    ) -> Arguments:
        kind = self._operation.kind.arguments
        assert kind is not None
        given: dict[str, Any] = {}
        names = self._operation.kind.argument_names
        for slot, (item, low) in enumerate(zip(self._operands, lows, strict=True)):
            if (item.name == BIAS and not case.bias) or (item.name == SOURCE and not case.source):
                continue
            tensor = self._tensor(item, rows, symbol(slot, low))
            if item.is_listed:
                given.setdefault(item.name, []).append(tensor)
            else:
                given[names.get(item.name, item.name)] = tensor
        made_of = kind.get()
        if made_of.sized:
            given[made_of.sized] = rows
        made: Arguments = made_of(
            operation=self._operation,
            output_op=self._operation.epilogue_type(*scalars),
            **given,
            **self._more,
        )
        return made

    def _tensor(self, item: Operand, rows: Size, pointer: int) -> TensorView:
        shape = item.shape_for(rows)
        strides = contiguous_strides(shape)
        if item.description.layout is Layout.ColumnMajor and len(shape) > 1:
            strides = (*strides[:-2], 1, shape[-2])
        return TensorView(
            pointer=pointer,
            shape=shape,
            strides=strides,
            element=item.description.element,
            device=self._device,
            framework="numpy",
            writable=item.name == RESULT,
            owner=None,
        )

    def _scalars(self, case: Case, turn: int) -> tuple[list[float], dict[int, int]]:
        """Values that no other parameter has, and which word each of them becomes."""
        epilogue = self._operation.description.epilogue
        is_float = epilogue.element_epilogue.kind == "float"
        names = epilogue.scalar_names
        first = _MARK_FLOAT if is_float else _MARK_INT
        scalars: list[float] = [first + (4 * at + 2 * turn) for at in range(len(names))]
        if not case.source:
            scalars[1] = 0
        if case.plain:
            scalars[0] = 1
        free = [at for at in range(len(names)) if at > 1 or not (case.plain or at)]
        free += [1] if case.source else []
        code = "<d" if is_float else "<q"
        values = {at: scalars[at] if is_float else int(scalars[at]) for at in free}
        return scalars, {
            int.from_bytes(struct.pack(code, value), "little"): at for at, value in values.items()
        }


def _call(launch: Launch, plan: Plan, lows: Sequence[int], marked: Mapping[int, int]) -> Call:
    if launch.blocks:
        raise _unfit("parameters of 8-byte words", "tensor maps, which the driver encodes")
    pointers = plan.steps[launch.step].design.signature.pointers
    addresses = patches(launch.parameters, pointers, lows)
    if any(not 0 <= slot < len(lows) for _, slot, _ in addresses):
        raise _unfit("operands and workspace as all memory", "further memory of Python's")
    words = list(memoryview(launch.parameters).cast("Q"))
    for at, _, _ in addresses:
        words[at] = 0
    scalars = [(at, marked[word]) for at, word in enumerate(words) if word in marked]
    for at, _ in scalars:
        words[at] = 0
    if any(0 < word >> 48 <= len(lows) for word in words):
        raise _unfit("addresses in words that are declared as pointers", "one in an integer")
    return Call(
        step=launch.step,
        words=tuple(words),
        addresses=tuple(addresses),
        scalars=tuple(scalars),
        grid=launch.grid,
        block=launch.block,
        shared_bytes=launch.shared_bytes,
        overlaps=launch.overlaps,
    )


def _unfit(expected: str, got: str) -> DescriptionError:
    return DescriptionError(
        "export of an operation",
        expected=expected,
        got=got,
        hint="this operation can't be exported; run it from Python",
    )
