"""Groups of products by warp groups: one launch for many of them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from kronop.artifacts import (
    Block,
    Field,
    KernelSignature,
    Launch,
    Scalar,
    TensorMap,
)
from kronop.descriptions.epilogue import Epilogue
from kronop.emit.cuda import operands
from kronop.emit.design import Instantiation, Wrapping
from kronop.families.gemm.cuda.group_design import GemmGroup
from kronop.families.gemm.cuda.group_problem import parts, swapped
from kronop.families.gemm.description import GemmProblem
from kronop.frozen import dataclass
from kronop.target import Target

# Members of a launch: the parameters of a kernel have at most 32,764 bytes.
_MEMBERS, _MOST_BYTES, _ALIGNMENT = 56, 32764, 64


@dataclass(frozen=True, slots=True, kw_only=True)
class GemmMany(Wrapping):
    """The kernel of `wrapped`, whose blocks walk over the tiles of all members."""

    wrapped: GemmGroup

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
        """The indices of the words of all members that are addresses."""
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
        scalars = self.wrapped.scalars
        return replace(
            self.wrapped.instantiation(target),
            parameters=f"kronop::GemmManyParameters<{scalars}, {_MEMBERS}>",
        )

    def launches(
        self, index: int, target: Target, problems: Sequence[GemmProblem]
    ) -> Iterator[Launch]:
        """Launches of as many members as the parameters hold; large products come first."""
        each = self.wrapped
        found = [
            member
            for problem in problems
            for member in parts(
                swapped(problem) if each.swapped else problem,
                each.source.bytes,
                each.output.bytes,
            )
        ]
        found.sort(key=lambda member: -member[0].k)
        signature = self.signature
        for chunk in _chunks(found):
            tiles = sum(each.tiles_of(*member) for member in chunk)
            content, maps = self._packed(chunk)
            values = {"members": content, "used": len(chunk)}
            launch = each.launch_with(index, target, tiles, signature, values)
            yield replace(launch, blocks=maps)

    def _packed(
        self, members: Sequence[tuple[GemmProblem, int]]
    ) -> tuple[bytes, tuple[tuple[int, int, TensorMap], ...]]:
        """(the bytes of all members, which begin the parameters; their tensor maps)."""
        maps: list[tuple[int, int, TensorMap]] = []
        content, signature = bytearray(), self.wrapped.signature
        for problem, count in members:
            values = self.wrapped.values_of(problem, count)
            maps += [
                (len(content) + offset, nbytes, value)
                for offset, nbytes, value in signature.blocks(values)
            ]
            content += signature.pack(values).ljust(self._member_bytes, b"\0")
        return bytes(content), tuple(maps)


def _chunks(
    members: Sequence[tuple[GemmProblem, int]],
) -> Iterator[Sequence[tuple[GemmProblem, int]]]:
    return (members[at : at + _MEMBERS] for at in range(0, len(members), _MEMBERS))
