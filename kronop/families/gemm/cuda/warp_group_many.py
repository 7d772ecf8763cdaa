"""Grouped GEMMs by warp groups: one launch for many problems."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, ClassVar

from kronop.artifacts import Block, Field, KernelSignature, Launch, Scalar
from kronop.descriptions.epilogue import Epilogue
from kronop.emit.cuda import operands
from kronop.emit.design import Instantiation, Wrapping
from kronop.families.gemm.cuda.warp_group_design import GemmWarpGroup
from kronop.families.gemm.cuda.warp_group_stored import scalars_of
from kronop.families.gemm.description import GemmGroupedProblem
from kronop.frozen import dataclass
from kronop.target import Target

# Problems of a launch: the parameters of a kernel have at most 32,764 bytes.
_MEMBERS, _MOST_BYTES, _ALIGNMENT = 56, 32764, 64


@dataclass(frozen=True, slots=True, kw_only=True)
class GemmMany(Wrapping):
    """The kernel of `wrapped`, whose blocks iterate over the tiles of all problems."""

    joins: ClassVar[int] = _MEMBERS

    wrapped: GemmWarpGroup

    def __str__(self) -> str:
        return f"up to {_MEMBERS} products at once, {self.wrapped}"

    @property
    def epilogue(self) -> Epilogue:
        return self.wrapped.epilogue

    @property
    def product(self) -> GemmWarpGroup:
        """What computes one product."""
        return self.wrapped

    @property
    def apart(self) -> int:
        """Bytes from the parameters of one problem to those of the next one."""
        return operands.round_up(self.wrapped.signature.size, _ALIGNMENT)

    @property
    def signature(self) -> KernelSignature:
        return _signature(self.apart, self.wrapped.signature.pointers)

    def instantiation(self, target: Target) -> Instantiation:
        counts = f"{scalars_of(self.epilogue)}, {_MEMBERS}"
        return replace(
            self.wrapped.instantiation(target), parameters=f"kronop::GemmManyParameters<{counts}>"
        )

    def launches(self, problem: GemmGroupedProblem, target: Target) -> tuple[Launch, ...]:
        """Launches of as many problems as the parameters hold; large products come first."""
        every = sorted(problem.problems, key=lambda item: -item.k)
        found = [launch for item in every for launch in self.wrapped.launches(item, target)]
        chunks = (found[at : at + _MEMBERS] for at in range(0, len(found), _MEMBERS))
        return tuple(self.joined(chunk, target, 0) for chunk in chunks)

    def joined(self, launches: Sequence[Launch], target: Target, threads: int) -> Launch:
        """One launch for those of `joins` products at most; a GPU has no threads of a host."""
        size = self.apart
        content = b"".join(launch.parameters.ljust(size, b"\0") for launch in launches)
        maps = tuple(
            (at * size + offset, nbytes, value)
            for at, launch in enumerate(launches)
            for offset, nbytes, value in launch.blocks
        )
        every: dict[str, Any] = {"members": content, "used": len(launches)}
        blocks = min(sum(it.grid[0] for it in launches), self.wrapped.blocks_at_once(target))
        return replace(operands.make_launch(self, blocks, every), blocks=maps)


@functools.cache
def _signature(apart: int, pointers: tuple[int, ...]) -> KernelSignature:
    """That of problems so many bytes apart, whose words of these indices are addresses."""
    assert apart * _MEMBERS + _ALIGNMENT <= _MOST_BYTES
    starts = range(0, apart // 8 * _MEMBERS, apart // 8)
    every = tuple(start + at for start in starts for at in pointers)
    members = Block("members", apart * _MEMBERS, _ALIGNMENT, every)
    return KernelSignature("GemmManyParameters", (members, Field("used", Scalar.INT64)))
