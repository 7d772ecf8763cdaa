"""The step of a fused pair of products (`chain_mma`), its candidates and its launch."""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Iterator, Mapping
from dataclasses import replace

from kronop.artifacts import KernelSignature, Launch, Scalar
from kronop.descriptions.datatype import DataType
from kronop.descriptions.strided import StridedMatrix
from kronop.emit.cuda import contract_mma, operands
from kronop.emit.cuda.cheapest import cheapest
from kronop.emit.cuda.contract_step import ROW_AXES, splits
from kronop.emit.cuda.contraction.work import Order
from kronop.emit.design import Flat
from kronop.emit.plan import Step
from kronop.families.ksparse.chain_description import KSparseChainProblem, StridedFactor
from kronop.families.ksparse.cuda import chain_cost, chain_tile
from kronop.families.ksparse.cuda.chain_pair import Pair, pairs
from kronop.families.ksparse.cuda.chain_tile import ChainTile
from kronop.families.ksparse.cuda.emitter import view
from kronop.families.ksparse.description import KSparseDescription
from kronop.target import Target

_STAGES = (2, 3, 4, 6)
# Of each product, so many tiles go on to be combined.
_BEST_OF_EACH = 4
# More tiles than there are.
_EVERY = 1 << 20
_NOTHING = StridedMatrix(pointer=0, row=0, column=0)

Fused = tuple[float, Pair, ChainTile]


def candidates(
    first: KSparseDescription,
    second: KSparseDescription,
    target: Target,
    rows: int | None,
    most: int = _EVERY,
) -> list[Fused]:
    """(cycles, pair, tile) of the `most` tiles that are cheapest, in that order; none where nothing
    fits."""
    split, math = splits(first.math), first.math
    if split is None:
        return []

    def floor(item: tuple[Pair, ChainTile]) -> float:
        return chain_cost.least_of_pair(*item, split, math, target)

    def judge(item: tuple[Pair, ChainTile]) -> float | None:
        may = chain_tile.fits(*item, split, math, target)
        return chain_cost.of_pair(*item, split, math, target) if may else None

    offered = [
        (pair, tile)
        for pair in pairs(first, second, rows)
        for tile in _proposed(pair, first, split, target)
    ]
    found = cheapest(offered, floor, judge, most=most)
    return [(cycles, pair, tile) for cycles, (pair, tile) in found[:most]]


def repriced(pair: Pair, tile: ChainTile, first: KSparseDescription, target: Target) -> Fused:
    """A tile that was chosen for other rows than the pair's."""
    cycles = chain_cost.of_pair(pair, tile, bool(splits(first.math)), first.math, target)
    return cycles, pair, tile


def _proposed(
    pair: Pair, description: KSparseDescription, split: bool, target: Target
) -> Iterator[ChainTile]:
    rows = [m for m in chain_tile.ROWS_OF_BLOCK if chain_tile.has_room(pair, m, target)]
    for m, threads in itertools.product(rows, chain_tile.threads(pair)):
        best = []
        for index in (0, 1):
            own = [
                (_cost_of(pair, item, index, split, description), place, item)
                for place, item in enumerate(chain_tile.proposed(pair, index, m, threads))
            ]
            best.append([item for _, _, item in heapq.nsmallest(_BEST_OF_EACH, own)])
        staged = [
            [[replace(item, stages=stages) for stages in _STAGES] for item in items]
            for items in best
        ]
        for one, other in itertools.product(*staged):
            for place, resident in itertools.product(range(len(_STAGES)), (False, True)):
                yield ChainTile(
                    first=one[place],
                    second=other[place],
                    stages=_STAGES[place],
                    resident=resident,
                )


def _cost_of(
    pair: Pair,
    item: contract_mma.ContractMmaTile,
    index: int,
    split: bool,
    description: KSparseDescription,
) -> float:
    both = ChainTile(first=item, second=item, stages=1, resident=False)
    return chain_cost.of_product(pair, both, index, split, description.math)


def chain_step(
    first: KSparseDescription,
    second: KSparseDescription,
    fused: Fused,
    target: Target,
) -> Step:
    """The step of two products, the second with the epilogue."""
    _, pair, tile = fused
    split = bool(splits(first.math))
    scalar = operands.scalar_kind(second.epilogue)
    x, y = first.X.element, second.Y.element
    order = "batch_last" if first.batch_last else "batch_first"
    names = ["_".join(map(str, item.pattern)) for item in (first, second)]
    works = [2 * item.output_columns * item.pattern[2] for item in (first, second)]
    return Step(
        entry=f"ksparse_pair_{x.short}_{'_then_'.join(names)}_{order}_{y.short}"
        f"_{second.epilogue.name}_{target.arch}",
        bytes_per_row=first.input_columns * x.bytes + second.output_columns * y.bytes,
        operations_per_row=sum(works),
        note=f"{first.pattern} then {second.pattern}, {order}, {tile}",
        design=Flat(
            header="kronop/chain_mma.cuh",
            template="kronop::chain_mma",
            parameters=f"kronop::ChainParameters<{scalar.cxx}>",
            types=operands.element_types(first.math, x, y, second.epilogue),
            constants=chain_tile.constants(first.math, split, pair, tile, second.epilogue, target),
            signature=_signature(scalar),
            epilogue=second.epilogue,
            threads=tile.threads,
            shared_bytes=chain_tile.room(pair, tile, first.math).total,
            launch=(("patterns", (*first.pattern, *second.pattern)), *_joins(pair, tile)),
        ),
    )


