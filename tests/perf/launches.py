"""Launches of a sample, as text: `python -m tests.perf.launches [--random N] FILE`.

A line for each of N random operations on random targets: digests of its plan, of the emitted
sources, and of the parameters that its launches pass, over symbolic addresses and for tensors of
random layouts. Nothing is compiled or run. `diff` of two files tells whether a change of the code
changed any of these.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import hashlib
import random
import re
from collections.abc import Iterator
from typing import Any
from unittest import mock

import numpy as np

import kronop
from kronop import families
from kronop.args.view import CPU, Device, TensorView, contiguous_strides
from kronop.artifacts import Launch
from kronop.core.addressed import symbol
from kronop.core.operation import Operation
from kronop.core.served import Served
from kronop.descriptions.datatype import Layout
from kronop.descriptions.visitor import VisitorEpilogue
from kronop.emit.render import render
from kronop.families.distance.form import TermKind
from kronop.tensor_map import TensorMap
from tests.families import random_cases, samples
from tests.perf import planning

_TARGETS = ("sm_70", "sm_80", "sm_86", "sm_90a", "sm_120", "x86-avx512", "x86-amx", "x86-avx2")
_ROWS = (0, 1, 3, 16, 20, 33, 64, 100, 128, 300, 1024, 4096)
_INCLUDE = re.compile(r"^#include .*\n", re.MULTILINE)  # Paths of headers tell nothing.
_LEADS: tuple[tuple[int, ...], ...] = ((), (), (), (3,), (2, 3), (2, 1, 2))
_CASES = ("matrices", "products", "gradients", "quantized", "gemm", "trees")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--random", type=int, default=2000, metavar="N")
    parser.add_argument("file")
    options = parser.parse_args()
    with open(options.file, "w") as file:
        for number in range(options.random):
            print(number, *_digests(number), file=file, flush=True)


def _digests(number: int) -> Iterator[str]:
    chance = random.Random(number)
    try:
        operation, size, more = _operation(number, chance)
    except kronop.KronopError as error:
        yield f"refused:{_digest(str(error))}"
        return
    yield f"{type(operation).__name__}:{operation.target.mark}"
    sizes = [size] if size is not None else [chance.choice(_ROWS), chance.choice(_ROWS)]
    for each in sizes:
        for turn in range(2):
            words = f"{number} {turn}"
            found = _launched(operation, each, more, random.Random(words), batched=True)
            yield found
            if found.startswith("no"):
                yield _launched(operation, each, more, random.Random(words), batched=False)


def _operation(number: int, chance: random.Random) -> tuple[Any, Any, dict[str, Any]]:
    """An operation, a size of its problems (None for any number of rows), further arguments."""
    target = chance.choice(_TARGETS)
    way = number % 4
    if way == 0:
        return planning.random_operation(chance, _TARGETS), None, {}
    if way == 1:
        kind = chance.choice([*samples.kinds(families.FAMILIES)])
        elements = samples.elements(kind, target)
        if not elements:
            raise kronop.DescriptionError("none")
        return samples.operation(kind, target, chance.choice(elements)), None, {}
    case = random_cases.make(f"{_CASES[number // 4 % len(_CASES)]}.1.{number}")
    seen: list[Any] = []

    def note(operation: Any, size: Any, *_: Any) -> Any:
        seen.append((operation, size))
        raise _FoundError

    with (
        mock.patch.object(Operation, "plan_for", note),
        mock.patch.object(Operation, "candidates", lambda self, _, size: note(self, size)),
        contextlib.suppress(_FoundError),
    ):
        case.plan(target)
    operation, size = seen[-1]
    more = {"kernel": case.bound} if hasattr(case, "bound") else {}
    if hasattr(case, "p") and operation.description.power is TermKind.General:
        more["p"] = 2.5
    return operation, size, more


class _FoundError(Exception):
    """The operation of a case is known."""


def _launched(
    operation: Any, size: Any, more: dict[str, Any], chance: random.Random, *, batched: bool
) -> str:
    try:
        arguments = _arguments(operation, size, more, _Tensors(operation, chance, batched))
        arguments.share_among(3)
        plan = operation.plan_for(arguments.size)
        places = _Places()
        served = Served(plan, ())
        launches = arguments.launches(served, places)
    except kronop.KronopError as error:
        return f"no:{type(error).__name__}:{_digest(str(error))}"
    texts = [source.text for source in render(plan)]
    sources = repr([_INCLUDE.sub("", text) for text in texts])
    told = repr([[_told(item, plan) for item in launches], places.log])
    return f"{len(launches)}:{_digest(sources)}:{_digest(plan.explain())}:{_digest(told)}"


def _told(launch: Launch, plan: Any) -> Any:
    """All of a launch, without addresses of this process."""
    signature = plan.steps[launch.step].design.signature
    words = np.frombuffer(launch.parameters, np.uint64).copy()
    for at in signature.pointers:
        if words[at] and not 1 <= words[at] >> np.uint64(48) <= 64:
            words[at] = 0xBAD
    blocks = [
        (offset, nbytes, dataclasses.astuple(value) if isinstance(value, TensorMap) else value)
        for offset, nbytes, value in launch.blocks
    ]
    rest = (launch.grid, launch.block, launch.shared_bytes, launch.overlaps)
    return (launch.step, words.tobytes(), blocks, rest)


class _Places:
    """Keeps symbolic addresses, and what is asked for."""

    def __init__(self) -> None:
        self.log: list[Any] = []

    def input(self, name: str, item: TensorView, form: Any) -> TensorView:
        self.log.append((name, form and (form.shape, form.strides)))
        if form is None:
            return item
        return item.reshaped(form.shape, form.strides)

    def output(self, name: str, item: TensorView, form: Any, *, read: bool) -> TensorView:
        self.log.append(read)
        return self.input(name, item, form)

    def workspace(self, nbytes: int) -> int:
        self.log.append(nbytes)
        return symbol(40, 0) if nbytes else 0


class _Tensors:
    """Tensors of random layouts, each with a symbolic address of its own."""

    def __init__(self, operation: Any, chance: random.Random, batched: bool) -> None:
        self.chance = chance
        host = operation.target.backend == "x86"
        self._device = CPU if host else Device(operation.target.name)
        self._slots = 0
        self._lead = chance.choice(_LEADS) if batched else ()

    def view(self, shape: Any, described: Any, *, writable: bool = False) -> Any:
        if isinstance(shape, list):
            return [self.view(item, described, writable=writable) for item in shape]
        lead, whole = self._lead, writable or self.chance.random() < 0.6
        return self._tensor((*(lead if whole else ()), *shape), described, writable)

    def _tensor(self, shape: tuple[int, ...], described: Any, writable: bool = False) -> TensorView:
        strides = self._strides(shape, described)
        self._slots += 1
        return TensorView(
            pointer=symbol(self._slots, self.chance.choice((0, 0, 16))),
            shape=shape,
            strides=strides,
            element=described.element,
            device=self._device,
            framework="numpy",
            writable=writable,
            owner=None,
        )

    def values(self, bound: Any, described: Any) -> Any:
        """The values of a kernel, those in arrays as tensors."""
        values, vectors = (
            tuple(
                self._tensor(item.shape, described) if isinstance(item, np.ndarray) else item
                for item in items
            )
            for items in (bound.values, bound.vectors)
        )
        return dataclasses.replace(bound, values=values, vectors=vectors)

    def _strides(self, shape: tuple[int, ...], described: Any) -> tuple[int, ...]:
        """Dense, or with a pad behind each run; as the description promises."""
        pad = self.chance.choice((0, 0, 0, 1, 2)) * described.alignment
        unit = described.alignment
        if len(shape) < 2:
            return contiguous_strides(shape)
        *lead, rows, columns = shape
        by_columns = described.layout is Layout.ColumnMajor
        run = -(-(rows if by_columns else columns) // unit) * unit + pad
        inner = (1, run) if by_columns else (run, 1)
        if unit == 1 and self.chance.random() < 0.15:
            inner = (inner[0] * 2, inner[1] * 2)
        space = (columns if by_columns else rows) * run * 2
        return (*contiguous_strides(tuple(lead), max(space, 1)), *inner)


def _arguments(operation: Any, size: Any, more: dict[str, Any], tensors: _Tensors) -> Any:
    what, kind, chance = operation.description, operation.kind, tensors.chance
    listed = kind.name == "groups of matrix products"
    shapes, y_shape = what.operands(size), what.y_shape(size)
    if listed:
        shapes = {name: [shape[1:]] * 2 for name, shape in shapes.items()}
        y_shape = [y_shape[1:]] * 2
    given: dict[str, Any] = {
        name: tensors.view(shape, getattr(what, field))
        for (name, shape), field in zip(shapes.items(), kind.inputs, strict=False)
    }
    names = {"Z": "Z", "Y": "Y", **kind.argument_names}
    visited = isinstance(what.epilogue, VisitorEpilogue)
    if kind.name != "quantized Kronecker":
        y = given[names["Y"]] = tensors.view(y_shape, what.Y, writable=True)
        given["output_op"] = _output_op(operation, tensors, y_shape)
        if not visited:
            z = tensors.view(y_shape, what.Y, writable=True)
            given[names["Z"]] = y if chance.random() < 0.2 else z
    if "kernel" in more:
        sums = kronop.TensorDescription(what.math.element_accumulator)
        more = {"kernel": tensors.values(more["kernel"], sums)}
    return samples.arguments_of(kind)(operation=operation, **given, **more)


def _output_op(operation: Any, tensors: _Tensors, shape: Any) -> Any:
    epilogue, chance = operation.description.epilogue, tensors.chance
    if isinstance(epilogue, VisitorEpilogue):
        own = {"tensor": shape, "row": shape[-1:], "column": shape[:-1]}
        given: dict[str, Any] = {}
        every: list[Any] = [*epilogue.tree.operands, *epilogue.tree.results]
        for item in every:
            if item.kind == "scalar":
                given[item.name] = 2.0
            elif item.name != "D":
                described = kronop.TensorDescription(epilogue.element_of(item))
                given[item.name] = tensors.view(own[item.kind], described, writable=True)
        return operation.epilogue_type(**given)
    count = len(epilogue.scalar_names)
    scalars = [chance.choice((1, 1, 2, -3)), chance.choice((0, 0, 1, -2)), 3, 5]
    return operation.epilogue_type(*scalars[:count])


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:12]


if __name__ == "__main__":
    main()
