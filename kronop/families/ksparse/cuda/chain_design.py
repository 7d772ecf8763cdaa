"""A fused pair of products (`chain_mma`): shared memory, constants and the launch.

It is one file because a design holds everything about its kernel.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping

from kronop.artifacts import Decision, KernelSignature, Launch, Scalar, Status
from kronop.descriptions.epilogue import Epilogue
from kronop.emit.cuda import operands
from kronop.emit.cuda.contraction import banks
from kronop.emit.cuda.contraction.design import offsets_bytes
from kronop.emit.cuda.contraction.mma import MmaContract
from kronop.emit.cuda.contraction.work import ORDERS, ROW_AXES, Contraction, Order, orders
from kronop.emit.design import Constant, Design, Instantiation, arrays, named, package_folder
from kronop.families.ksparse.cuda.product import extents_of, matrix_view, weights_view
from kronop.families.ksparse.description import KSparseChainProblem
from kronop.frozen import dataclass, derived
from kronop.machine import REGISTERS, THREAD_REGISTERS
from kronop.target import Target

# Measured with ptxas 13.0: registers of the ring and its copies, in addition to a contraction's;
# the same if operands are split and a warp has one lane, where contract_mma's own estimate is
# closer to ptxas's result.
_REGISTERS_OF_RING, _REGISTERS_OF_SPLIT_RING = 24, 54
# Measured with ptxas 13.0: (2, 48, 192, 1), (1, 192, 48, 2) in float64 spilled 100 bytes without
# these further registers.
_REGISTERS_OF_DOUBLES = 32


@dataclass(frozen=True, slots=True, kw_only=True)
class Room:
    """Shared memory of a block: the byte offset of each region, the total, and the elements of a
    slot of the ring."""

    middle: int
    weights: int
    ring: int
    results: int
    total: int
    slot: int


@dataclass(frozen=True, kw_only=True)
class PairProduct(Decision):
    """One of the two products, and how a block's warps divide it. A block has one of the
    independent parts of the pair: see `Pair`.

    Attributes:
        tile: the contraction of a block's warps for one unit.
        sections, lanes: how many sections and lanes of the product a part has.
    """

    tile: MmaContract
    sections: int
    lanes: int

    @property
    def work(self) -> Contraction:
        return self.tile.work

    @derived
    def units(self) -> int:
        """How many tiles of results a block's warps compute one after the other ("units")."""
        lanes = operands.cover(self.lanes, self.tile.lanes)
        return self.sections * lanes * operands.cover(self.work.produced, self.tile.n)

    @derived
    def steps(self) -> int:
        """How many stages the contracted index of a unit is divided into."""
        return operands.cover(self.work.contracted, self.tile.k)

    @property
    def weights(self) -> int:
        """Elements of the weights that a part has."""
        return self.sections * self.lanes * self.work.contracted * self.work.produced

    @derived
    def registers(self) -> int:
        """An upper estimate of the registers of a thread."""
        alone = self.work.splits and self.tile.warp_lanes == 1
        ring = _REGISTERS_OF_SPLIT_RING if alone else _REGISTERS_OF_RING
        doubles = _REGISTERS_OF_DOUBLES if self.work.source.bytes == 8 else 0
        return self.tile.registers + ring + doubles

    @derived
    def cycles_of_block(self) -> tuple[float, float]:
        """(cycles of the tensor cores, cycles to issue other instructions) for a block's rows."""
        _, _, products, _, instructions = self.tile.units
        return self.units * products, self.units * instructions


