"""Poisson's equation on a cube for many right-hand sides, split over processes or GPUs.

    pip install -e '.[torch]'
    python examples/poisson_over_ranks.py                 (starts two ranks itself)
    torchrun --nproc-per-node 4 examples/poisson_over_ranks.py --points 32

The operator is L x I x I + I x L x I + I x I x L, with L the second differences along an edge. With
L = V diag(w) V', the solution is (V x V x V) ((V x V x V)' f / (w_i + w_j + w_k)): two Kronecker
products. Columns, the points of the cube, are split over the ranks, so that none holds a whole
right-hand side. The first product leaves its result where one exchange brings it: split along the
right-hand sides, if there are as many as ranks. Then the second one needs no exchange. It prints

    ranks: 2 on cpu; 8 right-hand sides of 16^3 points
    relative residual 2.3e-15

where |A u - f| / |f| would be about 1 for a wrong u. docs/tutorials/many-gpus.md explains it.
"""

from __future__ import annotations

import argparse
import os
import tempfile
from pathlib import Path

import torch
import torch.distributed as dist
import torch.multiprocessing
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Replicate, Shard, distribute_tensor

import kronop.distributed

BACKENDS = {"cuda": "nccl", "cpu": "gloo"}


def device_type() -> str:
    return "cuda" if torch.cuda.is_available() else "cpu"


def start(options: argparse.Namespace) -> None:
    """Starts the ranks, on this machine; a single one is this process itself."""
    print(f"ranks: {options.ranks} on {device_type()};", end=" ")
    print(f"{options.sides} right-hand sides of {options.points}^3 points", flush=True)
    with tempfile.TemporaryDirectory() as folder:
        meet = Path(folder) / "ranks"
        if options.ranks == 1:
            join(0, options, meet)
        else:
            # They share the cores, as ranks that torchrun starts do.
            os.environ.setdefault("OMP_NUM_THREADS", "1")
            torch.multiprocessing.spawn(join, (options, meet), nprocs=options.ranks)


def join(rank: int, options: argparse.Namespace, meet: Path) -> None:
    store = dist.FileStore(str(meet), options.ranks)
    backend = BACKENDS[device_type()]
    dist.init_process_group(backend, store=store, rank=rank, world_size=options.ranks)
    work(options)


def solve(f: torch.Tensor, second_differences: torch.Tensor) -> torch.Tensor:
    """u of f, both (right-hand sides, points^3) with split columns."""
    w, v = torch.linalg.eigh(second_differences)
    split = kronop.distributed.gemkm(f, [v, v, v], output="any")
    sums = (w[:, None, None] + w[:, None] + w).reshape(split.shape[1:])
    # Split as the columns of `split` are, if these are.
    along = [Shard(item.dim - 1) if item.dim else Replicate() for item in split.placements]
    scaled = split / distribute_tensor(sums, f.device_mesh, along)
    return kronop.distributed.gemkm(scaled, [v.mT] * 3)


def residual(u: torch.Tensor, f: torch.Tensor, second_differences: torch.Tensor) -> float:
    """|A u - f| / |f|, with A applied digit by digit; the check alone gathers whole tensors."""
    one = torch.eye(len(second_differences), dtype=f.dtype, device=second_differences.device)
    whole = f.full_tensor()
    rest = -whole
    for at in range(3):
        factors = [one, one, one]
        factors[at] = second_differences
        rest = rest + kronop.distributed.gemkm(u, factors).full_tensor()
    return float(rest.norm() / whole.norm())


def work(options: argparse.Namespace) -> None:
    """What every rank does."""
    device, n = device_type(), options.points
    if device == "cuda":
        torch.cuda.set_device(dist.get_rank() % torch.cuda.device_count())
    mesh = init_device_mesh(device, (dist.get_world_size(),))
    step = torch.full((n - 1,), -1.0, dtype=torch.float64)
    edge = 2 * torch.eye(n, dtype=torch.float64) + step.diag(1) + step.diag(-1)
    edge = (edge * (n + 1) ** 2).to(device)
    torch.manual_seed(0)
    f = torch.randn(options.sides, n**3, dtype=torch.float64, device=device)
    f = distribute_tensor(f, mesh, [Shard(1)])
    error = residual(solve(f, edge), f, edge)
    if dist.get_rank() == 0:
        print(f"relative residual {error:.1e}")
    dist.destroy_process_group()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--points", type=int, default=16, help="points of an edge of the cube")
    parser.add_argument("--sides", type=int, default=8, help="right-hand sides")
    parser.add_argument("--ranks", type=int, default=2, help="to start, where torchrun does not")
    options = parser.parse_args()
    if "RANK" in os.environ:  # Set by torchrun.
        dist.init_process_group(BACKENDS[device_type()])
        work(options)
    else:
        start(options)


if __name__ == "__main__":
    main()
