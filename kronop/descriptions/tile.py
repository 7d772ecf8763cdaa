"""Tile sizes: how a block of threads (on x86, a core) divides its work."""

from __future__ import annotations

import enum
import math
import operator
from collections.abc import Iterable, Sequence

from kronop.descriptions.math_instruction import MathInstruction
from kronop.errors import DescriptionError, ElementTypeError
from kronop.frozen import dataclass

_THREADS_OF_WARP = 32


class KernelScheduleType(enum.Enum):
    """How warp groups share tiles: cooperatively, or in turn (ping-pong).

    Example:
        >>> [item.value for item in kronop.KernelScheduleType]  # by default the planner chooses
        ['auto', 'cooperative', 'ping-pong']
    """

    ScheduleAuto = "auto"
    TmaWarpSpecializedCooperative = "cooperative"
    TmaWarpSpecializedPingpong = "ping-pong"


class EpilogueScheduleType(enum.Enum):
    """How results leave: by way of shared memory, or straight from registers.

    Example:
        >>> [item.value for item in kronop.EpilogueScheduleType]  # by default the planner chooses
        ['auto', 'shared memory', 'registers']
    """

    ScheduleAuto = "auto"
    TmaWarpSpecialized = "shared memory"
    NoSmemWarpSpecialized = "registers"


class TileSchedulerType(enum.Enum):
    """Which block computes which tile: each takes some in turn, or parts of a tile's sum too.

    Example:
        >>> [item.value for item in kronop.TileSchedulerType]
        ['default', 'persistent', 'stream-K']
    """

    Default = "default"
    Persistent = "persistent"
    StreamK = "stream-K"


