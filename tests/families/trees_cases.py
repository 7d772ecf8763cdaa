"""Random visitor trees over Kronecker and Kronecker-sparse products, chains, distances and matrix
products, compared number by number.

Operands are whole numbers so small that all values are exact in every type.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

import kronop
from kronop.descriptions.summed import summed
from kronop.descriptions.visitor import VisitorTree
from kronop.emit.plan import Plan
from kronop.families.distance.size import DistanceSize
from kronop.families.gemm.size import GemmSize
from tests import support
from tests.families.distances import drawn

_ELEMENTS = ("float64", "float32", "float16", "bfloat16", "int32", "int8")
_EXTENTS = (1, 2, 7, 31, 33, 64, 100, 129, 257)
# Longer ones of matrix products, which warp groups multiply where operands are aligned.
_LONG = (48, 144, 512, 1040)
_LEADS: tuple[tuple[int, ...], ...] = ((), (), (3,), (2, 3))
_KINDS = {"alpha": "scalar", "c": "tensor", "bias": "row", "scale": "column"}


def _tree(function: Callable[..., Any], *names: str) -> VisitorTree:
    operands = function.__code__.co_varnames[1 : function.__code__.co_argcount]
    return kronop.epilogue_visitor(
        function, kinds={name: _KINDS[name] for name in operands}, results=("D", *names)
    )


_TREES = (
    _tree(lambda accum, alpha, c: alpha * accum + c),
    _tree(lambda accum, bias, scale: (kronop.relu(accum + bias) * scale, accum), "sums"),
    _tree(
        lambda accum, alpha, c, bias: (
            alpha * accum + c,
            kronop.maximum(accum - bias, axis="row"),
            kronop.sum(accum, axis="column"),
        ),
        *("largest", "total"),
    ),
    _tree(
        lambda accum, scale: (
            kronop.maximum(accum, scale),
            kronop.sum(accum * scale, axis="row"),
            kronop.maximum(accum, axis="column"),
            accum * 2,
        ),
        *("total", "largest", "twice"),
    ),
)


@dataclass(frozen=True)
class Case:
    """One operation, in float64, with a tree and what it is given.

    Where `in_place`, D is the operand c itself.
    """

    family: str
    operands: dict[str, Any]
    more: dict[str, Any]
    tree: VisitorTree
    given: dict[str, Any]
    element: str
    output: str
    layouts: tuple[int, ...]
    in_place: bool

    def __str__(self) -> str:
        shapes = {
            name: [i.shape for i in item] if isinstance(item, list) else item.shape
            for name, item in self.operands.items()
        }
        results = [item.name for item in self.tree.results]
        return (
            f"{self.family} {self.element} -> {self.output} {shapes} {self.more} {results}"
            f" layouts={self.layouts} in_place={self.in_place}"
        )

    def run(self, device: str) -> str:
        """What is wrong with its results; empty if nothing is."""
        operation = self.operation("x86" if device == "cpu" else support.cuda_target())
        operands = {
            name: [self._placed(i, self.layouts[0], self.element, device) for i in item]
            if isinstance(item, list)
            else self._placed(item, self._way_of(name), self.element, device)
            for name, item in self.operands.items()
        }
        wanted = self.wanted(operation)
        epilogue = operation.description.epilogue
        types = {
            item.name: epilogue.element_of(item).name
            for item in (*self.tree.tensors, *self.tree.results)
        }
        tensors = {
            name: item
            if np.ndim(item) == 0
            else self._placed(item, self.layouts[1], types[name], device)
            for name, item in self.given.items()
        }
        rooms = {name: self._room(item.shape, types[name], device) for name, item in wanted.items()}
        results = {name: out for name, (_, out) in rooms.items()}
        if self.in_place:
            results["D"] = tensors["c"]
        output_op = operation.epilogue_type(**tensors, **results)
        arguments = self._arguments(operation, operands, output_op)
        for times in range(1 if self.in_place else 3):  # Later runs are repeated ones.
            operation.run(arguments)
            output_op.sync()
            for name, want in wanted.items():
                found = results[name].double().cpu().numpy()
                goal = drawn.rounded(want, types[name])
                wrong = ~((found == goal) | (np.isnan(found) & np.isnan(goal)))
                if wrong.any():
                    at = np.argwhere(wrong)[0].tolist()
                    values = f"{found[tuple(at)]} for {goal[tuple(at)]}"
                    return (
                        f"run {times}: {wrong.sum()} of {wrong.size} of {name}, at {at}: {values}"
                    )
                if not self.in_place:
                    results[name].fill_(drawn.GUARD)
                    if not bool((rooms[name][0] == drawn.GUARD).all()):
                        return f"run {times}: memory around {name} was written"
        return ""

    def _placed(self, array: Any, way: int, element: str, device: str) -> Any:
        way = 0 if array.ndim < 2 and way == 1 else way
        return drawn.tensor(drawn.laid_out(array, way), element, device)

    def _room(self, shape: tuple[int, ...], element: str, device: str) -> tuple[Any, Any]:
        """Memory, and a result inside of it."""
        way = self.layouts[2]
        if way == 2 and len(shape) > 2:
            room = drawn.tensor(drawn.laid_out(np.full(shape, drawn.GUARD), way), element, device)
            return room, room
        columns, step = self._turned and len(shape) > 1, 2 if way == 3 else 1
        return drawn.room(shape, element, device, columns, way in (2, 4), step)

    @property
    def _turned(self) -> bool:
        """Whether results are contiguous along their columns."""
        return self.layouts[2] in (1, 4)

    @property
    def alignment(self) -> int:
        """Elements of A and B that are promised to be aligned."""
        unit = 16 // getattr(kronop, self.element).bytes
        aligned = self.family == "gemm" and self.layouts[0] == 0
        return unit if aligned and self.operands["A"].shape[-1] % unit == 0 else 1

    def _way_of(self, name: str) -> int:
        """How an operand is laid out; aligned ones are contiguous along K."""
        return 1 if self.alignment > 1 and name == "B" else self.layouts[0]

    def wanted(self, operation: Any) -> dict[str, Any]:
        what = operation.description
        if self.family == "gemm":
            sums = self.operands["A"] @ self.operands["B"]
        else:
            sums = summed(what).reference(*self.operands.values())
        found: dict[str, Any] = what.epilogue.evaluate(sums, self.given)
        return found

    def _arguments(self, operation: Any, operands: dict[str, Any], output_op: Any) -> Any:
        kinds = {
            "kron": kronop.KronMatmulArguments,
            "ksparse": kronop.KSparseArguments,
            "chain": kronop.KSparseChainArguments,
            "distance": kronop.DistanceArguments,
            "gemm": kronop.GemmArguments,
        }
        kind: Any = kinds[self.family]
        more = {"kernel": self.more["kernel"]} if self.family == "distance" else {}
        return kind(operation=operation, output_op=output_op, **operands, **more)

    def operation(self, target: str) -> Any:
        element, output = getattr(kronop, self.element), getattr(kronop, self.output)
        sums = kronop.MathInstruction.simt(element).element_accumulator
        epilogue = self.tree(
            output, 1, sums, kronop.float64 if sums is kronop.float64 else kronop.float32
        )
        kinds = {
            "kron": kronop.KronMatmulOperation,
            "ksparse": kronop.KSparseOperation,
            "chain": kronop.KSparseChainOperation,
            "distance": kronop.DistanceOperation,
            "gemm": kronop.GemmOperationUniversal,
        }
        kind: Any = kinds[self.family]
        tensor = kronop.TensorDescription
        layout = kronop.ColumnMajor if self._turned else kronop.RowMajor
        of_b = kronop.ColumnMajor if self.alignment > 1 else kronop.RowMajor
        return kind(
            target,
            None,
            tensor(element, kronop.RowMajor, self.alignment),
            tensor(element, of_b, self.alignment),
            tensor(output, layout),
            epilogue,
            **self.more,
        )

    def plan(self, target: str) -> Plan:
        rows: Any = math.prod(self.operands.get("X", np.empty(1)).shape[:-1])
        if self.family == "distance":
            m, k = self.operands["X1"].shape
            rows = DistanceSize(m, self.operands["X2"].shape[0], k)
        if self.family == "gemm":
            (*lead, m, k), n = self.operands["A"].shape, self.operands["B"].shape[-1]
            rows = GemmSize(m, n, k, math.prod(lead))
        found: Plan = self.operation(target).plan_for(rows)
        return found


def make(random: np.random.Generator) -> Case:
    family = str(random.choice(list(_MAKERS)))
    refused = {"distance": ("int32", "int8"), "chain": ("int8",)}
    elements = [item for item in _ELEMENTS if item not in refused.get(family, ())]
    element = str(random.choice(elements))
    operands, more, shape = _MAKERS[family](random)
    tree = _TREES[random.integers(len(_TREES))]
    integer = "int" in element
    output = str(random.choice(("int32", "float32") if integer else (element, "float32")))
    own = {"tensor": shape, "row": shape[-1:], "column": shape[:-1]}
    given: dict[str, Any] = {}
    for item in tree.operands:
        if item.kind == "scalar":
            given[item.name] = float(random.choice((1, 2, -1)))
        else:
            given[item.name] = random.integers(-3, 4, own[item.kind]).astype(np.float64)
    layouts = [int(item) for item in random.integers(drawn.LAYOUTS, size=3)]
    if family == "gemm" and operands["A"].shape[-1] in _LONG:
        layouts[0] = 0
    has_c = any(item.name == "c" for item in tree.operands)
    return Case(
        family=family,
        operands=operands,
        more=more,
        tree=tree,
        given=given,
        element=element,
        output=output,
        layouts=tuple(layouts),
        in_place=has_c and bool(random.random() < 0.3),
    )


_Made = tuple[dict[str, Any], dict[str, Any], tuple[int, ...]]


def _kron(random: np.random.Generator) -> _Made:
    count = int(random.choice((1, 2, 3)))
    most = {1: 150, 2: 17, 3: 7}[count]
    shapes = [(int(p), int(q)) for p, q in random.integers(1, most, (count, 2))]
    lead, m = _LEADS[random.integers(len(_LEADS))], int(random.choice(_EXTENTS))
    side = [kronop.Side.Right, kronop.Side.Left][random.integers(2)]
    rows, columns = (math.prod(sizes) for sizes in zip(*shapes, strict=True))
    right = side is kronop.Side.Right
    ends = [(m, rows), (m, columns)] if right else [(columns, m), (rows, m)]
    x = _whole(random, (*lead, *ends[0]), (8 / (rows if right else columns)) ** 0.5)
    factors = [_whole(random, item, min(1.0, 3 / max(item))) for item in shapes]
    more = {"factors": tuple(shapes), "side": side}
    return {"X": x, "factors": factors}, more, (*lead, *ends[1])


def _pattern(random: np.random.Generator) -> tuple[int, int, int, int]:
    a, d = (int(item) for item in random.integers(1, 5, 2))
    b, c = (int(random.choice((1, 2, 5, 16, 33, 64))) for _ in "bc")
    return a, b, c, d


def _ksparse(random: np.random.Generator) -> _Made:
    a, b, c, d = pattern = _pattern(random)
    batch, last = int(random.choice(_EXTENTS)), bool(random.integers(2))
    ends = [(batch, a * c * d), (batch, a * b * d)]
    ends = [item[::-1] for item in ends] if last else ends
    operands = {
        "X": _whole(random, ends[0], (8 / c) ** 0.5),
        "W": _whole(random, pattern, (8 / c) ** 0.5),
    }
    return operands, {"pattern": pattern, "batch_last": last}, ends[1]


def _chain(random: np.random.Generator) -> _Made:
    a, b, c, d = first = _pattern(random)
    features = a * b * d
    second = (1, int(random.choice((2, 7, 16))), features, 1)
    batch, last = int(random.choice(_EXTENTS)), bool(random.integers(2))
    ends = [(batch, a * c * d), (batch, second[1])]
    ends = [item[::-1] for item in ends] if last else ends
    weights = [_whole(random, item, min(1.0, 3 / item[2])) for item in (first, second)]
    x = _whole(random, ends[0], min(1.0, 8 / c))
    return {"X": x, "weights": weights}, {"patterns": (first, second), "batch_last": last}, ends[1]


def _distance(random: np.random.Generator) -> _Made:
    m, n = (int(random.choice(_EXTENTS)) for _ in "mn")
    k = int(random.choice((1, 3, 17)))
    kernel = kronop.kernels.PowerNorm(1)
    operands = {"X1": _whole(random, (m, k), 0.7), "X2": _whole(random, (n, k), 0.7)}
    return operands, {"kernel": kernel}, (m, n)


def _gemm(random: np.random.Generator) -> _Made:
    extents = (_EXTENTS, _LONG)[random.integers(2)]
    m, n, k = (int(random.choice(extents)) for _ in "mnk")
    lead = _LEADS[random.integers(len(_LEADS))]
    density = min(1.0, (8 / k) ** 0.5)
    operands = {"A": _whole(random, (*lead, m, k), density), "B": _whole(random, (k, n), density)}
    return operands, {"visitor": True}, (*lead, m, n)


_MAKERS: dict[str, Callable[[np.random.Generator], _Made]] = {
    "kron": _kron,
    "ksparse": _ksparse,
    "chain": _chain,
    "distance": _distance,
    "gemm": _gemm,
}


def _whole(random: np.random.Generator, shape: tuple[int, ...], density: float) -> Any:
    """-1, 0 and 1."""
    return random.integers(-1, 2, shape).astype(np.float64) * (random.random(shape) < density)