@dataclass(frozen=True, kw_only=True)
class ChainMma(Design):
    """A fused pair of products in one kernel: each block computes both products for some rows.

    Attributes:
        first, second: the two products; they have the same rows and threads.
        parts: the number of independent parts of the pair, which share no feature.
        common_lanes: the lanes that both products have in common.
        lanes: how many of the common lanes a part has.
        stages: slots of the ring; each holds a tile of X and of weights, being copied or used.
        resident: whether a block keeps all weights of its part in shared memory.
    """

    styles = (*ORDERS, "resident", "stages", "plain", "split", "lanes")

    first: PairProduct
    second: PairProduct
    parts: int
    common_lanes: int
    lanes: int
    stages: int
    resident: bool

    def __str__(self) -> str:
        kept = ", weights resident" if self.resident else ""
        return f"[{self.first.tile}] then [{self.second.tile}], {self.stages} stages{kept}"

    def style(self, target: Target) -> Iterator[str]:
        first, second = self.products
        yield from orders(first.work, second.work)
        yield "resident" if self.resident else "stages"
        yield "split" if first.work.splits else "plain"
        if max(first.tile.lanes, second.tile.lanes) > 1:
            yield "lanes"

    @property
    def products(self) -> tuple[PairProduct, PairProduct]:
        return self.first, self.second

    @property
    def m(self) -> int:
        return self.first.tile.m

    @property
    def epilogue(self) -> Epilogue | None:
        return self.second.work.epilogue

    @property
    def threads(self) -> int:
        return self.first.tile.threads

    @property
    def shared_bytes(self) -> int:
        return self.room.total

    @property
    def signature(self) -> KernelSignature:
        return _signature(operands.scalar_kind(self.epilogue))

    @derived
    def room(self) -> Room:
        """Row offsets, the intermediate ("middle"), resident weights, the ring of stages, and
        staged results."""
        element = self.first.work.source.bytes
        middle_at = offsets_bytes(self.m)
        of_lane = self.m * self.middle_pitch * element
        weights_at = middle_at + self.second.sections * self.second.lanes * of_lane
        # The last unit of a block may have fewer lanes than its warps. Warps without a lane still
        # read, beyond the end of the middle, and their results are dropped: so memory has to be
        # there.
        beyond = -self.second.lanes % self.second.tile.lanes
        (x, first), (_, second) = (item.tile.stage_elements for item in self.products)
        kept, slot = 0, max(x + first, second)
        if self.resident:
            one, other = (item.units * item.steps for item in self.products)
            kept, slot = first * one + second * other, x
        ring_at = weights_at + kept * element
        results_at = ring_at + self.stages * slot * element
        return Room(
            middle=middle_at,
            weights=weights_at,
            ring=ring_at,
            results=results_at,
            total=max(results_at + self.second.tile.results_bytes, weights_at + beyond * of_lane),
            slot=slot,
        )

    @property
    def registers(self) -> int:
        """An upper estimate of the registers of a thread."""
        return max(self.first.registers, self.second.registers)

    @property
    def middle_pitch(self) -> int:
        """The leading dimension of the intermediate."""
        depth = self.second.steps * self.second.tile.k
        return banks.pitch(depth, Order.Own, 1, 1, self.second.work.source, False).stride

    def status(self, target: Target) -> Status:
        """Whether `chain_mma` can run with this design; there is no other such check."""
        wanted = self.shared_bytes
        if wanted > target.shared_bytes:
            return Status.reject(
                f"wants {wanted} bytes of shared memory, {target.shared_bytes} are there"
            )
        held, most = self.registers, REGISTERS // self.threads
        if held > min(THREAD_REGISTERS, most):
            return Status.reject(f"wants about {held} registers of {min(THREAD_REGISTERS, most)}")
        return Status.accept()

    def blocks(self, target: Target) -> int:
        """Blocks that a multiprocessor holds at once."""
        return operands.blocks_of(self.threads, self.registers, self.shared_bytes, target)

    def instantiation(self, target: Target) -> Instantiation:
        one, other, scalar = self.first.work, self.second.work, operands.scalar_kind(self.epilogue)
        return Instantiation(
            header="chain_mma.cuh",
            parameters=f"kronop::ChainParameters<{scalar.cxx}>",
            types=operands.element_types(one.math, one.source, other.output, self.epilogue),
            constants=self._constants(target),
            folders=(package_folder(__package__),),
        )

    def _constants(self, target: Target) -> tuple[tuple[str, Constant], ...]:
        room, one, other = self.room, self.first.tile, self.second.tile
        return (
            ("kThreads", self.threads),
            ("kBlocks", self.blocks(target)),
            *named(self, "stages resident"),
            ("kTileM", self.m),
            ("kSplit", bool(one.work.splits)),
            *named(self, "parts common_lanes"),
            ("kPartLanes", self.lanes),
            ("kXOrder", int(one.work.x_order)),
            ("kYOrder", int(other.work.y_order)),
            ("kXVector", one.vectors[0]),
            ("kYVector", other.vectors[2]),
            ("kXPitch", one.pitches[0].stride),
            ("kMiddlePitch", self.middle_pitch),
            ("kYPitch", other.pitches[2].stride),
            *self._constants_of_both(),
            ("kMiddleAt", room.middle),
            ("kWeightsAt", room.weights),
            ("kRingAt", room.ring),
            ("kSlot", room.slot),
            ("kResultsAt", room.results),
        )

    def _constants_of_both(self) -> tuple[tuple[str, Constant], ...]:
        """The constants that are pairs, with one value for each product."""
        products = self.products
        tiles = [item.tile for item in products]
        return (
            ("kPairSections", tuple(item.sections for item in products)),
            ("kPairAllLanes", tuple(item.lanes for item in products)),
            *arrays([tile.work for tile in tiles], "kPair", "contracted produced"),
            ("kPairLanes", tuple(tile.lanes for tile in tiles)),
            *arrays(tiles, "kPairTile", "n k"),
            *arrays(tiles, "kPair", "warp_lanes warp_m warp_n"),
            ("kPairWarpsLanes", tuple(tile.warps[0] for tile in tiles)),
            ("kPairWarpsM", tuple(tile.warps[1] for tile in tiles)),
            ("kPairWarpsN", tuple(tile.warps[2] for tile in tiles)),
            ("kPairWOrder", tuple(int(tile.work.w_order) for tile in tiles)),
            ("kPairWVector", tuple(tile.vectors[1] for tile in tiles)),
            ("kPairWPitch", tuple(tile.pitches[1].stride for tile in tiles)),
        )

    def launches(self, problem: KSparseChainProblem, target: Target) -> tuple[Launch, ...]:
        """One launch, with as many (persistent) blocks as run at once; each processes several tiles
        of rows."""
        one, other = (item.work for item in self.products)
        b2, d2 = other.produced, other.lanes
        first, second = problem.weights
        views = {
            "x": matrix_view(problem.x, "contracted", one.contracted, one.lanes),
            "first": weights_view(first),
            "second": weights_view(second),
            "y": matrix_view(problem.y, "produced", b2, d2),
            "z": matrix_view(problem.z, "produced", b2, d2),
        }
        bias = problem.bias.column
        values: dict[str, int | tuple[int, ...] | tuple[float, ...]] = {
            "row_extent": (problem.rows, 1, 1),
            "bias": problem.bias.pointer,
            "produced_bias": d2 * bias,
            "lane_bias": bias,
            "section_bias": b2 * d2 * bias,
            "scalars": problem.scalars,
            **self._flags(views, problem.rows),
        }
        for name, item in views.items():
            values |= item.field(name)
            values[f"section_{name}"] = item.strides["section"][0]
        tiles = operands.cover(problem.rows, self.m)
        most = max(1, self.blocks(target) * target.cores // self.parts)
        return (operands.make_launch(self, min(tiles, most) * self.parts, values),)

    def _flags(self, views: Mapping[str, operands.View], rows: int) -> dict[str, int]:
        """Flags for the kernel: whether strides and addresses allow vectorised accesses."""

        def allows(product: PairProduct, name: str, of: str) -> int:
            tile, width = product.tile, product.tile.vectors["xwy".index(name)]
            return tile.allows_vectors(name, views[of], extents_of(product.work, rows), width)

        results = ["y", "z"] if views["z"].pointer else ["y"]
        return {
            "x_vector": allows(self.first, "x", "x"),
            "first_vector": allows(self.first, "w", "first"),
            "second_vector": allows(self.second, "w", "second"),
            "y_vector": min(allows(self.second, "y", name) for name in results),
        }


@functools.cache
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
            *((f"section_{name}", 1) for name in ("x", "first", "second", "y", "z", "bias")),
        ],
    )