@dataclass(frozen=True, slots=True)
class TileDescription:
    """Tile sizes of one operation.

    Args:
        threadblock_shape: [Tile_M, Tile_N, Tile_K].
            Kronecker: Tile_M is the rows of X that a block holds; Tile_N the elements of each row
            that it holds (on x86 an upper limit, for the states of one pass; a value above a row's
            length means the whole row); Tile_K the contraction steps that are unrolled.
            Kronecker-sparse: Tile_M is rows of the batch, Tile_N outputs (of b), Tile_K contraction
            steps (of c) that are held at once.
        stages: tiles in flight; 1 for kernels that do not prefetch. None for the planner's choice.
        warp_count: warps (x86: threads, always [1, 1, 1]) along M, N and K; None for the planner's
            choice. A matrix product by warp groups: [4, 1, 1] where each group of four warps has
            tiles of its own, [8, 1, 1] where two groups share them.
        math_instruction: the multiply-add instruction.
        cluster_shape: blocks along M, N and K that share operands, on sm_90a; [1, 1, 1] for none,
            None for the planner's choice.
        kernel_schedule: how warps share work. Only matrix products and convolutions on sm_90a take
            another value than the default here and in the next two.
        epilogue_schedule: how results leave.
        tile_scheduler: in which order blocks take tiles.

    Raises:
        DescriptionError: a size is not a positive integer, or `math_instruction` is no such.
        ElementTypeError: a schedule has the wrong class.

    Example:
        >>> math = kronop.MathInstruction.simt(kronop.float32)
        >>> tile = kronop.TileDescription([4, 64, 8], 1, [1, 1, 1], math)
        >>> tile.threadblock_shape, tile.stages, tile.warps
        ((4, 64, 8), 1, 1)
        >>> tensor = kronop.TensorDescription(kronop.float32)
        >>> epilogue = kronop.LinearCombination(kronop.float32, 1, kronop.float32, kronop.float32)
        >>> operation = kronop.KronMatmulOperation(
        ...     "x86-avx2", tile, tensor, tensor, tensor, epilogue, factors=((8, 8), (8, 8))
        ... )
        >>> print(operation.plan)
        plan for x86-avx2: 1 step
          kron_f32_8x8p2_avx2: X times 2 factors: ..., 4 rows
        ...
    """

    threadblock_shape: tuple[int, int, int]
    stages: int | None
    warp_count: tuple[int, int, int] | None
    math_instruction: MathInstruction
    cluster_shape: tuple[int, int, int] | None
    kernel_schedule: KernelScheduleType
    epilogue_schedule: EpilogueScheduleType
    tile_scheduler: TileSchedulerType

    def __init__(
        self,
        threadblock_shape: Sequence[int],
        stages: int | None,
        warp_count: Sequence[int] | None,
        math_instruction: MathInstruction,
        cluster_shape: Sequence[int] | None = None,
        kernel_schedule: KernelScheduleType = KernelScheduleType.ScheduleAuto,
        epilogue_schedule: EpilogueScheduleType = EpilogueScheduleType.ScheduleAuto,
        tile_scheduler: TileSchedulerType = TileSchedulerType.Default,
    ) -> None:
        shape = _three("threadblock_shape", threadblock_shape)
        object.__setattr__(self, "threadblock_shape", shape)
        count = None if stages is None else _positive("stages", stages)
        object.__setattr__(self, "stages", count)
        object.__setattr__(self, "warp_count", _three_or_none("warp_count", warp_count))
        object.__setattr__(self, "math_instruction", math_instruction)
        if not isinstance(math_instruction, MathInstruction):
            raise DescriptionError(
                "math_instruction",
                expected="a MathInstruction",
                got=repr(math_instruction),
                hint="build one with kronop.MathInstruction(...)",
            )
        object.__setattr__(self, "cluster_shape", _three_or_none("cluster_shape", cluster_shape))
        _take(self, "kernel_schedule", kernel_schedule, KernelScheduleType)
        _take(self, "epilogue_schedule", epilogue_schedule, EpilogueScheduleType)
        _take(self, "tile_scheduler", tile_scheduler, TileSchedulerType)

    @property
    def has_schedules(self) -> bool:
        """Whether it says more than PyCUTLASS's first four arguments do."""
        given = (self.kernel_schedule, self.epilogue_schedule, self.tile_scheduler)
        usual = (
            KernelScheduleType.ScheduleAuto,
            EpilogueScheduleType.ScheduleAuto,
            TileSchedulerType.Default,
        )
        return self.cluster_shape not in (None, (1, 1, 1)) or given != usual

    @property
    def warps(self) -> int | None:
        """The number of warps in all; None for the planner's choice."""
        return None if self.warp_count is None else math.prod(self.warp_count)

    def allows_threads(self, threads: int) -> bool:
        """Whether a block may have so many threads."""
        return self.warps is None or threads == _THREADS_OF_WARP * self.warps

    def stages_among(self, choices: Iterable[int]) -> Iterable[int]:
        """The stages that were given, or those that a planner may choose."""
        return choices if self.stages is None else (self.stages,)

    def warp_counts_among(
        self, choices: Iterable[tuple[int, int, int]]
    ) -> Iterable[tuple[int, int, int]]:
        """Likewise of warps along M, N and K."""
        return choices if self.warp_count is None else (self.warp_count,)


def _take(tile: TileDescription, name: str, value: object, kind: type[enum.Enum]) -> None:
    if not isinstance(value, kind):
        raise ElementTypeError(
            name,
            expected=f"a kronop.{kind.__name__}: {', '.join(item.name for item in kind)}",
            got=repr(value),
            hint="name one of these",
        )
    object.__setattr__(tile, name, value)


def whole(value: object) -> object:
    """An integer of any kind (NumPy's, for example) as a Python int; bools and other values
    unchanged."""
    # NOTE: isinstance of typing.SupportsIndex takes 18 us.
    if isinstance(value, bool) or not hasattr(value, "__index__"):
        return value
    try:
        return operator.index(value)
    except TypeError:  # An array with several elements.
        return value


def _positive(name: str, value: object) -> int:
    value = whole(value)
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise DescriptionError(
            name, expected="a positive integer", got=repr(value), hint="give a size of at least 1"
        )
    return value


def _three_or_none(name: str, values: Sequence[int] | None) -> tuple[int, int, int] | None:
    return None if values is None else _three(name, values)


def _three(name: str, values: Sequence[int]) -> tuple[int, int, int]:
    if not isinstance(values, Sequence) or len(values) != 3:
        raise DescriptionError(
            name, expected="three integers [M, N, K]", got=repr(values), hint="give all three"
        )
    m, n, k = (_positive(name, value) for value in values)
    return m, n, k
