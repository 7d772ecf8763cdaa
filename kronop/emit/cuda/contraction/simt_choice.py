"""The tiles of `contract_tiles` that a planner chooses from, and the score that ranks them."""

from __future__ import annotations

import itertools

from kronop.descriptions.tile import TileDescription
from kronop.emit.cuda import operands
from kronop.emit.cuda.contraction.simt import SimtContract
from kronop.emit.cuda.contraction.work import Contraction, Order
from kronop.target import Target

MOST_LANES = 8
MOST_THREADS = 256
_STAGES = 2


def candidates(
    work: Contraction, target: Target, given: TileDescription | None
) -> tuple[list[tuple[float, SimtContract]], list[tuple[str, str]]]:
    """(score, tile) of the tiles that fit, the cheapest first, and (tile, reason) of the others."""
    accepted: list[tuple[float, SimtContract]] = []
    rejected: list[tuple[str, str]] = []
    for candidate in _given(work, given) if given is not None else _proposed(work):
        status = candidate.status(target)
        if status:
            accepted.append((_slots(candidate, target), candidate))
        else:
            rejected.append((str(candidate), status.reason))
    if given is not None and not accepted and not rejected:
        rejected.append(("threadblock_shape", _unshared(work, given)))
    accepted.sort(key=lambda item: item[0])
    return accepted, rejected


def _lanes(work: Contraction) -> int:
    """Consecutive lanes of a block: several only if X or Y is contiguous along lanes."""
    if Order.Lanes not in (work.x_order, work.y_order):
        return 1
    return min(work.lanes, MOST_LANES)


def _unshared(work: Contraction, tile: TileDescription) -> str:
    m, n, _ = tile.threadblock_shape
    results = _lanes(work) * m * n
    fitting = [
        str(warps)
        for warps in range(1, 33)
        if results % (32 * warps) == 0 and (each := results // (32 * warps)) & (each - 1) == 0
    ]
    hint = f"warps in all that divide them: {', '.join(fitting)}" if fitting else "Tile_M or Tile_N"
    return (
        f"{_lanes(work)} x {m} x {n} results do not divide among the threads of {tile.warps}"
        " warps, each with 1 to 16 rows and outputs (a power of two);"
        f" change warp_count or threadblock_shape ({hint})"
    )


def _proposed(work: Contraction) -> list[SimtContract]:
    widest = 8 if work.accumulator.bytes == 4 else 4
    lanes = _lanes(work)
    steps = min(16, max(2, 1 << (work.contracted - 1).bit_length()))
    return [
        SimtContract(
            work=work,
            lanes=lanes,
            threads_m=m,
            threads_n=n,
            k=k,
            thread_m=thread_m,
            thread_n=thread_n,
            stages=_STAGES,
        )
        for thread_m, thread_n in itertools.product(operands.powers_of_two(1, widest), repeat=2)
        for m, n in itertools.product(operands.powers_of_two(4, 64), operands.powers_of_two(1, 64))
        for k in {min(8, steps), steps}
        if lanes * m * n <= MOST_THREADS and thread_m * m <= 256
    ]


def _given(work: Contraction, tile: TileDescription) -> list[SimtContract]:
    m, n, k = tile.threadblock_shape
    shapes = [
        SimtContract(
            work=work,
            lanes=_lanes(work),
            threads_m=m // thread_m,
            threads_n=n // thread_n,
            k=k,
            thread_m=thread_m,
            thread_n=thread_n,
            stages=stages,
        )
        for thread_m, thread_n in itertools.product(operands.powers_of_two(1, 16), repeat=2)
        for stages in tile.stages_among((_STAGES,))
        if m % thread_m == 0 and n % thread_n == 0
    ]
    return [shape for shape in shapes if tile.allows_threads(shape.threads)]


def _slots(tile: SimtContract, target: Target) -> float:
    """Issue slots for one useful result (arithmetic, shared memory, device memory), scaled up by
    the padding of the tile."""
    work, accumulator = tile.work, tile.work.accumulator
    waste = operands.cover(work.produced, tile.n) * tile.n / work.produced
    lanes_waste = operands.cover(work.lanes, tile.lanes) * tile.lanes / work.lanes
    steps = operands.round_up(work.contracted, tile.k)
    # A 16-byte access serves four results; a bank delivers one word for each thread in a cycle.
    words = accumulator.bytes / 4
    reads = words * (1 / tile.thread_m + 1 / tile.thread_n) / 2
    memory = (1 / tile.m + 1 / tile.n) * work.source.bytes * 4
    rows_waste = 1 + tile.m / 2048
    per_step = words * 1.0 + reads + memory + 4 / (tile.thread_m * tile.thread_n) / 4
    blocks = operands.resident_blocks(tile.threads, tile.registers, tile.shared_bytes, target)
    resident = min(blocks * tile.threads, 256)
    idle = 1 + 0.4 * max(0.0, 1 - resident / 256)
    fixed = 24 / tile.k * (1 / (tile.thread_m * tile.thread_n) + 0.02)
    return (per_step + fixed) * steps * waste * lanes_waste * rows_waste * idle
