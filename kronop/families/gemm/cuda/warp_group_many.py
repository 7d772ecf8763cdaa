"""Grouped GEMMs by warp groups: one launch for many problems."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from kronop.artifacts import Block, Field, KernelSignature, Launch, Scalar
from kronop.descriptions.epilogue import Epilogue
from kronop.emit.cuda import operands
from kronop.emit.design import Instantiation, Wrapping
from kronop.families.gemm.cuda.warp_group_design import GemmWarpGroup
from kronop.families.gemm.cuda.warp_group_stored import scalars_of
from kronop.families.gemm.description import GemmGroupedProblem, GemmProblem
from kronop.frozen import dataclass
from kronop.target import Target
from kronop.tensor_map import TensorMap

# Problems of a launch: the parameters of a kernel have at most 32,764 bytes.
_MEMBERS, _MOST_BYTES, _ALIGNMENT = 56, 32764, 64


@dataclass(frozen=True, slots=True, kw_only=True)
class GemmMany(Wrapping):
    """The kernel of `wrapped`, whose blocks iterate over the tiles of all problems."""

    wrapped: GemmWarpGroup

    def __str__(self) -> str:
        return f"up to {_MEMBERS} products at once, {self.wrapped}"

    @property
    def epilogue(self) -> Epilogue:
        return self.wrapped.epilogue

    @property
    def _member_bytes(self) -> int:
        return operands.round_up(self.wrapped.signature.size, _ALIGNMENT)

    @property
    def _pointers(self) -> tuple[int, ...]:
        """The indices of the words of all problems that are addresses."""
        starts = range(0, self._member_bytes // 8 * _MEMBERS, self._member_bytes // 8)
        return tuple(start + at for start in starts for at in self.wrapped.signature.pointers)

    @property
    def signature(self) -> KernelSignature:
        assert self._member_bytes * _MEMBERS + _ALIGNMENT <= _MOST_BYTES
        return KernelSignature(
            "GemmManyParameters",
            (
                Block("members", self._member_bytes * _MEMBERS, _ALIGNMENT, self._pointers),
                Field("used", Scalar.INT64),
            ),
        )

    def instantiation(self, target: Target) -> Instantiation:
        counts = f"{scalars_of(self.epilogue)}, {_MEMBERS}"
        return replace(
            self.wrapped.instantiation(target), parameters=f"kronop::GemmManyParameters<{counts}>"
        )

    def launches(self, problem: GemmGroupedProblem, target: Target) -> tuple[Launch, ...]:
        """Launches of as many problems as the parameters hold; large products come first."""
        each = self.wrapped
        found = [part for item in problem.problems for part in each.parts_of(each.oriented(item))]
        found.sort(key=lambda part: -part.k)
        chunks = (found[at : at + _MEMBERS] for at in range(0, len(found), _MEMBERS))
        return tuple(self._launch(chunk, target) for chunk in chunks)

    def _launch(self, members: Sequence[GemmProblem], target: Target) -> Launch:
        maps: list[tuple[int, int, TensorMap]] = []
        content, signature = bytearray(), self.wrapped.signature
        for part in members:
            values = self.wrapped.values_of(part)
            maps += [
                (len(content) + offset, nbytes, value)
                for offset, nbytes, value in signature.blocks(values)
            ]
            content += signature.pack(values).ljust(self._member_bytes, b"\0")
        every: dict[str, Any] = {"members": bytes(content), "used": len(members)}
        blocks = min(sum(map(self.wrapped.tiles_of, members)), self.wrapped.blocks_at_once(target))
        return replace(operands.make_launch(self, blocks, every), blocks=tuple(maps))
