"""gemkm and gekmm over many ranks, on DTensors or on the local tensors of a group."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor, Partial, Placement, Replicate, Shard

from kronop.descriptions.shared import beta_beside
from kronop.distributed import agreement, checks, columns, exchange, planning
from kronop.distributed.checks import Call
from kronop.distributed.steps import Choice, Problem, Way
from kronop.errors import ArgumentError
from kronop.families.kron.api import factors_of
from kronop.families.kron.description import Side
from kronop.torch import autocasting
from kronop.torch import gemkm as alone


def gemkm(
    x: torch.Tensor,
    factors: Sequence[torch.Tensor],
    alpha: float = 1.0,
    beta: float | None = None,
    z: torch.Tensor | None = None,
    *,
    group: dist.ProcessGroup | None = None,
    columns: bool = False,
    output: str = "standard",
) -> torch.Tensor:
    """alpha x (F1 x ... x FN) + beta z, of an x that is spread over many ranks.

    Every rank of the group or mesh calls this, with equal factors and scalars. At the first call
    with shapes and types that are new, that is compared; later values are not. Differentiable once,
    in x, every factor and z. `torch.compile` breaks the graph here.

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
        With "any", of split columns, what costs least: (M, Q) split along rows, of local tensors
        rank r's neighbours as `torch.chunk` numbers them; or (M, Q) as with "standard"; or, where
        there are fewer rows than ranks, (M, Q1 ... Qs, Q(s+1) ... QN), split along its last
        dimension, of which `flatten(1)` has the standard order.

        Gradients of factors that are local tensors are added up over the ranks that share columns;
        of a DTensor x over all ranks that have a share of it.

    Raises:
        ArgumentError: shapes or splits that do not fit, or ranks that call for other products.
        ElementTypeError: types that do not fit.
        DeviceError: a rank ended, or did not answer in the time that its group allows.

    Example:
        >>> import torch, kronop.distributed
        >>> generator = torch.manual_seed(0)
        >>> rows, factors = torch.randn(3, 16), [torch.randn(4, 4), torch.randn(4, 4)]
        >>> y = kronop.distributed.gemkm(rows, factors)  # other ranks have other rows: no exchange
        >>> bool(torch.allclose(y, rows @ torch.kron(*factors), atol=1e-5))
        True
        >>> # Under torchrun, each rank has an equal share of the columns of the same rows:
        >>> share = rows.chunk(ranks, dim=1)[rank]  # doctest: +SKIP
        >>> y = kronop.distributed.gemkm(share, factors, columns=True)  # doctest: +SKIP
    """
    planning.check_output(output)
    factors = list(factors_of(factors, Side.Right))
    _check(x, factors, z, columns, left=False)
    return _product(x, factors, alpha, beta, z, group, columns, output=output)


def gekmm(
    factors: Sequence[torch.Tensor],
    x: torch.Tensor,
    alpha: float = 1.0,
    beta: float | None = None,
    z: torch.Tensor | None = None,
    *,
    group: dist.ProcessGroup | None = None,
    columns: bool = False,
) -> torch.Tensor:
    """alpha (F1 x ... x FN) x + beta z, of an x that is spread over many ranks.

    As `gemkm`, with rows for columns: x is (K, M), K the product of the factors' columns, and of
    local tensors with `columns` each rank has neighbouring rows of it: what the factors contract.

    Args:
        factors: (P, Q) tensors, the same on all ranks, or DTensors.
        x: (K, M), spread over ranks as the transpose of `gemkm`'s.
        alpha, beta, z, group, columns: as of `gemkm`.

    Returns:
        With x's placements, or the local share of (P, M), P the product of the factors' rows.

    Raises:
        ArgumentError, ElementTypeError, DeviceError: as of `gemkm`.

    Example:
        >>> import torch, kronop.distributed
        >>> generator = torch.manual_seed(0)
        >>> factors, x = [torch.randn(4, 4), torch.randn(4, 4)], torch.randn(16, 3)
        >>> y = kronop.distributed.gekmm(factors, x)  # other ranks have other columns: no exchange
        >>> bool(torch.allclose(y, torch.kron(*factors) @ x, atol=1e-5))
        True
        >>> # Under torchrun, each rank has an equal share of the rows of the same columns:
        >>> share = x.chunk(ranks)[rank]  # doctest: +SKIP
        >>> y = kronop.distributed.gekmm(factors, share, columns=True)  # doctest: +SKIP
    """
    factors = list(factors_of(factors, Side.Left))
    _check(x, factors, z, columns, left=True)
    turned = [item.mT for item in factors]
    source = None if z is None else z.mT
    return _product(x.mT, turned, alpha, beta, source, group, columns, left=True).mT


def _check(
    x: torch.Tensor,
    factors: Sequence[torch.Tensor],
    z: torch.Tensor | None,
    columns: bool,
    *,
    left: bool,
) -> None:
    """Refuses what does not fit with the shapes that the caller gave."""
    checks.check_tensors(x=x, z=z, **{f"factors[{at}]": it for at, it in enumerate(factors)})
    checks.check_factors(factors)
    if isinstance(x, DTensor) or not columns:
        checks.check_whole(x, factors, z, left=left)


@torch.compiler.disable  # type: ignore[untyped-decorator]
def _product(
    x: torch.Tensor,
    factors: Sequence[torch.Tensor],
    alpha: float,
    beta: float | None,
    z: torch.Tensor | None,
    group: dist.ProcessGroup | None,
    columns: bool,
    *,
    output: str = "standard",
    left: bool = False,
) -> torch.Tensor:
    beta = beta_beside(z, beta)
    _check_source(output, z, beta)
    if autocasting.is_casting(x.device.type):
        kind = torch.get_autocast_dtype(x.device.type)
        x, z, *factors = autocasting.cast_to(kind, [x, z, *factors])
    call = Call(
        x=x,
        factors=factors,
        alpha=alpha,
        beta=beta if beta else None,
        z=z if beta else None,
        ordered=output == "standard",
        left=left,
    )
    with torch.autocast(x.device.type, enabled=False):
        if isinstance(x, DTensor):
            return _spread(call)
        checks.check_local(call.factors, x)
        if not columns:
            return _alone(call)
        group = checks.group_of(group)
        shared = [exchange.all_reduced_gradient(item, [group]) for item in factors]
        return _shared(dataclasses.replace(call, factors=shared), [group], call.signature)


def _check_source(output: str, z: torch.Tensor | None, beta: float) -> None:
    if z is None and beta:
        hint = "pass z, or leave beta out"
        raise ArgumentError("beta", expected="none without z", got=beta, hint=hint)
    if output == "any" and z is not None:
        raise ArgumentError(
            "z",
            expected="None with output='any', which may be split in another way",
            got="a tensor",
            hint="add it afterwards, or ask for output='standard'",
        )


def _alone(call: Call) -> torch.Tensor:
    """Of whole rows."""
    return alone(call.x, call.factors, alpha=call.alpha, beta=call.beta, z=call.z)


def _spread(call: Call) -> torch.Tensor:
    """Of a DTensor."""
    x, mesh = call.x, call.x.device_mesh
    placements = tuple(_placement(item, x.dim()) for item in x.placements)
    _check_spread(x, call.z, placements)
    last = Shard(x.dim() - 1)
    after = tuple(Shard(1) if item == last else item for item in placements)
    local = dataclasses.replace(
        call,
        x=x.to_local(),
        factors=[_replicated(item, x, placements) for item in call.factors],
        z=None if call.z is None else call.z.redistribute(mesh, after).to_local(),
    )
    checks.check_local(local.factors, local.x)
    if last in placements:
        at = placements.index(last)
        _check_even(call, mesh.size(at))
        others = [mesh.get_group(dim) for dim in range(mesh.ndim) if dim != at]
        groups = [mesh.get_group(at), *others]
        # All ranks have to choose alike, and DTensors count the ranks of later dimensions last.
        even = x.shape[0] % _ranks_along(mesh, placements, Shard(0)) == 0
        local = dataclasses.replace(local, ordered=call.ordered or not even)
        told = f"{call.signature} of placements {placements} over {tuple(mesh.shape)}"
        rows_split = Shard(0) not in placements[at:]
        found = _shared(local, groups, told, rows_split=rows_split, whole=tuple(x.shape))
    else:
        whole = dataclasses.replace(local, x=local.x.flatten(1) if x.dim() == 3 else local.x)
        found = _alone(whole)
    columns = math.prod(q for _, q in local.shapes)
    shape: tuple[int, ...] = (x.shape[0], columns)
    if found.dim() == 3:
        shape = (x.shape[0], found.shape[1], columns // found.shape[1])
        after = tuple(Shard(2) if item == Shard(1) else item for item in after)
    elif not call.ordered and found.shape[1] == columns:
        after = tuple(Shard(0) if item == Shard(1) else item for item in after)
    return DTensor.from_local(
        found, mesh, after, run_check=False, shape=shape, stride=_strides(shape)
    )


def _check_even(call: Call, ranks: int) -> None:
    """Raises ArgumentError where columns are not split evenly; the message says what would be."""
    if call.x.shape[-1] % ranks and call.x.dim() == 2:
        grid, size = (1, ranks), call.x.element_size()
        problem = Problem(m=call.x.shape[0], shapes=call.shapes, grid=grid, element_bytes=size)
        next(planning.choices(problem))


def _ranks_along(mesh: DeviceMesh, placements: Sequence[Placement], placement: Placement) -> int:
    return math.prod(mesh.size(at) for at, item in enumerate(placements) if item == placement)


def _placement(item: Placement, dims: int) -> Placement:
    """With a dimension that counts from the front."""
    return Shard(item.dim % dims) if isinstance(item, Shard) else item


def _check_spread(x: DTensor, z: torch.Tensor | None, placements: Sequence[Placement]) -> None:
    if z is not None and not isinstance(z, DTensor):
        hint = "distribute it like x"
        raise ArgumentError("z", expected="a DTensor, as x is", got=type(z).__name__, hint=hint)
    last = Shard(x.dim() - 1)
    fine = all(item in (Shard(0), last, Replicate()) for item in placements)
    shown = "Shard(0)", f"Shard({x.dim() - 1})"
    if not fine or placements.count(last) > 1:
        raise ArgumentError(
            "placements of x",
            expected=f"{shown[0]}, {shown[1]} or Replicate(), {shown[1]} at most once",
            got=tuple(placements),
            hint="redistribute x, or take a mesh whose dimension for columns is one",
        )


def _replicated(factor: torch.Tensor, x: DTensor, placements: Sequence[Placement]) -> torch.Tensor:
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


def _shared(
    call: Call,
    groups: Sequence[dist.ProcessGroup],
    signature: str,
    *,
    rows_split: bool = True,
    whole: Sequence[int] | None = None,
) -> torch.Tensor:
    """Of columns that the ranks of the first group share; those of the others have other rows.

    Args:
        whole: the shape of the DTensor x; None of a local tensor.
    """
    agreement.check(groups, signature, call.scalars, call.factors)
    group, ranks = groups[0], dist.get_world_size(groups[0])
    checks.check_operands(call, ranks)
    if call.x.dim() == 3:
        choice = Choice(way=Way.Digits, outer=checks.outer_digits(call, ranks, whole))
        work = columns.Work(choice=choice, group=group, alpha=call.alpha, ordered=True)
        return _added(columns.product_of_split(work, call.x, call.factors), call)
    problem = checks.problem_of(call, ranks)
    choice = planning.best(dataclasses.replace(problem, rows_split=rows_split))
    if choice.way is Way.Alone:
        return _alone(call)
    work = columns.Work(choice=choice, group=group, alpha=call.alpha, ordered=call.ordered)
    x = call.x.contiguous() if problem.by_rows else call.x
    return _added(columns.product(work, x, call.factors), call)


def _added(found: torch.Tensor, call: Call) -> torch.Tensor:
    if call.z is None:
        return found
    beta = call.beta or 0.0
    return found.add_(call.z, alpha=beta if found.is_floating_point() else int(beta))
