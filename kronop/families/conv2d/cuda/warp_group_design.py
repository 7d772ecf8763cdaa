"""Convolutions by warp groups, with operands gathered by tensor maps: conv2d_warp_group.cuh."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any, Self

from kronop.artifacts import Block, Field, KernelSignature, Launch, Scalar, Status
from kronop.descriptions.epilogue import Epilogue
from kronop.descriptions.strided import NOTHING, Strided
from kronop.emit.cuda import operands
from kronop.emit.cuda.machine import hertz, memory_rate
from kronop.emit.design import Instantiation, Wrapping, package_folder
from kronop.families.conv2d.cuda.maps import map_of, map_of_pixels
from kronop.families.conv2d.cuda.patches import Taps, beyond_counts, patches
from kronop.families.conv2d.cuda.strided_results import strided_results
from kronop.families.conv2d.description import Conv2dProblem
from kronop.families.conv2d.size import Conv2dSize
from kronop.families.conv2d.vocabulary import Operator
from kronop.families.gemm.cuda.warp_group_design import GemmWarpGroup
from kronop.families.gemm.cuda.warp_group_problem import GRANULE, PLANES, step_of
from kronop.families.gemm.description import GemmProblem
from kronop.frozen import dataclass
from kronop.machine import MEASURED
from kronop.target import Target
from kronop.tensor_map import TensorMap

CHANNELS = 64
"""Columns of a wgrad's block of channels."""
REMAINDERS = 4
"""The most products of a launch of a strided dgrad."""
_ALIGNMENT, _TEAM = 64, 128
# The time of three TF32 products to the model's. NOTE: measured on an H200: 0.70 to 0.82 for layers
# of 3 x 3 filters.
_OF_SPLIT = 0.75
# What is not hidden: the share of a team's results behind the products of the team that it takes
# turns with, further cycles of a tile that teams share, and the share of the shorter one of
# arithmetic and memory traffic: of one tile on each multiprocessor, and of several, or slices.
# NOTE: fitted to all tiles of ResNet-50's layers on an H200, in float16: the chosen ones take 0.9 %
# more time than the best, and took 3.5 % without.
_RESULTS_IN_TURN, _CYCLES_OF_SHARED, _UNHIDDEN_OF_ONE, _UNHIDDEN = 0.8, 200, 0.35, 0.1
_NUMBERS = (
    *("pixels_h", "pixels_w", "first_h", "first_w", "stride_h", "stride_w"),
    *("taps_h", "taps_w", "apart_h", "apart_w"),
    *("filter_h", "filter_w", "filter_step_h", "filter_step_w"),
    *("channels", "blocks", "group", "groups", "group_deep", "group_lines", "images"),
    *("next_h", "next_w", "next_image"),
    *("height", "width", "remainder_h", "remainder_w", "every_h", "every_w"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Conv2dWarpGroup(Wrapping):
    """The warp groups of a matrix product, whose operands are patches of images.

    Attributes:
        kind: what is computed.
        wrapped: the product: of wgrad with both operands turned, of dgrad with B turned.
        members: the most products of a launch: 1, or REMAINDERS of a dgrad that may be strided.
        filled: results of wgrad have channels in whole blocks.
        overlapping: pixels of images share memory, which does not count as read again.
    """

    kind: Operator
    wrapped: GemmWarpGroup
    members: int
    filled: bool
    overlapping: bool = False

    def __str__(self) -> str:
        return f"copies of pixels, {self.wrapped}"

    @property
    def product(self) -> Self:
        """The design that multiplies, as pipelines have it."""
        return self

    @property
    def epilogue(self) -> Epilogue:
        return self.wrapped.epilogue

    @property
    def part_signature(self) -> KernelSignature:
        """The struct of each product."""
        numbers = (Field(name, Scalar.INT64) for name in _NUMBERS)
        return KernelSignature("Conv2dPart", (*numbers, *self.wrapped.signature.fields))

    @property
    def _part_bytes(self) -> int:
        return operands.round_up(self.part_signature.size, _ALIGNMENT)

    @property
    def signature(self) -> KernelSignature:
        starts = range(0, self._part_bytes // 8 * self.members, self._part_bytes // 8)
        pointers = tuple(start + at for start in starts for at in self.part_signature.pointers)
        return KernelSignature(
            "Conv2dWarpGroupParameters",
            (
                Block("members", self._part_bytes * self.members, _ALIGNMENT, pointers),
                Field("used", Scalar.INT64),
            ),
        )

    def instantiation(self, target: Target) -> Instantiation:
        found = self.wrapped.instantiation(target)
        part = "Conv2dStrided" if self.members > 1 else "Conv2dPart"
        return replace(
            found,
            header="conv2d_warp_group.cuh",
            template="kronop::conv2d_warp_group",
            parameters="kronop::Conv2dWarpGroupParameters<"
            f"kronop::{part}<{found.parameters}>, {self.members}>",
            folders=(package_folder(__package__), *found.folders),
        )

    def status(self, target: Target) -> Status:
        return self.wrapped.status(target)

    def status_of(self, size: Conv2dSize) -> Status:
        """Whether the kernel serves convolutions of a size."""
        return Status.first_of(self._reasons(size))

    def _reasons(self, size: Conv2dSize) -> Iterator[str]:
        element = self.wrapped.source
        for name, count in (("C", size.channels), ("C", size.c), ("K", size.k)):
            read = name == "C" or self.kind is not Operator.fprop
            if read and not self.wrapped.in_planes and count * element.bytes % GRANULE:
                yield (
                    f"{name} = {count} of {element.name}; tensor maps have rows of multiples of"
                    f" {GRANULE} bytes"
                )
        grouped = {"C": size.channels, "K": size.filters}
        for name in self._blocked if size.groups > 1 else ():
            if grouped[name] % self.block:
                yield (
                    f"groups of {grouped[name]} of {name}; copies of {self.block} would read those"
                    " of the next group"
                )
        found = patches(self.kind, size)
        if self.kind is Operator.wgrad and not found:
            yield "no pixels of results, whose sums are zeros"
        for h, w in found:
            yield from h.reasons("H")
            yield from w.reasons("W")
        if len(found) > 1 and self.members == 1:
            yield "strides of a dgrad, for a kernel of unit strides"
        if self.kind is Operator.wgrad and not self.filled and size.channels % CHANNELS:
            yield (
                f"C = {size.channels}; columns of a result have channels in blocks of {CHANNELS}"
            )
        yield from beyond_counts(self.kind, size)

    @property
    def block(self) -> int:
        """Channels of a block, or filters of a dgrad."""
        return CHANNELS if self.kind is Operator.wgrad else self.wrapped.slab

    @property
    def _blocked(self) -> str:
        """Of which there are blocks."""
        return {Operator.fprop: "C", Operator.dgrad: "K", Operator.wgrad: "C"}[self.kind]

    def seconds(self, size: Conv2dSize, target: Target) -> float:
        """Modelled time; infinite where the kernel does not serve the size."""
        if not self.status_of(size):
            return math.inf
        return self.seconds_of_slices(size, 1, target)

    def seconds_of_slices(self, size: Conv2dSize, slices: int, target: Target) -> float:
        """The same where sums are cut into so many slices."""
        product, cycles, last, all_tiles = self.wrapped, 0.0, 0.0, 0
        at_once = product.blocks_at_once(target)
        parts = [self._extents(size, *pair, slices) for pair in patches(self.kind, size)]
        for m, n, k in parts:
            tiles = product.count_tiles(m, n, size.groups * slices)
            all_tiles += tiles
            each, last = product.cycles_of_tile(k)
            in_turn = _RESULTS_IN_TURN * product.cycles_of_results
            each += in_turn if product.alternate else _CYCLES_OF_SHARED
            # Tiles of several products follow each other without a gap.
            rounds = operands.cover(tiles, at_once) if len(parts) == 1 else tiles / at_once
            cycles += rounds * each
            last += each if len(parts) > 1 else 0
        cycles += last
        if product.in_planes:
            cycles *= _OF_SPLIT
        arithmetic = cycles / hertz(target)
        traffic = self._moved(size, slices) / memory_rate(target)
        one = self.kind is not Operator.wgrad and all_tiles <= at_once
        unhidden = _UNHIDDEN_OF_ONE if one else _UNHIDDEN
        longer, shorter = max(arithmetic, traffic), min(arithmetic, traffic)
        return longer + unhidden * shorter + MEASURED.launch

    def _moved(self, size: Conv2dSize, slices: int) -> int:
        """Bytes of memory traffic: pixels that strides step over are not read."""
        images, taps = size.n * size.h * size.w, size.n * size.p * size.q * size.r * size.s
        elements = {
            "images": 0 if self.overlapping else min(images, taps) * size.c,
            "filters": size.k * size.r * size.s * size.channels,
            "results": size.n * size.p * size.q * size.k,
        }
        a, b, _ = self.kind.tensors
        m, n, _ = self.kind.extents(size)
        read = (elements[a] + elements[b]) * self.wrapped.source.bytes
        return read + m * n * size.groups * slices * self.wrapped.bytes_of_result

    def _extents(self, size: Conv2dSize, h: Taps, w: Taps, slices: int = 1) -> tuple[int, int, int]:
        """M, N and K of a product; K counts whole slabs, N of wgrad whole blocks of channels."""
        slab, taps, pixels = self.wrapped.slab, h.count * w.count, size.n * h.pixels * w.pixels
        if self.kind is Operator.wgrad:
            columns = taps * operands.round_up(size.channels, CHANNELS)
            return size.filters, columns, operands.round_up(operands.cover(pixels, slices), slab)
        n, deep = size.filters, size.channels
        if self.kind is Operator.dgrad:
            n, deep = deep, n
        return pixels, n, taps * operands.round_up(deep, slab)

    def workspace(self, size: Conv2dSize, target: Target, threads: int) -> int:
        """The partial results of a visitor tree's reductions."""
        m, n, _ = self.kind.extents(size)
        return self.wrapped.workspace(size.product((m, n, 0)), target, threads)

    def launches(self, problem: Conv2dProblem, target: Target) -> tuple[Launch, ...]:
        """One launch; several where there are more products than one has, or where each group has
        a bias of its own; then one that combines partial results of a visitor tree."""
        return self.launches_to(problem, problem.result, 1, target)

    def launches_to(
        self, problem: Conv2dProblem, result: Strided, slices: int, target: Target
    ) -> tuple[Launch, ...]:
        """The same with results elsewhere, and a result for each slice of the sums and each group,
        the groups of a slice next to each other."""
        size = problem.size
        apart = size.groups > 1 and problem.bias is not None
        found: list[Launch] = []
        for group in range(size.groups if apart else 1):
            groups = 1 if apart else size.groups
            members = [
                self._part(problem, result, pair, (group, groups, slices))
                for pair in patches(problem.kind, size)
            ]
            for at in range(0, len(members), self.members):
                found += self._launches_of(members[at : at + self.members], target)
        return tuple(found)

    def _launches_of(
        self, members: Sequence[tuple[GemmProblem, dict[str, Any]]], target: Target
    ) -> Iterator[Launch]:
        tiles = sum(self.wrapped.tiles_of(part) for part, _ in members)
        blocks = min(tiles, self.wrapped.blocks_at_once(target))
        yield self._launch([values for _, values in members], blocks)
        (part, values), *_ = members
        for blocks, shares in self.wrapped.joins_of(part):
            join = self._launch([{**values, "joins": shares}], blocks)
            yield replace(join, block=(_TEAM, 1, 1))

    def _launch(self, members: Sequence[dict[str, Any]], blocks: int) -> Launch:
        maps: list[tuple[int, int, TensorMap]] = []
        content, signature = bytearray(), self.part_signature
        for values in members:
            maps += [
                (len(content) + offset, nbytes, value)
                for offset, nbytes, value in signature.blocks(values)
            ]
            content += signature.pack(values).ljust(self._part_bytes, b"\0")
        every: dict[str, Any] = {"members": bytes(content), "used": len(members)}
        return replace(operands.make_launch(self, blocks, every), blocks=tuple(maps))

    def _part(
        self,
        problem: Conv2dProblem,
        result: Strided,
        pair: tuple[Taps, Taps],
        groups: tuple[int, int, int],
    ) -> tuple[GemmProblem, dict[str, Any]]:
        """A product, and the members of its struct.

        Args:
            result: as in `launches_to`.
            groups: the first group, how many, and slices of their sums.
        """
        size, (h, w), (group, count, slices) = problem.size, pair, groups
        m, n, k = self._extents(size, h, w, slices)
        part = GemmProblem(
            m=m,
            n=n,
            k=k,
            batch=(count * slices,) if count * slices > 1 else (),
            a=NOTHING,
            b=NOTHING,
            y=self._of_group(result, group, count * slices),
            z=problem.z and self._of_group(problem.z, group, count * slices),
            bias=problem.bias and self._of_group(problem.bias, group, 1),
            scalars=problem.scalars,
            threads=problem.threads,
            visited=tuple(
                replace(item, batch=item.batch if count > 1 else ()) for item in problem.visited
            ),
            workspace=problem.workspace,
        )
        values = self.wrapped.values_beside_operands(part)
        if self.members > 1:
            values |= strided_results(part, self.wrapped.output, size, pair)
        over_filters = self.kind is Operator.dgrad
        deep = size.filters if over_filters else size.channels
        return part, {
            **values,
            **self._maps(problem, pair, k),
            **_numbers(size, h, w, self.wrapped.slab),
            "channels": deep,
            "blocks": operands.cover(deep, self.block),
            "group": group,
            "groups": count,
            "group_deep": deep if over_filters else 0,
            "group_lines": 0 if over_filters else size.filters,
            "images": size.n,
        }

    def _of_group(self, item: Strided, group: int, problems: int) -> Strided:
        """An operand from a group on, for so many products."""
        offset = group * step_of(item) * self.wrapped.output.bytes
        batch = item.batch if problems > 1 else ()
        return replace(item, pointer=item.pointer + offset, batch=batch)

    def _maps(
        self, problem: Conv2dProblem, pair: tuple[Taps, Taps], k: int
    ) -> dict[str, TensorMap | bytes]:
        """The maps of A and B."""
        if not k:
            return {"a_map": b"", "b_map": b""}  # Nothing is read.
        size, slab = problem.size, self.wrapped.slab
        if self.kind is Operator.wgrad:
            one = [replace(taps, extent=taps.pixels, stride=1, first=0) for taps in pair]
            return {
                "a_map": self._pixels(problem.a, (size.k, size.n), (one[0], one[1]), slab),
                "b_map": self._pixels(problem.b, (size.c, size.n), pair, slab),
            }
        channels, planes = size.c if self.kind is Operator.fprop else size.k, 1
        extents, lines = (size.channels, size.s, size.r, size.k), self.wrapped.share
        box: tuple[int, ...] = (slab, 1, 1, slab if self.wrapped.turned_b else lines)
        if self.wrapped.split:
            planes, box = PLANES, (slab, 1, 1, lines, 1)
            if self.kind is Operator.dgrad:
                extents = (size.k, size.s, size.r, size.channels)
        of_planes = (planes,) if self.wrapped.split else ()
        return {
            "a_map": self._pixels(problem.a, (channels, planes * size.n), pair, self.wrapped.m),
            "b_map": map_of(
                problem.b, (*extents, *of_planes), box, self.wrapped.source, self._rounds
            ),
        }

    @property
    def _rounds(self) -> bool:
        element = self.wrapped.source
        return element.kind == "float" and element.bytes == 4 and not self.wrapped.split

    def _pixels(
        self, item: Strided, ends: tuple[int, int], pair: tuple[Taps, Taps], pixels: int
    ) -> TensorMap:
        """A map of so many pixels of a tensor, of which `ends` are the channels and the images."""
        box = (self.wrapped.slab, pixels)
        return map_of_pixels(item, ends, pair, box, self.wrapped.source, self._rounds)


def _numbers(size: Conv2dSize, h: Taps, w: Taps, slab: int) -> dict[str, int]:
    """Members of Conv2dPatches that count pixels and taps; a wgrad's slabs have so many pixels."""
    found = {
        f"{name}_{axis}": getattr(taps, field)
        for name, field in (
            *(
                (of, of)
                for of in ("pixels", "first", "stride", "apart", "filter", "remainder", "every")
            ),
            ("taps", "count"),
            ("filter_step", "step"),
        )
        for axis, taps in (("h", h), ("w", w))
    }
    line, next_w = divmod(slab, w.pixels)
    next_image, next_h = divmod(line, h.pixels)
    return {
        **found,
        "next_w": next_w,
        "next_h": next_h,
        "next_image": next_image,
        "height": size.h,
        "width": size.w,
    }
