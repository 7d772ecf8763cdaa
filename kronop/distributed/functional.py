"""gemkm and gekmm over many ranks, on DTensors or on the local tensors of a group."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.tensor import DTensor, Partial, Replicate, Shard

from kronop.descriptions.shared import beta_beside
from kronop.distributed import agreement, columns, exchange, planning
from kronop.distributed.steps import Choice, Problem, Way
from kronop.errors import ArgumentError, ElementTypeError, mismatch
from kronop.torch import gemkm as alone

_OUTPUTS = ("standard", "any")


@torch.compiler.disable  # type: ignore[untyped-decorator]
def gemkm(
    x: Any,
    factors: Sequence[Any],
    *,
    alpha: float = 1.0,
    beta: float | None = None,
    z: Any = None,
    group: Any = None,
    columns: bool = False,
    output: str = "standard",
) -> Any:
    """alpha x (F1 x ... x FN) + beta z, of an x that is spread over many ranks.

    Every rank of the group or mesh calls this, with equal factors and scalars; at the first call of
    a signature that is checked. Differentiable once, in x, every factor and z. `torch.compile`
    breaks the graph here.

    Args:
        x: (M, K), K the product of the factors' rows: a DTensor whose rows, columns or both are
            split over its mesh, `Shard(0)` and `Shard(1)`; of each dimension of the mesh, one of
            them or `Replicate()`. Or what a product with "any" gave, (M, A, B) with `Shard(2)`,
            whose result is (M, Q) in the standard order. Or a local tensor: some rows, or, with
            `columns`, as many neighbouring columns as every other rank of the group has.
        factors: (P, Q) tensors, the same on all ranks, or DTensors.
        alpha, beta: numbers; beta needs `z`, and `z` a beta.
        z: like the result, in the standard order; read only where beta is not 0.
        group: of local tensors, the ranks that share rows; all ranks where None.
        columns: of local tensors, whether columns are split over the group.
        output: "standard", or "any" for what costs least: results then stay split along digits
            that come later.

    Returns:
        With x's placements, or the local share of (M, Q), Q the product of the factors' columns.
        With "any", of split columns, what one exchange brings: (M, Q) split along rows, of local
        tensors rank r's neighbours as `torch.chunk` numbers them; where there are fewer rows than
        ranks, (M, Q1 ... Qs, Q(s+1) ... QN), split along its last dimension, of which `flatten(1)`
        has the standard order.

        Gradients of factors that are local tensors are added up over the ranks that share columns;
        of a DTensor x over all ranks that have a share of it.

    Raises:
        ArgumentError: shapes or splits that do not fit, or ranks that call for other products.
        ElementTypeError: types that do not fit.
        DeviceError: a rank ended, or did not answer in the time that its group allows.
    """
    beta = beta_beside(z, beta)
    _check_output(output, z)
    factors = list(factors)
    if isinstance(x, DTensor):
        return _spread(x, factors, alpha, beta, z, output)
    if not columns:
        return alone(x, factors, alpha=alpha, beta=beta, z=z)
    group = dist.group.WORLD if group is None else group
    factors = [exchange.all_reduced_gradient(item, [group]) for item in factors]
    return _local(x, factors, alpha, beta, z, group, output)


@torch.compiler.disable  # type: ignore[untyped-decorator]
def gekmm(
    factors: Sequence[Any],
    x: Any,
    *,
    alpha: float = 1.0,
    beta: float | None = None,
    z: Any = None,
    group: Any = None,
    columns: bool = False,
) -> Any:
    """alpha (F1 x ... x FN) x + beta z, of an x that is spread over many ranks.

    As `gemkm`, with rows for columns: x is (K, M), K the product of the factors' columns, and of
    local tensors with `columns` each rank has neighbouring rows of it: what the factors contract.
    """
    turned = [item.mT for item in factors]
    source = None if z is None else z.mT
    found = gemkm(x.mT, turned, alpha=alpha, beta=beta, z=source, group=group, columns=columns)
    return found.mT


def _check_output(output: str, z: Any) -> None:
    if output not in _OUTPUTS:
        expected = "one of " + ", ".join(map(repr, _OUTPUTS))
        hint = "'standard' keeps the placements of x"
        raise ArgumentError(mismatch("output", expected=expected, got=repr(output), hint=hint))
    if output == "any" and z is not None:
        raise ArgumentError(
            mismatch(
                "z",
                expected="None with output='any', whose order of columns is the plan's",
                got="a tensor",
                hint="add it afterwards, or ask for output='standard'",
            )
        )


def _spread(
    x: Any, factors: Sequence[Any], alpha: float, beta: float | None, z: Any, output: str
) -> Any:
    """Of a DTensor."""
    mesh = x.device_mesh
    placements = tuple(_placement(item, x.dim()) for item in x.placements)
    _check_spread(x, placements)
    last = Shard(x.dim() - 1)
    factors = [_replicated(item, x, placements) for item in factors]
    after = tuple(Shard(1) if item == last else item for item in placements)
    source = None if z is None else z.redistribute(mesh, after).to_local()
    local = x.to_local()
    if last not in placements:
        local = alone(local.flatten(1), factors, alpha=alpha, beta=beta, z=source)
    else:
        at = placements.index(last)
        group = mesh.get_group(at)
        if x.dim() == 3:
            local = _of_split(local, factors, alpha, beta, source, group, output)
        else:
            rows_split = Shard(0) not in placements[at:]  # DTensors count its ranks last.
            local = _local(local, factors, alpha, beta, source, group, output, rows_split)
    columns = math.prod(item.shape[1] for item in factors)
    shape: tuple[int, ...] = (x.shape[0], columns)
    if local.dim() == 3:
        shape = (x.shape[0], local.shape[1], columns // local.shape[1])
        after = tuple(Shard(2) if item == Shard(1) else item for item in after)
    elif output == "any" and local.shape[1] == columns:
        after = tuple(Shard(0) if item == Shard(1) else item for item in after)
    return DTensor.from_local(
        local, mesh, after, run_check=False, shape=shape, stride=_strides(shape)
    )


def _placement(item: Any, dims: int) -> Any:
    """With a dimension that counts from the front."""
    return Shard(item.dim % dims) if isinstance(item, Shard) else item


def _check_spread(x: Any, placements: Sequence[Any]) -> None:
    if x.dim() not in (2, 3):
        hint = "reshape it; leading dimensions are rows"
        expected = "(M, K), or (M, A, B) of a product with output='any'"
        raise ArgumentError(mismatch("x", expected=expected, got=tuple(x.shape), hint=hint))
    last = Shard(x.dim() - 1)
    fine = all(item in (Shard(0), last, Replicate()) for item in placements)
    if not fine or placements.count(last) > 1:
        raise ArgumentError(
            mismatch(
                "placements of x",
                expected=f"Shard(0), {last} or Replicate(), {last} at most once",
                got=tuple(placements),
                hint="redistribute x, or take a mesh whose dimension for columns is one",
            )
        )


def _replicated(factor: Any, x: Any, placements: Sequence[Any]) -> Any:
    """This rank's copy of a factor, whose gradients are added up where shares of x are."""
    mesh = x.device_mesh
    if isinstance(factor, DTensor) and factor.device_mesh == mesh:
        every = [Replicate()] * mesh.ndim
        sums = [Partial() if isinstance(item, Shard) else Replicate() for item in placements]
        return factor.redistribute(mesh, every).to_local(grad_placements=sums)
    if isinstance(factor, DTensor):
        factor = factor.full_tensor()
    groups = [mesh.get_group(at) for at, item in enumerate(placements) if isinstance(item, Shard)]
    return exchange.all_reduced_gradient(factor, groups)