def _joins(pair: Pair, tile: ChainTile) -> tuple[tuple[str, bool], ...]:
    """Whether runs along the lanes go on along the own index."""
    return tuple(
        (name, contract_mma.joined(work, own))
        for name, work, own in zip(
            ("first_joins", "second_joins"), pair.products, tile.tiles, strict=True
        )
    )


def _signature(scalar: Scalar) -> KernelSignature:
    return operands.signature(
        "ChainParameters",
        scalar,
        [(name, 1) for name in ("x", "first", "second", "y", "z", "bias")],
        [
            *((f"{name}_vector", 1) for name in ("x", "first", "second", "y")),
            *((f"row_{name}", ROW_AXES) for name in ("extent", "x", "y", "z")),
            *((f"contracted_{name}", 1) for name in ("x", "first", "second")),
            *((f"produced_{name}", 1) for name in ("first", "second", "y", "z", "bias")),
            *((f"lane_{name}", 1) for name in ("x", "first", "second", "y", "z", "bias")),
            *((f"group_{name}", 1) for name in ("x", "first", "second", "y", "z", "bias")),
        ],
    )


def chain_launch(index: int, step: Step, problem: KSparseChainProblem, cores: int) -> Launch:
    """The launch of a fused pair: as many blocks as there is room for, in turns over the rows."""
    patterns = operands.integers(step, "patterns")
    (_, _, c1, d1), (_, b2, _, d2) = patterns[:4], patterns[4:]
    first, second = problem.weights
    views = {
        "x": view(problem.x, "contracted", c1, d1),
        "first": _factor(first),
        "second": _factor(second),
        "y": view(problem.y, "produced", b2, d2),
        "z": view(problem.z or _NOTHING, "produced", b2, d2),
    }
    rows = (problem.rows, 1, 1)
    extents = [
        {"row": rows, "contracted": (c,), "produced": (b,), "lane": (d,), "group": (a, 1, 1, 1)}
        for a, b, c, d in (patterns[:4], patterns[4:])
    ]
    bias = problem.bias_stride
    values: dict[str, int | tuple[int, ...] | tuple[float, ...]] = {
        "row_extent": rows,
        "bias": problem.bias,
        "produced_bias": d2 * bias,
        "lane_bias": bias,
        "group_bias": b2 * d2 * bias,
        "scalars": problem.scalars,
        **_flags(step, views, extents),
    }
    for name, item in views.items():
        values |= item.field(name)
        values[f"group_{name}"] = item.strides["group"][0]
    parts = operands.integer(step, "kParts")
    tiles = operands.cover(problem.rows, operands.integer(step, "kTileM"))
    most = max(1, operands.integer(step, "kBlocks") * cores // parts)
    return operands.make_launch(index, step, min(tiles, most) * parts, values)


def _factor(factor: StridedFactor) -> operands.View:
    a, b, c, d = factor.strides
    return operands.View(
        pointer=factor.pointer,
        strides={"contracted": (c,), "produced": (b,), "lane": (d,), "group": (a, 0, 0, 0)},
    )


def _flags(
    step: Step, views: Mapping[str, operands.View], extents: list[dict[str, tuple[int, ...]]]
) -> dict[str, int]:
    """Whether memory is as the plan's wide accesses want it."""
    source, output = operands.element_of(step, "Input"), operands.element_of(step, "Output")
    joins = [bool(step.constant(name)) for name in ("first_joins", "second_joins")]
    orders, widths = operands.integers(step, "kPairWOrder"), operands.integers(step, "kPairWVector")

    def flag(
        name: str, product: int, own: str, wide: str, order: int, width: int, element: DataType
    ) -> int:
        return contract_mma.allows_vectors(
            views[name], extents[product], Order(order), own, wide, width, element, joins[product]
        )

    x_order, y_order = operands.integer(step, "kXOrder"), operands.integer(step, "kYOrder")
    x, y = operands.integer(step, "kXVector"), operands.integer(step, "kYVector")
    results = [flag("y", 1, "produced", "row", y_order, y, output)]
    if views["z"].pointer:
        results.append(flag("z", 1, "produced", "row", y_order, y, output))
    return {
        "x_vector": flag("x", 0, "contracted", "row", x_order, x, source),
        "first_vector": flag("first", 0, "contracted", "produced", orders[0], widths[0], source),
        "second_vector": flag("second", 1, "contracted", "produced", orders[1], widths[1], source),
        "y_vector": min(results),
    }
