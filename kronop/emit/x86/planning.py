"""What planning for the vector units of a CPU has in common: registers, tiles, names, threads."""

from __future__ import annotations

from collections.abc import Sequence

from kronop.artifacts import Field, Scalar, Status
from kronop.descriptions.datatype import DataType
from kronop.descriptions.epilogue import Epilogue, LinearCombination
from kronop.descriptions.math_instruction import MathInstruction, OpClass
from kronop.descriptions.tile import TileDescription
from kronop.target import Target

# What a state should fit in: half of the smallest first-level data cache of the last ten years
# would be 16 KiB; two states share it with factor panels.
NEAR_BYTES = 32 * 1024
DEFAULT_UNROLL = 4
_MOST_UNROLL = 16
LINE = 64
# Bytes of the narrowest vector that is worth a register tile.
LEAST_VECTOR = 16
# NOTE: entering a parallel region took 3 to 7 microseconds on 2 cores, and 2^18 multiply-adds take
# a core 5 to 15. Two threads over one: 0.98 at 2^18.6 in all, 1.25 at 2^19, 1.7 at 2^20.
_OPERATIONS_PER_THREAD = 1 << 18
# Bytes of results beyond which they go past the caches, in whole lines and where a vector is less,
# and of X beyond which it is asked for ahead.
# NOTE: on two cores of an Emerald Rapids, whose third-level cache is hardly nearer than memory, 256
# rows of 8^4 (4 MB) took 0.43 rather than 0.67 ms; Zen 3's 32 MB are worth keeping. Asking for what
# is near costs 4 to 11 % there.
_PASSING, _PASSING_IN_PARTS, _FAR = 1 << 21, 1 << 23, 1 << 21
_NAME_LENGTH = 100


def near_bytes(target: Target) -> int:
    """The first-level data cache: 48 KiB where vectors have 64 bytes (Ice Lake and later, Zen 5;
    Zen 4 and Skylake have 32), 32 KiB elsewhere."""
    return NEAR_BYTES * 3 // 2 if target.vector_bytes >= LINE else NEAR_BYTES


def aligned(size: int) -> int:
    """`size` bytes rounded up to whole cache lines."""
    return -(-size // LINE) * LINE


def passes_caches(rows: int, row_bytes: int, vector_bytes: int, *, in_parts: bool) -> bool:
    """Whether so many rows of results, of `row_bytes` each, go past the caches.

    Args:
        in_parts: whether they may where a vector is less than a line: they are contiguous.
    """
    if vector_bytes < LINE and not in_parts:
        return False
    return rows > (_PASSING if vector_bytes >= LINE else _PASSING_IN_PARTS) // row_bytes


def is_far(rows: int, row_bytes: int) -> bool:
    """Whether so many rows of X, of `row_bytes` each, are asked for ahead."""
    return rows > _FAR // row_bytes


def common_status(math: MathInstruction, tile: TileDescription | None, target: Target) -> Status:
    """What must hold for every family on vectors: their arithmetic, one thread, no stages."""
    if target.backend != "x86":
        return Status.reject(
            f"target {target} is no x86 target; plan with the emitter of its backend"
        )
    if math.opcode_class is not OpClass.Simt:
        return Status.reject(f"{target} has no tensor cores for {math}; use OpClass.Simt")
    if tile is None:
        return Status.accept()
    if tile.warp_count != (1, 1, 1):
        return Status.reject(f"warp_count is {list(tile.warp_count)}; on {target} use [1, 1, 1]")
    if tile.stages != 1:
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


def _blocks(outputs: int, tile: int) -> int:
    return -(-outputs // tile)


def panel_elements(contracted: int, outputs: int, tile: int) -> int:
    """Elements of a factor packed for tiles of `tile` outputs, the last of which may overlap."""
    return contracted * tile * _blocks(outputs, tile)


def scalar_fields(epilogue: Epilogue) -> Field:
    """The epilogue's scalars, in the kind that it computes in."""
    kind = Scalar.FLOAT64 if epilogue.element_epilogue.kind == "float" else Scalar.INT64
    return Field("scalars", kind, len(epilogue.scalar_names))


def keeps_sums(epilogue: Epilogue, *, rounded: bool = False) -> bool:
    """Whether sums may be results as they are, where alpha is 1 and nothing is added.

    An epilogue of another type than theirs rounds them, were it only to a float and back.

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
    """The type aliases of every trait struct; its epilogue is rendered in it."""
    return (
        ("Element", element.cxx),
        ("Output", output.cxx),
        ("Compute", accumulator.cxx),
    )


def kernel_name(family: str, element: DataType, sizes: str, target: Target) -> str:
    """`family_f32_sizes_arch`; sizes are cut where the name would be too long."""
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
    """Threads worth starting for `items` parts that take `operations` multiply-adds in all."""
    return max(1, min(threads, items, operations // _OPERATIONS_PER_THREAD))
