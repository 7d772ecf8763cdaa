"""Products over many ranks: processes of one machine run the cases of `ranks`."""

from __future__ import annotations

import multiprocessing
from collections import defaultdict
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")

from kronop.compiler import host_backend  # noqa: E402
from tests.distributed import ranks  # noqa: E402

_SECONDS = 240


def _run(count: int, backend: str, folder: Path) -> dict[str, list[str]]:
    """What went wrong in each case, on each rank that told it."""
    context = multiprocessing.get_context("spawn")
    queue = context.Queue()
    processes = [
        context.Process(
            target=ranks.main,
            args=(rank, count, str(folder / "store"), queue, backend, host_backend._FLAGS),
        )
        for rank in range(count)
    ]
    for process in processes:
        process.start()
    found: dict[str, list[str]] = defaultdict(list)
    told = count * len(ranks.CASES)
    if backend == "gloo":
        told -= 1  # One rank ends in the last case.
    try:
        for _ in range(told):
            rank, name, trouble = queue.get(timeout=_SECONDS)
            found[name].append(f"rank {rank}: {trouble}" if trouble else "")
    finally:
        for process in processes:
            process.kill()
            process.join()
    return found


def _check(found: dict[str, list[str]]) -> None:
    assert set(found) == set(ranks.CASES)
    wrong = {name: max(told) for name, told in found.items() if any(told)}
    assert not wrong, "\n".join(f"{name}: {told}" for name, told in wrong.items())


@pytest.mark.parametrize("count", [2, 4])
def test_ranks_on_cpus(count: int, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    if count == 2 and not request.config.getoption("--full"):
        pytest.skip("four ranks run the same cases; --full runs both")
    _check(_run(count, "gloo", tmp_path))


@pytest.mark.cuda
@pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs two GPUs")
def test_two_ranks_on_gpus(tmp_path: Path) -> None:
    _check(_run(2, "nccl", tmp_path))
