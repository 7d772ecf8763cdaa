"""Times of products over the ranks that `torchrun` starts, beside what they are made of.

`torchrun --nproc-per-node 2 -m kronop.distributed.bench` prints a table, of milliseconds in
float32: medians over repetitions, of the slowest rank. "On H200s" is what a plan says of these.
"""

from __future__ import annotations

import argparse
import functools
import math
import os
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Sequence

import torch
import torch.distributed as dist

import kronop.distributed
from kronop.distributed import planning
from kronop.distributed.steps import Problem
from kronop.errors import ArgumentError
from kronop.families.kron.command import shape_of
from kronop.progress import Progress

_DEFAULTS = {
    "cuda": ["1024:8^6", "1024:16^5", "64:64^4", "1024:32^4"],
    "cpu": ["256:8^5", "64:16^4", "256:32^3"],
}
_EXAMPLES = """\
examples:
  torchrun --nproc-per-node 2 -m kronop.distributed.bench                   several products
  torchrun --nproc-per-node 8 -m kronop.distributed.bench 64:8^4 1024:32^4  these
"""
# A benchmark, although it lives with what it measures.
_HEAD = (
    "rows:shape",
    "one rank",
    "rows split",
    "columns split",
    "on H200s",
    "any",
    "on H200s",
    "one exchange",
    "forward and backward",
    "of rows",
)


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__.splitlines()[0] if __doc__ else None,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        epilog=_EXAMPLES,
    )
    parser.add_argument("shapes", nargs="*", metavar="M:SHAPE", help="as 1024:16^5; float32")
    parser.add_argument("--repeats", type=int, default=7, help="of each measurement (default: 7)")
    options = parser.parse_args(argv)
    if "RANK" not in os.environ:
        parser.error(
            "start it by torchrun: torchrun --nproc-per-node 2 -m kronop.distributed.bench"
        )
    cuda = torch.cuda.is_available()
    device = "cuda" if cuda else "cpu"
    texts = options.shapes or _DEFAULTS[device]
    try:
        for text in texts:
            _check(text, int(os.environ["WORLD_SIZE"]))
    except ArgumentError as error:
        parser.error(str(error))
    if cuda:
        torch.cuda.set_device(int(os.environ.get("LOCAL_RANK", "0")))
    dist.init_process_group("nccl" if cuda else "gloo")
    try:
        _print(texts, device, options.repeats)
    finally:
        dist.destroy_process_group()
    return 0


def _print(texts: Sequence[str], device: str, repeats: int) -> None:
    """Prints the table, and draws a bar where that is a terminal, on the first rank alone."""
    is_first = dist.get_rank() == 0
    with Progress(len(texts), "products", shown=is_first) as progress:
        for at, line in enumerate(table(texts, device, repeats)):
            if at >= 2:  # Behind the two lines of the heading.
                progress.advance()
            if is_first:
                progress.print(line)


def _check(text: str, ranks: int) -> None:
    """Raises ArgumentError where ranks can't share this product."""
    rows, shapes = shape_of(text)
    next(planning.choices(_problem(rows or ranks, shapes, ranks, ordered=True)))
    if rows is not None and rows < ranks:
        hint = "each rank multiplies some rows where rows are split"
        raise ArgumentError(f"rows of {text}", expected=f"{ranks} at least", got=rows, hint=hint)


def table(texts: Sequence[str], device: str, repeats: int) -> Iterator[str]:
    """Lines of a table; float32, milliseconds. Every rank has to ask for all of them."""
    yield "| " + " | ".join(_HEAD) + " |"
    yield "| " + " | ".join("---" for _ in _HEAD) + " |"
    clock = functools.partial(_median, device, repeats)
    for text in texts:
        rows, shapes = shape_of(text)
        figures = _measured(rows or dist.get_world_size(), shapes, clock, device)
        yield f"| {text} | " + " | ".join(f"{item:.3g}" for item in figures) + " |"


def _measured(
    m: int,
    shapes: Sequence[tuple[int, int]],
    clock: Callable[[Callable[[], object]], float],
    device: str,
) -> list[float]:
    ranks, rank = dist.get_world_size(), dist.get_rank()
    torch.manual_seed(0)
    factors = [torch.randn(p, q, device=device) / math.sqrt(p) for p, q in shapes]
    x = torch.randn(m, math.prod(p for p, _ in shapes), device=device)
    run = functools.partial(kronop.distributed.gemkm, factors=factors)
    local, rows = x.chunk(ranks, 1)[rank].contiguous(), x.chunk(ranks)[rank].contiguous()
    one = clock(lambda: run(x))
    received = torch.empty_like(local)
    return [
        one,
        clock(lambda: run(rows)),
        clock(lambda: run(local, columns=True)),
        _planned(m, shapes, ranks, ordered=True),
        clock(lambda: run(local, columns=True, output="any")),
        _planned(m, shapes, ranks, ordered=False),
        clock(lambda: dist.all_to_all_single(received, local)),
        clock(_step(local, factors, columns=True)),
        clock(_step(rows, factors, columns=False)),
    ]


def _planned(m: int, shapes: Sequence[tuple[int, int]], ranks: int, *, ordered: bool) -> float:
    problem = _problem(m, shapes, ranks, ordered=ordered)
    return planning.planned(problem, kronop.distributed.H200_HOSTS).seconds * 1e3


def _problem(m: int, shapes: Sequence[tuple[int, int]], ranks: int, *, ordered: bool) -> Problem:
    grid = (1, ranks)
    return Problem(m=m, shapes=tuple(shapes), grid=grid, element_bytes=4, ordered=ordered)


def _step(
    x: torch.Tensor, factors: Sequence[torch.Tensor], *, columns: bool
) -> Callable[[], object]:
    """A product and the gradients of all operands."""
    inputs = [item.detach().clone().requires_grad_() for item in (x, *factors)]

    def step() -> object:
        found = kronop.distributed.gemkm(inputs[0], inputs[1:], columns=columns)
        return torch.autograd.grad(found, inputs, torch.ones_like(found))

    return step


def _median(device: str, repeats: int, call: Callable[[], object]) -> float:
    call()
    took = [_once(device, call) for _ in range(repeats)]
    slowest = torch.tensor(statistics.median(took), device=device)
    dist.all_reduce(slowest, op=dist.ReduceOp.MAX)
    return float(slowest)


def _once(device: str, call: Callable[[], object]) -> float:
    dist.barrier()
    if device == "cpu":
        start = time.perf_counter()
        call()
        return (time.perf_counter() - start) * 1e3
    torch.cuda.synchronize()
    first, last = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    first.record()
    call()
    last.record()
    torch.cuda.synchronize()
    return float(first.elapsed_time(last))


if __name__ == "__main__":
    sys.exit(main())
