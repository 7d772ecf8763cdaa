"""Groups of products on a CPU: one launch, and one team of threads, for many problems."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, ClassVar

from kronop.artifacts import Block, Field, KernelSignature, Launch, Scalar
from kronop.descriptions.epilogue import Epilogue
from kronop.emit.design import Instantiation, Wrapping
from kronop.emit.x86 import planning
from kronop.families.gemm.description import GemmGroupedProblem
from kronop.families.gemm.size import GemmSize
from kronop.families.gemm.x86.design import HostGemm
from kronop.frozen import dataclass
from kronop.target import Target

_MEMBERS = 64  # Problems of a launch.


@dataclass(frozen=True, slots=True, kw_only=True)
class HostMany(Wrapping):
    """The kernel of `wrapped`, whose threads share the work items of all problems."""

    joins: ClassVar[int] = _MEMBERS

    wrapped: HostGemm

    def __str__(self) -> str:
        return f"up to {_MEMBERS} products at once, {self.wrapped}"

    @property
    def epilogue(self) -> Epilogue:
        return self.wrapped.epilogue

    @property
    def product(self) -> HostGemm:
        """What computes one product."""
        return self.wrapped

    @property
    def apart(self) -> int:
        """Bytes from the parameters of one problem to those of the next one."""
        return self.wrapped.signature.size

    @property
    def signature(self) -> KernelSignature:
        return _signature(self.apart, self.wrapped.signature.pointers)

    def instantiation(self, target: Target) -> Instantiation:
        made = self.wrapped.instantiation(target)
        return replace(made, parameters=f"kronop::ManyParameters<{made.parameters}, {_MEMBERS}>")

    def workspace(self, size: GemmSize, target: Target, threads: int) -> int:
        """Bytes of scratch memory: every thread may compute items of this product."""
        ways = self.wrapped.ways(size)
        cuts = (self.wrapped.cut(m, n, size.k, size.batch, threads) for m, n in ways)
        return max(max(item.workspace_bytes, threads * item.scratch_bytes) for item in cuts)

    def launches(self, problem: GemmGroupedProblem, target: Target) -> tuple[Launch, ...]:
        """Launches of as many problems as the parameters hold; large products come first."""
        every = sorted(problem.problems, key=lambda item: -item.k)
        found = [launch for item in every for launch in self.wrapped.launches(item, target)]
        chunks = (found[at : at + _MEMBERS] for at in range(0, len(found), _MEMBERS))
        return tuple(self.joined(chunk, target, every[0].threads) for chunk in chunks)

    def joined(self, launches: Sequence[Launch], target: Target, threads: int) -> Launch:
        """One launch for those of `joins` products at most, on so many threads at most."""
        every: dict[str, Any] = {
            "members": b"".join(launch.parameters for launch in launches),
            "used": len(launches),
            "threads": threads,
            "least": planning.OPERATIONS_PER_THREAD * self.wrapped.speed,
        }
        return Launch(parameters=self.signature.pack(every))


@functools.cache
def _signature(apart: int, pointers: tuple[int, ...]) -> KernelSignature:
    """That of problems so many bytes apart, whose words of these indices are addresses."""
    starts = range(0, apart // 8 * _MEMBERS, apart // 8)
    every = tuple(start + at for start in starts for at in pointers)
    numbers = (Field(name, Scalar.INT64) for name in ("used", "threads", "least"))
    return KernelSignature(
        "ManyParameters", (Block("members", apart * _MEMBERS, pointers=every), *numbers)
    )
