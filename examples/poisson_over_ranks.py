"""Poisson's equation on a cube for many right-hand sides, which no rank could hold alone.

    python examples/poisson_over_ranks.py
    torchrun --nproc-per-node 4 examples/poisson_over_ranks.py --points 32

The operator is L x I x I + I x L x I + I x I x L, with L the second differences along an edge. With
L = V diag(w) V', the solution is (V x V x V) ((V x V x V)' f / (w_i + w_j + w_k)): two Kronecker
products. Columns are split over the ranks. The first product leaves its result where one exchange
brings it: split along the right-hand sides, if there are as many as ranks. Then the second one
needs no exchange.
"""

from __future__ import annotations

import argparse
import os

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Replicate, Shard, distribute_tensor

import kronop.distributed


def begin() -> str:
    """Joins the ranks that torchrun started, or is the only one; returns the kind of device."""
    device = "cuda" if torch.cuda.is_available() else "cpu"
    backend = "nccl" if device == "cuda" else "gloo"
    if "RANK" in os.environ:
        dist.init_process_group(backend)
    else:
        dist.init_process_group(backend, store=dist.HashStore(), rank=0, world_size=1)
    if device == "cuda":
        torch.cuda.set_device(dist.get_rank() % torch.cuda.device_count())
    return device


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
    """|A u - f| / |f|, with A applied digit by digit."""
    one = torch.eye(len(second_differences), dtype=f.dtype, device=second_differences.device)
    applied = -f
    for at in range(3):
        factors = [one, one, one]
        factors[at] = second_differences
        applied = applied + kronop.distributed.gemkm(u, factors)
    return float((applied.full_tensor().norm() / f.full_tensor().norm()).cpu())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--points", type=int, default=16, help="points of an edge of the cube")
    parser.add_argument("--sides", type=int, default=8, help="right-hand sides")
    options = parser.parse_args()
    device = begin()
    mesh = init_device_mesh(device, (dist.get_world_size(),))
    n = options.points
    step = torch.full((n - 1,), -1.0, dtype=torch.float64)
    edge = 2 * torch.eye(n, dtype=torch.float64) + step.diag(1) + step.diag(-1)
    edge = (edge * (n + 1) ** 2).to(device)
    torch.manual_seed(0)
    f = torch.randn(options.sides, n**3, dtype=torch.float64, device=device)
    f = distribute_tensor(f, mesh, [Shard(1)])
    u = solve(f, edge)
    error = residual(u, f, edge)
    if dist.get_rank() == 0:
        ranks = dist.get_world_size()
        print(f"{options.sides} x {n}^3 points over {ranks} rank{'s' * (ranks > 1)}:", end=" ")
        print(f"relative residual {error:.1e}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
