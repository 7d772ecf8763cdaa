"""Rules that all planning for CPU vectors shares: registers, tiles, names, threads."""

from __future__ import annotations

from collections.abc import Sequence

from kronop.artifacts import Field, Scalar, Status
from kronop.descriptions.datatype import DataType
from kronop.descriptions.epilogue import Epilogue, LinearCombination
from kronop.descriptions.math_instruction import MathInstruction, OpClass
from kronop.descriptions.tile import TileDescription
from kronop.machine import CPU_LINE, Cpu
from kronop.target import Target

DEFAULT_UNROLL = 4
_MOST_UNROLL = 16
# Bytes of the narrowest vector that is worth a register tile.
LEAST_VECTOR = 16
# NOTE: entering a parallel region took 3 to 7 microseconds on 2 cores, and 2^18 multiply-adds take
# a core 5 to 15. Two threads over one: 0.98 at 2^18.6 in all, 1.25 at 2^19, 1.7 at 2^20.
OPERATIONS_PER_THREAD = 1 << 18
# Bytes of results above which stores bypass the caches, if a vector is a whole cache line and if it
# is less; and bytes of X above which it is prefetched.
# NOTE: on two cores of an Emerald Rapids, whose third-level cache is hardly faster than memory, 256
# rows of 8^4 (4 MB) took 0.43 ms with streaming stores, and 0.67 without. On Zen 3, results that
# fit in its 32 MB are better cached, and prefetching an X that is already cached costs 4 to 11 %.
_PASSING, _PASSING_IN_PARTS, _FAR = 1 << 21, 1 << 23, 1 << 21
_NAME_LENGTH = 100


def core_of(target: Target) -> Cpu:
    """The core of a CPU's target."""
    assert target.cpu is not None
    return target.cpu


def cycles_of_tile(instructions: float, loads: int, target: Target) -> float:
    """Cycles of a register tile for one step of its sums (a dependency chain). Arithmetic hides
    half of the loads."""
    core = core_of(target)
    return max(core.latency, instructions / core.arithmetic + loads / core.loads / 2)


def aligned(size: int) -> int:
    """`size` bytes rounded up to whole cache lines."""
    return -(-size // CPU_LINE) * CPU_LINE


def passes_caches(rows: int, row_bytes: int, vector_bytes: int, *, in_parts: bool) -> bool:
    """Whether `rows` rows of results, of `row_bytes` each, are written with streaming stores.

    Args:
        in_parts: whether vectors shorter than a cache line may, because results are contiguous.
    """
    if vector_bytes < CPU_LINE and not in_parts:
        return False
    return rows > (_PASSING if vector_bytes >= CPU_LINE else _PASSING_IN_PARTS) // row_bytes


def is_far(rows: int, row_bytes: int) -> bool:
    """Whether `rows` rows of X, of `row_bytes` each, are prefetched."""
    return rows > _FAR // row_bytes


def common_status(math: MathInstruction, tile: TileDescription | None, target: Target) -> Status:
    """Whether CPU vectors can do the math and the user's tile: SIMT, one warp, no stages."""
    if target.backend != "x86":
        return Status.reject(
            f"target {target} is no x86 target; plan with the emitter of its backend"
        )
    if math.opcode_class is not OpClass.Simt:
        return Status.reject(f"{target} has no tensor cores for {math}; use OpClass.Simt")
    if tile is None:
        return Status.accept()
    if tile.warp_count not in (None, (1, 1, 1)):
        return Status.reject(f"warp_count is {list(tile.warp_count)}; on {target} use [1, 1, 1]")
    if tile.stages not in (None, 1):
        return Status.reject(f"stages is {tile.stages}; {target} kernels hold one tile: use 1")
    return Status.accept()


def unroll_status(steps: int) -> Status:
    """Whether a contraction loop may be unrolled `steps` times."""
    if steps > _MOST_UNROLL:
        return Status.reject(
            f"Tile_K unrolls {steps} contraction steps;"
            f" use at most {_MOST_UNROLL} in threadblock_shape[2]"
        )
    return Status.accept()


def panel_elements(contracted: int, outputs: int, tile: int) -> int:
    """Elements of a factor packed for tiles of `tile` outputs; the last tile may overlap the
    previous one."""
    return contracted * tile * -(-outputs // tile)


def scalar_fields(epilogue: Epilogue) -> Field:
    """The parameter field of the epilogue's scalars, which have its compute type."""
    kind = Scalar.FLOAT64 if epilogue.element_epilogue.kind == "float" else Scalar.INT64
    return Field("scalars", kind, max(1, len(epilogue.scalar_names)))


def keeps_sums(epilogue: Epilogue, *, rounded: bool = False) -> bool:
    """Whether the epilogue can be skipped if alpha is 1 and nothing is added.

    It can't if its compute type is not the type of the sums, because it then rounds them.

    Args:
        rounded: whether the kernel itself rounds sums to the type of the results.
    """
    types = {epilogue.element_accumulator, epilogue.element_epilogue}
    if not rounded:
        types.add(epilogue.element_output)
    return type(epilogue) is LinearCombination and len(types) == 1


def parameter_arguments(epilogue: Epilogue) -> str:
    """The last template arguments of every parameter struct."""
    field = scalar_fields(epilogue)
    return f"{field.count}, {field.scalar.cxx}"


def element_types(
    element: DataType, output: DataType, accumulator: DataType
) -> tuple[tuple[str, str], ...]:
    """The type aliases that every trait struct has; the epilogue is rendered separately."""
    return (("Element", element.cxx), ("Output", output.cxx), ("Compute", accumulator.cxx))


def kernel_name(family: str, element: DataType, sizes: str, target: Target) -> str:
    """`family_f32_sizes_arch`; sizes are truncated if the name would be too long."""
    room = _NAME_LENGTH - len(f"{family}_{element.short}__{target.arch}")
    return f"{family}_{element.short}_{sizes[:room].rstrip('_')}_{target.arch}"


def run_lengths(words: Sequence[str]) -> str:
    """`8x8p4` for four times 8x8: equal neighbours are written once, with their count."""
    parts: list[str] = []
    index = 0
    while index < len(words):
        count = 1
        while index + count < len(words) and words[index + count] == words[index]:
            count += 1
        parts.append(words[index] + (f"p{count}" if count > 1 else ""))
        index += count
    return "_".join(parts)


def shares(operations: int, items: int, threads: int) -> int:
    """How many threads are worth starting for `items` independent items that take `operations`
    multiply-adds in all."""
    return max(1, min(threads, items, operations // OPERATIONS_PER_THREAD))