def _strides(shape: Sequence[int]) -> tuple[int, ...]:
    found = [1]
    for size in reversed(shape[1:]):
        found.insert(0, found[0] * size)
    return tuple(found)


def _local(
    x: Any,
    factors: Sequence[Any],
    alpha: float,
    beta: float | None,
    z: Any,
    group: Any,
    output: str,
    rows_split: bool = True,
) -> Any:
    """Of a share of columns."""
    if z is not None and not beta:
        z, beta = None, None
    by_rows = not (x.dim() == 2 and x.mT.is_contiguous()) or x.is_contiguous()
    agreement.check(group, _signature(x, factors, alpha, beta, output, by_rows), factors)
    ranks = dist.get_world_size(group)
    problem = _problem(x, factors, ranks, z, output == "standard")
    problem = dataclasses.replace(problem, by_rows=by_rows, rows_split=rows_split)
    choice = planning.best(problem)
    if choice.way is Way.Alone:
        return alone(x, factors, alpha=alpha, beta=beta, z=z)
    work = columns.Work(choice=choice, group=group, alpha=alpha, ordered=problem.ordered)
    found = columns.product(work, x.contiguous() if by_rows else x, factors)
    return _added(found, z, beta)


def _added(found: Any, z: Any, beta: float | None) -> Any:
    if z is None:
        return found
    if found.is_floating_point():
        return found.add_(z, alpha=beta)
    return found + (z.double() * beta).round().to(found.dtype)


