"""Compiles the kernels that a benchmark will need on all cores, before anything is timed."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from kronop.bench.patterns import Case
from kronop.core.operation import AnyOperation
from kronop.cpus import cpu_count
from kronop.errors import KronopError
from kronop.families.ksparse.api import gradient_arguments, sparse_arguments
from kronop.progress import Progress
from kronop.tensors import Tensor


def compile_all(cases: Sequence[Case], device: str) -> None:
    """Plans one case after another, while threads compile the kernels of the cases before.

    Failures are ignored here: they are reported when the case is measured.
    """
    with ThreadPoolExecutor(cpu_count()) as pool:
        jobs = []
        with Progress(len(cases), "planning") as progress:
            for case in cases:
                jobs += [pool.submit(_serve, *item) for item in _operations(case, device)]
                progress.advance()
        with Progress(len(jobs), "compiling") as progress:
            for job in jobs:
                job.result()
                progress.advance()


def _operations(case: Case, device: str) -> Iterator[tuple[AnyOperation, int, int]]:
    """(operation, rows, index of the GPU) of all products that a case makes.

    Their tensors are only allocated; no memory is written.
    """
    import torch

    is_last, (a, b, c, d) = case.layout == "last", case.pattern.sizes

    def empty(*shape: int) -> Tensor:
        return torch.empty(shape, dtype=getattr(torch, case.dtype), device=device)

    def matrix(features: int) -> Tensor:
        return empty(features, case.batch) if is_last else empty(case.batch, features)

    # A problem that does not fit in memory or has no kernel will fail the same way when measured.
    with contextlib.suppress(KronopError, RuntimeError, MemoryError):
        x, weight = matrix(case.pattern.inputs), empty(a, b, c, d)
        made: list[Any] = [sparse_arguments(x, [weight], is_last)]
        if case.backward:
            g = matrix(case.pattern.outputs)
            made.append(sparse_arguments(g, [weight.transpose(1, 2)], is_last))
            if device == "cuda":
                made.append(gradient_arguments(x, g, (a, b, c, d), batch_last=is_last))
        for arguments in made:
            yield arguments.operation, arguments.size, arguments.device.index


def _serve(operation: AnyOperation, rows: int, device: int) -> None:
    with contextlib.suppress(KronopError):
        operation.serve(operation.plan_for(rows, device))