def _of_split(
    x: Any,
    factors: Sequence[Any],
    alpha: float,
    beta: float | None,
    z: Any,
    group: Any,
    output: str,
) -> Any:
    """Of a share of inner digits, (m, A, B / ranks)."""
    if z is not None and not beta:
        z, beta = None, None
    agreement.check(group, _signature(x, factors, alpha, beta, output, True), factors)
    ranks, outer = dist.get_world_size(group), _outer_digits(x, factors)
    results = math.prod(int(item.shape[1]) for item in factors[:outer])
    if results % ranks:
        raise ArgumentError(
            mismatch(
                "columns of the first factors",
                expected=f"a multiple of {ranks} ranks in all",
                got=results,
                hint="redistribute x, flatten it, and multiply that",
            )
        )
    choice = Choice(way=Way.Digits, outer=outer)
    work = columns.Work(choice=choice, group=group, alpha=alpha, ordered=True)
    found = columns.product_of_split(work, x, factors)
    return _added(found, z, beta)


def _outer_digits(x: Any, factors: Sequence[Any]) -> int:
    """How many factors contract the digits that are whole on each rank."""
    rows, at = 1, 0
    while rows < x.shape[1] and at < len(factors):
        rows, at = rows * int(factors[at].shape[0]), at + 1
    if rows != x.shape[1] or not 0 < at < len(factors):
        raise ArgumentError(
            mismatch(
                "x, split along its last digits",
                expected="(M, A, B) with A the product of the first factors' rows",
                got=f"{tuple(x.shape)} with factors of {[int(f.shape[0]) for f in factors]} rows",
                hint="flatten(1) gives the standard order",
            )
        )
    return at


def _signature(
    x: Any,
    factors: Sequence[Any],
    alpha: float,
    beta: float | None,
    output: str,
    by_rows: bool,
) -> str:
    shapes = ", ".join(str(tuple(item.shape)) for item in factors)
    kinds = {str(item.dtype).removeprefix("torch.") for item in factors}
    return (
        f"x {tuple(x.shape)} of {str(x.dtype).removeprefix('torch.')}, its"
        f" {'rows' if by_rows else 'columns'} contiguous, factors {shapes} of"
        f" {', '.join(sorted(kinds))}, alpha={alpha}, beta={beta}, output={output!r}"
    )


def _problem(x: Any, factors: Sequence[Any], ranks: int, z: Any, ordered: bool) -> Problem:
    """Of checked shapes; the same on every rank, whose shares are equal."""
    for at, item in enumerate(factors):
        if item.dtype != x.dtype:
            raise ElementTypeError(
                mismatch(
                    f"element type of factors[{at}]",
                    expected=f"{x.dtype}, that of x",
                    got=item.dtype,
                    hint="convert it to the type that is expected",
                )
            )
    shapes = tuple((int(item.shape[0]), int(item.shape[1])) for item in factors)
    problem = Problem(
        m=int(x.shape[0]),
        shapes=shapes,
        grid=(1, ranks),
        element_bytes=x.element_size(),
        ordered=ordered,
    )
    if x.dim() != 2 or x.shape[1] * ranks != problem.columns:
        expected = f"(M, {problem.columns / ranks:g}), {problem.columns} columns over {ranks} ranks"
        hint = "K is the product of the factors' rows"
        raise ArgumentError(
            mismatch("shape of x", expected=expected, got=tuple(x.shape), hint=hint)
        )
    results = (int(x.shape[0]), problem.results // ranks)
    if z is not None and tuple(z.shape) != results:
        hint = "z is like the result"
        raise ArgumentError(mismatch("shape of z", expected=results, got=tuple(z.shape), hint=hint))
    return problem
